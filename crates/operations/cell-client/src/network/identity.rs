//! The cell's own identity: tickets that a holder of the cell's key makes for itself (`-localauth`).

use super::now;
use anyhow::Result;
use base::{SecurityLevel, UnixTime};
use parking_lot::Mutex;
use rx_security::rxkad::RXKAD_INDEX;
use rx_security::{
    ClientHandshake, ClientSecurity, ConnectionFacts, KeyRing, KeySet, RxkadClient, SecurityError, Ticket,
    forge_local_ticket,
};
use std::sync::Arc;

/// Lifetime of a ticket in seconds. A ticket with its session key gives access to the whole cell, and the
/// session key has only 56 bits.
const TICKET_SECONDS: u32 = 3600;

/// Lifetime of a ticket for the volume service. Its calls may last for hours, and OpenAFS's servers drop the
/// packets of a connection whose ticket has expired.
const VOLUME_TICKET_SECONDS: u32 = 24 * 3600;

/// Age at which a ticket is replaced for new connections. [`super::renewing`] replaces connections in time.
const REUSE_SECONDS: u32 = 900;

/// Service ID of the volume service.
const VOLUME_SERVICE: u16 = 4;

/// Opens connections as the cell's superuser, with fresh tickets under the newest key.
pub struct CellIdentity {
    keys: Arc<KeyRing>,
    level: SecurityLevel,
    /// The latest tickets: for the volume service, and for others.
    tickets: Mutex<[Option<Held>; 2]>,
}

/// A ticket in use.
struct Held {
    client: RxkadClient,
    made: UnixTime,
    keys: Arc<KeySet>,
}

impl CellIdentity {
    /// Creates an identity that follows the keys of a ring.
    ///
    /// # Errors
    /// If the keys make no valid ticket.
    pub fn new(keys: Arc<KeyRing>, level: SecurityLevel) -> Result<CellIdentity> {
        check_keys(&keys.current())?;
        Ok(CellIdentity { keys, level, tickets: Mutex::default() })
    }

    fn client(&self, service: u16, now: UnixTime) -> Result<RxkadClient, SecurityError> {
        let is_volume_service = service == VOLUME_SERVICE;
        let keys = self.keys.current();
        let mut tickets = self.tickets.lock();
        let held = &mut tickets[usize::from(is_volume_service)];
        let is_fresh = |held: &&Held| {
            Arc::ptr_eq(&held.keys, &keys) && now >= held.made && now.0 - held.made.0 < REUSE_SECONDS
        };
        if let Some(held) = held.as_ref().filter(is_fresh) {
            return Ok(held.client.clone());
        }
        let seconds = if is_volume_service { VOLUME_TICKET_SECONDS } else { TICKET_SECONDS };
        let ticket = ticket(&keys, UnixTime(now.0.saturating_add(seconds)))?;
        let client = RxkadClient::from_ticket(ticket, self.level)?;
        *held = Some(Held { client: client.clone(), made: now, keys });
        Ok(client)
    }
}

impl ClientSecurity for CellIdentity {
    fn index(&self) -> u8 {
        RXKAD_INDEX
    }

    fn start(&self, connection: ConnectionFacts) -> Result<Box<dyn ClientHandshake>, SecurityError> {
        self.client(connection.service_id, now())?.start(connection)
    }
}

/// Checks that the keys make a valid ticket.
///
/// # Errors
/// If they do not.
pub fn check_keys(keys: &KeySet) -> Result<()> {
    Ok(ticket(keys, now()).map(drop)?)
}

fn ticket(keys: &KeySet, expires: UnixTime) -> Result<Ticket, SecurityError> {
    // About one in 2^52 DES keys is weak and rejected; a second failure is practically impossible.
    forge_local_ticket(keys, rand::random(), rand::random(), expires)
        .or_else(|_| forge_local_ticket(keys, rand::random(), rand::random(), expires))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rx_security::ServiceKey;

    fn keys(fill: u8) -> KeySet {
        let mut keys = KeySet::new();
        keys.insert(1, ServiceKey::new(18, &[fill; 32]).unwrap());
        keys
    }

    #[test]
    fn tickets_end_and_are_replaced_before_they_do() {
        let ring = Arc::new(KeyRing::new(keys(1)));
        let identity = CellIdentity::new(ring.clone(), SecurityLevel::Encrypted).unwrap();
        let ticket = |service, at| identity.client(service, UnixTime(at)).unwrap().ticket().clone();
        let first = ticket(52, 1_000_000);
        assert_eq!(first.expires, UnixTime(1_003_600));
        assert_eq!(ticket(VOLUME_SERVICE, 1_000_000).expires, UnixTime(1_086_400));
        assert_eq!(ticket(52, 1_000_899).bytes, first.bytes);
        let second = ticket(52, 1_000_900);
        assert_eq!(second.expires, UnixTime(1_004_500));
        ring.replace(keys(2));
        assert_ne!(ticket(52, 1_000_901).bytes, second.bytes);
        assert!(CellIdentity::new(Arc::default(), SecurityLevel::Encrypted).is_err());
    }
}
