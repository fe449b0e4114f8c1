//! Partitions that are configured and not open. Their volumes are expected, but not known.
//!
//! A volume that is not here gets VNOVOL. Linux's kafs then looks it up, finds that it should be here, and fails. After
//! VRESTARTING it repeats the call. That is right as long as the volume may be in a partition that is opened soon.

use crate::server::FileServer;
use base::{AbortCode, Monotonic, PartitionId, VolumeId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How long the volumes of a partition are expected. Then its users see an error.
const AWAITED_MAX: Duration = Duration::from_secs(600);

/// The partitions that are not open, and since when.
#[derive(Debug, Default)]
pub(crate) struct AwaitedPartitions(Mutex<BTreeMap<PartitionId, Monotonic>>);

impl AwaitedPartitions {
    fn is_any(&self, now: Monotonic) -> bool {
        self.0.lock().values().any(|since| now.since(*since) < AWAITED_MAX)
    }
}

impl FileServer {
    /// Records that a configured partition is not open. For ten minutes, calls to volumes that are not here, but should be
    /// according to the cell's location database, are answered with VRESTARTING or VBUSY, which clients repeat.
    pub fn await_partition(&self, partition: PartitionId) {
        let now = self.clock().monotonic();
        self.awaited().0.lock().entry(partition).or_insert(now);
    }

    /// Records that the volumes of a partition are known.
    pub fn partition_opened(&self, partition: PartitionId) {
        self.awaited().0.lock().remove(&partition);
    }

    /// Returns the code for a volume that is not here.
    pub(crate) fn absent(&self, volume: VolumeId) -> AbortCode {
        let now = self.clock().monotonic();
        match self.moved().absent(volume, now) {
            AbortCode::VNOVOL if self.awaited().is_any(now) => self.expected(volume),
            code => code,
        }
    }

    /// Returns the code for a volume that may be in a partition which is not open.
    fn expected(&self, volume: VolumeId) -> AbortCode {
        let number = volume.to_string();
        match self.locator().map(|locator| locator.locate(number.as_bytes())) {
            Some(Ok(info)) => {
                let sites = info.servers.iter().take(info.server_count as usize);
                let mut addresses = sites.map(|&address| IpAddr::from(Ipv4Addr::from(address)));
                let is_here = addresses.any(|address| self.network().is_own(address));
                if is_here { AbortCode::VRESTARTING } else { AbortCode::VNOVOL }
            }
            Some(Err(AbortCode::VBUSY)) => AbortCode::VBUSY,
            _ => AbortCode::VNOVOL,
        }
    }
}
