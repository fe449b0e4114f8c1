//! Which call a thread serves: what a watcher wants to know of it besides what [`events::current`] notes.

use events::current;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;

/// The procedures of a service: numbers and names, sorted.
type Procedures = &'static [(u32, &'static str)];

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The host.
    pub host: IpAddr,
    /// The user.
    pub user: String,
}

/// What a thread serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// The service; empty if the thread serves no call.
    pub service: &'static str,
    /// The procedure; empty as long as it is not known.
    pub procedure: &'static str,
    /// The first volume that the call used; 0 for none.
    pub volume: u32,
    /// Who calls, if that was told.
    pub client: Option<Client>,
}

thread_local! {
    static SERVICE: Cell<(&'static str, Procedures)> = const { Cell::new(("", &[])) };
    static OPCODE: Cell<u32> = const { Cell::new(0) };
    static CLIENT: RefCell<Option<Client>> = const { RefCell::new(None) };
    static IS_CLIENT_KNOWN: Cell<bool> = const { Cell::new(false) };
}

/// A call of this service begins on this thread: what was noted of the last one is forgotten.
pub fn begin(service: &'static str, procedures: Procedures) {
    current::begin();
    SERVICE.set((service, procedures));
    OPCODE.set(0);
    if IS_CLIENT_KNOWN.replace(false) {
        CLIENT.take();
    }
}

/// The call is one of this procedure.
pub fn opcode(opcode: u32) {
    OPCODE.set(opcode);
}

/// Who calls; only worth telling while somebody watches.
pub fn set_client(client: Client) {
    CLIENT.replace(Some(client));
    IS_CLIENT_KNOWN.set(true);
}

/// What this thread serves.
pub fn current() -> Current {
    let (service, procedures) = SERVICE.get();
    let found = procedures.binary_search_by_key(&OPCODE.get(), |(opcode, _)| *opcode);
    let procedure = found.map_or("", |index| procedures[index].1);
    Current { service, procedure, volume: current::noted().volume, client: CLIENT.with_borrow(Clone::clone) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_thread_knows_what_it_serves() {
        begin("AFS", &[(130, "FetchData"), (132, "FetchStatus")]);
        assert_eq!(current(), Current { service: "AFS", ..Current::default() });
        opcode(132);
        events::current::volume(7);
        let client = Client { host: Ipv4Addr::LOCALHOST.into(), user: "ann".to_owned() };
        set_client(client.clone());
        let now = Current { service: "AFS", procedure: "FetchStatus", volume: 7, client: Some(client) };
        assert_eq!(current(), now);
        opcode(9);
        assert_eq!(current().procedure, "", "no such procedure");
        begin("VL", &[]);
        assert_eq!(current(), Current { service: "VL", ..Current::default() });
    }
}
