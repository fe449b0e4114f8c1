//! Error codes for clients that access a volume which was moved away.
//!
//! VMOVED blocks Linux's kafs: since 5.7 it waits for an update of the volume's location that never happens
//! (`afs_check_volume_status` waits for `AFS_VOLUME_WAIT`, which `afs_select_fileserver` has set just
//! before), and everything that uses the volume waits with it. After VNOVOL it does look the volume up, but
//! retries this server once, and fails at a second VNOVOL unless the same operation has found a volume
//! offline; after VOFFLINE it restarts with the location that it knows. A host therefore gets VNOVOL from
//! time to time and VOFFLINE otherwise, which directs each of its operations to the new server. OpenAFS's
//! clients look the volume up and retry after any of the three codes (`afs_Analyze`).
//!
//! Soon afterwards the volume itself is removed. VNOVOL alone would then be accurate, but kafs returns it to
//! its user as an error and may drop unwritten data. Volumes that have left are therefore remembered for a
//! while.

use base::{AbortCode, Monotonic, VolumeId};
use callbacks::HostId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// How long a host that got VNOVOL for a volume gets VOFFLINE. Meanwhile it looks up the volume and
/// identifies servers that it does not know, which may take seconds.
const LOOK_UP: Duration = Duration::from_secs(20);
/// Maximum number of remembered pairs of host and volume. A forgotten host gets VNOVOL again.
const TOLD_MAX: usize = 10_000;

/// How long a volume that has left is remembered: kafs looks volumes up again after an hour, others sooner.
const REMEMBERED: Duration = Duration::from_secs(2 * 3600);
/// Maximum number of remembered volumes. If more leave, some are forgotten too early.
const VOLUMES_MAX: usize = 100_000;

/// Volumes that have left, and when hosts got VNOVOL for a volume.
#[derive(Debug, Default)]
pub(crate) struct MovedAnswers {
    /// Last time that a host got VNOVOL. The mutex is never held while waiting.
    reported: Mutex<HashMap<(HostId, VolumeId), Monotonic>>,
    /// Time at which a volume left. The mutex is never held while waiting.
    left: Mutex<HashMap<VolumeId, Monotonic>>,
}

impl MovedAnswers {
    /// Records that a volume moves to another server.
    pub(crate) fn leaves(&self, volume: VolumeId, now: Monotonic) {
        let mut left = self.left.lock();
        if left.len() >= VOLUMES_MAX {
            left.retain(|_, then| now.since(*then) < REMEMBERED);
        }
        if left.len() >= VOLUMES_MAX {
            left.clear();
        }
        left.insert(volume, now);
    }

    /// Returns the code for a volume that is not here, before translation by [`Self::next`].
    pub(crate) fn absent(&self, volume: VolumeId, now: Monotonic) -> AbortCode {
        let left = self.left.lock().get(&volume).copied();
        let is_remembered = left.is_some_and(|then| now.since(then) < REMEMBERED);
        if is_remembered { AbortCode::VMOVED } else { AbortCode::VNOVOL }
    }

    /// Returns the code for `host` in place of VMOVED.
    pub(crate) fn next(&self, host: HostId, volume: VolumeId, now: Monotonic) -> AbortCode {
        let mut reported = self.reported.lock();
        if reported.get(&(host, volume)).is_some_and(|&then| now.since(then) < LOOK_UP) {
            return AbortCode::VOFFLINE;
        }
        if reported.len() >= TOLD_MAX {
            reported.clear();
        }
        reported.insert((host, volume), now);
        AbortCode::VNOVOL
    }
}
