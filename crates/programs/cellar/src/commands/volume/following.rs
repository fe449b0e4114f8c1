//! Runs jobs in this process while a user watches; `cellar volume jobs`.

mod elsewhere;
mod job_view;
mod preflight;
mod progress;

use crate::commands::Context;
use anyhow::{Result, bail};
use base::AbortCode;
use cell_client::CellClient;
use cell_client::describe::describe;
use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use job_runner::journal::Journal;
use job_runner::traffic::{self, Transfers};
use job_runner::world::{CellWorld, SharedControl};
use job_view::JobView;
use jobs::{Control, End, Job, Stage, Traffic};
use preflight::Preview;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// List, show, resume and cancel jobs.
#[derive(Subcommand)]
pub enum Jobs {
    /// List jobs, oldest first.
    List {
        #[command(flatten)]
        whose: Whose,
    },
    /// Show a job with its history.
    Show {
        /// Number of the job.
        job: u32,
        #[command(flatten)]
        whose: Whose,
    },
    /// Finish or undo interrupted jobs that no process is running. A Cellar server does so by itself for jobs
    /// started on its machine; there, and elsewhere with --on, this makes waiting jobs continue immediately.
    Resume {
        /// Number of the job; all unfinished jobs by default.
        job: Option<u32>,
        #[command(flatten)]
        whose: Whose,
        /// Show what would be done with each job without doing it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Undo an unfinished job if that is still possible.
    Cancel {
        /// Number of the job.
        job: u32,
        #[command(flatten)]
        whose: Whose,
        /// Show what would be done without doing it.
        #[arg(long)]
        dry_run: bool,
    },
}

impl Jobs {
    /// The default command.
    pub(super) const ALL: Jobs = Jobs::List { whose: Whose { on: None } };
}

/// Server that runs the jobs.
#[derive(Args)]
pub struct Whose {
    /// Cellar server with the jobs; this machine's by default.
    #[arg(long, value_name = "ADDRESS")]
    on: Option<Ipv4Addr>,
}

/// A journal, and whether it belongs to a server, which resumes interrupted jobs.
pub(super) struct Kept {
    pub(super) journal: Journal,
    pub(super) is_servers: bool,
}

/// Opens the journal of this machine's server, or else the user's own.
pub(super) fn journal(context: &Context) -> Result<Kept> {
    let settings = context.settings().ok();
    let servers = settings.as_ref().and_then(|settings| Journal::of_server(settings.jobs_path()));
    let is_servers = servers.is_some();
    let cell = settings.map_or_else(|| "unnamed".into(), |settings| settings.cell.to_string());
    let journal = servers.map_or_else(|| Journal::of_user(&cell), Ok)?;
    Ok(Kept { journal, is_servers })
}

/// Opens the journal as [`journal`] does; fails if `detach` is set and no server would run the job.
pub(super) fn journal_for(context: &Context, detach: bool) -> Result<Kept> {
    let kept = journal(context)?;
    if detach && !kept.is_servers {
        bail!("no Cellar server on this machine runs jobs; omit --detach");
    }
    Ok(kept)
}

/// Reports that a job was handed to a server.
pub(super) fn report_detached(context: &Context, job: &Job) -> Result<()> {
    let sentence = format!("job {}: `cellar volume jobs show {}` shows its progress", job.id, job.id);
    context.format.done(&job.id, sentence)
}

/// Runs `cellar volume jobs`.
pub(super) fn run(context: &Context, command: &Jobs) -> Result<()> {
    let (Jobs::List { whose }
    | Jobs::Show { whose, .. }
    | Jobs::Resume { whose, .. }
    | Jobs::Cancel { whose, .. }) = command;
    if let Some(server) = whose.on {
        return elsewhere::run(context, command, server);
    }
    let Kept { journal, .. } = journal(context)?;
    match command {
        Jobs::List { .. } => context.format.rows(&list(context, &journal)?),
        Jobs::Show { job, .. } => show(context, &journal, *job),
        Jobs::Resume { job, .. } if command.is_dry() => preview_resuming(context, &journal, *job),
        Jobs::Cancel { job, .. } if command.is_dry() => preview_cancelling(context, &journal, *job),
        Jobs::Resume { job, .. } => resume(context, &journal, *job),
        Jobs::Cancel { job, .. } => cancel(context, &journal, *job),
    }
}

fn list(context: &Context, journal: &Journal) -> Result<Vec<JobView>> {
    let jobs = journal.all()?;
    // Servers are queried only for running jobs.
    let asks = jobs.iter().any(|job| !job.is_over());
    let cell = asks.then(|| context.client().ok()).flatten();
    let reported = cell.as_ref().map(traffic::of_jobs);
    let shown = |job: &Job| {
        let is_running = !job.is_over() && journal.claim(job.id)?.is_none();
        let reported =
            reported.as_ref().filter(|_| is_running).map_or_else(|| so_far(job), |reported| reported(job));
        Ok(JobView::new(job, is_running, reported))
    };
    jobs.iter().map(shown).collect()
}

/// Returns the recorded traffic of a job that is not running.
fn so_far(job: &Job) -> Transfers {
    Transfers { traffic: job.traffic(), rate: 0 }
}

fn show(context: &Context, journal: &Journal, id: u32) -> Result<()> {
    let job = journal.read(id)?;
    let is_running = !job.is_over() && journal.claim(id)?.is_none();
    let cell = is_running.then(|| context.client().ok()).flatten();
    let reported = cell.map_or_else(|| so_far(&job), |cell| traffic::of_job(&cell, &job));
    JobView::new(&job, is_running, reported).show(context, job.events)
}

fn cancel(context: &Context, journal: &Journal, id: u32) -> Result<()> {
    unfinished(journal, id)?;
    journal.cancel(id)?;
    match take(journal, id) {
        Ok((job, _claim)) => follow(context, &context.client()?, journal, job),
        Err(_) => context.format.done(&true, format!("asked the process running job {id} to undo it")),
    }
}

fn take(journal: &Journal, id: u32) -> Result<(Job, job_runner::journal::Claim)> {
    let Some(claim) = journal.claim(id)? else { bail!("the job {id} is running") };
    Ok((unfinished(journal, id)?, claim))
}

fn unfinished(journal: &Journal, id: u32) -> Result<Job> {
    let job = journal.read(id)?;
    if job.is_over() {
        bail!("the job {id} has ended: {}", job.latest());
    }
    Ok(job)
}

fn preview_resuming(context: &Context, journal: &Journal, only: Option<u32>) -> Result<()> {
    let jobs = match only {
        Some(id) => vec![unfinished(journal, id)?],
        None => journal.all()?.into_iter().filter(|job| !job.is_over()).collect(),
    };
    let mut all = Vec::new();
    for job in jobs {
        let is_running = journal.claim(job.id)?.is_none();
        // Without a job number, only interrupted jobs are resumed.
        if is_running && only.is_none() {
            continue;
        }
        let shown = JobView::new(&job, is_running, so_far(&job));
        let is_to_be_undone = !is_running && journal.is_cancelled(job.id);
        all.push(if is_to_be_undone { Preview::cancel(shown) } else { Preview::resume(shown) });
    }
    preflight::print(context, &all, "no interrupted jobs")
}

fn preview_cancelling(context: &Context, journal: &Journal, id: u32) -> Result<()> {
    let job = unfinished(journal, id)?;
    let is_running = journal.claim(id)?.is_none();
    let shown = JobView::new(&job, is_running, so_far(&job));
    preflight::print(context, &[Preview::cancel(shown)], "")
}

fn resume(context: &Context, journal: &Journal, only: Option<u32>) -> Result<()> {
    let cell = context.client()?;
    if let Some(id) = only {
        if journal.claim(id)?.is_none() && !journal.read(id)?.is_over() {
            journal.request_resume(id)?;
            return context.format.done(&1, format!("job {id} is running; it no longer waits"));
        }
        let (job, _claim) = take(journal, id)?;
        return follow(context, &cell, journal, job);
    }
    let mut failed = 0;
    let mut resumed = 0;
    for job in journal.all()?.into_iter().filter(|job| !job.is_over()) {
        let Ok((job, _claim)) = take(journal, job.id) else { continue };
        resumed += 1;
        if let Err(error) = follow(context, &cell, journal, job) {
            eprintln!("cellar: {error:#}");
            failed += 1;
        }
    }
    match (resumed, failed) {
        (0, _) => context.format.done(&0, "no interrupted jobs"),
        (_, 0) => Ok(()),
        _ => bail!("{failed} of {resumed} jobs did not succeed"),
    }
}

/// Runs a job until it is finished or interrupted, and reports the result.
pub(super) fn follow(context: &Context, cell: &CellClient, journal: &Journal, mut job: Job) -> Result<()> {
    let end = carry_on(context, cell, journal, &mut job)?;
    report(context, &job, end)
}

/// Runs a job until it is finished or interrupted.
pub(super) fn carry_on(
    context: &Context,
    cell: &CellClient,
    journal: &Journal,
    job: &mut Job,
) -> Result<End> {
    let control = Arc::new(SharedControl::default());
    let signals = listen(&control, job.id)?;
    let bar = progress::Bar::new(context.format, cell, job);
    let waits = job.waits();
    let watch = |job: &Job| {
        bar.show(job);
        // An interactive command does not wait for unreachable servers.
        if job.stage() == Stage::CatchingUp && job.waits() > waits {
            control.set(Control::Suspend);
        }
    };
    let watch_file = |sent, length| bar.show_bytes(sent, length);
    let world = CellWorld::new(cell, journal, job.id, control.clone(), &watch).watching_files(&watch_file);
    let end = bar.while_shown(|| jobs::run(job, &world));
    signals.close();
    journal.write(job)?;
    Ok(end)
}

/// The first Ctrl-C cancels the job; the second suspends it, as SIGTERM does.
fn listen(control: &Arc<SharedControl>, job: u32) -> Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (handle, control) = (signals.handle(), control.clone());
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGINT && control.get() == Control::Continue {
                eprintln!(
                    "cellar: cancelling. Ctrl-C again leaves the job as it is: `cellar volume jobs resume \
                    {job}` continues, `cellar volume jobs cancel {job}` undoes it"
                );
                control.set(Control::Cancel);
            } else {
                control.set(Control::Suspend);
            }
        }
    });
    Ok(handle)
}

/// Describes the duration and, if anything was sent, the amount.
fn amount(seconds: u32, traffic: Traffic) -> String {
    if traffic == Traffic::default() {
        return format!("{seconds} s");
    }
    let (sent, done) = (HumanBytes(traffic.sent), HumanBytes(traffic.done));
    format!("{seconds} s, sent {sent} for {done}")
}

/// Describes the error of a job.
pub(super) fn explain(trouble: &str, code: Option<AbortCode>) -> String {
    let Some(code) = code else { return trouble.to_owned() };
    // The text already ends with the code.
    let what = trouble.strip_suffix(&format!(": {code}")).unwrap_or(trouble);
    format!("{what}: {}", describe(code))
}

/// Reports the result of a job.
pub(super) fn report(context: &Context, job: &Job, end: End) -> Result<()> {
    let sentence = outcome(job, end)?;
    context.format.done(&JobView::new(job, false, so_far(job)), sentence)
}

/// Describes a job that is done; fails with a description of any other result.
pub(super) fn outcome(job: &Job, end: End) -> Result<String> {
    let (title, id) = (job.title(), job.id);
    match (end, job.stage()) {
        (_, Stage::Done) => {
            let seconds = job.events.last().map_or(0, |last| last.at - job.events[0].at.min(last.at));
            let notable = job.events.iter().rev().find(|event| event.what.starts_with("nothing has changed"));
            let how = notable.map_or_else(|| amount(seconds, job.traffic()), |event| event.what.clone());
            Ok(format!("{title} is done ({how})"))
        }
        (_, Stage::Failed) => {
            let why = explain(job.failure().unwrap_or_default(), job.abort_code());
            let left = if job.may_have_overwritten() {
                format!("{} may have changed, so restore it again", job.name)
            } else {
                "it left nothing behind".into()
            };
            bail!("the {title} was not done, and {left}: {why}")
        }
        (_, Stage::CatchingUp) => bail!(
            "the {title} did not reach all sites (job {id}): {}; `cellar volume jobs resume {id}` sends it \
            when they are reachable",
            job.latest()
        ),
        _ => bail!("the {title} was interrupted (job {id}): `cellar volume jobs resume {id}` continues"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obstacle_is_described_with_its_code_once() {
        let code = AbortCode::VDISKFULL;
        let trouble = jobs::JobError::Call { doing: "make it".into(), code };
        let reported = explain(&trouble.to_string(), Some(code));
        assert_eq!(reported, format!("cannot make it: the partition is full [{code}]"));
        assert_eq!(explain("it is there", None), "it is there");
    }
}
