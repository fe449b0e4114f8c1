//! What clients are told of a volume that was moved away.
//!
//! VMOVED stops Linux's kafs: since 5.7 it waits for an update of the volume's location that nobody makes
//! (`afs_check_volume_status` waits for `AFS_VOLUME_WAIT`, which `afs_select_fileserver` has set just before), and
//! everything that uses the volume waits with it. After VNOVOL it does look the volume up, but asks this server
//! once more, and fails at a second VNOVOL unless the same operation has found a volume offline; after VOFFLINE it
//! begins anew with what it knows of the location. So a host is told VNOVOL now and then and VOFFLINE otherwise,
//! which brings each of its operations to the new server. OpenAFS's clients do the same after any of the three
//! codes: they look the volume up and try again (`afs_Analyze`).

use base::{AbortCode, Monotonic};
use callbacks::HostId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// How long a host that was told VNOVOL hears VOFFLINE: it looks the volume up meanwhile.
const LOOK_UP: Duration = Duration::from_secs(2);
/// Hosts that are remembered; who is forgotten hears VNOVOL once more.
const HOSTS_MAX: usize = 10_000;

/// Whom VNOVOL was said to, and when.
#[derive(Debug, Default)]
pub(crate) struct MovedAnswers {
    /// Nothing waits under it.
    told: Mutex<HashMap<HostId, Monotonic>>,
}

impl MovedAnswers {
    /// The code for `host` in place of VMOVED.
    pub(crate) fn next(&self, host: HostId, now: Monotonic) -> AbortCode {
        let mut told = self.told.lock();
        if told.get(&host).is_some_and(|&then| now.since(then) < LOOK_UP) {
            return AbortCode::VOFFLINE;
        }
        if told.len() >= HOSTS_MAX {
            told.clear();
        }
        told.insert(host, now);
        AbortCode::VNOVOL
    }
}
