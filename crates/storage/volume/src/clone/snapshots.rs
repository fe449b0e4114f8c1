//! Named snapshots: read-only clones of a read-write volume, any number of them.
//!
//! A snapshot is a volume with its own id and name, so that clients can mount it. Its header names the volume
//! it is a snapshot of; a record under the read-write volume's id lists it. Both are written in one batch.
//! Snapshots outlive their volume and are removed only by deleting them.

use crate::core::volume::Volume;
use crate::core::volumes::Volumes;
use crate::interface::error::damage;
use crate::{CloneVolume, Kept, Policy, SnapshotOf, VolumeError};
use base::{PartitionId, SnapshotName, UnixTime, VolumeId, VolumeName, VolumeType};
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, KeyRange};
use volume_records::codec::{self, SnapshotRecord};
use volume_records::{families, keys};

/// Parameters of a new snapshot.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Volume id of the snapshot, not 0.
    pub id: VolumeId,
    /// Read-write volume id for the header: an id without a volume, so that the snapshot is not taken for the
    /// volume's released read-only copy.
    pub parent: VolumeId,
    /// Volume name of the snapshot.
    pub volume_name: VolumeName,
    /// Name of the snapshot, unique within its volume.
    pub name: SnapshotName,
    /// Periods for which it is kept, if it was made automatically.
    pub kept: Kept,
    /// Expiry time; 0 for never.
    pub expires: UnixTime,
    /// Creation date.
    pub now: UnixTime,
}

/// A snapshot in the list of its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Volume id of the snapshot.
    pub id: VolumeId,
    /// Partition of the snapshot.
    pub partition: PartitionId,
    /// Volume it was taken of, and its name.
    pub of: SnapshotOf,
    /// Creation time.
    pub made: UnixTime,
    /// Expiry time; 0 for never.
    pub expires: UnixTime,
    /// Periods for which it is kept, if it was made automatically.
    pub kept: Kept,
    /// The volume's change count before the snapshot ([`Volume::changes`]).
    pub changes: u64,
}

impl Volume {
    /// Returns the number of changes of the contents: an equal number means equal contents.
    pub fn changes(&self) -> u64 {
        self.counters().changes
    }
}

impl Volumes {
    /// Makes a snapshot of a read-write volume's current state, durably and in constant time.
    pub fn snapshot(&self, volume: VolumeId, new: &NewSnapshot) -> Result<Arc<Volume>, VolumeError> {
        let changes = self.lock_changes();
        let source = self.get_any_state(volume)?;
        if source.kind() != VolumeType::ReadWrite || source.header().destroy_me != 0 {
            return Err(VolumeError::Invalid("only a finished read-write volume has snapshots"));
        }
        self.check_new_snapshot(volume, &new.name)?;
        let of = SnapshotOf { volume, name: new.name.clone() };
        let mut batch = Batch::new();
        let clone = CloneVolume {
            id: new.id,
            name: new.volume_name.clone(),
            kind: VolumeType::ReadOnly,
            now: new.now,
        };
        // A change before the clone is made is in the clone but not in this count; the snapshot then only
        // looks older than it is.
        let NewSnapshot { id, now: made, expires, kept, .. } = *new;
        let listed = SnapshotRecord { id, made, expires, kept, changes: source.changes() };
        batch.put(families::VOLUMES, keys::snapshot(volume, &new.name), codec::put_snapshot(&listed));
        self.clone_locked(changes, &source, &clone, batch, |header| {
            header.parent = new.parent;
            header.clone = new.id;
            header.backup = VolumeId(0);
            header.expires = new.expires;
            header.snapshot = Some(of);
        })
    }

    fn check_new_snapshot(&self, volume: VolumeId, name: &SnapshotName) -> Result<(), VolumeError> {
        match self.find_snapshot(volume, name)? {
            Some(_) => Err(VolumeError::SnapshotExists(volume, name.clone())),
            None => Ok(()),
        }
    }

    /// Returns the snapshots of a volume, oldest first; the volume may have been deleted. Reads no other
    /// volume's list.
    pub fn snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>, VolumeError> {
        let mut found = Vec::new();
        self.visit_snapshots(&keys::snapshots(volume), &mut |snapshot| found.push(snapshot))?;
        found.sort_by_key(|snapshot| (snapshot.made, snapshot.id));
        Ok(found)
    }

    /// Returns a volume's snapshot with this name.
    pub fn find_snapshot(
        &self,
        volume: VolumeId,
        name: &SnapshotName,
    ) -> Result<Option<Snapshot>, VolumeError> {
        let from = keys::snapshot(volume, name);
        let to = [&from[..], &[0]].concat();
        let mut found = None;
        self.visit_snapshots(&(from, to), &mut |snapshot| found = Some(snapshot))?;
        Ok(found)
    }

    /// Returns the snapshots of all volumes that have an expiry time.
    pub fn expiring_snapshots(&self) -> Result<Vec<Snapshot>, VolumeError> {
        let mut found = Vec::new();
        let range = keys::registry_range(keys::Registry::Snapshot);
        self.visit_snapshots(&range, &mut |snapshot| {
            if snapshot.expires > UnixTime(0) {
                found.push(snapshot);
            }
        })?;
        Ok(found)
    }

    fn visit_snapshots(
        &self,
        (from, to): &(Vec<u8>, Vec<u8>),
        visit: &mut dyn FnMut(Snapshot),
    ) -> Result<(), VolumeError> {
        for home in self.homes() {
            let mut damaged = None;
            home.handle.meta.scan(families::VOLUMES, KeyRange::ascending(from, to), &mut |key, value| {
                match read_snapshot(home.handle.id, key, value) {
                    Some(snapshot) => visit(snapshot),
                    None => {
                        damaged = Some(damage(families::VOLUMES, key, "the snapshot"));
                    }
                }
                ControlFlow::Continue(())
            })?;
            damaged.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Changes the retention periods and expiry time of a snapshot, durably.
    ///
    /// # Errors
    /// `NoVolume` (the snapshot was deleted), `Store`.
    pub fn keep_snapshot(
        &self,
        snapshot: &Snapshot,
        kept: Kept,
        expires: UnixTime,
    ) -> Result<(), VolumeError> {
        let changes = self.lock_changes();
        let volume = self.get_any_state(snapshot.id)?;
        if volume.header().snapshot.as_ref() != Some(&snapshot.of) {
            return Err(VolumeError::NoVolume(snapshot.id));
        }
        let Snapshot { id, made, changes: at, .. } = *snapshot;
        let listed = SnapshotRecord { id, made, expires, kept, changes: at };
        let mut batch = Batch::new();
        let key = keys::snapshot(snapshot.of.volume, &snapshot.of.name);
        batch.put(families::VOLUMES, key, codec::put_snapshot(&listed));
        let number = volume.meta().commit(batch)?;
        drop(changes);
        volume.settle(number, vec![])
    }

    /// Returns a read-write volume's snapshot policy; `None` if there are no automatic snapshots.
    pub fn policy(&self, volume: VolumeId) -> Result<Option<Policy>, VolumeError> {
        let key = keys::policy(volume);
        let value = self.get_any_state(volume)?.meta().get(families::VOLUMES, &key)?;
        let read = |value: bytes::Bytes| {
            let damaged = || damage(families::VOLUMES, &key, "the policy");
            codec::get_policy(&value).ok_or_else(damaged)
        };
        value.map(read).transpose()
    }

    /// Sets the snapshot policy, durably.
    pub fn set_policy(&self, volume: VolumeId, policy: Option<Policy>) -> Result<(), VolumeError> {
        let changes = self.lock_changes();
        let volume = self.get_any_state(volume)?;
        if volume.kind() != VolumeType::ReadWrite {
            return Err(VolumeError::Invalid("only a read-write volume has snapshots"));
        }
        let mut batch = Batch::new();
        let key = keys::policy(volume.id());
        match policy {
            Some(policy) => batch.put(families::VOLUMES, key, codec::put_policy(policy)),
            None => batch.delete(families::VOLUMES, key),
        }
        let number = volume.meta().commit(batch)?;
        drop(changes);
        volume.settle(number, vec![])
    }

    /// Returns all volumes with a policy. Unreadable policies are logged and skipped.
    pub fn policies(&self) -> Result<Vec<(VolumeId, Policy)>, VolumeError> {
        let (from, to) = keys::registry_range(keys::Registry::Policy);
        let mut found = Vec::new();
        for home in self.homes() {
            home.handle.meta.scan(
                families::VOLUMES,
                KeyRange::ascending(&from, &to),
                &mut |key, value| {
                    let id = key.get(9..).and_then(|id| id.try_into().ok()).map(u32::from_be_bytes);
                    let policy = id.map(VolumeId).zip(codec::get_policy(value));
                    if policy.is_none() {
                        tracing::error!(?key, "a snapshot policy cannot be read");
                    }
                    found.extend(policy);
                    ControlFlow::Continue(())
                },
            )?;
        }
        Ok(found)
    }
}

fn read_snapshot(partition: PartitionId, key: &[u8], value: &[u8]) -> Option<Snapshot> {
    let (volume, name) = keys::snapshot_of(key)?;
    let SnapshotRecord { id, made, expires, kept, changes } = codec::get_snapshot(name, value)?;
    let name = std::str::from_utf8(name).ok()?.parse().ok()?;
    Some(Snapshot { id, partition, of: SnapshotOf { volume, name }, made, expires, kept, changes })
}
