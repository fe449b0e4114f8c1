//! Scheduled creation and removal of snapshots.

use crate::AdminServer;
use base::{AbortCode, SnapshotName, UnixTime, VolumeId};
use std::sync::atomic::{AtomicU32, Ordering};
use volume::{Kept, Period, Snapshot, SnapshotDue};

/// Delay before failed work is retried, in seconds.
const RETRY_SECONDS: u32 = 60;

/// Time of the next scheduled work, in seconds since 1970.
#[derive(Default)]
pub(crate) struct Keeper {
    next: AtomicU32,
}

impl Keeper {
    /// Schedules work for the next call.
    pub(crate) fn wake(&self) {
        self.next.store(0, Ordering::Relaxed);
    }

    /// Schedules work for this time, if none is scheduled earlier.
    fn wake_at(&self, when: UnixTime) {
        self.next.fetch_min(when.0, Ordering::Relaxed);
    }
}

impl AdminServer {
    /// Makes the snapshots that are due by their volumes' policies, and removes those that have expired. Call
    /// it every few seconds from a dedicated thread; it only does work at the start of an hour, when a
    /// snapshot expires, and after a policy was set. Failed work is retried a minute later.
    pub fn keep_snapshots(&self) {
        let now = (self.parts.clock)();
        if now.0 < self.keeper.next.load(Ordering::Relaxed) {
            return;
        }
        let hour = Period::Hour.begin(now).0.saturating_add(3600);
        self.keeper.next.store(hour, Ordering::Relaxed);
        if let Err(code) = self.keep_all(now) {
            tracing::error!(%code, "the snapshot policy could not be applied to all volumes; retrying");
            self.keeper.wake_at(UnixTime(now.0.saturating_add(RETRY_SECONDS)));
        }
    }

    /// Does all work that is due, even if some of it fails; returns the last error.
    fn keep_all(&self, now: UnixTime) -> Result<(), AbortCode> {
        let volumes = &self.parts.volumes;
        let mut result = Ok(());
        for (volume, _) in volumes.policies().map_err(|error| error.abort_code())? {
            if let Err(code) = self.keep_volume(volume, now) {
                tracing::warn!(%volume, %code, "the snapshot policy of a volume cannot be applied");
                result = Err(code);
            }
        }
        for snapshot in volumes.expiring_snapshots().map_err(|error| error.abort_code())? {
            if snapshot.expires > now {
                self.keeper.wake_at(snapshot.expires);
                continue;
            }
            result = self.remove_outdated(&snapshot).and(result);
        }
        result
    }

    fn keep_volume(&self, volume: VolumeId, now: UnixTime) -> Result<(), AbortCode> {
        let volumes = &self.parts.volumes;
        match volumes.snapshot_due(volume, now).map_err(|error| error.abort_code())? {
            SnapshotDue::Nothing => {}
            SnapshotDue::Make(kept) => {
                self.make_snapshot(volume, &automatic_name(now)?, UnixTime(0), kept)?;
            }
            SnapshotDue::Keep(same, kept) => self.keep_too(&same, kept)?,
        }
        let outdated = volumes.outdated_snapshots(volume).map_err(|error| error.abort_code())?;
        outdated.iter().try_for_each(|snapshot| self.remove_outdated(snapshot))
    }

    fn keep_too(&self, snapshot: &Snapshot, kept: Kept) -> Result<(), AbortCode> {
        let kept = self.parts.volumes.keep_snapshot(snapshot, kept, snapshot.expires);
        kept.map_err(|error| error.abort_code())
    }

    fn remove_outdated(&self, snapshot: &Snapshot) -> Result<(), AbortCode> {
        let removed = self.remove_one(snapshot);
        if let Err(code) = removed {
            tracing::warn!(snapshot = %snapshot.id, %code, "a snapshot that has expired cannot be removed");
        }
        removed
    }

    /// Schedules the removal of a new snapshot that expires at this time.
    pub(crate) fn expires_at(&self, when: UnixTime) {
        if when > UnixTime(0) {
            self.keeper.wake_at(when);
        }
    }
}

/// Returns `auto-` and the time in UTC.
fn automatic_name(now: UnixTime) -> Result<SnapshotName, AbortCode> {
    let time = jiff::Timestamp::from_second(now.0.into()).map_err(|_| AbortCode::UAEINVAL)?;
    time.strftime("auto-%Y%m%d-%H%M%S").to_string().parse().map_err(|_| AbortCode::UAEINVAL)
}
