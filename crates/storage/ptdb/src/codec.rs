//! Keys and values in the store, described in `docs/reference/formats/protection.md`.

use crate::entry::{Entry, EntryFlags, Totals};
use crate::error::ProtectionError;
use base::{UnixTime, UserId};

/// Version that this code writes, and the newest that it reads.
const VERSION: u8 = 1;

/// First eight bytes of a key: the table that it belongs to.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Table {
    Totals = 1,
    Entries = 2,
    Names = 3,
    Elements = 4,
    Supergroups = 5,
    Owned = 6,
    Positions = 7,
}

/// Returns the first bytes of every key of `table`.
pub(crate) fn prefix(table: Table) -> Vec<u8> {
    (table as u64).to_be_bytes().to_vec()
}

/// Encodes an id as big-endian with the sign bit flipped, so that keys sort in numerical order.
fn sortable(id: UserId) -> [u8; 4] {
    ((id.0 as u32) ^ 0x8000_0000).to_be_bytes()
}

/// Returns a key of `table` that consists of ids.
pub(crate) fn id_key(table: Table, ids: &[UserId]) -> Vec<u8> {
    let mut key = prefix(table);
    for &id in ids {
        key.extend(sortable(id));
    }
    key
}

pub(crate) fn name_key(name: &[u8]) -> Vec<u8> {
    let mut key = prefix(Table::Names);
    key.extend(name);
    key
}

pub(crate) fn position_key(position: u32) -> Vec<u8> {
    let mut key = prefix(Table::Positions);
    key.extend(position.to_be_bytes());
    key
}

/// Returns the id at the end of `key`.
pub(crate) fn last_id(key: &[u8]) -> Result<UserId, ProtectionError> {
    let bytes = key.last_chunk::<4>().ok_or_else(|| damaged("key", key))?;
    Ok(UserId((u32::from_be_bytes(*bytes) ^ 0x8000_0000) as i32))
}

/// Decodes a value that is an id.
pub(crate) fn id_value(value: &[u8]) -> Result<UserId, ProtectionError> {
    let bytes = value.try_into().map_err(|_| damaged("id", value))?;
    Ok(UserId(i32::from_be_bytes(bytes)))
}

fn damaged(what: &str, bytes: &[u8]) -> ProtectionError {
    ProtectionError::Damaged(format!("{what} of {} bytes", bytes.len()))
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    fn id(&mut self) -> Option<UserId> {
        self.word().map(|word| UserId(word as i32))
    }

    fn time(&mut self) -> Option<UnixTime> {
        self.word().map(UnixTime)
    }
}

fn begin(words: &[u32]) -> Vec<u8> {
    let mut value = vec![VERSION];
    for word in words {
        value.extend(word.to_be_bytes());
    }
    value
}

fn open<'a>(what: &str, value: &'a [u8]) -> Result<Fields<'a>, ProtectionError> {
    match value.split_first() {
        Some((&VERSION, rest)) => Ok(Fields(rest)),
        Some((version, _)) => Err(ProtectionError::Damaged(format!(
            "{what} of version {version}; this program reads up to version {VERSION}"
        ))),
        None => Err(damaged(what, value)),
    }
}

pub(crate) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut value = begin(&[
        entry.id.0 as u32,
        entry.flags.0,
        entry.cell.0 as u32,
        entry.owner.0 as u32,
        entry.creator.0 as u32,
        entry.group_quota as u32,
        entry.user_quota as u32,
        entry.count,
        entry.supergroup_count,
        entry.position,
        entry.created.0,
        entry.added.0,
        entry.removed.0,
        entry.changed.0,
    ]);
    value.extend(&entry.name);
    value
}

pub(crate) fn decode_entry(value: &[u8]) -> Result<Entry, ProtectionError> {
    let fields = open("entry", value)?;
    entry_fields(fields).ok_or_else(|| damaged("entry", value))
}

fn entry_fields(mut f: Fields<'_>) -> Option<Entry> {
    Some(Entry {
        id: f.id()?,
        flags: EntryFlags(f.word()?),
        cell: f.id()?,
        owner: f.id()?,
        creator: f.id()?,
        group_quota: f.word()? as i32,
        user_quota: f.word()? as i32,
        count: f.word()?,
        supergroup_count: f.word()?,
        position: f.word()?,
        created: f.time()?,
        added: f.time()?,
        removed: f.time()?,
        changed: f.time()?,
        name: f.0.to_vec(),
    })
}

pub(crate) fn encode_totals(totals: &Totals) -> Vec<u8> {
    begin(&[
        totals.max_user.0 as u32,
        totals.max_group.0 as u32,
        totals.next_position,
        totals.users,
        totals.groups,
        totals.foreign_users,
    ])
}

pub(crate) fn decode_totals(value: &[u8]) -> Result<Totals, ProtectionError> {
    let fields = open("totals", value)?;
    totals_fields(fields).ok_or_else(|| damaged("totals", value))
}

fn totals_fields(mut f: Fields<'_>) -> Option<Totals> {
    Some(Totals {
        max_user: f.id()?,
        max_group: f.id()?,
        next_position: f.word()?,
        users: f.word()?,
        groups: f.word()?,
        foreign_users: f.word()?,
    })
}
