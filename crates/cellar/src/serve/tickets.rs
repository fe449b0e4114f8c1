//! Tickets that are refused are said in the log, with what to do: the client's user sees a number at best.

use super::refusals::Refusals;
use base::UnixTime;
use rx_security::{
    ConnectionFacts, Enctype, RxkadServer, SecurityError, ServerHandshake, ServerSecurity, Verified,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The security class does not learn the peer's address, so that a reason is said once for all peers.
const ANY_PEER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// rxkad that says which tickets it refuses.
pub(super) struct ObservedRxkad {
    pub(super) rxkad: RxkadServer,
    pub(super) refusals: Arc<Refusals>,
}

impl ServerSecurity for ObservedRxkad {
    fn index(&self) -> u8 {
        self.rxkad.index()
    }

    fn needs_challenge(&self) -> bool {
        self.rxkad.needs_challenge()
    }

    fn accept(&self, connection: ConnectionFacts, nonce: [u8; 16]) -> Box<dyn ServerHandshake> {
        let handshake = self.rxkad.accept(connection, nonce);
        Box::new(ObservedHandshake { handshake, connection, refusals: self.refusals.clone() })
    }
}

struct ObservedHandshake {
    handshake: Box<dyn ServerHandshake>,
    connection: ConnectionFacts,
    refusals: Arc<Refusals>,
}

impl ServerHandshake for ObservedHandshake {
    fn challenge(&mut self) -> Vec<u8> {
        self.handshake.challenge()
    }

    fn verify(&mut self, response: &[u8], now: UnixTime) -> Result<Verified, SecurityError> {
        self.handshake.verify(response, now).inspect_err(|error| self.note(error))
    }
}

impl ObservedHandshake {
    fn note(&self, error: &SecurityError) {
        let Some(remedy) = remedy(error) else { return };
        if self.refusals.is_news(ANY_PEER, remedy) {
            let ConnectionFacts { epoch, connection_id, service_id, .. } = self.connection;
            tracing::warn!(
                connection = format!("{epoch:08x}/{connection_id:08x}"),
                service = service_id,
                "a ticket is refused: {error}; {remedy}"
            );
        }
    }
}

/// What can be done about a refusal; `None` for what is damaged or forged.
fn remedy(error: &SecurityError) -> Option<&'static str> {
    let is_weak = |number| Enctype::from_number(number).is_none_or(Enctype::is_weak);
    match error {
        SecurityError::TicketLength { .. } => {
            Some("let the KDC leave the PAC out of tickets for this service (NO_AUTH_DATA_REQUIRED)")
        }
        SecurityError::UnknownKey { enctype, .. } if is_weak(*enctype) => Some(
            "give the service a key of a type that is not broken, or allow it with `security.weak_enctypes`",
        ),
        SecurityError::UnknownKey { .. } => {
            Some("add the key version to the key files (`asetkey add`), or let the client get a new ticket")
        }
        SecurityError::Expired { .. } => Some("let the client get a new ticket, and compare the clocks"),
        SecurityError::NotYetValid { .. } => {
            Some("synchronise the clocks of this server and the KDC, or raise `security.clock_skew_seconds`")
        }
        SecurityError::DottedName => Some(
            "rename the principal, or set `security.dotted_principals`, which makes a.b and a/b one user",
        ),
        SecurityError::BadTicket(_) => Some("compare the key files with the KDC's key of this version"),
        SecurityError::LevelTooLow { .. } => Some("let the client encrypt, or lower `security.levels`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SecurityLevel;
    use rx_security::{ClientSecurity, KeySet, LocalRealms, RxkadClient, ServiceKey, forge_local_ticket};

    const CONNECTION: ConnectionFacts =
        ConnectionFacts { epoch: 0x8000_0001, connection_id: 4, service_id: 1, security_index: 2 };

    /// What a server with keys of one type says of a ticket under the only key of another.
    fn refused(has: i32, used: i32, expires: UnixTime) -> Option<&'static str> {
        let keys = |enctype: i32| {
            let length = Enctype::from_number(enctype).unwrap().key_bytes();
            let mut keys = KeySet::new();
            keys.insert(1, ServiceKey::new(enctype, &vec![7; length]).unwrap());
            keys
        };
        let rxkad = RxkadServer::new(Arc::new(keys(has)), LocalRealms::of_cell("t.example"));
        let refusals: Arc<Refusals> = Arc::default();
        let mut accept = ObservedRxkad { rxkad, refusals: refusals.clone() }.accept(CONNECTION, [1; 16]);
        let ticket = forge_local_ticket(&keys(used), [0x5b; 8], [2; 16], expires).unwrap();
        let client = RxkadClient::from_ticket(ticket, SecurityLevel::Clear).unwrap();
        let mut connect = client.start(CONNECTION).unwrap();
        let response = connect.respond(&accept.challenge(), [0; 4]).unwrap();
        let remedy = accept.verify(&response, UnixTime(1000)).err().and_then(|error| remedy(&error));
        assert!(remedy.is_none_or(|remedy| !refusals.is_news(ANY_PEER, remedy)), "it is said");
        remedy
    }

    #[test]
    fn refusals_name_their_remedy() {
        assert_eq!(refused(18, 18, UnixTime(2000)), None);
        assert!(refused(18, 18, UnixTime(900)).unwrap().contains("new ticket"));
        assert!(refused(18, 17, UnixTime(2000)).unwrap().contains("asetkey"));
        for weak in [1, 16, 23] {
            assert!(refused(18, weak, UnixTime(2000)).unwrap().contains("weak_enctypes"), "{weak}");
        }
    }
}
