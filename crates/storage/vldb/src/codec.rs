//! Keys and values in the store, described in `docs/reference/formats/locations.md`.

use crate::entry::{EntryNumber, Location, ServerNumber, Site};
use crate::error::LocationError;
use crate::servers::Server;
use base::limits::{SERVER_ADDRESSES_MAX, VOLUME_SITES_MAX};
use base::{HostUuid, UnixTime, VolumeId, VolumeName};
use std::net::Ipv4Addr;

/// Version that this code writes, and the newest that it reads.
const VERSION: u8 = 1;

/// First eight bytes of a key: the table that it belongs to.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Table {
    Totals = 1,
    Entries = 2,
    Ids = 3,
    Names = 4,
    OnServer = 5,
    Servers = 6,
}

/// Counters of the whole database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Where the search for the next new volume id starts.
    pub max_volume: VolumeId,
    /// Number of the next new entry.
    pub next_entry: EntryNumber,
    /// Number of ids in entries, by volume type.
    pub volumes: [u32; 3],
    /// Number of entries ever created.
    pub created: u32,
    /// Number of entries ever deleted.
    pub deleted: u32,
}

impl Totals {
    /// Counters of a new database.
    pub(crate) const NEW: Totals = Totals {
        max_volume: VolumeId(0x2000_0000),
        next_entry: EntryNumber(1),
        volumes: [0; 3],
        created: 0,
        deleted: 0,
    };

    /// Adds the ids of an entry to the counters, or subtracts them.
    pub(crate) fn count(&mut self, location: &Location, adds: bool) {
        for (count, id) in self.volumes.iter_mut().zip(location.ids) {
            let one = u32::from(id.0 != 0);
            *count = if adds { count.saturating_add(one) } else { count.saturating_sub(one) };
        }
    }
}

/// Returns a key of `table`.
pub(crate) fn key(table: Table, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = (table as u64).to_be_bytes().to_vec();
    for part in parts {
        key.extend(*part);
    }
    key
}

/// Returns the first key after all keys of `table`.
pub(crate) fn end_of(table: Table) -> Vec<u8> {
    (table as u64 + 1).to_be_bytes().to_vec()
}

pub(crate) fn entry_key(number: EntryNumber) -> Vec<u8> {
    key(Table::Entries, &[&number.0.to_be_bytes()])
}

pub(crate) fn id_key(id: VolumeId) -> Vec<u8> {
    key(Table::Ids, &[&id.0.to_be_bytes()])
}

pub(crate) fn name_key(name: &VolumeName) -> Vec<u8> {
    key(Table::Names, &[name.as_str().as_bytes()])
}

pub(crate) fn on_server_key(server: ServerNumber, number: EntryNumber) -> Vec<u8> {
    key(Table::OnServer, &[&[server.0], &number.0.to_be_bytes()])
}

pub(crate) fn server_key(server: ServerNumber) -> Vec<u8> {
    key(Table::Servers, &[&[server.0]])
}

fn damaged(what: &str, bytes: &[u8]) -> LocationError {
    LocationError::Damaged(format!("{what} of {} bytes", bytes.len()))
}

/// Returns the 32-bit number at the end of a key, after the table and `parts_bytes` of other parts. A key of
/// any other length is damaged: it would not sort by its number.
pub(crate) fn last_word(key: &[u8], parts_bytes: usize) -> Result<u32, LocationError> {
    let word = key.get(size_of::<u64>() + parts_bytes..).and_then(|word| word.try_into().ok());
    word.map(u32::from_be_bytes).ok_or_else(|| damaged("key", key))
}

pub(crate) fn entry_number(value: &[u8]) -> Result<EntryNumber, LocationError> {
    let bytes = value.try_into().map_err(|_| damaged("entry number", value))?;
    Ok(EntryNumber(u32::from_be_bytes(bytes)))
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn word(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn ids(&mut self) -> Option<[VolumeId; 3]> {
        Some([VolumeId(self.word()?), VolumeId(self.word()?), VolumeId(self.word()?)])
    }
}

fn decode<T>(
    what: &str,
    value: &[u8],
    read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
) -> Result<T, LocationError> {
    match value.split_first() {
        Some((&VERSION, rest)) => read(&mut Fields(rest)).ok_or_else(|| damaged(what, value)),
        Some((version, _)) => Err(LocationError::Damaged(format!(
            "{what} of version {version}; this program reads up to version {VERSION}"
        ))),
        None => Err(damaged(what, value)),
    }
}

fn begin(words: &[u32]) -> Vec<u8> {
    let mut value = vec![VERSION];
    for word in words {
        value.extend(word.to_be_bytes());
    }
    value
}

pub(crate) fn encode_totals(t: &Totals) -> Vec<u8> {
    let [rw, ro, backup] = t.volumes;
    begin(&[t.max_volume.0, t.next_entry.0, rw, ro, backup, t.created, t.deleted])
}

pub(crate) fn decode_totals(value: &[u8]) -> Result<Totals, LocationError> {
    decode("totals", value, |f| {
        Some(Totals {
            max_volume: VolumeId(f.word()?),
            next_entry: EntryNumber(f.word()?),
            volumes: [f.word()?, f.word()?, f.word()?],
            created: f.word()?,
            deleted: f.word()?,
        })
    })
}

pub(crate) fn encode_location(location: &Location) -> Vec<u8> {
    let [rw, ro, backup] = location.ids;
    let mut value = begin(&[rw.0, ro.0, backup.0, location.clone.0, location.flags, location.locked.0]);
    value.push(location.sites.len() as u8);
    for site in &location.sites {
        value.extend([site.server.0, site.partition, site.flags]);
    }
    value.extend(location.name.as_str().as_bytes());
    value
}

pub(crate) fn decode_location(value: &[u8]) -> Result<Location, LocationError> {
    decode("entry", value, |f| {
        let ids = f.ids()?;
        let clone = VolumeId(f.word()?);
        let flags = f.word()?;
        let locked = UnixTime(f.word()?);
        let count = usize::from(f.byte()?);
        let sites = (0..count).map(|_| decode_site(f)).collect::<Option<Vec<_>>>()?;
        let name = std::str::from_utf8(f.0).ok()?.parse().ok()?;
        (count <= VOLUME_SITES_MAX).then_some(Location { name, ids, clone, flags, locked, sites })
    })
}

fn decode_site(f: &mut Fields<'_>) -> Option<Site> {
    Some(Site { server: ServerNumber(f.byte()?), partition: f.byte()?, flags: f.byte()? })
}

const BY_ADDRESS: u8 = 0;
const REGISTERED: u8 = 1;

pub(crate) fn encode_server(server: &Server) -> Vec<u8> {
    let mut value = vec![VERSION];
    match server {
        Server::Address(_) => value.push(BY_ADDRESS),
        Server::Registered { uuid, uniquifier, .. } => {
            value.push(REGISTERED);
            value.extend(uuid.0);
            value.extend(uniquifier.to_be_bytes());
        }
    }
    for address in server.addresses() {
        value.extend(address.octets());
    }
    value
}

pub(crate) fn decode_server(value: &[u8]) -> Result<Server, LocationError> {
    decode("server", value, |f| match f.byte()? {
        BY_ADDRESS => Some(Server::Address(Ipv4Addr::from_bits(f.word()?))),
        REGISTERED => {
            let uuid = HostUuid(f.bytes(16)?.try_into().ok()?);
            let uniquifier = f.word()? as i32;
            let count = f.0.len() / 4;
            let addresses = (0..count).map(|_| f.word().map(Ipv4Addr::from_bits)).collect::<Option<_>>()?;
            (count <= SERVER_ADDRESSES_MAX && f.0.is_empty()).then_some(Server::Registered {
                uuid,
                uniquifier,
                addresses,
            })
        }
        _ => None,
    })
}
