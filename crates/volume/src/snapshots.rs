//! Named snapshots: read-only clones that a read-write volume has by name, any number of them.
//!
//! A snapshot is a volume with an id and a name of its own, so that clients can mount it. Its header says
//! what it is a snapshot of; a record under the read-write volume's id lists it. Both are written in one batch.
//! Snapshots of a volume outlive it: nothing but their own deletion takes them away.

use crate::record::{self, SnapshotRecord};
use crate::volume::Volume;
use crate::volumes::Volumes;
use crate::{CloneVolume, Kept, Policy, SnapshotOf, VolumeError, VolumeHeader, keys};
use base::{PartitionId, SnapshotName, UnixTime, VolumeId, VolumeName, VolumeType};
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, Family, KeyRange};

/// What is needed to make a snapshot.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Its id, not 0.
    pub id: VolumeId,
    /// What its header says is its read-write volume: a number without a volume, so that nobody takes
    /// it for the volume's released read-only copy.
    pub parent: VolumeId,
    /// Its name among all volumes.
    pub volume_name: VolumeName,
    /// Its name among the volume's snapshots.
    pub name: SnapshotName,
    /// Why it is kept, if it was made automatically.
    pub kept: Kept,
    /// When it is deleted; 0 never.
    pub expires: UnixTime,
    /// Becomes its creation date.
    pub now: UnixTime,
}

/// A snapshot in the list of its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The volume that shows it.
    pub id: VolumeId,
    /// Where it is.
    pub partition: PartitionId,
    /// What it is a snapshot of.
    pub of: SnapshotOf,
    /// When it was made.
    pub made: UnixTime,
    /// When it is deleted; 0 never.
    pub expires: UnixTime,
    /// Why it is kept, if it was made automatically.
    pub kept: Kept,
    /// How often the volume had changed before ([`Volume::changes`]).
    pub changes: u64,
}

impl Volume {
    /// How often its contents have changed: the same number, the same contents.
    pub fn changes(&self) -> u64 {
        self.counters().changes
    }
}

impl Volumes {
    /// Makes a snapshot of a read-write volume as it is now, durably and in constant time.
    ///
    /// # Errors
    /// `NoVolume`, `VolumeExists`, `SnapshotExists`, `Invalid` (id 0, not a read-write volume, or one that is not
    /// finished), `Store`.
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
        // What is changed until the clone is made is in it and not in this number: then it looks older than it is.
        let NewSnapshot { id, now: made, expires, kept, .. } = *new;
        let listed = SnapshotRecord { id, made, expires, kept, changes: source.changes() };
        batch.put(Family::Volumes, keys::snapshot(volume, &new.name), record::put_snapshot(&listed));
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

    /// The snapshots of a volume, which may be gone, the oldest first. Looks at no others.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub fn snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>, VolumeError> {
        let mut found = Vec::new();
        self.visit_snapshots(&keys::snapshots(volume), &mut |snapshot| found.push(snapshot))?;
        found.sort_by_key(|snapshot| (snapshot.made, snapshot.id));
        Ok(found)
    }

    /// One of them.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
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

    /// All snapshots of all volumes that expire at some time.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
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
            home.handle.meta.scan(Family::Volumes, KeyRange::ascending(from, to), &mut |key, value| {
                match read_snapshot(home.handle.id, key, value) {
                    Some(snapshot) => visit(snapshot),
                    None => damaged = Some(crate::epochs::damage(Family::Volumes, key, "the snapshot")),
                }
                ControlFlow::Continue(())
            })?;
            damaged.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Changes why and how long a snapshot is kept, durably.
    ///
    /// # Errors
    /// `NoVolume` (it is gone), `Store`.
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
        batch.put(Family::Volumes, key, record::put_snapshot(&listed));
        let number = volume.meta().commit(batch)?;
        drop(changes);
        volume.settle(number, vec![])
    }

    /// How a read-write volume's snapshots are made and kept; `None` if nothing is automatic.
    ///
    /// # Errors
    /// `NoVolume`, `Damaged`, `Store`.
    pub fn policy(&self, volume: VolumeId) -> Result<Option<Policy>, VolumeError> {
        let key = keys::policy(volume);
        let value = self.get_any_state(volume)?.meta().get(Family::Volumes, &key)?;
        let read = |value: bytes::Bytes| {
            let damaged = || crate::epochs::damage(Family::Volumes, &key, "the policy");
            record::get_policy(&value).ok_or_else(damaged)
        };
        value.map(read).transpose()
    }

    /// Sets it, durably.
    ///
    /// # Errors
    /// `NoVolume`, `Invalid` (not a read-write volume), `Store`.
    pub fn set_policy(&self, volume: VolumeId, policy: Option<Policy>) -> Result<(), VolumeError> {
        let changes = self.lock_changes();
        let volume = self.get_any_state(volume)?;
        if volume.kind() != VolumeType::ReadWrite {
            return Err(VolumeError::Invalid("only a read-write volume has snapshots"));
        }
        let mut batch = Batch::new();
        let key = keys::policy(volume.id());
        match policy {
            Some(policy) => batch.put(Family::Volumes, key, record::put_policy(policy)),
            None => batch.delete(Family::Volumes, key),
        }
        let number = volume.meta().commit(batch)?;
        drop(changes);
        volume.settle(number, vec![])
    }

    /// All volumes with a policy. One that cannot be read is left out, and the log says so.
    ///
    /// # Errors
    /// `Store`.
    pub fn policies(&self) -> Result<Vec<(VolumeId, Policy)>, VolumeError> {
        let (from, to) = keys::registry_range(keys::Registry::Policy);
        let mut found = Vec::new();
        for home in self.homes() {
            home.handle.meta.scan(Family::Volumes, KeyRange::ascending(&from, &to), &mut |key, value| {
                let id = key.get(9..).and_then(|id| id.try_into().ok()).map(u32::from_be_bytes);
                let policy = id.map(VolumeId).zip(record::get_policy(value));
                if policy.is_none() {
                    tracing::error!(?key, "a policy of snapshots cannot be read");
                }
                found.extend(policy);
                ControlFlow::Continue(())
            })?;
        }
        Ok(found)
    }
}

fn read_snapshot(partition: PartitionId, key: &[u8], value: &[u8]) -> Option<Snapshot> {
    let (volume, name) = keys::snapshot_of(key)?;
    let SnapshotRecord { id, made, expires, kept, changes } = record::get_snapshot(name, value)?;
    let name = std::str::from_utf8(name).ok()?.parse().ok()?;
    Some(Snapshot { id, partition, of: SnapshotOf { volume, name }, made, expires, kept, changes })
}

/// Takes a volume out of the list of snapshots, if it is one.
pub(crate) fn forget_snapshot(batch: &mut Batch, header: &VolumeHeader) {
    if let Some(SnapshotOf { volume, name }) = &header.snapshot {
        batch.delete(Family::Volumes, keys::snapshot(*volume, name));
    }
}

/// Takes away what is recorded of a volume besides itself: its place in the list of snapshots, its policy. Its
/// own snapshots stay.
pub(crate) fn forget_snapshots(batch: &mut Batch, volume: &Volume) {
    forget_snapshot(batch, &volume.header());
    if volume.kind() == VolumeType::ReadWrite {
        batch.delete(Family::Volumes, keys::policy(volume.id()));
    }
}
