//! Keys and tickets of the simulated cell.

use std::sync::Arc;

use base::SecurityLevel;
use rx_security::{
    ClientSecurity, KeySet, KeySource, LOCAL_TICKET_END_MAX, LocalRealms, Null, RxkadClient, RxkadServer,
    ServerSecurity, ServiceKey, forge_local_ticket,
};

/// Security class of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The null class.
    Null,
    /// rxkad at a given level.
    Rxkad(SecurityLevel),
    /// rxkad with a ticket that the server cannot decrypt.
    Impostor,
}

/// Returns a cell's key set: one key of 32 bytes with value `fill`. The servers' is `keys(7)`.
pub fn keys(fill: u8) -> KeySet {
    let mut keys = KeySet::new();
    keys.insert(3, ServiceKey::new(18, &[fill; 32]).expect("a key of the right length"));
    keys
}

/// Returns the classes that servers accept.
pub fn server_classes() -> Vec<Arc<dyn ServerSecurity>> {
    server_classes_with(Arc::new(keys(7)))
}

/// Like [`server_classes`], with replaceable keys.
pub fn server_classes_with(keys: Arc<dyn KeySource>) -> Vec<Arc<dyn ServerSecurity>> {
    let rxkad = RxkadServer::new(keys, LocalRealms::of_cell("sim.example"));
    vec![Arc::new(Null), Arc::new(rxkad)]
}

/// Returns a client's class; `None` is the null class.
pub fn client_class(class: Class) -> Option<Arc<dyn ClientSecurity>> {
    let (fill, level) = match class {
        Class::Null => return None,
        Class::Rxkad(level) => (7, level),
        Class::Impostor => (8, SecurityLevel::Encrypted),
    };
    let ticket = forge_local_ticket(&keys(fill), [0x5a; 8], [9; 16], LOCAL_TICKET_END_MAX).expect("a ticket");
    let client = RxkadClient::from_ticket(ticket, level).expect("a client");
    Some(Arc::new(client))
}
