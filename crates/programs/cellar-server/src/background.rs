//! Background threads: the purger, maintenance, and the reload of failed partitions.

use crate::clock;
use crate::environment::SystemClock;
use crate::threads::{thread, wait};
use fileserver::{Clock as _, FileServer};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use volserver::VolumeServer;
use volume::Volumes;

/// Pause between two steps of the purger while there is something to remove.
const PURGE_PAUSE: Duration = Duration::from_millis(5);
/// Pause of background threads while there is nothing to do.
const IDLE_PAUSE: Duration = Duration::from_millis(500);
/// Interval at which partitions are checked for failures.
const FAILURE_PERIOD: Duration = Duration::from_millis(250);
/// Interval at which expired callback promises, locks and volume transactions are removed.
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(30);

pub(crate) fn start_background(
    ending: &Arc<AtomicBool>,
    volumes: &Arc<Volumes>,
    file_server: Option<Arc<FileServer>>,
    volume_server: Option<Arc<VolumeServer>>,
    reclaim_pause: Duration,
) -> Vec<JoinHandle<()>> {
    let (purge_ending, purge_volumes) = (ending.clone(), volumes.clone());
    let (revert_ending, revert_volumes) = (ending.clone(), volumes.clone());
    let ending = ending.clone();
    let maintain = move || {
        let mut watch = clock::ClockWatch::default();
        let mut observe = || watch.observe(SystemClock.monotonic(), SystemClock.wall());
        observe();
        while wait(&ending, MAINTENANCE_PERIOD) {
            observe().into_iter().for_each(clock::log);
            if let Some(server) = &file_server {
                server.maintain();
            }
            if let Some(server) = &volume_server {
                server.expire_transactions();
            }
        }
    };
    let purge = move || purge(&purge_ending, &purge_volumes, reclaim_pause);
    let revert = move || revert(&revert_ending, &revert_volumes);
    vec![thread("purge", purge), thread("maintain", maintain), thread("revert", revert)]
}

/// Removes changes from memory that did not become durable.
fn revert(ending: &AtomicBool, volumes: &Volumes) {
    let mut pause = FAILURE_PERIOD;
    while wait(ending, pause) {
        pause = match volumes.revert_failed() {
            Ok(()) => FAILURE_PERIOD,
            Err(error) => {
                tracing::error!(%error, "a partition that has failed cannot be read");
                FAILURE_PERIOD * 40
            }
        };
    }
}

fn purge(ending: &AtomicBool, volumes: &Volumes, pause_min: Duration) {
    let mut pause = IDLE_PAUSE;
    while wait(ending, pause.max(pause_min)) {
        count(volumes);
        pause = match volumes.purge_step() {
            Ok(true) => PURGE_PAUSE,
            Ok(false) => IDLE_PAUSE,
            Err(error) => {
                tracing::error!(%error, "cannot reclaim space");
                IDLE_PAUSE * 20
            }
        };
    }
}

/// Computes the directory totals of a volume that has none.
fn count(volumes: &Volumes) {
    if let Err(error) = volumes.count_step() {
        tracing::error!(%error, "cannot compute the totals of a volume's directories");
    }
}
