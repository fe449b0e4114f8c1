//! The table of servers: which addresses belong to the same machine.
//!
//! Entries refer to servers by their number in this table. A server that registered itself (VL_RegisterAddrs)
//! is identified by its UUID and has up to 15 addresses, the first of which is used in old calls. A server
//! that only appeared in an entry is identified by one address. The rules are those of OpenAFS. This module
//! does no I/O; the table is small and kept in memory.

use crate::entry::ServerNumber;
use crate::error::LocationError;
use base::HostUuid;
use base::limits::SERVER_ADDRESSES_MAX;
use std::net::Ipv4Addr;

/// Maximum number of servers in a cell (MAXSERVERID + 1).
pub const SERVERS_MAX: usize = 255;

/// A server, and how it is identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// Identified by the address in an entry.
    Address(Ipv4Addr),
    /// Registered itself under a UUID.
    Registered {
        /// Identifies the machine, whatever its addresses.
        uuid: HostUuid,
        /// Number of registrations, so that clients notice changes.
        uniquifier: i32,
        /// All addresses, the preferred one first.
        addresses: Vec<Ipv4Addr>,
    },
}

impl Server {
    /// Returns the address for calls that return only one; 0.0.0.0 if other registrations took all of them.
    pub fn first_address(&self) -> Ipv4Addr {
        self.addresses().first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// Returns all addresses.
    pub fn addresses(&self) -> &[Ipv4Addr] {
        match self {
            Server::Address(address) => std::slice::from_ref(address),
            Server::Registered { addresses, .. } => addresses,
        }
    }
}

/// Whether the address may be in the table. OpenAFS marks registered servers by addresses in 255.0.0.0/8, and
/// free numbers by 0.0.0.0.
fn is_possible(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && address.octets()[0] != 0xff
}

/// All servers by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers(Vec<Option<Server>>);

impl Servers {
    /// Returns the server with this number.
    pub fn get(&self, number: ServerNumber) -> Option<&Server> {
        self.0.get(usize::from(number.0))?.as_ref()
    }

    /// Returns all servers in ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ServerNumber, &Server)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(number, server)| Some((ServerNumber(number as u8), server.as_ref()?)))
    }

    /// Sets or clears the server with this number.
    pub(crate) fn set(&mut self, number: ServerNumber, server: Option<Server>) {
        let at = usize::from(number.0);
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = server;
    }

    /// Returns the server that has this address.
    pub fn by_address(&self, address: Ipv4Addr) -> Option<ServerNumber> {
        self.iter().find(|(_, server)| server.addresses().contains(&address)).map(|(number, _)| number)
    }

    /// Returns the registered server with this UUID.
    pub fn by_uuid(&self, wanted: HostUuid) -> Option<ServerNumber> {
        self.iter()
            .find(|(_, server)| matches!(server, Server::Registered { uuid, .. } if *uuid == wanted))
            .map(|(number, _)| number)
    }

    /// Returns the number of the server with this address; assigns one if the address is new.
    pub(crate) fn number_for(&mut self, address: Ipv4Addr) -> Result<ServerNumber, LocationError> {
        if let Some(number) = self.by_address(address) {
            return Ok(number);
        }
        if !is_possible(address) {
            return Err(LocationError::BadServer);
        }
        let number = self.free().ok_or(LocationError::BadServer)?;
        self.set(number, Some(Server::Address(address)));
        Ok(number)
    }

    fn free(&self) -> Option<ServerNumber> {
        (0..SERVERS_MAX as u8).map(ServerNumber).find(|&number| self.get(number).is_none())
    }

    /// Registers a server's addresses (VL_RegisterAddrs); returns the servers that changed.
    ///
    /// A known UUID gets the new addresses, which are taken from other registered servers if necessary; it
    /// may not take all addresses of another server. An unknown UUID replaces the one server that has some of
    /// the addresses. If several servers have some of them, the registration is ambiguous and is rejected.
    pub(crate) fn register(
        &mut self,
        uuid: HostUuid,
        addresses: &[Ipv4Addr],
    ) -> Result<Vec<ServerNumber>, LocationError> {
        let addresses = distinct(addresses);
        if addresses.is_empty() || uuid == HostUuid::default() {
            return Err(LocationError::OutOfRange);
        }
        let overlapping = self.overlapping(uuid, &addresses);
        match self.by_uuid(uuid) {
            Some(_) if overlapping.iter().any(|overlap| overlap.whole) => Err(LocationError::AddressConflict),
            Some(number) => Ok(self.reregister(number, uuid, addresses, &overlapping)),
            None => self.register_new(uuid, addresses, &overlapping),
        }
    }

    /// Returns the entries that would lose addresses if `uuid` registered `addresses`.
    pub fn displaced(&self, uuid: HostUuid, addresses: &[Ipv4Addr]) -> Vec<Displaced> {
        let addresses = distinct(addresses);
        let displaced = |server: &Server| {
            let theirs = match server {
                Server::Registered { uuid, .. } => Some(*uuid),
                Server::Address(_) => None,
            };
            let (named, others): (Vec<_>, Vec<_>) =
                server.addresses().iter().partition(|address| addresses.contains(address));
            let lost = if theirs == Some(uuid) { others.clone() } else { named };
            (!lost.is_empty()).then_some(Displaced { uuid: theirs, lost, others })
        };
        self.iter().filter_map(|(_, server)| displaced(server)).collect()
    }

    fn overlapping(&self, own: HostUuid, addresses: &[Ipv4Addr]) -> Vec<Overlap> {
        let is_own = |server: &Server| matches!(server, Server::Registered { uuid, .. } if *uuid == own);
        let overlap = |server: &Server| {
            let taken = server.addresses().iter().filter(|address| addresses.contains(address)).count();
            (taken > 0).then_some(taken == server.addresses().len())
        };
        self.iter()
            .filter(|(_, server)| !is_own(server))
            .filter_map(|(number, server)| Some(Overlap { number, whole: overlap(server)? }))
            .collect()
    }

    fn reregister(
        &mut self,
        number: ServerNumber,
        uuid: HostUuid,
        addresses: Vec<Ipv4Addr>,
        overlapping: &[Overlap],
    ) -> Vec<ServerNumber> {
        if self.get(number).is_some_and(|server| server.addresses() == addresses) {
            return Vec::new();
        }
        for overlap in overlapping {
            if let Some(Some(Server::Registered { uniquifier, addresses: theirs, .. })) =
                self.0.get_mut(usize::from(overlap.number.0))
            {
                theirs.retain(|address| !addresses.contains(address));
                *uniquifier = uniquifier.wrapping_add(1);
            }
        }
        self.put(number, uuid, addresses);
        overlapping.iter().map(|overlap| overlap.number).chain([number]).collect()
    }

    fn register_new(
        &mut self,
        uuid: HostUuid,
        addresses: Vec<Ipv4Addr>,
        overlapping: &[Overlap],
    ) -> Result<Vec<ServerNumber>, LocationError> {
        let number = match overlapping {
            [] => self.free().ok_or(LocationError::Full)?,
            [one] => one.number,
            _ => return Err(LocationError::AddressConflict),
        };
        self.put(number, uuid, addresses);
        Ok(vec![number])
    }

    fn put(&mut self, number: ServerNumber, uuid: HostUuid, addresses: Vec<Ipv4Addr>) {
        let before = match self.get(number) {
            Some(Server::Registered { uniquifier, .. }) => *uniquifier,
            _ => 0,
        };
        self.set(number, Some(Server::Registered { uuid, uniquifier: before.wrapping_add(1), addresses }));
    }

    /// Returns the server that a change of address concerns (VL_ChangeAddr), or the reason why the change is
    /// impossible.
    pub(crate) fn check_change(
        &self,
        old: Ipv4Addr,
        new: Option<Ipv4Addr>,
    ) -> Result<ServerNumber, LocationError> {
        let number = self.by_address(old).ok_or(LocationError::NoEntry)?;
        let Some(new) = new else {
            return Ok(number);
        };
        if !is_possible(new) {
            return Err(LocationError::BadServer);
        }
        if self.by_address(new).is_some_and(|other| other != number) {
            return Err(LocationError::AddressConflict);
        }
        match self.get(number) {
            // Registered servers change their addresses by registering again.
            Some(Server::Address(_)) => Ok(number),
            _ => Err(LocationError::NoEntry),
        }
    }
}

/// A table entry that would lose addresses to a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// UUID of the server; `None` if it never registered.
    pub uuid: Option<HostUuid>,
    /// The addresses that it would lose.
    pub lost: Vec<Ipv4Addr>,
    /// Its addresses that are not part of the registration.
    pub others: Vec<Ipv4Addr>,
}

/// A server that has some of the addresses being registered by another server.
struct Overlap {
    number: ServerNumber,
    /// Whether it has no other addresses.
    whole: bool,
}

/// Returns the valid addresses without duplicates, up to the limit.
fn distinct(addresses: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    for &address in addresses {
        if is_possible(address) && !found.contains(&address) && found.len() < SERVER_ADDRESSES_MAX {
            found.push(address);
        }
    }
    found
}
