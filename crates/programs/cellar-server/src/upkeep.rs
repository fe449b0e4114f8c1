//! Threads for compaction and scrubbing, two per partition.

use crate::threads::{thread, wait};
use base::PartitionId;
use cell_client::network::now;
use cellar_config::Upkeep;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use volume::{VolumeError, Volumes};

/// Pause while there is nothing to do.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(60);

/// Result of a step: its cost in bytes, and whether there was nothing to do.
type Step = Result<(u64, bool), VolumeError>;

/// Starts the threads of a partition that are enabled.
pub(super) fn start(
    ending: &Arc<AtomicBool>,
    volumes: &Arc<Volumes>,
    partition: PartitionId,
    upkeep: Upkeep,
) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    if upkeep.compaction_bytes_per_s > 0 {
        let (ending, volumes) = (Arc::clone(ending), Arc::clone(volumes));
        let step = move || {
            let step = volumes.compact_step(partition, upkeep.compaction, now())?;
            Ok((step.bytes, step.is_idle))
        };
        let rate = upkeep.compaction_bytes_per_s;
        let work = move || run(&ending, partition, "compaction", rate, step);
        threads.push(thread(format!("compact {partition}"), work));
    }
    if upkeep.scrub_bytes_per_s > 0 {
        let (ending, volumes) = (Arc::clone(ending), Arc::clone(volumes));
        let step = move || {
            let step = volumes.scrub_step(partition, upkeep.scrub, now())?;
            Ok((step.bytes, step.is_idle))
        };
        let rate = upkeep.scrub_bytes_per_s;
        let work = move || run(&ending, partition, "scrubbing", rate, step);
        threads.push(thread(format!("scrub {partition}"), work));
    }
    threads
}

/// Repeats a step, each time pausing as long as its bytes take at the configured rate.
fn run(
    ending: &AtomicBool,
    partition: PartitionId,
    what: &'static str,
    bytes_per_s: u64,
    step: impl Fn() -> Step,
) {
    let mut pause = IDLE_PAUSE;
    while wait(ending, pause) {
        pause = match step() {
            // Without the partition, it was lost or given up, or is not open yet.
            Ok((_, true)) | Err(VolumeError::NoPartition(_)) => IDLE_PAUSE,
            Ok((bytes, false)) => Duration::from_micros(bytes.saturating_mul(1_000_000) / bytes_per_s.max(1)),
            Err(error) => {
                tracing::error!(%partition, what, %error, "a step of background work failed; retrying in a \
                    minute");
                FAILURE_PAUSE
            }
        };
    }
}
