//! What the calls that read are asked, in the database's terms.

use crate::wire::WireEntry;
use afs_idl::vl::{ListAddrByAttributes, ListByAttributes, NVldbEntry, address_mask, list_mask};
use base::VolumeId;
use std::net::Ipv4Addr;
use vldb::{
    EntryNumber, Filter, Location, LocationError, Locations, NamePattern, SERVERS_MAX, Server, ServerNumber,
    Servers, VolumeQuery,
};

/// Entries in one answer of ListAttributesN2 (VLDBALLOCCOUNT).
const STEP_ENTRIES: usize = 500;

fn filter(attributes: &ListByAttributes) -> Filter {
    let has = |bit: u32| attributes.mask & bit != 0;
    Filter {
        server: has(list_mask::SERVER).then_some(Ipv4Addr::from_bits(attributes.server)),
        partition: has(list_mask::PARTITION).then_some(attributes.partition),
        flags: has(list_mask::FLAG).then_some(attributes.flag as u32),
    }
}

/// The volume that is asked for, if it is one; the other attributes do not matter then.
fn single(attributes: &ListByAttributes) -> Option<VolumeQuery> {
    let wanted = attributes.mask & list_mask::VOLUME_ID != 0;
    wanted.then_some(VolumeQuery::Id(VolumeId(attributes.volume_id)))
}

/// All entries with the attributes.
pub(crate) fn list<E: WireEntry>(
    locations: &Locations,
    attributes: &ListByAttributes,
) -> Result<Vec<E>, LocationError> {
    let found = match single(attributes) {
        Some(query) => vec![locations.find(&query, None)?],
        None => locations.list(&filter(attributes))?,
    };
    let servers = locations.servers();
    Ok(found.iter().map(|location| E::new(location, &servers)).collect())
}

/// A step of the list of entries with the attributes and a name that matches, and the index to go
/// on with, -1 for none.
pub(crate) fn list_matching(
    locations: &Locations,
    attributes: &ListByAttributes,
    pattern: Option<&NamePattern>,
    start: i32,
) -> Result<(Vec<NVldbEntry>, i32), LocationError> {
    if single(attributes).is_some() {
        return Ok((list(locations, attributes)?, -1));
    }
    let Some(previous) = entry_number(locations, start) else {
        return Ok((Vec::new(), -1));
    };
    let step = locations.list_matching(&filter(attributes), pattern, previous, STEP_ENTRIES)?;
    let servers = locations.servers();
    let entries = step.matches.iter().map(|found| NVldbEntry {
        match_index: i32::from(found.kind) << 16 | found.site as i32,
        ..NVldbEntry::new(&found.location, &servers)
    });
    Ok((entries.collect(), step.next.map_or(-1, |next| next.0 as i32)))
}

/// The entry that a client says was the previous one; `None` if it cannot have been.
fn entry_number(locations: &Locations, wire: i32) -> Option<EntryNumber> {
    u32::try_from(wire).ok().map(EntryNumber).filter(|&number| locations.is_listable(number))
}

/// The entry behind the previous one: how many follow it about, its index, and itself.
pub(crate) fn next<E: WireEntry>(
    locations: &Locations,
    previous: i32,
) -> Result<(i32, i32, E), LocationError> {
    let Some(previous) = entry_number(locations, previous) else {
        return Ok((-1, 0, E::default()));
    };
    let found = locations.next(previous)?;
    Ok(match found {
        Some((number, location, rest)) => {
            (rest as i32, number.0 as i32, E::new(&location, &locations.servers()))
        }
        None => (0, 0, E::default()),
    })
}

/// One entry.
pub(crate) fn wire<E: WireEntry>(locations: &Locations, location: &Location) -> E {
    E::new(location, &locations.servers())
}

/// The registered server that is asked for. Exactly one of the ways to name it has to be chosen.
pub(crate) fn server<'s>(
    servers: &'s Servers,
    wanted: &ListAddrByAttributes,
) -> Result<&'s Server, LocationError> {
    let number = match wanted.mask & (address_mask::IP_ADDRESS | address_mask::INDEX | address_mask::UUID) {
        address_mask::IP_ADDRESS => servers.by_address(Ipv4Addr::from_bits(wanted.ip_address)),
        address_mask::INDEX => Some(server_number(wanted.index)?),
        address_mask::UUID => servers.by_uuid(wanted.uuid),
        _ => return Err(LocationError::BadMask(wanted.mask)),
    };
    let server = number.and_then(|number| servers.get(number));
    server.filter(|server| matches!(server, Server::Registered { .. })).ok_or(LocationError::NoEntry)
}

/// Indices count from 1; the last number cannot be asked for (MAXSERVERID).
fn server_number(index: i32) -> Result<ServerNumber, LocationError> {
    match index {
        1.. if (index as usize) < SERVERS_MAX => Ok(ServerNumber((index - 1) as u8)),
        _ => Err(LocationError::OutOfRange),
    }
}
