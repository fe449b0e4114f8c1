//! Named snapshots: the calls, and the scheduled work of the server.

mod host;
mod keeper;
#[cfg(test)]
mod tests;

pub use host::{SnapshotEntry, SnapshotHost};
pub(crate) use keeper::Keeper;

use crate::AdminServer;
use afs_idl::cellar::{self, SNAPSHOTS_MAX, SnapshotInfo, SnapshotPolicy};
use base::{AbortCode, CallContext, Caller, SnapshotName, UnixTime, VolumeId, VolumeName, VolumeType};
use std::sync::Arc;
use volume::{Held, Kept, NewSnapshot, Policy, Snapshot, Volume, VolumeError};
use xdr::XdrString;

/// Maximum length of a name that clients can mount: with `.readonly` it must still be a valid volume name.
const MOUNTED_NAME_BYTES_MAX: usize = VolumeName::LENGTH_BYTES_MAX - READ_ONLY.len();

/// Suffix of the name of every read-only volume.
const READ_ONLY: &str = ".readonly";

fn code(error: &VolumeError) -> AbortCode {
    match error {
        VolumeError::SnapshotExists(..) => AbortCode::UAEEXIST,
        other => other.abort_code(),
    }
}

fn name_of(name: &XdrString) -> Result<SnapshotName, AbortCode> {
    name.as_str().and_then(|name| name.parse().ok()).ok_or(AbortCode::UAEINVAL)
}

impl AdminServer {
    /// CreateSnapshot (opcode 100).
    pub(crate) fn create_snapshot(
        &self,
        caller: &Caller,
        request: cellar::CreateSnapshotRequest,
    ) -> Result<cellar::CreateSnapshotReply, AbortCode> {
        self.administer(caller, "CreateSnapshot")?;
        let (name, expires) = (name_of(&request.name)?, UnixTime(request.expires));
        let made = self.make_snapshot(VolumeId(request.volume), &name, expires, Kept::default())?;
        self.expires_at(expires);
        Ok(cellar::CreateSnapshotReply { snapshot: self.info(&made) })
    }

    /// ListSnapshots (opcode 101).
    pub(crate) fn list_snapshots(
        &self,
        caller: &Caller,
        request: cellar::ListSnapshotsRequest,
    ) -> Result<cellar::ListSnapshotsReply, AbortCode> {
        self.check_verified(caller)?;
        let all = self.parts.volumes.snapshots(VolumeId(request.volume)).map_err(|error| code(&error))?;
        let wanted = all.iter().skip(request.skip as usize).take(SNAPSHOTS_MAX);
        Ok(cellar::ListSnapshotsReply { snapshots: wanted.map(|snapshot| self.info(snapshot)).collect() })
    }

    /// GetSnapshotSpace (opcode 102). For administrators only, since it walks all records that the snapshot
    /// shares.
    pub(crate) fn get_snapshot_space(
        &self,
        caller: &Caller,
        request: cellar::GetSnapshotSpaceRequest,
    ) -> Result<cellar::GetSnapshotSpaceReply, AbortCode> {
        self.administer(caller, "GetSnapshotSpace")?;
        let snapshot = self.find_snapshot(request.volume, &request.name)?;
        let held = self.parts.volumes.held_only_by(snapshot.id).map_err(|error| code(&error))?;
        let Held { records, record_bytes, chunks, chunk_bytes } = held;
        Ok(cellar::GetSnapshotSpaceReply { records, record_bytes, chunks, chunk_bytes })
    }

    /// RemoveSnapshot (opcode 103).
    pub(crate) fn remove_snapshot(
        &self,
        caller: &CallContext<'_>,
        request: cellar::RemoveSnapshotRequest,
    ) -> Result<cellar::RemoveSnapshotReply, AbortCode> {
        self.administer(caller, "RemoveSnapshot")?;
        let snapshot = self.find_snapshot(request.volume, &request.name)?;
        caller.note_volume(snapshot.id);
        self.remove_one(&snapshot)?;
        Ok(cellar::RemoveSnapshotReply)
    }

    /// RollBackVolume (opcode 104).
    pub(crate) fn roll_back_volume(
        &self,
        caller: &CallContext<'_>,
        request: cellar::RollBackVolumeRequest,
    ) -> Result<cellar::RollBackVolumeReply, AbortCode> {
        self.administer(caller, "RollBackVolume")?;
        let snapshot = self.find_snapshot(request.volume, &request.name)?;
        let volume = snapshot.of.volume;
        let partition = self.read_write(volume)?.partition();
        if partition != snapshot.partition {
            return Err(AbortCode::UAEXDEV);
        }
        caller.note_volume(volume);
        let now = (self.parts.clock)();
        self.host().exclusively(volume, partition, &mut || {
            let rolled_back = self.parts.volumes.roll_back(volume, snapshot.id, now);
            rolled_back.map(drop).map_err(|error| code(&error))
        })?;
        tracing::info!(%volume, snapshot = %snapshot.id, name = %snapshot.of.name, "a volume is rolled back");
        self.host().volume_changed(volume);
        Ok(cellar::RollBackVolumeReply)
    }

    /// GetSnapshotPolicy (opcode 105).
    pub(crate) fn get_snapshot_policy(
        &self,
        caller: &Caller,
        request: cellar::GetSnapshotPolicyRequest,
    ) -> Result<cellar::GetSnapshotPolicyReply, AbortCode> {
        self.check_verified(caller)?;
        let policy = self.parts.volumes.policy(VolumeId(request.volume)).map_err(|error| code(&error))?;
        let Policy { hourly, daily, weekly, monthly } = policy.unwrap_or_default();
        let [hourly, daily, weekly, monthly] = [hourly, daily, weekly, monthly].map(u32::from);
        Ok(cellar::GetSnapshotPolicyReply { policy: SnapshotPolicy { hourly, daily, weekly, monthly } })
    }

    /// SetSnapshotPolicy (opcode 106).
    pub(crate) fn set_snapshot_policy(
        &self,
        caller: &Caller,
        request: cellar::SetSnapshotPolicyRequest,
    ) -> Result<cellar::SetSnapshotPolicyReply, AbortCode> {
        self.administer(caller, "SetSnapshotPolicy")?;
        let volume = self.read_write(VolumeId(request.volume))?;
        let count = |count: u32| u16::try_from(count).map_err(|_| AbortCode::UAEINVAL);
        let SnapshotPolicy { hourly, daily, weekly, monthly } = request.policy;
        let policy = Policy {
            hourly: count(hourly)?,
            daily: count(daily)?,
            weekly: count(weekly)?,
            monthly: count(monthly)?,
        };
        let wanted = (!policy.is_empty()).then_some(policy);
        self.parts.volumes.set_policy(volume.id(), wanted).map_err(|error| code(&error))?;
        self.keeper.wake();
        Ok(cellar::SetSnapshotPolicyReply)
    }
}

impl AdminServer {
    pub(crate) fn host(&self) -> &dyn SnapshotHost {
        &*self.parts.snapshots
    }

    fn read_write(&self, volume: VolumeId) -> Result<Arc<Volume>, AbortCode> {
        let volume = self.parts.volumes.get_any_state(volume).map_err(|error| code(&error))?;
        if volume.kind() == VolumeType::ReadWrite { Ok(volume) } else { Err(AbortCode::UAEROFS) }
    }

    /// Returns the snapshot with this name, or ENOENT.
    pub(crate) fn find_snapshot(&self, volume: u32, name: &XdrString) -> Result<Snapshot, AbortCode> {
        let found = self.parts.volumes.find_snapshot(VolumeId(volume), &name_of(name)?);
        found.map_err(|error| code(&error))?.ok_or(AbortCode::UAENOENT)
    }

    /// Makes a snapshot and its entry in the location database; on failure neither remains.
    pub(crate) fn make_snapshot(
        &self,
        volume: VolumeId,
        name: &SnapshotName,
        expires: UnixTime,
        kept: Kept,
    ) -> Result<Snapshot, AbortCode> {
        let (volumes, source) = (&self.parts.volumes, self.read_write(volume)?);
        let failed = |error: VolumeError| code(&error);
        if volumes.find_snapshot(volume, name).map_err(failed)?.is_some() {
            return Err(AbortCode::UAEEXIST);
        }
        let parent = self.host().new_ids()?;
        let id = VolumeId(parent.0 + 1);
        let entry_name = self.entry_name(&source.header().name, name, id)?;
        let now = (self.parts.clock)();
        let full_name = format!("{entry_name}{READ_ONLY}").parse().map_err(|_| AbortCode::UAEINVAL)?;
        let new = NewSnapshot { id, parent, volume_name: full_name, name: name.clone(), kept, expires, now };
        volumes.snapshot(volume, &new).map_err(failed)?;
        let entry = SnapshotEntry { name: entry_name, parent, id, partition: source.partition() };
        if let Err(code) = self.host().register(&entry) {
            volumes.delete(id).map_err(failed)?;
            return Err(code);
        }
        tracing::info!(%volume, snapshot = %id, %name, "a snapshot is made");
        volumes.find_snapshot(volume, name).map_err(failed)?.ok_or(AbortCode::UAENOENT)
    }

    /// Returns `VOLUME.snap.NAME` if it is short enough and not in use, otherwise `snap.NUMBER`.
    fn entry_name(
        &self,
        volume: &VolumeName,
        name: &SnapshotName,
        id: VolumeId,
    ) -> Result<String, AbortCode> {
        let long = format!("{volume}.snap.{name}");
        let is_fine = long.len() <= MOUNTED_NAME_BYTES_MAX && !self.host().is_name_taken(&long)?;
        Ok(if is_fine { long } else { format!("snap.{id}") })
    }

    fn info(&self, snapshot: &Snapshot) -> SnapshotInfo {
        let header = self.parts.volumes.get_any_state(snapshot.id).ok().map(|volume| volume.header());
        let full_name = header.as_ref().map_or("", |header| header.name.as_str());
        SnapshotInfo {
            volume: snapshot.id.0,
            volume_name: full_name.into(),
            name: snapshot.of.name.as_str().into(),
            partition: snapshot.partition.index(),
            made: snapshot.made.0,
            expires: snapshot.expires.0,
            kept: snapshot.kept.bits().into(),
            used_kib: header.as_ref().map_or(0, |header| header.used_kib),
            files: header.as_ref().map_or(0, |header| header.file_count),
        }
    }

    /// Removes a snapshot. Its entry is removed first: what remains after a failure is still listed, and can
    /// be removed again.
    pub(crate) fn remove_one(&self, snapshot: &Snapshot) -> Result<(), AbortCode> {
        let (id, partition) = (snapshot.id, snapshot.partition);
        self.host().exclusively(id, partition, &mut || {
            self.host().unregister(id)?;
            self.parts.volumes.delete(id).map_err(|error| code(&error))
        })?;
        tracing::info!(volume = %snapshot.of.volume, snapshot = %id, name = %snapshot.of.name, "a snapshot is removed");
        self.host().volume_changed(id);
        Ok(())
    }
}
