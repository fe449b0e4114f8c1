//! Keys of volume records, as specified in `docs/reference/formats/volume.md`. All numbers are big-endian.

use crate::rows::RowKey;
use base::{CallId, Fid, SnapshotName, VnodeId, VolumeId};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use store::ChunkOwner;

/// Epoch of a group's first volume.
pub const FIRST_EPOCH: u64 = 1;

/// Size of an epoch, which is inverted in keys so that a record's newest version comes first.
const EPOCH_BYTES: usize = 8;

/// Upper bound of all keys.
pub const BEHIND_ALL: [u8; 9] = [0xff; 9];

/// Key in the family System: progress of the scrubber.
pub const SCRUB_STATE: &[u8] = b"scrub/state";

/// Key prefix in the family System: damage; followed by the name of a family, `/` and the record's key.
pub const DAMAGES: &[u8] = b"scrub/damage/";

/// Key in the family System: sums over the rows of shared chunks.
pub const SHARED_SUMS: &[u8] = b"shared/sums";

/// Key prefix in the family System: hosts that may hold callback promises.
const LISTED_HOSTS: &[u8] = b"hosts/";

/// Key prefix in the family System: locks of files.
const LOCKS: &[u8] = b"locks/";

/// Key prefix in the family System: results of changes that another server may be asked for.
const RESULTS: &[u8] = b"results/";

/// The group id 0 is never allocated; it holds records that belong to no group.
const REGISTRY: u64 = 0;

/// Tables of the registry.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Registry {
    /// Header of a volume.
    Header = 1,
    /// Counters of a volume.
    Counters = 2,
    /// Purge job.
    Job = 3,
    /// Snapshot, by read-write volume and name.
    Snapshot = 4,
    /// Snapshot policy of a read-write volume.
    Policy = 5,
    /// Receipt of an interrupted transfer, by volume number and group.
    Received = 6,
    /// Directory being split off, by the volume that contains it.
    Splitting = 7,
    /// Highest numbers that clients may have seen of a deleted read-write volume.
    Past = 8,
}

/// Returns the table of a key in the family Volumes.
pub fn registry_of(key: &[u8]) -> Option<Registry> {
    let what = *key.strip_prefix(&REGISTRY.to_be_bytes())?.first()?;
    [Registry::Header, Registry::Counters, Registry::Job].into_iter().find(|known| *known as u8 == what)
}

/// A key without its epoch, which [`versioned`] adds.
pub type Prefix = Vec<u8>;

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn registry(what: Registry, rest: &[u8]) -> Vec<u8> {
    concat(&[&REGISTRY.to_be_bytes(), &[what as u8], rest])
}

/// Returns the key of a job, which is its value.
pub fn job(value: &[u8]) -> Vec<u8> {
    registry(Registry::Job, value)
}

/// Returns the range of a table of the registry.
pub fn registry_range(what: Registry) -> (Vec<u8>, Vec<u8>) {
    let from = |what: u8| concat(&[&REGISTRY.to_be_bytes(), &[what]]);
    (from(what as u8), from(what as u8 + 1))
}

/// Returns the key of a volume's header.
pub fn header(id: VolumeId) -> Vec<u8> {
    registry(Registry::Header, &id.0.to_be_bytes())
}

/// Returns the key of a volume's counters.
pub fn counters(id: VolumeId) -> Vec<u8> {
    registry(Registry::Counters, &id.0.to_be_bytes())
}

/// Returns the key of a snapshot of a read-write volume.
pub fn snapshot(volume: VolumeId, name: &SnapshotName) -> Vec<u8> {
    registry(Registry::Snapshot, &concat(&[&volume.0.to_be_bytes(), name.as_str().as_bytes()]))
}

/// Returns the range of all snapshots of a volume. Names have no byte 0xff.
pub fn snapshots(volume: VolumeId) -> (Vec<u8>, Vec<u8>) {
    let from = registry(Registry::Snapshot, &volume.0.to_be_bytes());
    (from.clone(), concat(&[&from, &[0xff]]))
}

/// Returns the volume and name in a key made by [`snapshot`].
pub fn snapshot_of(key: &[u8]) -> Option<(VolumeId, &[u8])> {
    let volume = u32::from_be_bytes(key.get(9..13)?.try_into().ok()?);
    Some((VolumeId(volume), &key[13..]))
}

/// Returns the key of the snapshot policy of a read-write volume.
pub fn policy(id: VolumeId) -> Vec<u8> {
    registry(Registry::Policy, &id.0.to_be_bytes())
}

/// Returns the key of a transfer's receipt.
pub fn received(volume: VolumeId, group: u64) -> Vec<u8> {
    registry(Registry::Received, &concat(&[&volume.0.to_be_bytes(), &group.to_be_bytes()]))
}

/// Returns the volume and group in a key made by [`received`].
pub fn received_of(key: &[u8]) -> Option<(VolumeId, u64)> {
    let (volume, group) = key.get(9..)?.split_at_checked(4)?;
    let volume = u32::from_be_bytes(volume.try_into().ok()?);
    Some((VolumeId(volume), u64::from_be_bytes(group.try_into().ok()?)))
}

/// Returns the key of the highest numbers of a deleted read-write volume.
pub fn past(id: VolumeId) -> Vec<u8> {
    registry(Registry::Past, &id.0.to_be_bytes())
}

/// Returns the key of the directory that is split off from this volume.
pub fn splitting(id: VolumeId) -> Vec<u8> {
    registry(Registry::Splitting, &id.0.to_be_bytes())
}

/// Returns the volume in a key made by [`splitting`].
pub fn splitting_of(key: &[u8]) -> Option<VolumeId> {
    Some(VolumeId(u32::from_be_bytes(key.get(9..)?.try_into().ok()?)))
}

/// Returns the key in the family System of the next unused id.
pub fn next_id() -> Vec<u8> {
    concat(&[&REGISTRY.to_be_bytes(), b"volume-next-id"])
}

/// Returns the key in the family System of a host that may hold callback promises.
pub fn listed_host(address: SocketAddr) -> Vec<u8> {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    concat(&[LISTED_HOSTS, &ip.octets(), &address.port().to_be_bytes()])
}

/// Returns the address in a key made by [`listed_host`].
pub fn listed_host_of(key: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = key.strip_prefix(LISTED_HOSTS)?.split_at_checked(16)?;
    let ip = Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?);
    let port = u16::from_be_bytes(port.try_into().ok()?);
    Some((ip.to_canonical(), port).into())
}

/// Returns the range of all hosts that may hold callback promises.
pub fn listed_hosts() -> (Vec<u8>, Vec<u8>) {
    (LISTED_HOSTS.to_vec(), concat(&[LISTED_HOSTS, &[0xff; 19]]))
}

/// Returns the key in the family System of the locks of a file.
pub fn lock(fid: Fid) -> Vec<u8> {
    concat(&[LOCKS, &fid.volume.0.to_be_bytes(), &fid.vnode.0.to_be_bytes(), &fid.unique.to_be_bytes()])
}

/// Returns the file in a key made by [`lock`].
pub fn lock_of(key: &[u8]) -> Option<Fid> {
    let (numbers, rest) = key.strip_prefix(LOCKS)?.as_chunks();
    let [volume, vnode, unique] = numbers else { return None };
    let [volume, vnode, unique] = [volume, vnode, unique].map(|number| u32::from_be_bytes(*number));
    rest.is_empty().then_some(Fid { volume: VolumeId(volume), vnode: VnodeId(vnode), unique })
}

/// Returns the range of the locks of all files.
pub fn locks() -> (Vec<u8>, Vec<u8>) {
    (LOCKS.to_vec(), concat(&[LOCKS, &[0xff; 13]]))
}

/// Returns the key in the family System of the result of a call.
pub fn recorded_call(call: CallId) -> Vec<u8> {
    concat(&[RESULTS, &call.process.to_be_bytes(), &call.number.to_be_bytes()])
}

/// Returns the call in a key made by [`recorded_call`].
pub fn recorded_call_of(key: &[u8]) -> Option<CallId> {
    let (process, number) = key.strip_prefix(RESULTS)?.split_at_checked(16)?;
    let process = u128::from_be_bytes(process.try_into().ok()?);
    Some(CallId { process, number: u64::from_be_bytes(number.try_into().ok()?) })
}

/// Returns the key in the family System of the number up to which the results of a process were deleted.
pub fn deleted_results(process: u128) -> Vec<u8> {
    concat(&[RESULTS, &process.to_be_bytes()])
}

/// Returns the process in a key made by [`deleted_results`].
pub fn deleted_results_of(key: &[u8]) -> Option<u128> {
    Some(u128::from_be_bytes(key.strip_prefix(RESULTS)?.try_into().ok()?))
}

/// Returns the range of all results, and of the numbers up to which they were deleted.
pub fn results() -> (Vec<u8>, Vec<u8>) {
    (RESULTS.to_vec(), concat(&[RESULTS, &[0xff; 25]]))
}

/// Adds an epoch to a prefix.
pub fn versioned(prefix: &[u8], epoch: u64) -> Vec<u8> {
    concat(&[prefix, &(!epoch).to_be_bytes()])
}

/// Splits a key into prefix and epoch.
pub fn split(key: &[u8]) -> Option<(&[u8], u64)> {
    let (prefix, epoch) = key.split_at_checked(key.len().checked_sub(EPOCH_BYTES)?)?;
    Some((prefix, !u64::from_be_bytes(epoch.try_into().ok()?)))
}

/// Returns the range of one record's versions, from that of `epoch` to the oldest. Epoch 0 is never used, so
/// its key can be the end.
pub fn versions(prefix: &[u8], epoch: u64) -> (Vec<u8>, Vec<u8>) {
    (versioned(prefix, epoch), versioned(prefix, 0))
}

/// Returns the range of all records of a group.
pub fn group_range(group: u64) -> (Vec<u8>, Vec<u8>) {
    (group.to_be_bytes().to_vec(), (group + 1).to_be_bytes().to_vec())
}

/// Returns the prefix of a vnode, and of the totals of a directory.
pub fn vnode(group: u64, vnode: VnodeId) -> Prefix {
    concat(&[&group.to_be_bytes(), &vnode.0.to_be_bytes()])
}

/// Returns the end of a range that starts in the same group and includes this vnode as its last.
pub fn behind_vnode(group: u64, last: VnodeId) -> Vec<u8> {
    last.0.checked_add(1).map_or_else(|| group_range(group).1, |next| vnode(group, VnodeId(next)))
}

/// Returns the vnode in a prefix made by [`vnode`].
pub fn vnode_of(prefix: &[u8]) -> Option<VnodeId> {
    Some(VnodeId(u32::from_be_bytes(prefix.get(8..)?.try_into().ok()?)))
}

/// Returns the prefix of a directory entry.
pub fn entry(group: u64, directory: VnodeId, name: &[u8]) -> Prefix {
    concat(&[&group.to_be_bytes(), &directory.0.to_be_bytes(), name, &[0]])
}

/// Returns the name in a prefix made by [`entry`].
pub fn name_of(prefix: &[u8]) -> Option<&[u8]> {
    prefix.get(12..)?.strip_suffix(&[0])
}

/// Returns the directory and name in a prefix made by [`entry`].
pub fn entry_of(prefix: &[u8]) -> Option<(VnodeId, &[u8])> {
    let directory = u32::from_be_bytes(prefix.get(8..12)?.try_into().ok()?);
    Some((VnodeId(directory), name_of(prefix)?))
}

/// Returns the range of all entries of a directory.
pub fn entry_range(group: u64, directory: VnodeId) -> (Vec<u8>, Vec<u8>) {
    // Names do not start with a NUL, and 0xff is at least as large as any following byte.
    let from = concat(&[&group.to_be_bytes(), &directory.0.to_be_bytes()]);
    let to = match directory.0.checked_add(1) {
        Some(next) => concat(&[&group.to_be_bytes(), &next.to_be_bytes()]),
        None => (group + 1).to_be_bytes().to_vec(),
    };
    (from, to)
}

/// Identifies one file's data: a vnode number with its uniquifier is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// Group of volumes that share records.
    pub group: u64,
    /// Vnode number.
    pub vnode: VnodeId,
    /// Uniquifier.
    pub unique: u32,
}

impl FileKey {
    fn bytes(self) -> Vec<u8> {
        concat(&[&self.group.to_be_bytes(), &self.vnode.0.to_be_bytes(), &self.unique.to_be_bytes()])
    }

    /// Returns the prefix of an extent, by the index of its chunk in the file.
    pub fn extent(self, index: u64) -> Prefix {
        concat(&[&self.bytes(), &index.to_be_bytes()])
    }

    /// Returns the owner stored next to a chunk to find the extent that names it: the extent's key without
    /// its epoch, which is unknown before the commit.
    pub fn owner(self, index: u64) -> ChunkOwner {
        let mut owner = ChunkOwner::default();
        owner.0.copy_from_slice(&self.extent(index));
        owner
    }

    /// Returns the range of extents from `first` to `last`, inclusive.
    pub fn extents(self, first: u64, last: u64) -> (Vec<u8>, Vec<u8>) {
        (self.extent(first), versioned(&self.extent(last), 0))
    }
}

/// Returns the key of a shared chunk's row, which is among the extents and has one version.
pub fn row(row: RowKey) -> Vec<u8> {
    versioned(&row_owner(row).0, FIRST_EPOCH)
}

/// Returns the owner stored next to a shared chunk: the key of its row without the epoch.
pub fn row_owner(row: RowKey) -> ChunkOwner {
    let mut owner = ChunkOwner::default();
    owner.0[8..].copy_from_slice(&row.0);
    owner
}

/// Returns the row in a key made by [`row`].
pub fn row_of(key: &[u8]) -> Option<RowKey> {
    let (prefix, epoch) = split(key)?;
    let row = prefix.strip_prefix(&REGISTRY.to_be_bytes())?.try_into().ok()?;
    (epoch == FIRST_EPOCH).then_some(RowKey(row))
}

/// Returns the range of all rows.
pub fn rows() -> (Vec<u8>, Vec<u8>) {
    group_range(REGISTRY)
}

/// Returns whether a key of the family Extents is in the range of rows; other keys there are invalid.
pub fn is_of_rows(key: &[u8]) -> bool {
    key.starts_with(&REGISTRY.to_be_bytes())
}

/// Returns vnode and uniquifier in a prefix made by [`FileKey::extent`].
pub fn file_of(prefix: &[u8]) -> Option<(VnodeId, u32)> {
    let word = |at: usize| Some(u32::from_be_bytes(prefix.get(at..at + 4)?.try_into().ok()?));
    Some((VnodeId(word(8)?), word(12)?))
}

/// Returns the index in a prefix made by [`FileKey::extent`].
pub fn index_of(prefix: &[u8]) -> Option<u64> {
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

    #[test]
    fn addresses_of_hosts_are_read_as_they_were_written() {
        let (from, to) = listed_hosts();
        for text in ["10.0.0.1:7001", "[2001:db8::1]:65535", "0.0.0.0:0", "[ffff:ffff::ffff]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let key = listed_host(address);
            assert_eq!(listed_host_of(&key), Some(address), "{text}");
            assert!(from < key && key < to, "{text}");
            for bad in [&key[..key.len() - 1], &[&key[..], &[0]].concat(), &key[1..], &from] {
                assert_eq!(listed_host_of(bad), None, "{bad:?}");
            }
        }
        assert!(to.as_slice() < LOCKS, "the next keys of the family");
    }

    #[test]
    fn files_with_locks_are_read_as_they_were_written() {
        let (from, to) = locks();
        for number in [0, 1, u32::MAX] {
            let fid = Fid { volume: VolumeId(number), vnode: VnodeId(number / 2), unique: number / 3 };
            let key = lock(fid);
            assert_eq!(lock_of(&key), Some(fid));
            assert!(from < key && key < to);
            for bad in [&key[..key.len() - 1], &[&key[..], &[0]].concat(), &key[1..], &from] {
                assert_eq!(lock_of(bad), None, "{bad:?}");
            }
        }
        assert!(to.as_slice() < RESULTS, "the next keys of the family");
    }

    #[test]
    fn calls_are_read_as_they_were_written() {
        let (from, to) = results();
        for call in [0, 1, u64::MAX].map(|number| CallId { process: u128::from(number) << 64, number }) {
            let (key, deleted) = (recorded_call(call), deleted_results(call.process));
            assert_eq!((recorded_call_of(&key), deleted_results_of(&key)), (Some(call), None));
            assert_eq!(
                (deleted_results_of(&deleted), recorded_call_of(&deleted)),
                (Some(call.process), None)
            );
            assert!(from < deleted && deleted < key && key < to);
            for bad in [&key[..key.len() - 1], &[&key[..], &[0]].concat(), &key[1..], &from] {
                assert_eq!((recorded_call_of(bad), deleted_results_of(bad)), (None, None), "{bad:?}");
            }
        }
        let last = recorded_call(CallId { process: u128::MAX, number: u64::MAX });
        assert!(last < to);
        assert!(to.as_slice() < SCRUB_STATE, "the next keys of the family");
    }
}
