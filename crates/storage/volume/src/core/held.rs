//! Computes the space that only one volume uses.

use crate::VolumeError;
use crate::core::volumes::Volumes;
use crate::interface::error::damage;
use base::VolumeId;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{ChunkAddress, Family, KeyRange, Snapshot};
use volume_records::codec::{self, get_row};
use volume_records::epochs::unneeded;
use volume_records::rows::RowKey;
use volume_records::{ReadView, families, keys};

/// Space that deleting a volume would free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Number of records of vnodes, names and extents.
    pub records: u64,
    /// Size of these records, keys and values, in bytes.
    pub record_bytes: u64,
    /// Number of data chunks.
    pub chunks: u64,
    /// Stored size of these chunks, in bytes.
    pub chunk_bytes: u64,
}

struct Version {
    key_bytes: usize,
    value_bytes: usize,
    address: Option<ChunkAddress>,
    shared: Option<RowKey>,
}

/// A walk through all records of a group, one record at a time.
struct Walk {
    everybody: Vec<ReadView>,
    others: Vec<ReadView>,
    held: Held,
    prefix: Vec<u8>,
    births: Vec<(u64, bool)>,
    versions: Vec<Version>,
    /// Number of references to each shared chunk that would be removed.
    shared: BTreeMap<RowKey, u64>,
}

impl Volumes {
    /// Returns the space that deleting only this volume now would free. Walks all records that it shares with
    /// its group, so the time depends on their number. Uses memory for one record, and 24 bytes for each
    /// deduplicated chunk to which references would be removed. Does not block other work.
    pub fn held_only_by(&self, id: VolumeId) -> Result<Held, VolumeError> {
        let volume = self.get_any_state(id)?;
        let group = volume.group.id;
        let writer = volume.group.writer.lock();
        let read_view = volume.view().read_view;
        let everybody = writer.epochs.readers();
        let state = volume.meta().snapshot();
        drop(writer);
        let mut others = everybody.clone();
        if let Some(at) = others.iter().position(|other| other.epoch == read_view.epoch) {
            others.remove(at);
        }
        let (prefix, births, versions, shared) = Default::default();
        let mut walk = Walk { everybody, others, held: Held::default(), prefix, births, versions, shared };
        for family in [families::VNODES, families::ENTRIES, families::EXTENTS, families::TOTALS] {
            walk.family(&*state, family, group)?;
        }
        walk.shared(&*state)?;
        Ok(walk.held)
    }
}

impl Walk {
    fn family(&mut self, state: &dyn Snapshot, family: Family, group: u64) -> Result<(), VolumeError> {
        let (from, to) = keys::group_range(group);
        let mut damaged = None;
        state.scan(family, KeyRange::ascending(&from, &to), &mut |key, value| {
            if self.visit(family, key, value).is_none() {
                damaged = Some(damage(family, key, "a record of a group"));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        self.end_of_record();
        damaged.map_or(Ok(()), Err)
    }

    fn visit(&mut self, family: Family, key: &[u8], value: &[u8]) -> Option<()> {
        let (prefix, born) = keys::split(key)?;
        if prefix != self.prefix {
            self.end_of_record();
            self.prefix = prefix.to_vec();
        }
        let (address, shared) = match family {
            families::EXTENTS => (codec::extent_address(value)?, codec::shared_row(value)),
            _ => (None, None),
        };
        self.births.push((born, !value.is_empty()));
        self.versions.push(Version { key_bytes: key.len(), value_bytes: value.len(), address, shared });
        Some(())
    }

    fn end_of_record(&mut self) {
        let already = unneeded(&self.births, &self.everybody);
        let then = unneeded(&self.births, &self.others);
        for ((born, _), version) in self.births.drain(..).zip(self.versions.drain(..)) {
            if already.contains(&born) || !then.contains(&born) {
                continue;
            }
            self.held.records += 1;
            self.held.record_bytes += (version.key_bytes + version.value_bytes) as u64;
            if let Some(address) = version.address {
                self.held.chunks += 1;
                self.held.chunk_bytes += u64::from(address.stored_bytes);
            }
            if let Some(row) = version.shared {
                *self.shared.entry(row).or_default() += 1;
            }
        }
    }

    /// Counts the shared chunks to which all references would be removed, which frees them.
    fn shared(&mut self, state: &dyn Snapshot) -> Result<(), VolumeError> {
        for (key, count) in std::mem::take(&mut self.shared) {
            let from = keys::row(key);
            let to = [&from[..], &[0]].concat();
            state.scan(families::EXTENTS, KeyRange::ascending(&from, &to), &mut |_, value| {
                if let Some(row) = get_row(value).filter(|row| row.count <= count) {
                    self.held.chunks += 1;
                    self.held.chunk_bytes += u64::from(row.address.stored_bytes);
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }
}
