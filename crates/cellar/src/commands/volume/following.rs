//! Running jobs in this process while a person watches, and `cellar volume jobs`.

use crate::client::CellClient;
use crate::client::describe::describe;
use crate::commands::Context;
use crate::jobs::journal::Journal;
use crate::jobs::world::{CellWorld, Wishes};
use crate::output::Row;
use anyhow::{Result, bail};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use jobs::{End, Event, Job, Stage, Wish};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::time::Duration;

/// Jobs: moves, copies, releases and backups of volumes.
#[derive(Subcommand)]
pub enum Jobs {
    /// List them, the oldest first.
    List,
    /// Show one with its history.
    Show {
        /// Its number.
        job: u32,
    },
    /// Finish or undo what was interrupted, and nobody runs. A Cellar server does that by itself with those
    /// that were begun on its machine.
    Resume {
        /// The job; all that are not over if left out.
        job: Option<u32>,
    },
    /// Undo a job that is not over, if it can still be undone.
    Cancel {
        /// Its number.
        job: u32,
    },
}

/// A job as it is shown.
#[derive(Serialize)]
struct Shown {
    job: u32,
    operation: &'static str,
    volume: u32,
    name: String,
    title: String,
    stage: Stage,
    is_running: bool,
    began: Option<u32>,
    latest: Option<u32>,
    doing: String,
    trouble: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event>,
}

impl Shown {
    fn new(job: &Job, is_running: bool) -> Shown {
        Shown {
            job: job.id,
            operation: job.operation.verb(),
            volume: job.volume,
            name: job.name.clone(),
            title: job.title(),
            stage: job.stage,
            is_running,
            began: job.events.first().map(|event| event.at),
            latest: job.events.last().map(|event| event.at),
            doing: job.latest().into(),
            trouble: job.trouble.clone(),
            events: Vec::new(),
        }
    }
}

impl Row for Shown {
    const COLUMNS: &'static [&'static str] = &["JOB", "WHAT", "BEGAN (UTC)", "STATE", "LATEST"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.job.to_string(),
            self.title.clone(),
            self.began.map_or_else(|| "-".into(), time),
            state(self.stage, self.is_running).into(),
            self.trouble.clone().unwrap_or_else(|| self.doing.clone()),
        ]
    }
}

/// Something that happened to a job.
#[derive(Serialize)]
struct Happened(Event);

impl Row for Happened {
    const COLUMNS: &'static [&'static str] = &["WHEN (UTC)", "WHAT"];

    fn cells(&self) -> Vec<String> {
        vec![time(self.0.at), self.0.what.clone()]
    }
}

fn time(seconds: u32) -> String {
    jiff::Timestamp::from_second(seconds.into())
        .map_or_else(|_| seconds.to_string(), |at| at.strftime("%F %T").to_string())
}

fn state(stage: Stage, is_running: bool) -> &'static str {
    match stage {
        Stage::Done => "done",
        Stage::Failed => "failed",
        _ if !is_running => "interrupted",
        Stage::Undoing => "being undone",
        Stage::CatchingUp => "waits for sites",
        _ => "running",
    }
}

/// A journal, and whether a server takes over what nobody runs.
pub(super) struct Kept {
    pub(super) journal: Journal,
    pub(super) is_servers: bool,
}

/// The journal of this machine's server, or else the person's own.
pub(super) fn journal(context: &Context) -> Result<Kept> {
    let settings = context.settings().ok();
    let servers = settings.as_ref().and_then(|settings| Journal::of_server(settings.jobs_path()));
    let is_servers = servers.is_some();
    let cell = settings.map_or_else(|| "unnamed".into(), |settings| settings.cell.to_string());
    let journal = servers.map_or_else(|| Journal::of_person(&cell), Ok)?;
    Ok(Kept { journal, is_servers })
}

/// Runs `cellar volume jobs`.
pub(super) fn run(context: &Context, command: &Jobs) -> Result<()> {
    let Kept { journal, .. } = journal(context)?;
    match command {
        Jobs::List => context.format.rows(&list(&journal)?),
        Jobs::Show { job } => show(context, &journal, *job),
        Jobs::Resume { job } => resume(context, &journal, *job),
        Jobs::Cancel { job } => cancel(context, &journal, *job),
    }
}

fn list(journal: &Journal) -> Result<Vec<Shown>> {
    let shown = |job: Job| Ok(Shown::new(&job, !job.is_over() && journal.claim(job.id)?.is_none()));
    journal.all()?.into_iter().map(shown).collect()
}

fn show(context: &Context, journal: &Journal, id: u32) -> Result<()> {
    let job = journal.read(id)?;
    let is_running = !job.is_over() && journal.claim(id)?.is_none();
    let shown = Shown { events: job.events.clone(), ..Shown::new(&job, is_running) };
    if context.format == crate::output::Format::Json {
        return context.format.done(&shown, "");
    }
    context.format.done(&(), format!("{}: {}", shown.title, state(job.stage, is_running)))?;
    context.format.rows(&job.events.into_iter().map(Happened).collect::<Vec<_>>())
}

fn cancel(context: &Context, journal: &Journal, id: u32) -> Result<()> {
    let job = journal.read(id)?;
    if job.is_over() {
        bail!("the job {id} is over: {}", job.latest());
    }
    journal.cancel(id)?;
    match take(journal, id) {
        Ok((job, _claim)) => follow(context, &context.client()?, journal, job),
        Err(_) => context.format.done(&true, format!("whoever runs the job {id} is asked to undo it")),
    }
}

fn take(journal: &Journal, id: u32) -> Result<(Job, crate::jobs::journal::Claim)> {
    let Some(claim) = journal.claim(id)? else { bail!("the job {id} is running") };
    let job = journal.read(id)?;
    if job.is_over() {
        bail!("the job {id} is over: {}", job.latest());
    }
    Ok((job, claim))
}

fn resume(context: &Context, journal: &Journal, only: Option<u32>) -> Result<()> {
    let cell = context.client()?;
    if let Some(id) = only {
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
        (0, _) => context.format.done(&0, "no job was interrupted"),
        (_, 0) => Ok(()),
        _ => bail!("{failed} of {resumed} jobs did not succeed"),
    }
}

/// Runs a job until it is over, or interrupted.
pub(super) fn follow(context: &Context, cell: &CellClient, journal: &Journal, mut job: Job) -> Result<()> {
    let wishes = Arc::new(Wishes::default());
    let signals = listen(&wishes, job.id)?;
    let bar = ProgressBar::new_spinner().with_message(job.title());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let waits = job.waits();
    let watch = |job: &Job| {
        bar.set_message(format!("{}: {}", job.title(), job.latest()));
        // Nobody waits before a terminal for servers that are away.
        if job.stage == Stage::CatchingUp && job.waits() > waits {
            wishes.set(Wish::Stop);
        }
    };
    let world = CellWorld::new(cell, journal, job.id, wishes.clone(), &watch);
    let end = jobs::run(&mut job, &world);
    signals.close();
    bar.finish_and_clear();
    journal.write(&job)?;
    report(context, &job, end)
}

/// The first Ctrl-C cancels, the second leaves the job as it is; so does SIGTERM.
fn listen(wishes: &Arc<Wishes>, job: u32) -> Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (handle, wishes) = (signals.handle(), wishes.clone());
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGINT && wishes.get() == Wish::GoOn {
                eprintln!(
                    "cellar: cancelling. Ctrl-C again leaves the job as it is: \
                     `cellar volume jobs resume {job}` goes on, `cellar volume jobs cancel {job}` undoes it"
                );
                wishes.set(Wish::Cancel);
            } else {
                wishes.set(Wish::Stop);
            }
        }
    });
    Ok(handle)
}

fn report(context: &Context, job: &Job, end: End) -> Result<()> {
    let (title, id) = (job.title(), job.id);
    match (end, job.stage) {
        (_, Stage::Done) => {
            let seconds = job.events.last().map_or(0, |last| last.at - job.events[0].at.min(last.at));
            let notable = job.events.iter().rev().find(|event| event.what.starts_with("nothing has changed"));
            let how = notable.map_or_else(|| format!("{seconds} s"), |event| event.what.clone());
            context.format.done(&Shown::new(job, false), format!("{title} is done ({how})"))
        }
        (_, Stage::Failed) => {
            let why = match job.abort_code() {
                Some(code) => format!("{}: {}", job.trouble.clone().unwrap_or_default(), describe(code)),
                None => job.trouble.clone().unwrap_or_default(),
            };
            bail!("the {title} was not done, and nothing of it is left: {why}")
        }
        (_, Stage::CatchingUp) => bail!(
            "the {title} did not reach all sites (job {id}): {}; `cellar volume jobs resume {id}` sends it when \
             they are back",
            job.latest()
        ),
        _ => bail!("the {title} is interrupted (job {id}): `cellar volume jobs resume {id}` goes on"),
    }
}
