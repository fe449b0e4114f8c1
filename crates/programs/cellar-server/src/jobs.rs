//! Takes over jobs that no process is running: started on this machine by a command that has ended, or by
//! this server before it stopped. The server finishes or undoes them.

use super::jobs_service::Jobs;
use ::jobs::{Control, Job};
use adminserver::AdminServer;
use cell_client::CellClient;
use cellar_config::Settings;
use job_runner::journal::{Claim, Journal};
use job_runner::world::{CellWorld, SharedControl};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which the journal is checked.
const PERIOD: Duration = Duration::from_secs(2);
/// Maximum number of jobs that the server runs concurrently.
const RUNNING_MAX: usize = 8;

/// State shared by all jobs of the server.
struct Keeper {
    journal: Journal,
    cell: Arc<CellClient>,
    control: Arc<SharedControl>,
    running: AtomicUsize,
}

/// Starts the thread that watches the journal. Shutdown does not wait for jobs in the middle of a call,
/// because the journal records their state. Without a journal, the server runs without jobs.
pub(super) fn start(
    ending: &Arc<AtomicBool>,
    settings: &Settings,
    cell: &Arc<CellClient>,
    admin_server: Option<&AdminServer>,
) -> Option<JoinHandle<()>> {
    let opened = Journal::open(settings.jobs_path());
    let journal = opened.inspect_err(|error| tracing::error!("cannot resume jobs: {error:#}")).ok()?;
    if let Some(admin_server) = admin_server {
        admin_server.set_jobs(Box::new(Jobs { journal: journal.clone(), cell: cell.clone() }));
    }
    let (control, running) = (Arc::default(), AtomicUsize::new(0));
    let keeper = Arc::new(Keeper { journal, cell: cell.clone(), control, running });
    let ending = ending.clone();
    Some(crate::threads::thread("jobs", move || {
        while crate::threads::wait(&ending, PERIOD) {
            keeper.check_journal();
        }
        keeper.control.set(Control::Suspend);
    }))
}

impl Keeper {
    fn check_journal(self: &Arc<Keeper>) {
        match self.journal.all() {
            Ok(jobs) => jobs.iter().filter(|job| !job.is_over()).for_each(|job| self.take_over(job.id)),
            Err(error) => tracing::error!("cannot read the job journal: {error:#}"),
        }
    }

    fn take_over(self: &Arc<Keeper>, id: u32) {
        if self.running.load(Ordering::Relaxed) >= RUNNING_MAX {
            return;
        }
        let Ok(Some(claim)) = self.journal.claim(id) else { return };
        // The process that ran it may just have finished it.
        match self.journal.read(id) {
            Ok(job) if !job.is_over() => {
                self.running.fetch_add(1, Ordering::Relaxed);
                let keeper = self.clone();
                crate::threads::thread(format!("job {}", job.id), move || keeper.run(job, claim));
            }
            Ok(_) => {}
            Err(error) => tracing::error!(job = id, "cannot read the job journal: {error:#}"),
        }
    }

    fn run(&self, mut job: Job, claim: Claim) {
        tracing::info!(job = job.id, what = job.title(), at = job.latest(), "an abandoned job is resumed");
        let watch = |job: &Job| tracing::debug!(job = job.id, at = job.latest(), "a job is resumed");
        let world = CellWorld::new(&self.cell, &self.journal, job.id, self.control.clone(), &watch);
        let end = ::jobs::run(&mut job, &world);
        if let Err(error) = self.journal.write(&job) {
            tracing::error!(job = job.id, "cannot write to the job journal: {error:#}");
        }
        tracing::info!(job = job.id, what = job.title(), ?end, stage = ?job.stage(), at = job.latest(), "a \
            job has ended");
        drop(claim);
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}
