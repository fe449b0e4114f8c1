//! Entries in the location database that conflict with a registration.

use afs_idl::vl;
use base::{AbortCode, HostUuid};
use cell_client::{CellClient, Interface};
use std::fmt;
use std::net::Ipv4Addr;

/// A conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another server's entry has one of this server's addresses.
    Address {
        /// The address in conflict.
        address: Ipv4Addr,
        /// UUID of this server.
        own: HostUuid,
        /// UUID of the other server.
        other: HostUuid,
    },
    /// The entry with this server's UUID has addresses that this machine does not have.
    Uuid {
        /// UUID of the entry.
        uuid: HostUuid,
        /// Addresses that this machine does not have.
        addresses: Vec<Ipv4Addr>,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::Address { address, own, other } => write!(
                f,
                "the address {address} of this server ({own}) is registered for server {other}: exclude it \
                on one of them (NetRestrict, or `announce` in cellar.toml), or remove the old entry with \
                `vos changeaddr`"
            ),
            Conflict::Uuid { uuid, addresses } => write!(
                f,
                "the UUID {uuid} of this server is registered with addresses that this machine does not \
                have, {addresses:?}: if a server is there, the sysid file was copied; remove it on the new \
                machine and restart its server"
            ),
        }
    }
}

/// Returns the entries that conflict with registering `addresses` for `uuid`, as far as a location server
/// knows.
pub fn conflicts(cell: &CellClient, uuid: HostUuid, addresses: &[Ipv4Addr]) -> Vec<Conflict> {
    let mut found = Vec::new();
    for &address in addresses {
        let mask = vl::address_mask::IP_ADDRESS;
        let wanted = vl::ListAddrByAttributes { mask, ip_address: address.into(), ..Default::default() };
        let entry = ask(cell, wanted).ok();
        if let Some(other) = entry.map(|entry| entry.uuid).filter(|other| *other != uuid) {
            found.push(Conflict::Address { address, own: uuid, other });
        }
    }
    let foreign = foreign(cell, uuid, addresses);
    if !foreign.is_empty() {
        found.push(Conflict::Uuid { uuid, addresses: foreign });
    }
    found
}

/// Returns the addresses in the entry of `uuid` that are not in `addresses`, as far as a location server knows.
pub(super) fn foreign(cell: &CellClient, uuid: HostUuid, addresses: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
    let registered = registered(cell, uuid).unwrap_or_default();
    registered.into_iter().filter(|address| !addresses.contains(address)).collect()
}

/// Returns the addresses in the entry of `uuid`; none if there is no entry.
///
/// # Errors
/// If no location server answers.
pub(super) fn registered(cell: &CellClient, uuid: HostUuid) -> Result<Vec<Ipv4Addr>, AbortCode> {
    let mask = vl::address_mask::UUID;
    match ask(cell, vl::ListAddrByAttributes { mask, uuid, ..Default::default() }) {
        Ok(entry) => Ok(entry.addresses.into_iter().map(Ipv4Addr::from).collect()),
        Err(AbortCode::VL_NOENT) => Ok(Vec::new()),
        Err(code) => Err(code),
    }
}

fn ask(cell: &CellClient, attributes: vl::ListAddrByAttributes) -> Result<vl::GetAddrsUReply, AbortCode> {
    let request = vl::GetAddrsURequest { attributes };
    cell.database(Interface::Locations, |vl| vl::get_addrs_u(vl, &request))
}
