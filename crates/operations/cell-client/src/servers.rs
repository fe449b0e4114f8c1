//! The addresses of file servers.
//!
//! A server can have several addresses, which the location servers know: those of its machine, or those of the nodes of a
//! cluster. If one does not answer, calls go to another one, and for a while later calls do so, too.

use super::{Interface, Network};
use afs_idl::{ClientConnection, cellar, fs, vl, vol};
use base::AbortCode;
use events::catalogue::Class;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long an address that did not answer is used only if no other does.
const AVOIDED: Duration = Duration::from_secs(60);

/// For how long the location servers are not asked for a server's addresses again: nodes join and leave.
const KEPT: Duration = Duration::from_secs(60);

/// How a call may use the addresses of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is about the process at the address that was named.
    Named,
    /// Any address will do, but it is not known whether a call without an answer was executed, and it must not be twice.
    AnyOnce,
    /// Any address will do, also for a repetition.
    Any,
}

impl Reach {
    /// Returns how a call may be made.
    pub(super) fn of(interface: Interface, opcode: u32) -> Reach {
        match interface {
            Interface::Files => match fs::class(opcode) {
                Class::Fetch | Class::Status | Class::Store => Reach::Any,
                Class::Change | Class::Lock => Reach::AnyOnce,
                Class::Other => Reach::Named,
            },
            Interface::Volumes => of_volumes(opcode),
            Interface::Cellar | Interface::CellarVolumes => of_cellar(opcode),
            Interface::Protection | Interface::Locations => Reach::Named,
        }
    }
}

fn of_volumes(opcode: u32) -> Reach {
    match opcode {
        vol::LIST_VOLUMES
        | vol::X_LIST_VOLUMES
        | vol::LIST_ONE_VOLUME
        | vol::X_LIST_ONE_VOLUME
        | vol::LIST_PARTITIONS
        | vol::X_LIST_PARTITIONS
        | vol::PARTITION_INFO
        | vol::PARTITION_INFO64
        | vol::GET_FLAGS
        | vol::GET_NAME
        | vol::GET_STATUS
        | vol::GET_SIZE
        | vol::DUMP
        | vol::DUMP_V2
        | vol::MONITOR => Reach::Any,
        _ => Reach::AnyOnce,
    }
}

/// The calls of Cellar's own service that are about volumes.
fn of_cellar(opcode: u32) -> Reach {
    match opcode {
        cellar::GET_SNAPSHOT_SPACE
        | cellar::GET_SNAPSHOT_POLICY
        | cellar::GET_DIRECTORY_TOTALS
        | cellar::LIST_SUBDIRECTORIES
        | cellar::GET_VOLUME_POLICY
        | cellar::GET_VOLUME_DEDUPLICATION
        | cellar::LIST_SNAPSHOTS => Reach::Any,
        cellar::CREATE_SNAPSHOT
        | cellar::REMOVE_SNAPSHOT
        | cellar::ROLL_BACK_VOLUME
        | cellar::SET_SNAPSHOT_POLICY
        | cellar::SET_VOLUME_POLICY
        | cellar::SET_VOLUME_DEDUPLICATION
        | cellar::PURGE_VOLUME_CACHE => Reach::AnyOnce,
        _ => Reach::Named,
    }
}

/// Whether a code says that nothing was heard from an address.
pub(super) fn is_unanswered(code: AbortCode) -> bool {
    matches!(code, AbortCode::RX_CALL_DEAD | AbortCode::RX_CALL_TIMEOUT | AbortCode::RX_CALL_IDLE)
}

/// What is known of the servers' addresses.
#[derive(Default)]
struct Known {
    /// All addresses of the server that has one, and when they were learned.
    all: HashMap<Ipv4Addr, (Instant, Vec<Ipv4Addr>)>,
    /// When an address did not answer.
    silent: HashMap<Ipv4Addr, Instant>,
}

impl Known {
    fn is_silent(&self, address: Ipv4Addr) -> bool {
        self.silent.get(&address).is_some_and(|since| since.elapsed() < AVOIDED)
    }

    /// Returns all addresses of the server at `named`, as far as they are known at all.
    fn addresses(&self, named: Ipv4Addr) -> &[Ipv4Addr] {
        self.all.get(&named).map_or(&[], |(_, all)| all)
    }

    /// Notes the addresses of the server at `named`. Without an answer, those before are kept as long as new ones: location
    /// servers that do not answer must not delay each call.
    fn learn(&mut self, named: Ipv4Addr, asked: Option<Vec<Ipv4Addr>>, now: Instant) {
        if let Some(all) = asked {
            self.all.insert(named, (now, all));
        } else if let Some((learned, _)) = self.all.get_mut(&named) {
            *learned = now;
        }
    }

    /// Whether the location servers have been asked for the addresses lately.
    fn is_recent(&self, named: Ipv4Addr, now: Instant) -> bool {
        self.all.get(&named).is_some_and(|(learned, _)| now.saturating_duration_since(*learned) < KEPT)
    }
}

/// Connections to all servers, by their addresses.
pub(super) struct Servers {
    network: Arc<dyn Network>,
    databases: Vec<Ipv4Addr>,
    /// No call is made under the lock.
    connections: Mutex<HashMap<(Ipv4Addr, Interface), Arc<dyn ClientConnection>>>,
    /// Guards what is known; no call is made under it.
    known: Mutex<Known>,
}

impl Servers {
    pub(super) fn new(network: Arc<dyn Network>, databases: Vec<Ipv4Addr>) -> Servers {
        Servers { network, databases, connections: Mutex::default(), known: Mutex::default() }
    }

    /// Returns the connection to an address, which is created once.
    pub(super) fn connection(&self, address: Ipv4Addr, interface: Interface) -> Arc<dyn ClientConnection> {
        let (service, port) = interface.service_and_port();
        let make = || self.network.connect(SocketAddr::from((address, port)), service);
        self.connections.lock().entry((address, interface)).or_insert_with(make).clone()
    }

    pub(super) fn forget_connections(&self) {
        self.connections.lock().clear();
    }

    /// Returns the connections to the file service at addresses that answer, and forgets all connections.
    pub(super) fn take_files(&self) -> Vec<Arc<dyn ClientConnection>> {
        let known = self.known.lock();
        let all = std::mem::take(&mut *self.connections.lock());
        let is_there = |(address, interface): &(Ipv4Addr, Interface)| {
            *interface == Interface::Files && !known.is_silent(*address)
        };
        all.into_iter().filter(|(key, _)| is_there(key)).map(|(_, connection)| connection).collect()
    }

    /// Returns the address to use for the server at `named`: another one if that did not answer a moment ago.
    pub(super) fn present(&self, named: Ipv4Addr) -> Ipv4Addr {
        let known = self.known.lock();
        if !known.is_silent(named) {
            return named;
        }
        let mut others = known.addresses(named).iter().copied();
        others.find(|address| !known.is_silent(*address)).unwrap_or(named)
    }

    /// Records that an address did not answer.
    pub(super) fn note_silence(&self, address: Ipv4Addr) {
        self.known.lock().silent.insert(address, Instant::now());
    }

    /// Returns an address of the server at `named` that was not tried; those that have not been silent lately come first. Asks the
    /// location servers for the addresses if they are not known, or not lately.
    pub(super) fn other(&self, named: Ipv4Addr, tried: &[Ipv4Addr]) -> Option<Ipv4Addr> {
        let is_recent = self.known.lock().is_recent(named, Instant::now());
        if !is_recent {
            let asked = self.ask(named);
            self.known.lock().learn(named, asked, Instant::now());
        }
        let known = self.known.lock();
        let untried = known.addresses(named).iter().copied().filter(|address| !tried.contains(address));
        untried.min_by_key(|address| known.is_silent(*address))
    }

    /// Returns all addresses of the server at `named`; `None` if no location server knows them.
    fn ask(&self, named: Ipv4Addr) -> Option<Vec<Ipv4Addr>> {
        let mask = vl::address_mask::IP_ADDRESS;
        let attributes = vl::ListAddrByAttributes { mask, ip_address: named.into(), ..Default::default() };
        let request = vl::GetAddrsURequest { attributes };
        self.databases.iter().find_map(|server| {
            let reply = vl::get_addrs_u(&*self.connection(*server, Interface::Locations), &request).ok()?;
            Some(reply.addresses.into_iter().map(Ipv4Addr::from).collect())
        })
    }
}

#[cfg(test)]
mod tests;
