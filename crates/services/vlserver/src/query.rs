//! Translates queries from the wire into those of the database.

use crate::wire::{WireEntry, abort_code};
use afs_idl::ReplyWriter;
use afs_idl::server::SMALL_REPLY_BYTES;
use afs_idl::vl::{ListAddrByAttributes, ListByAttributes, NVldbEntry, address_mask, list_mask};
use base::{AbortCode, VolumeId};
use std::net::Ipv4Addr;
use vldb::{
    EntryNumber, Filter, Location, LocationError, Locations, NamePattern, SERVERS_MAX, Server, ServerNumber,
    Servers, VolumeQuery,
};

/// Number of entries per reply of ListAttributesN2 (VLDBALLOCCOUNT).
const STEP_ENTRIES: usize = 500;

fn filter(attributes: &ListByAttributes) -> Filter {
    let has = |bit: u32| attributes.mask & bit != 0;
    Filter {
        server: has(list_mask::SERVER).then_some(Ipv4Addr::from_bits(attributes.server)),
        partition: has(list_mask::PARTITION).then_some(attributes.partition),
        flags: has(list_mask::FLAG).then_some(attributes.flag as u32),
    }
}

/// Returns the requested volume, if the query selects a single one; other attributes are then ignored.
fn single(attributes: &ListByAttributes) -> Option<VolumeQuery> {
    let wanted = attributes.mask & list_mask::VOLUME_ID != 0;
    wanted.then_some(VolumeQuery::Id(VolumeId(attributes.volume_id)))
}

/// Framing of a list of entries on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListForm {
    /// The number of entries comes first.
    Counted,
    /// A 1 precedes each entry, a 0 follows the last.
    Chained,
}

/// Writes the number of entries that match the attributes, followed by the entries.
pub(crate) fn write_list<E: WireEntry>(
    locations: &Locations,
    attributes: &ListByAttributes,
    form: ListForm,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), AbortCode> {
    let coded = |error: LocationError| abort_code(&error);
    if let Some(query) = single(attributes) {
        let found = locations.find(&query, None).map_err(coded)?;
        return EntryWriter::begin(1, form, reply)?.end([E::new(&found, &locations.servers())]);
    }
    let selection = locations.select(&filter(attributes)).map_err(coded)?;
    if selection.held_bytes() > SMALL_REPLY_BYTES {
        reply.hold(selection.held_bytes())?;
    }
    let servers = locations.servers();
    let mut writer = EntryWriter::begin(selection.len(), form, reply)?;
    selection.visit(|location| writer.entry(&E::new(&location, &servers)).map_err(Failure::Call)).map_err(
        |failure| match failure {
            Failure::Location(error) => coded(error),
            Failure::Call(code) => code,
        },
    )?;
    writer.end::<E>([])
}

/// Reason why a list ended early.
enum Failure {
    Location(LocationError),
    Call(AbortCode),
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Failure {
        Failure::Location(error)
    }
}

/// Writes a list of entries to a reply.
struct EntryWriter<'w, 's> {
    form: ListForm,
    reply: &'w mut ReplyWriter<'s>,
}

impl<'w, 's> EntryWriter<'w, 's> {
    /// Starts the reply with the number of entries, which is a separate field.
    fn begin(
        count: usize,
        form: ListForm,
        reply: &'w mut ReplyWriter<'s>,
    ) -> Result<EntryWriter<'w, 's>, AbortCode> {
        let count = count as u32;
        reply.put(&count)?;
        if form == ListForm::Counted {
            reply.put(&count)?;
        }
        Ok(EntryWriter { form, reply })
    }

    fn entry<E: WireEntry>(&mut self, entry: &E) -> Result<(), AbortCode> {
        if self.form == ListForm::Chained {
            self.reply.put(&true)?;
        }
        self.reply.put(entry)
    }

    /// Writes the last entries and ends the list.
    fn end<E: WireEntry>(mut self, last: impl IntoIterator<Item = E>) -> Result<(), AbortCode> {
        for entry in last {
            self.entry(&entry)?;
        }
        if self.form == ListForm::Chained { self.reply.put(&false) } else { Ok(()) }
    }
}

/// Returns one step of the list of entries that match the attributes and the pattern, and the index to
/// continue at (-1 at the end).
pub(crate) fn list_matching(
    locations: &Locations,
    attributes: &ListByAttributes,
    pattern: Option<&NamePattern>,
    start: i32,
) -> Result<(Vec<NVldbEntry>, i32), LocationError> {
    if let Some(query) = single(attributes) {
        let found = locations.find(&query, None)?;
        return Ok((vec![wire(locations, &found)], -1));
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

/// Returns the number of the previous entry as given by a client; `None` if no such entry was ever listed.
fn entry_number(locations: &Locations, wire: i32) -> Option<EntryNumber> {
    u32::try_from(wire).ok().map(EntryNumber).filter(|&number| locations.is_listable(number))
}

/// Returns the entry after the previous one: roughly how many follow it, its index, and the entry.
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

/// Converts one entry to its wire form.
pub(crate) fn wire<E: WireEntry>(locations: &Locations, location: &Location) -> E {
    E::new(location, &locations.servers())
}

/// Returns the requested registered server. The request must identify it in exactly one way.
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

/// Converts an index, which starts at 1, to a server number. The last number cannot be requested
/// (MAXSERVERID).
fn server_number(index: i32) -> Result<ServerNumber, LocationError> {
    match index {
        1.. if (index as usize) < SERVERS_MAX => Ok(ServerNumber((index - 1) as u8)),
        _ => Err(LocationError::OutOfRange),
    }
}
