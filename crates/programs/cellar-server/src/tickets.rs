//! Counts and logs rejected tickets with a remedy, because the client's user sees an error number at best.

use super::refusals::Refusals;
use events::Refusal;
use rx_security::{
    Attempt, ConnectionFacts, Enctype, RxkadServer, SecurityError, ServerHandshake, ServerSecurity,
};
use std::sync::Arc;

/// rxkad that reports rejected tickets, and tickets that start in the future.
pub(super) struct ObservedRxkad {
    pub(super) rxkad: RxkadServer,
    pub(super) refusals: Arc<Refusals>,
    /// Time from which a ticket's start in the future is logged, in seconds.
    pub(super) clock_warning_seconds: u32,
}

impl ServerSecurity for ObservedRxkad {
    fn index(&self) -> u8 {
        self.rxkad.index()
    }

    fn needs_challenge(&self) -> bool {
        self.rxkad.needs_challenge()
    }

    fn accept(&self, connection: ConnectionFacts, nonce: [u8; 16]) -> Box<dyn ServerHandshake> {
        self.rxkad.accept(connection, nonce)
    }

    fn observe(&self, attempt: &Attempt<'_>) {
        match attempt.outcome {
            Ok(verified) => {
                let ahead = verified.begins.map_or(0, |begins| begins.0.saturating_sub(attempt.now.0));
                self.warn_of_clocks(attempt, ahead);
            }
            Err(error) => self.refused(attempt, error),
        }
    }
}

impl ObservedRxkad {
    fn refused(&self, attempt: &Attempt<'_>, error: &SecurityError) {
        let refusal = refusal(error);
        let peer = attempt.peer.ip();
        if !self.refusals.refuse(peer, refusal, rx::now()) {
            return;
        }
        let ConnectionFacts { epoch, connection_id, service_id, .. } = attempt.connection;
        tracing::warn!(
            %peer,
            reason = refusal.name(),
            connection = format!("{epoch:08x}/{connection_id:08x}"),
            service = service_id,
            "a ticket is refused: {error}; {}",
            refusal.remedy().unwrap_or_default()
        );
    }

    fn warn_of_clocks(&self, attempt: &Attempt<'_>, ahead_seconds: u32) {
        let peer = attempt.peer.ip();
        if ahead_seconds < self.clock_warning_seconds.max(1) || !self.refusals.is_clock_news(peer, rx::now())
        {
            return;
        }
        tracing::warn!(
            %peer,
            ahead_seconds,
            "a ticket begins in the future; synchronise the clocks of this server and the KDC before it is refused \
             (`security.clock_skew_seconds`)"
        );
    }
}

/// Returns the reason under which an error is counted.
fn refusal(error: &SecurityError) -> Refusal {
    let is_weak = |number| Enctype::from_number(number).is_none_or(Enctype::is_weak);
    match error {
        SecurityError::TicketLength { .. } => Refusal::TicketLength,
        SecurityError::UnknownKey { enctype, .. } if is_weak(*enctype) => Refusal::WeakEnctype,
        SecurityError::UnknownKey { .. } => Refusal::UnknownKey,
        SecurityError::Expired { .. } => Refusal::Expired,
        SecurityError::NotYetValid { .. } => Refusal::NotYetValid,
        SecurityError::DottedName => Refusal::DottedPrincipal,
        SecurityError::BadTicket(_) => Refusal::BadTicket,
        SecurityError::LevelTooLow { .. } => Refusal::SecurityLevel,
        _ => Refusal::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{SecurityLevel, UnixTime};
    use rx_security::{ClientSecurity, KeySet, LocalRealms, RxkadClient, ServiceKey, forge_local_ticket};

    const CONNECTION: ConnectionFacts =
        ConnectionFacts { epoch: 0x8000_0001, connection_id: 4, service_id: 1, security_index: 2 };

    fn keys(enctype: i32) -> KeySet {
        let length = Enctype::from_number(enctype).unwrap().key_bytes();
        let mut keys = KeySet::new();
        keys.insert(1, ServiceKey::new(enctype, &vec![7; length]).unwrap());
        keys
    }

    /// Returns what a server with keys of one type counts for a ticket under the only key of another type.
    fn refused(has: i32, used: i32, expires: UnixTime) -> Option<Refusal> {
        let rxkad = RxkadServer::new(Arc::new(keys(has)), LocalRealms::of_cell("t.example"));
        let refusals: Arc<Refusals> = Arc::default();
        let class = ObservedRxkad { rxkad, refusals: refusals.clone(), clock_warning_seconds: 300 };
        let mut accept = class.accept(CONNECTION, [1; 16]);
        let ticket = forge_local_ticket(&keys(used), [0x5b; 8], [2; 16], expires).unwrap();
        let client = RxkadClient::from_ticket(ticket, SecurityLevel::Clear).unwrap();
        let mut connect = client.start(CONNECTION).unwrap();
        let response = connect.respond(&accept.challenge(), [0; 4]).unwrap();
        let (peer, now) = ("192.0.2.1:7001".parse().unwrap(), UnixTime(1000));
        let outcome = accept.verify(&response, now);
        let attempt = Attempt { connection: CONNECTION, peer, now, outcome: outcome.as_ref() };
        class.observe(&attempt);
        class.observe(&attempt);
        let figures = refusals.figures(rx::now());
        let (refusal, figures) = figures.first()?;
        assert_eq!((figures.refused, figures.hosts), (2, 1));
        assert!(!refusals.refuse(peer.ip(), *refusal, rx::now()), "it is logged");
        Some(*refusal)
    }

    #[test]
    fn refused_tickets_are_counted_by_reason() {
        assert_eq!(refused(18, 18, UnixTime(2000)), None);
        assert_eq!(refused(18, 18, UnixTime(900)), Some(Refusal::Expired));
        assert_eq!(refused(18, 17, UnixTime(2000)), Some(Refusal::UnknownKey));
        for weak in [1, 16, 23] {
            assert_eq!(refused(18, weak, UnixTime(2000)), Some(Refusal::WeakEnctype), "{weak}");
        }
    }

    #[test]
    fn a_kdc_whose_clock_is_ahead_is_warned_of_once() {
        let rxkad = RxkadServer::new(Arc::new(keys(18)), LocalRealms::of_cell("t.example"));
        let refusals: Arc<Refusals> = Arc::default();
        let class = ObservedRxkad { rxkad, refusals: refusals.clone(), clock_warning_seconds: 300 };
        let mut verified = rx_security::Null.accept(CONNECTION, [0; 16]).verify(&[], UnixTime(1000)).unwrap();
        let peer = |last: u8| std::net::SocketAddr::from(([192, 0, 2, last], 7001));
        for (last, begins, is_warned) in [(1, 1299, false), (2, 1300, true), (3, 900, false)] {
            verified.begins = Some(UnixTime(begins));
            let outcome = Ok(&verified);
            class.observe(&Attempt {
                connection: CONNECTION,
                peer: peer(last),
                now: UnixTime(1000),
                outcome,
            });
            assert_eq!(!refusals.is_clock_news(peer(last).ip(), rx::now()), is_warned, "{begins}");
        }
    }
}
