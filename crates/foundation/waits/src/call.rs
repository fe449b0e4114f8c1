//! The call that a thread serves, as watchers and logged waits see it.

use events::parts;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;

/// Opcodes and names of a service's procedures, sorted.
type Procedures = &'static [(u32, &'static str)];

/// The client that makes a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// Address of the host.
    pub host: IpAddr,
    /// Name of the user.
    pub user: String,
}

/// The call that a thread serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// Name of the service; empty if the thread serves no call.
    pub service: &'static str,
    /// Name of the procedure; empty until it is known.
    pub procedure: &'static str,
    /// First volume that the call used; 0 for none.
    pub volume: u32,
    /// The client, if it was set.
    pub client: Option<Client>,
}

thread_local! {
    static SERVICE: Cell<(&'static str, Procedures)> = const { Cell::new(("", &[])) };
    static OPCODE: Cell<u32> = const { Cell::new(0) };
    static VOLUME: Cell<u32> = const { Cell::new(0) };
    static CLIENT: RefCell<Option<Client>> = const { RefCell::new(None) };
    static IS_CLIENT_KNOWN: Cell<bool> = const { Cell::new(false) };
}

/// Starts a call of this service on this thread and clears the state of the previous one.
pub fn begin(service: &'static str, procedures: Procedures) {
    parts::begin();
    SERVICE.set((service, procedures));
    OPCODE.set(0);
    VOLUME.set(0);
    if IS_CLIENT_KNOWN.replace(false) {
        CLIENT.take();
    }
}

/// Sets the call's procedure.
pub fn opcode(opcode: u32) {
    OPCODE.set(opcode);
}

/// Sets a volume that the call uses; only the first one counts.
pub fn set_volume(id: u32) {
    if VOLUME.get() == 0 {
        VOLUME.set(id);
    }
}

/// Sets the client of the call; only useful while a watcher is registered.
pub fn set_client(client: Client) {
    CLIENT.replace(Some(client));
    IS_CLIENT_KNOWN.set(true);
}

/// Returns the call that this thread serves.
pub fn current() -> Current {
    let (service, procedures) = SERVICE.get();
    let found = procedures.binary_search_by_key(&OPCODE.get(), |(opcode, _)| *opcode);
    let procedure = found.map_or("", |index| procedures[index].1);
    Current { service, procedure, volume: VOLUME.get(), client: CLIENT.with_borrow(Clone::clone) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_thread_knows_its_call() {
        begin("AFS", &[(130, "FetchData"), (132, "FetchStatus")]);
        assert_eq!(current(), Current { service: "AFS", ..Current::default() });
        opcode(132);
        set_volume(7);
        set_volume(8);
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
