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

/// Begins a sync every `period`, regardless of the duration of the previous one. A failure is final: the
/// partition has logged it and accepts no more changes.
fn run(ending: &AtomicBool, volumes: &Volumes, partition: PartitionId, period: Duration) {
    let mut next = Instant::now() + period;
    while wait(ending, next.saturating_duration_since(Instant::now())) {
        next = Instant::now() + period;
        if let Err(error) = volumes.sync_partition(partition) {
            tracing::error!(%partition, %error, "recently acknowledged changes are not on disk");
            return;
        }
    }
}
