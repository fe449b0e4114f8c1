//! What clients are told of a volume that was moved away.
//!
//! VMOVED stops Linux's kafs: since 5.7 it waits for an update of the volume's location that nobody makes
//! (`afs_check_volume_status` waits for `AFS_VOLUME_WAIT`, which `afs_select_fileserver` has set just before), and
//! everything that uses the volume waits with it. After VNOVOL it does look the volume up, but asks this server
//! once more, and fails at a second VNOVOL unless the same operation has found a volume offline; after VOFFLINE it
//! begins anew with what it knows of the location. So a host is told VNOVOL now and then and VOFFLINE otherwise,
//! which brings each of its operations to the new server. OpenAFS's clients do the same after any of the three
//! codes: they look the volume up and try again (`afs_Analyze`).
//!
//! Soon after, the volume itself is gone, and VNOVOL alone would be the truth: to kafs that is an error which it
//! gives to its user, and may drop what was to be written. So volumes that have left are remembered for a while.

use base::{AbortCode, Monotonic, VolumeId};
use callbacks::HostId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// How long a host that was told VNOVOL of a volume hears VOFFLINE: it looks the volume up meanwhile, and asks servers that
/// it has not met who they are, which may take seconds.
const LOOK_UP: Duration = Duration::from_secs(20);
/// Hosts and volumes that are remembered; who is forgotten hears VNOVOL once more.
const TOLD_MAX: usize = 10_000;

/// How long a volume that has left is remembered: kafs looks volumes up again after an hour, others sooner.
const REMEMBERED: Duration = Duration::from_secs(2 * 3600);
/// Volumes that are remembered at most; some are forgotten too early if more leave.
const VOLUMES_MAX: usize = 100_000;

/// Which volumes have left, and whom VNOVOL was said to of which, and when.
#[derive(Debug, Default)]
pub(crate) struct MovedAnswers {
    /// Nothing waits under it.
    told: Mutex<HashMap<(HostId, VolumeId), Monotonic>>,
    /// Nothing waits under it.
    left: Mutex<HashMap<VolumeId, Monotonic>>,
}

impl MovedAnswers {
    /// A volume leaves for another server.
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

    /// The code for a volume that is not here, before [`Self::next`].
    pub(crate) fn absent(&self, volume: VolumeId, now: Monotonic) -> AbortCode {
        let left = self.left.lock().get(&volume).copied();
        let is_remembered = left.is_some_and(|then| now.since(then) < REMEMBERED);
        if is_remembered { AbortCode::VMOVED } else { AbortCode::VNOVOL }
    }

    /// The code for `host` in place of VMOVED.
    pub(crate) fn next(&self, host: HostId, volume: VolumeId, now: Monotonic) -> AbortCode {
        let mut told = self.told.lock();
        if told.get(&(host, volume)).is_some_and(|&then| now.since(then) < LOOK_UP) {
            return AbortCode::VOFFLINE;
        }
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        told.insert((host, volume), now);
        AbortCode::VNOVOL
    }
}
