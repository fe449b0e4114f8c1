//! The list of damaged data on a partition.
//!
//! An entry is kept in the metadata under the key of the damaged record, or of the record that names the
//! damaged chunk. If several files share a chunk, each has an entry. An entry is removed when its record no
//! longer exists or names another chunk, that is, when the file was rewritten or deleted. It is also removed
//! when a full scrubber pass found no damage there.

use crate::VolumeError;
use crate::core::chunk_names::Name;
use crate::core::shared::Partition;
use crate::core::volume::Volume;
use crate::core::volumes::Volumes;
use base::{Fid, PartitionId, UnixTime, VnodeId, VolumeType};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, ChunkAddress, Family, KeyRange, MetaStore, StoreError};
use volume_records::codec::{self, Extent, StoredDamage};
use volume_records::rows::RowKey;
use volume_records::{epochs, families, keys};

/// Maximum length of the list; further damage is only logged and counted.
const ENTRIES_MAX: usize = 10_000;

/// Data on a partition that differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The file, in a volume that shows the damage; `None` for metadata that belongs to no file.
    pub fid: Option<Fid>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of unreadable bytes; 0 if the damage is in metadata.
    pub length: u32,
    /// Segment and offset, or the record.
    pub place: String,
    /// The check that failed.
    pub what: String,
    /// Time at which the damage was first found.
    pub first_seen: UnixTime,
    /// Time at which the damage was last found.
    pub last_seen: UnixTime,
}

impl Volumes {
    /// Returns the damage that scrubbing and compaction have found on a partition, at most ten thousand
    /// entries. Data rewritten or deleted since is left out.
    pub fn quarantine(&self, partition: PartitionId) -> Result<Vec<Quarantined>, VolumeError> {
        let home = self.partition(partition)?;
        let mut found = Vec::new();
        for entry in entries(&home)? {
            if entry.is_valid(&*home.handle.meta)? {
                found.push(entry.shown());
            }
        }
        Ok(found)
    }

    /// Returns a volume in which the named data is visible, preferably the read-write one.
    fn showing_volume(
        &self,
        home: &Partition,
        name: &Name,
        row: Option<RowKey>,
    ) -> Result<Option<Arc<Volume>>, VolumeError> {
        let prefix = name.owner().0;
        let mut shown = None;
        for id in self.members(home.handle.id, name.group()) {
            let Ok(volume) = self.get_any_state(id) else { continue };
            let value =
                epochs::get(&*home.handle.meta, families::EXTENTS, &prefix, &volume.view().read_view)?;
            let Some((_, value)) = value else { continue };
            let is_so = match row {
                None => codec::extent_address(&value).flatten() == Some(name.address),
                Some(row) => codec::shared_row(&value) == Some(row),
            };
            if !is_so {
                continue;
            }
            if volume.kind() == VolumeType::ReadWrite {
                return Ok(Some(volume));
            }
            shown = shown.or(Some(volume));
        }
        Ok(shown)
    }
}

/// The families of records that can be in the list.
const FAMILIES: [Family; 6] = [
    Family::SYSTEM,
    families::VOLUMES,
    families::VNODES,
    families::ENTRIES,
    families::EXTENTS,
    families::TOTALS,
];

/// A stored entry: its key, and the family and key of the record.
struct Entry {
    key: Vec<u8>,
    family: &'static str,
    record: Vec<u8>,
    damage: StoredDamage,
}

impl Entry {
    fn read(key: &[u8], value: &[u8]) -> Option<Entry> {
        let rest = key.strip_prefix(keys::DAMAGES)?;
        let mut families = FAMILIES.iter().map(|family| family.name());
        let (family, record) = families
            .find_map(|name| Some((name, rest.strip_prefix(name.as_bytes())?.strip_prefix(b"/")?)))?;
        let (key, record) = (key.to_vec(), record.to_vec());
        Some(Entry { key, family, record, damage: codec::get_damage(value)? })
    }

    /// Returns whether the entry is valid; for a chunk, as long as the record names the chunk.
    fn is_valid(&self, meta: &dyn MetaStore) -> Result<bool, VolumeError> {
        let address = self.damage.address;
        if address == ChunkAddress::default() {
            return Ok(true);
        }
        Name { key: self.record.clone(), address }.is_valid(meta)
    }

    fn shown(self) -> Quarantined {
        let ChunkAddress { segment, offset, .. } = self.damage.address;
        let place = match segment {
            0 => format!("family {}, key {:02x?}", self.family, self.record),
            _ => format!("segment {segment:016x} at offset {offset}"),
        };
        let StoredDamage { fid, offset, length, what, first_seen, last_seen, .. } = self.damage;
        Quarantined { fid, offset, length, place, what, first_seen, last_seen }
    }
}

fn entries(home: &Partition) -> Result<Vec<Entry>, VolumeError> {
    let to = [keys::DAMAGES, &[0xff]].concat();
    let mut found = Vec::new();
    let range = KeyRange::ascending(keys::DAMAGES, &to);
    home.handle.meta.scan(Family::SYSTEM, range, &mut |key, value| {
        if let Some(entry) = Entry::read(key, value) {
            found.push(entry);
        } else {
            tracing::warn!(key = %key.escape_ascii(), "an entry of the quarantine cannot be read");
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Removes entries whose chunk is no longer named, and those for which `is_over` returns true.
pub(crate) fn prune(home: &Partition, is_over: impl Fn(&StoredDamage) -> bool) -> Result<(), VolumeError> {
    let mut batch = Batch::new();
    for entry in entries(home)? {
        if is_over(&entry.damage) || !entry.is_valid(&*home.handle.meta)? {
            tracing::info!(fid = ?entry.damage.fid, offset = entry.damage.offset, "no longer damaged");
            batch.delete(Family::SYSTEM, entry.key);
        }
    }
    if !batch.is_empty() {
        home.handle.meta.commit(batch)?;
    }
    Ok(())
}

/// Adds unreadable chunks to the list, for each file that uses them; returns the number of entries. Finding
/// the files that use shared chunks takes a walk through all extents.
pub(crate) fn report_chunks(
    volumes: &Volumes,
    home: &Partition,
    damaged: &[(Name, StoreError)],
    now: UnixTime,
) -> Result<u64, VolumeError> {
    let (mut shared, mut count) = (BTreeMap::new(), 0);
    for (name, error) in damaged {
        match keys::row_of(&name.key) {
            Some(row) => _ = shared.insert(row, (name.address, error)),
            None => count += u64::from(report_chunk(volumes, home, name, None, error, now)?),
        }
    }
    for (key, row) in names_of(home, &shared)? {
        let (address, error) = shared[&row];
        count += u64::from(report_chunk(volumes, home, &Name { key, address }, Some(row), error, now)?);
    }
    Ok(count)
}

/// Finds the extents that name these rows.
fn names_of<T>(home: &Partition, rows: &BTreeMap<RowKey, T>) -> Result<Vec<(Vec<u8>, RowKey)>, VolumeError> {
    let mut found = Vec::new();
    if rows.is_empty() {
        return Ok(found);
    }
    let state = home.handle.meta.snapshot();
    state.scan(families::EXTENTS, KeyRange::ascending(&[], &keys::BEHIND_ALL), &mut |key, value| {
        if let Some(row) = codec::shared_row(value).filter(|row| rows.contains_key(row)) {
            found.push((key.to_vec(), row));
        }
        // The list has no space for more.
        if found.len() < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

/// Adds a chunk to the list for the file of the extent `name`; returns false if it is no longer named.
fn report_chunk(
    volumes: &Volumes,
    home: &Partition,
    name: &Name,
    row: Option<RowKey>,
    error: &StoreError,
    now: UnixTime,
) -> Result<bool, VolumeError> {
    if !name.is_valid(&*home.handle.meta)? {
        return Ok(false);
    }
    // A group without volumes has no readers and is about to be purged.
    let Some(volume) = volumes.showing_volume(home, name, row)? else { return Ok(false) };
    let Some((fid, offset)) = place_in_file(&volume, name)? else { return Ok(false) };
    let what = match error {
        StoreError::Damaged { what, .. } => what.clone(),
        other => other.to_string(),
    };
    tracing::error!(volume = %volume.id(), vnode = fid.vnode.0, unique = fid.unique, offset, %error,
        "a part of a file is damaged");
    let value = home.handle.meta.get(families::EXTENTS, &name.key)?;
    let length = match value.and_then(|value| codec::get_extent(&value)) {
        Some(Extent::Chunk { length, .. } | Extent::Shared { length, .. }) => length,
        _ => 0,
    };
    let (first_seen, last_seen, fid, address) = (now, now, Some(fid), name.address);
    let damage = StoredDamage { first_seen, last_seen, fid, offset, length, address, what };
    put(home, families::EXTENTS, &name.key, damage)?;
    Ok(true)
}

/// Adds an unreadable record to the list.
pub(crate) fn report_record(
    home: &Partition,
    family: Family,
    key: &[u8],
    what: String,
    now: UnixTime,
) -> Result<(), VolumeError> {
    tracing::error!(family = family.name(), key = %key.escape_ascii(), what, "metadata is damaged");
    let address = ChunkAddress::default();
    let (first_seen, last_seen, fid) = (now, now, None);
    put(home, family, key, StoredDamage { first_seen, last_seen, fid, offset: 0, length: 0, address, what })
}

fn put(home: &Partition, family: Family, record: &[u8], damage: StoredDamage) -> Result<(), VolumeError> {
    let key = [keys::DAMAGES, family.name().as_bytes(), b"/", record].concat();
    let known = home.handle.meta.get(Family::SYSTEM, &key)?;
    let known = known.and_then(|value| codec::get_damage(&value));
    if known.is_none() && entries(home)?.len() >= ENTRIES_MAX {
        return Ok(());
    }
    let known = known.filter(|known| known.address == damage.address);
    let first_seen = known.map_or(damage.first_seen, |known| known.first_seen);
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, key, codec::put_damage(&StoredDamage { first_seen, ..damage }));
    home.handle.meta.commit(batch)?;
    Ok(())
}

/// Returns the file and offset of the chunk with this name.
fn place_in_file(volume: &Volume, name: &Name) -> Result<Option<(Fid, u64)>, VolumeError> {
    let prefix = name.owner().0;
    let word = |at: usize| u32::from_be_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
    let fid = Fid { volume: volume.id(), vnode: VnodeId(word(8)), unique: word(12) };
    let _publish = volume.group.publish.read();
    let shift = match volume.vnode(fid) {
        Ok(vnode) => vnode.chunk_shift,
        Err(VolumeError::NoVnode(..)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let index = keys::index_of(&prefix).unwrap_or_default();
    Ok(Some((fid, index.checked_shl(shift.into()).unwrap_or(u64::MAX))))
}
