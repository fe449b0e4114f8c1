//! `cellar probe`: measures access latency as users see it. It periodically writes and reads a small file on
//! each server and records the results.

mod report;

use super::Context;
use crate::output::{Format, line};
use anyhow::{Context as _, Result, bail, ensure};
use cell_client::CellClient;
use cell_client::describe::failed;
use cell_client::files::{Attributes, Node};
use cell_client::network::now;
use clap::{Args, Subcommand};
use probe_history::{History, Outcome, now_ms};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Name of the probe file, in the root directory of each volume.
const FILE: &str = ".cellar-probe";

/// Maximum number of volumes probed at a time, with a thread each.
const VOLUMES_MAX: usize = 256;

/// Interval between checks for the end of the command.
const NAP: Duration = Duration::from_millis(100);

/// Measure access latency from outside.
#[derive(Subcommand)]
pub enum Probe {
    /// Write and read a small file in each volume at intervals, until Ctrl-C.
    Run(Run),
    /// Show latencies and incidents of a recorded history.
    Report(Report),
}

/// Write and read a small file in each volume at intervals, until Ctrl-C.
#[derive(Args)]
pub struct Run {
    /// Volumes to probe: one on each server of interest, in which the caller may create, write and read
    /// files.
    #[arg(required = true)]
    volumes: Vec<String>,
    /// File in which to record outcomes, as a line of JSON each.
    #[arg(long, value_name = "FILE")]
    history: PathBuf,
    /// Seconds between two rounds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Maximum number of recorded lines; the oldest are dropped.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    keep: u64,
    /// Run a single round, and fail if any volume failed.
    #[arg(long)]
    once: bool,
}

/// Show latencies and incidents of a recorded history.
#[derive(Args)]
pub struct Report {
    /// File with the recorded outcomes.
    #[arg(long, value_name = "FILE")]
    history: PathBuf,
    /// Show only the last HOURS hours.
    #[arg(long)]
    hours: Option<u64>,
}

/// Runs the command.
pub fn run(context: &Context, command: &Probe) -> Result<()> {
    match command {
        Probe::Run(run) => probe(context, run),
        Probe::Report(report) => {
            let since_ms = report.hours.map(|hours| now_ms().saturating_sub(hours.saturating_mul(3_600_000)));
            let (outcomes, damaged) = probe_history::read(&report.history)?;
            report::show(context.format, &outcomes, since_ms.unwrap_or(0), damaged)
        }
    }
}

fn probe(context: &Context, run: &Run) -> Result<()> {
    ensure!(run.volumes.len() <= VOLUMES_MAX, "at most {VOLUMES_MAX} volumes can be probed");
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot take signals")?;
    }
    let keep = usize::try_from(run.keep).unwrap_or(usize::MAX);
    let mut history = History::open(&run.history, keep)?;
    let client = context.observer()?;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let outcomes = round(&client, &run.volumes);
        history.append(&outcomes)?;
        outcomes.iter().try_for_each(|outcome| show(context.format, outcome))?;
        if run.once {
            let failures = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
            ensure!(failures == 0, "{failures} of {} volumes failed", outcomes.len());
            return Ok(());
        }
        let interval = Duration::from_secs(run.interval);
        while started.elapsed() < interval && !stop.load(Ordering::Relaxed) {
            thread::sleep(NAP.min(interval.saturating_sub(started.elapsed())));
        }
    }
    Ok(())
}

/// Probes every volume once, concurrently, so that one that does not answer delays no other.
fn round(client: &CellClient, volumes: &[String]) -> Vec<Outcome> {
    thread::scope(|scope| {
        let probes: Vec<_> = volumes.iter().map(|volume| scope.spawn(|| visit(client, volume))).collect();
        let outcomes = probes.into_iter().zip(volumes);
        outcomes.map(|(probe, volume)| probe.join().unwrap_or_else(|_| Outcome::broken(volume))).collect()
    })
}

/// Probes one volume: locates it, writes, reads and compares the file.
fn visit(client: &CellClient, volume: &str) -> Outcome {
    let mut outcome = Outcome::new(volume, now_ms());
    let started = Instant::now();
    if let Err((step, error)) = steps(client, volume, &mut outcome) {
        outcome.step = Some(step.to_owned());
        outcome.error = Some(format!("{error:#}"));
    }
    outcome.total_us = started.elapsed().as_micros() as u64;
    outcome
}

/// The step that failed, and why.
type Failure = (&'static str, anyhow::Error);

fn steps(client: &CellClient, volume: &str, outcome: &mut Outcome) -> Result<(), Failure> {
    let (located, us) = timed("locate", || client.locate(volume))?;
    outcome.locate_us = Some(us);
    if let Ok(site) = located.read_write_site() {
        outcome.server = Some(site.server.to_string());
    }
    let (file, us) = timed("open", || open(client, volume))?;
    outcome.open_us = Some(us);
    let content = format!("{} {:032x}\n", outcome.time_ms, rand::random::<u128>());
    let attributes = Attributes { mode: 0o644, modified: now().0 };
    let length = content.len() as u64;
    let ((), us) =
        timed("write", || client.store(&file, attributes, &mut Cursor::new(&content), length, &mut |_| ()))?;
    outcome.write_us = Some(us);
    let mut found = Vec::new();
    let ((), us) = timed("read", || client.fetch(&file, &mut found, &mut |_| ()))?;
    outcome.read_us = Some(us);
    if found != content.as_bytes() {
        return Err(("compare", anyhow::anyhow!("the data read differs from the data written")));
    }
    Ok(())
}

fn timed<T>(step: &'static str, act: impl FnOnce() -> Result<T>) -> Result<(T, u64), Failure> {
    let started = Instant::now();
    let value = act().map_err(|error| (step, error))?;
    Ok((value, started.elapsed().as_micros() as u64))
}

/// Opens the probe file, creating it if necessary.
fn open(client: &CellClient, volume: &str) -> Result<Node> {
    let root = client.root_of(volume)?;
    match client.child(&root, FILE.as_bytes())? {
        Some(file) if file.is_directory() || file.is_symlink() => bail!("{volume}/{FILE} is not a file"),
        Some(file) => Ok(file),
        None => {
            let attributes = Attributes { mode: 0o644, modified: now().0 };
            client
                .create(&root, FILE.as_bytes(), attributes)
                .map_err(failed(format!("create {volume}/{FILE}")))
        }
    }
}

fn show(format: Format, outcome: &Outcome) -> Result<()> {
    if format == Format::Json {
        return line(serde_json::to_string(outcome)?);
    }
    let ms = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), report::ms);
    let server = outcome.server.as_deref().unwrap_or("?");
    let Outcome { volume, locate_us, open_us, write_us, read_us, .. } = outcome;
    match (&outcome.step, &outcome.error) {
        (Some(step), Some(error)) => line(format!(
            "{volume} on {server}: {step} failed after {} ms: {error}",
            report::ms(outcome.total_us)
        )),
        _ => line(format!(
            "{volume} on {server}: locate {} ms, open {} ms, write {} ms, read {} ms",
            ms(*locate_us),
            ms(*open_us),
            ms(*write_us),
            ms(*read_us)
        )),
    }
}
