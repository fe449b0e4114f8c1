//! Online checks of partitions: at most one per partition, each on its own thread.

use crate::AdminServer;
use afs_idl::cellar::{
    CheckCounts, CheckDamage, DAMAGES_MAX, GetCheckDamagesReply, GetCheckDamagesRequest, GetCheckReply,
    GetCheckRequest, StartCheckReply, StartCheckRequest, StopCheckReply, StopCheckRequest, TEXT_MAX,
};
use base::{AbortCode, Caller, PartitionId, VolumeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use volume::{VolumeError, Volumes};
use volume_check::{Check, CheckOptions, CheckReport, Checkpoint, Damage, Stage};

/// Outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Done = 2,
    Stopped = 3,
    Failed = 4,
}

/// The last check of a partition.
struct Job {
    check: Arc<Check>,
    thread: Option<JoinHandle<Ending>>,
    ending: Option<Ending>,
}

/// Runs a check of a partition; returns `None` if it was stopped.
fn run(volumes: &Volumes, partition: PartitionId, check: &Check) -> Result<Option<CheckReport>, VolumeError> {
    let reader = volumes.partition_reader(partition)?;
    Ok(check.run(&reader, &|state| reader.audit(state))?)
}

/// The checks of a server; dropping them stops them.
#[derive(Default)]
pub(crate) struct Checks(Mutex<HashMap<u32, Job>>);

impl Job {
    fn start(volumes: &Arc<Volumes>, partition: PartitionId, check: Check) -> Result<Job, AbortCode> {
        let (volumes, check) = (Arc::clone(volumes), Arc::new(check));
        let run = {
            let check = Arc::clone(&check);
            move || match run(&volumes, partition, &check) {
                Ok(Some(_)) => Ending::Done,
                Ok(None) => Ending::Stopped,
                Err(error) => {
                    tracing::error!(%partition, %error, "a check failed");
                    Ending::Failed
                }
            }
        };
        let thread = std::thread::Builder::new().name("check".into()).spawn(run);
        let thread = thread.map_err(|_| AbortCode::UAEIO)?;
        Ok(Job { check, thread: Some(thread), ending: None })
    }

    /// Returns the outcome; `None` while the check is running.
    fn ending(&mut self) -> Option<Ending> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            self.ending = Some(thread.join().unwrap_or(Ending::Failed));
        }
        self.ending
    }

    /// Stops the check and waits for its thread.
    fn stop(&mut self) {
        self.check.stop();
        if let Some(thread) = self.thread.take() {
            self.ending = Some(thread.join().unwrap_or(Ending::Failed));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Checks {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<u32, Job>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AdminServer {
    /// StartCheck (opcode 330).
    pub(crate) fn start_check(
        &self,
        caller: &Caller,
        request: StartCheckRequest,
    ) -> Result<StartCheckReply, AbortCode> {
        self.administer(caller, "StartCheck")?;
        let partition = PartitionId::from_index(request.partition);
        let known = partition.filter(|id| self.parts.volumes.partitions().contains(id));
        let partition = known.ok_or(AbortCode::UAENODEV)?;
        let checkpoint =
            Checkpoint { volume: VolumeId(request.volume), chunk: (request.segment, request.offset) };
        let options = CheckOptions { data: request.data != 0 };
        self.checks.with(|jobs| {
            if jobs.get_mut(&request.partition).is_some_and(|job| job.ending().is_none()) {
                return Err(AbortCode::UAEBUSY);
            }
            let check = Check::new(options, request.percent, checkpoint);
            let job = Job::start(&self.parts.volumes, partition, check)?;
            jobs.insert(request.partition, job);
            Ok(StartCheckReply)
        })
    }

    /// GetCheck (opcode 331).
    pub(crate) fn get_check(
        &self,
        caller: &Caller,
        request: GetCheckRequest,
    ) -> Result<GetCheckReply, AbortCode> {
        self.administer(caller, "GetCheck")?;
        self.checks.with(|jobs| {
            let Some(job) = jobs.get_mut(&request.partition) else { return Ok(GetCheckReply::default()) };
            // Read before the state, so that the results of a finished check are complete.
            let ending = job.ending();
            let state = job.check.state();
            let progress = state.progress;
            Ok(GetCheckReply {
                state: ending.map_or(1, |ending| ending as u32),
                stage: progress.map_or(0, |progress| stage(progress.stage)),
                done: progress.map_or(0, |progress| progress.done),
                total: progress.map_or(0, |progress| progress.total),
                volume: state.checkpoint.volume.0,
                segment: state.checkpoint.chunk.0,
                offset: state.checkpoint.chunk.1,
                records: counts(&state.records),
                found: counts(&state.found),
            })
        })
    }

    /// GetCheckDamages (opcode 332).
    pub(crate) fn get_check_damages(
        &self,
        caller: &Caller,
        request: GetCheckDamagesRequest,
    ) -> Result<GetCheckDamagesReply, AbortCode> {
        self.administer(caller, "GetCheckDamages")?;
        self.checks.with(|jobs| {
            let Some(job) = jobs.get(&request.partition) else { return Ok(GetCheckDamagesReply::default()) };
            let state = job.check.state();
            let part = if request.part == 0 { state.records } else { state.found };
            let from = part.damages.iter().skip(request.from as usize);
            Ok(GetCheckDamagesReply { damages: from.take(DAMAGES_MAX).map(damage).collect() })
        })
    }

    /// StopCheck (opcode 333).
    pub(crate) fn stop_check(
        &self,
        caller: &Caller,
        request: StopCheckRequest,
    ) -> Result<StopCheckReply, AbortCode> {
        self.administer(caller, "StopCheck")?;
        self.checks.with(|jobs| {
            if let Some(job) = jobs.get_mut(&request.partition) {
                job.stop();
            }
        });
        Ok(StopCheckReply)
    }
}

fn stage(stage: Stage) -> u32 {
    match stage {
        Stage::Records => 1,
        Stage::Volumes => 2,
        Stage::Data => 3,
    }
}

fn counts(report: &CheckReport) -> CheckCounts {
    CheckCounts {
        volumes: report.volumes,
        groups: report.groups,
        jobs: report.jobs,
        records: report.records,
        vnodes: report.vnodes,
        chunks: report.chunks,
        chunk_bytes: report.chunk_bytes,
        dead_bytes: report.dead_bytes,
        chunks_read: report.chunks_read,
        damages: report.damage_count,
    }
}

fn damage(damage: &Damage) -> CheckDamage {
    CheckDamage {
        volume: damage.volume.map_or(0, |volume| volume.0),
        place: cut(&damage.place).into(),
        what: cut(&damage.what).into(),
    }
}

/// Truncates a text to the maximum length of a reply.
pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
