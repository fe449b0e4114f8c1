//! Makes changes durable that were acknowledged earlier: `durability = "close"` and `"interval:MS"`.

use crate::threads::wait;
use base::PartitionId;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use volume::Volumes;

/// Starts the thread of a partition. Each has its own, so that none waits for another's disk.
pub(super) fn start(
    ending: &Arc<AtomicBool>,
    volumes: &Arc<Volumes>,
    partition: PartitionId,
    period: Duration,
) -> JoinHandle<()> {
    let (ending, volumes) = (Arc::clone(ending), Arc::clone(volumes));
    crate::threads::thread(format!("sync {partition}"), move || run(&ending, &volumes, partition, period))
}

/// Begins a sync every `period`, regardless of the duration of the previous one. After a failure, a partition on a disk
/// accepts no more changes; one in a bucket may be opened again.
fn run(ending: &AtomicBool, volumes: &Volumes, partition: PartitionId, period: Duration) {
    let (mut next, mut has_failed) = (Instant::now() + period, false);
    while wait(ending, next.saturating_duration_since(Instant::now())) {
        next = Instant::now() + period;
        let synced = volumes.sync_partition(partition);
        if let Err(error) = &synced
            && !has_failed
        {
            tracing::error!(%partition, %error, "recently acknowledged changes are not on disk");
        }
        has_failed = synced.is_err();
    }
}
