//! Keys of volume records. `docs/reference/formats/volume.md` draws them; all numbers are big-endian.

use crate::sharing::RowKey;
use base::{SnapshotName, VnodeId, VolumeId};
use store::ChunkOwner;

/// Epoch of a group's first volume.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// Behind every epoch: stands in keys inverted, so that a record's newest version comes first.
const EPOCH_BYTES: usize = 8;

/// Behind every key.
pub(crate) const BEHIND_ALL: [u8; 9] = [0xff; 9];

/// In the family System: how far the scrubber is.
pub(crate) const SCRUB_STATE: &[u8] = b"scrub/state";

/// In the family System: what is damaged; then the name of a family, `/` and the record's key.
pub(crate) const DAMAGES: &[u8] = b"scrub/damage/";

/// In the family System: sums over the rows of shared chunks.
pub(crate) const SHARED_SUMS: &[u8] = b"shared/sums";

/// The id 0 is never given to a group: under it lies what is not part of one.
const REGISTRY: u64 = 0;

/// What lies in the registry.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Registry {
    /// A volume's header.
    Header = 1,
    /// A volume's counters.
    Counters = 2,
    /// Space to be reclaimed.
    Job = 3,
    /// A snapshot, by its read-write volume and its name.
    Snapshot = 4,
    /// How a read-write volume's snapshots are made and kept.
    Policy = 5,
    /// What came of a transfer that did not end, by the volume's number and the group.
    Received = 6,
    /// A directory that becomes a volume, by the volume that it lies in.
    Splitting = 7,
    /// What clients may remember of a read-write volume that was deleted.
    Past = 8,
}

/// What a key of the family Volumes says.
pub(crate) fn registry_of(key: &[u8]) -> Option<Registry> {
    let what = *key.strip_prefix(&REGISTRY.to_be_bytes())?.first()?;
    [Registry::Header, Registry::Counters, Registry::Job].into_iter().find(|known| *known as u8 == what)
}

/// A key without its epoch, which [`versioned`] adds.
pub(crate) type Prefix = Vec<u8>;

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn registry(what: Registry, rest: &[u8]) -> Vec<u8> {
    concat(&[&REGISTRY.to_be_bytes(), &[what as u8], rest])
}

/// The key of a job is the job itself.
pub(crate) fn job(value: &[u8]) -> Vec<u8> {
    registry(Registry::Job, value)
}

pub(crate) fn registry_range(what: Registry) -> (Vec<u8>, Vec<u8>) {
    let from = |what: u8| concat(&[&REGISTRY.to_be_bytes(), &[what]]);
    (from(what as u8), from(what as u8 + 1))
}

pub(crate) fn header(id: VolumeId) -> Vec<u8> {
    registry(Registry::Header, &id.0.to_be_bytes())
}

pub(crate) fn counters(id: VolumeId) -> Vec<u8> {
    registry(Registry::Counters, &id.0.to_be_bytes())
}

pub(crate) fn snapshot(volume: VolumeId, name: &SnapshotName) -> Vec<u8> {
    registry(Registry::Snapshot, &concat(&[&volume.0.to_be_bytes(), name.as_str().as_bytes()]))
}

/// All snapshots of a volume. Names have no byte 0xff.
pub(crate) fn snapshots(volume: VolumeId) -> (Vec<u8>, Vec<u8>) {
    let from = registry(Registry::Snapshot, &volume.0.to_be_bytes());
    (from.clone(), concat(&[&from, &[0xff]]))
}

/// Volume and name of a key made by [`snapshot`].
pub(crate) fn snapshot_of(key: &[u8]) -> Option<(VolumeId, &[u8])> {
    let volume = u32::from_be_bytes(key.get(9..13)?.try_into().ok()?);
    Some((VolumeId(volume), &key[13..]))
}

pub(crate) fn policy(id: VolumeId) -> Vec<u8> {
    registry(Registry::Policy, &id.0.to_be_bytes())
}

pub(crate) fn received(volume: VolumeId, group: u64) -> Vec<u8> {
    registry(Registry::Received, &concat(&[&volume.0.to_be_bytes(), &group.to_be_bytes()]))
}

/// Volume and group of a key made by [`received`].
pub(crate) fn received_of(key: &[u8]) -> Option<(VolumeId, u64)> {
    let (volume, group) = key.get(9..)?.split_at_checked(4)?;
    let volume = u32::from_be_bytes(volume.try_into().ok()?);
    Some((VolumeId(volume), u64::from_be_bytes(group.try_into().ok()?)))
}

pub(crate) fn past(id: VolumeId) -> Vec<u8> {
    registry(Registry::Past, &id.0.to_be_bytes())
}

pub(crate) fn splitting(id: VolumeId) -> Vec<u8> {
    registry(Registry::Splitting, &id.0.to_be_bytes())
}

/// The volume of a key made by [`splitting`].
pub(crate) fn splitting_of(key: &[u8]) -> Option<VolumeId> {
    Some(VolumeId(u32::from_be_bytes(key.get(9..)?.try_into().ok()?)))
}

/// In the family System: the next id that was never used.
pub(crate) fn next_id() -> Vec<u8> {
    concat(&[&REGISTRY.to_be_bytes(), b"volume-next-id"])
}

/// Adds the epoch.
pub(crate) fn versioned(prefix: &[u8], epoch: u64) -> Vec<u8> {
    concat(&[prefix, &(!epoch).to_be_bytes()])
}

/// The prefix and the epoch of a key.
pub(crate) fn split(key: &[u8]) -> Option<(&[u8], u64)> {
    let (prefix, epoch) = key.split_at_checked(key.len().checked_sub(EPOCH_BYTES)?)?;
    Some((prefix, !u64::from_be_bytes(epoch.try_into().ok()?)))
}

/// From the version of `epoch` to the oldest of one record. Epoch 0 is never used, so the end can
/// be its key.
pub(crate) fn versions(prefix: &[u8], epoch: u64) -> (Vec<u8>, Vec<u8>) {
    (versioned(prefix, epoch), versioned(prefix, 0))
}

/// All records of one group.
pub(crate) fn group_range(group: u64) -> (Vec<u8>, Vec<u8>) {
    (group.to_be_bytes().to_vec(), (group + 1).to_be_bytes().to_vec())
}

pub(crate) fn vnode(group: u64, vnode: VnodeId) -> Prefix {
    concat(&[&group.to_be_bytes(), &vnode.0.to_be_bytes()])
}

/// The end of a range that begins in the same group and has this vnode as its last.
pub(crate) fn behind_vnode(group: u64, last: VnodeId) -> Vec<u8> {
    last.0.checked_add(1).map_or_else(|| group_range(group).1, |next| vnode(group, VnodeId(next)))
}

/// The vnode of a prefix made by [`vnode`].
pub(crate) fn vnode_of(prefix: &[u8]) -> Option<VnodeId> {
    Some(VnodeId(u32::from_be_bytes(prefix.get(8..)?.try_into().ok()?)))
}

pub(crate) fn entry(group: u64, directory: VnodeId, name: &[u8]) -> Prefix {
    concat(&[&group.to_be_bytes(), &directory.0.to_be_bytes(), name, &[0]])
}

/// The name of a prefix made by [`entry`].
pub(crate) fn name_of(prefix: &[u8]) -> Option<&[u8]> {
    prefix.get(12..)?.strip_suffix(&[0])
}

/// Directory and name of a prefix made by [`entry`].
pub(crate) fn entry_of(prefix: &[u8]) -> Option<(VnodeId, &[u8])> {
    let directory = u32::from_be_bytes(prefix.get(8..12)?.try_into().ok()?);
    Some((VnodeId(directory), name_of(prefix)?))
}

pub(crate) fn entry_range(group: u64, directory: VnodeId) -> (Vec<u8>, Vec<u8>) {
    // Names do not begin with a NUL, and 0xff cannot be less than what follows.
    let from = concat(&[&group.to_be_bytes(), &directory.0.to_be_bytes()]);
    let to = match directory.0.checked_add(1) {
        Some(next) => concat(&[&group.to_be_bytes(), &next.to_be_bytes()]),
        None => (group + 1).to_be_bytes().to_vec(),
    };
    (from, to)
}

/// One file's data: a vnode number with its uniquifier is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKey {
    pub(crate) group: u64,
    pub(crate) vnode: VnodeId,
    pub(crate) unique: u32,
}

impl FileKey {
    fn bytes(self) -> Vec<u8> {
        concat(&[&self.group.to_be_bytes(), &self.vnode.0.to_be_bytes(), &self.unique.to_be_bytes()])
    }

    pub(crate) fn extent(self, index: u64) -> Prefix {
        concat(&[&self.bytes(), &index.to_be_bytes()])
    }

    /// What is stored beside a chunk to find the extent that names it: the extent's key without its
    /// epoch, which is not known before the commit.
    pub(crate) fn owner(self, index: u64) -> ChunkOwner {
        let mut owner = ChunkOwner::default();
        owner.0.copy_from_slice(&self.extent(index));
        owner
    }

    /// Extents from `first` on, up to `last` included.
    pub(crate) fn extents(self, first: u64, last: u64) -> (Vec<u8>, Vec<u8>) {
        (self.extent(first), versioned(&self.extent(last), 0))
    }
}

/// The row of a shared chunk, among the extents. It has one version.
pub(crate) fn row(row: RowKey) -> Vec<u8> {
    versioned(&row_owner(row).0, FIRST_EPOCH)
}

/// What is stored beside a shared chunk: the key of its row without the epoch.
pub(crate) fn row_owner(row: RowKey) -> ChunkOwner {
    let mut owner = ChunkOwner::default();
    owner.0[8..].copy_from_slice(&row.0);
    owner
}

/// The row of a key made by [`row`].
pub(crate) fn row_of(key: &[u8]) -> Option<RowKey> {
    let (prefix, epoch) = split(key)?;
    let row = prefix.strip_prefix(&REGISTRY.to_be_bytes())?.try_into().ok()?;
    (epoch == FIRST_EPOCH).then_some(RowKey(row))
}

/// All rows.
pub(crate) fn rows() -> (Vec<u8>, Vec<u8>) {
    group_range(REGISTRY)
}

/// Whether a key of the family Extents is that of a row, or of nothing that is known.
pub(crate) fn is_of_rows(key: &[u8]) -> bool {
    key.starts_with(&REGISTRY.to_be_bytes())
}

/// The index of a prefix made by [`FileKey::extent`].
pub(crate) fn index_of(prefix: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(prefix.get(16..)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first_and_names_do_not_mix() {
        let key = |name: &[u8], epoch| versioned(&entry(7, VnodeId(1), name), epoch);
        assert!(key(b"a", 3) < key(b"a", 2));
        assert!(key(b"a", 1) < key(b"a.", 9));
        assert!(key(b"a", 1) < key(b"aa", 9));
        let (from, to) = entry_range(7, VnodeId(1));
        assert!(from < key(b"\x01", u64::MAX) && key(&[0xff; 255], 1) < to);
        let (from, to) = entry_range(7, VnodeId(u32::MAX));
        assert!(from < to);
        assert_eq!(split(&key(b"name", 5)), Some((&entry(7, VnodeId(1), b"name")[..], 5)));
        assert_eq!(name_of(&entry(7, VnodeId(1), b"name")), Some(&b"name"[..]));
        assert_eq!(split(b"short"), None);
    }
}
