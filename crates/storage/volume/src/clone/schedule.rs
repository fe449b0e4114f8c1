//! Decides which automatic snapshots are due or outdated, from a volume's policy and its existing snapshots.

use crate::core::volumes::Volumes;
use crate::{Kept, Snapshot, VolumeError};
use base::{UnixTime, VolumeId};
use volume_records::policy::{Automatic, Due};

/// What a volume's policy requires now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotDue {
    /// Nothing is due.
    Nothing,
    /// Make a snapshot for these periods.
    Make(Kept),
    /// Keep this snapshot for these periods too: the volume has not changed since.
    Keep(Snapshot, Kept),
}

impl Volumes {
    /// Returns what is due for a read-write volume; `Nothing` if it has no policy.
    pub fn snapshot_due(&self, volume: VolumeId, now: UnixTime) -> Result<SnapshotDue, VolumeError> {
        let Some(policy) = self.policy(volume)? else { return Ok(SnapshotDue::Nothing) };
        let changes = self.get_any_state(volume)?.changes();
        let snapshots = self.automatic_snapshots(volume)?;
        let facts: Vec<Automatic> = snapshots.iter().map(facts).collect();
        Ok(match policy.due(now, changes, &facts) {
            Due::Nothing => SnapshotDue::Nothing,
            Due::Make(kept) => SnapshotDue::Make(kept),
            Due::Keep { made, kept } => {
                let same = snapshots.into_iter().find(|one| one.made == made && one.changes == changes);
                same.map_or(SnapshotDue::Nothing, |same| SnapshotDue::Keep(same, kept))
            }
        })
    }

    /// Returns the automatic snapshots of a volume that its policy no longer keeps; none if it has no policy.
    pub fn outdated_snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>, VolumeError> {
        let Some(policy) = self.policy(volume)? else { return Ok(vec![]) };
        let snapshots = self.automatic_snapshots(volume)?;
        let facts: Vec<Automatic> = snapshots.iter().map(facts).collect();
        Ok(policy.expired(&facts).into_iter().map(|at| snapshots[at].clone()).collect())
    }

    fn automatic_snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>, VolumeError> {
        let mut all = self.snapshots(volume)?;
        all.retain(|snapshot| !snapshot.kept.is_none());
        Ok(all)
    }
}

fn facts(snapshot: &Snapshot) -> Automatic {
    let Snapshot { made, kept, changes, .. } = *snapshot;
    Automatic { made, kept, changes }
}
