//! Measures the cost of counting, an audit, both, or a profile in server time: `cargo run --release -p cellar
//! --example instruments -- CONFIG INSTRUMENT PAIRS MILLISECONDS`. It serves the cell of that configuration.
//! While clients load it fully (`cellar bench fs`), it switches the instrument on and off for MILLISECONDS
//! each and compares the processor time per call. The process is thus measured against itself, with the same
//! memory and clients. Every second pair is a sham, off and off, whose difference must come out as zero.
//! docs/lab/benchmarks.md has the results.
//!
//! `counting`: every call is counted and timed, or none. `audit`: the configured sinks receive calls, or not.
//! `everything`: both, which is all that can be switched. The figures that lanes, caches, locks and disks
//! maintain are on in both phases: checking whether they are wanted would cost as much as maintaining them.
//! `profile`: a processor profile at 99 Hz runs, or none, with counting on in both; starting it and building
//! its tables at the end are not measured.

use anyhow::{Context, Result, bail, ensure};
use cellar_server::Running;
use profile::{Kind, Request, SECONDS_MAX, Stage};
use rand::seq::SliceRandom;
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The instrument to measure.
#[derive(Clone, Copy, Debug)]
enum Instrument {
    Counting,
    /// What the configured sinks request of calls; the sinks themselves are always on.
    Audit,
    /// Counting, and the audit if one is configured.
    Everything,
    /// A processor profile.
    Profile,
}

impl Instrument {
    fn parse(name: &str) -> Result<Instrument> {
        match name {
            "counting" => Ok(Instrument::Counting),
            "audit" => Ok(Instrument::Audit),
            "everything" => Ok(Instrument::Everything),
            "profile" => Ok(Instrument::Profile),
            _ => bail!("no instrument {name:?}; there are counting, audit, everything and profile"),
        }
    }
}

/// Switches the instrument on and off.
#[derive(Debug)]
struct Switch {
    instrument: Instrument,
    /// Length of each phase.
    time: Duration,
    /// The running profile.
    profile: Option<u64>,
}

impl Switch {
    fn set(&mut self, server: &Running, is_on: bool) -> Result<()> {
        match self.instrument {
            Instrument::Counting => server.recorder().count(is_on),
            Instrument::Audit => {
                server.trail().context("the configuration has no [audit.NAME]")?.listen(is_on);
            }
            Instrument::Everything => {
                server.recorder().count(is_on);
                server.trail().into_iter().for_each(|trail| trail.listen(is_on));
            }
            Instrument::Profile => self.profile(is_on)?,
        }
        Ok(())
    }

    /// Stops the running profile, waits for its results, and starts another if `is_on`.
    fn profile(&mut self, is_on: bool) -> Result<()> {
        if let Some(id) = self.profile.take() {
            profile::stop(id)?;
            while profile::state(id)?.stage == Stage::Runs {
                std::thread::sleep(NAP);
            }
        }
        if is_on {
            let request = Request { kind: Kind::Cpu, seconds: SECONDS_MAX, hz: HZ };
            self.profile = Some(profile::start(request)?);
        }
        std::thread::sleep(SETTLING);
        Ok(())
    }
}

/// Samples per second.
const HZ: u32 = 99;
const NAP: Duration = Duration::from_millis(5);
/// Pause between starting or stopping a profile and the measurement.
const SETTLING: Duration = Duration::from_millis(200);

/// Minimum number of calls in a phase; with fewer, there is no load.
const CALLS_MIN: u32 = 20;
/// Time limit for waiting for load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the processor time of this process, over all threads.
fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::ProcessCPUTime).try_into()?)
}

/// Measures the processor time per call, in nanoseconds; `None` without load.
fn phase(server: &Running, switch: &mut Switch, is_on: bool) -> Result<Option<f64>> {
    switch.set(server, is_on)?;
    let (calls, time) = (server.calls_ended(), processor_time()?);
    std::thread::sleep(switch.time);
    let calls = u32::try_from(server.calls_ended() - calls)?;
    let ns = processor_time()?.saturating_sub(time).as_secs_f64() * 1e9;
    Ok((calls >= CALLS_MIN).then(|| ns / f64::from(calls)))
}

/// Runs an off and an on phase in random order. Returns the logarithm of their ratio and the time of the off
/// phase; `None` if one had no load.
fn pair(server: &Running, switch: &mut Switch, is_on: bool) -> Result<Option<(f64, f64)>> {
    let mut order = [(0, false), (1, is_on)];
    order.shuffle(&mut rand::rng());
    let mut ns = [0.0; 2];
    for (place, is_on) in order {
        let Some(time) = phase(server, switch, is_on)? else { return Ok(None) };
        ns[place] = time;
    }
    Ok(Some(((ns[1] / ns[0]).ln(), ns[0])))
}

/// Returns the mean and 1.96 times its standard error.
fn mean(figures: &[f64]) -> (f64, f64) {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for figure in figures {
        (count, sum, squares) = (count + 1.0, sum + figure, squares + figure * figure);
    }
    let (mean, variance) = (sum / count, (squares - sum * sum / count) / (count - 1.0));
    (mean, 1.96 * (variance / count).sqrt())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument =
        || arguments.next().context("wanted: CONFIG counting|audit|everything|profile PAIRS MILLISECONDS");
    let config: PathBuf = argument()?.into();
    let instrument = Instrument::parse(&argument()?)?;
    let pairs: usize = argument()?.parse().context("PAIRS")?;
    let time = Duration::from_millis(argument()?.parse().context("MILLISECONDS")?);
    let mut switch = Switch { instrument, time, profile: None };
    ensure!(pairs >= 4, "of fewer than 4 pairs nothing can be said");
    ensure!(
        time < profile::LEASE,
        "a profile of which nobody asks for {:?} ends: fewer MILLISECONDS",
        profile::LEASE
    );
    let server = cellar_server::start(&Arc::new(cellar_config::file::load(&config)?))?;
    let mut asked = Instant::now();
    let mut ratios = [Vec::new(), Vec::new()];
    let mut off = Vec::new();
    while off.len() < pairs {
        let is_on = off.len() % 2 == 1;
        let Some((ratio, ns)) = pair(&server, &mut switch, is_on)? else {
            ensure!(asked.elapsed() < PATIENCE, "nobody asks; {} pairs were measured", off.len());
            continue;
        };
        asked = Instant::now();
        ratios[usize::from(is_on)].push(ratio);
        off.push(ns);
    }
    switch.set(&server, false)?;
    println!("{pairs} pairs; {:.2} us a call without {instrument:?}", mean(&off).0 / 1e3);
    for (name, ratios) in ["off against off", "on against off"].iter().zip(&ratios) {
        let (mean, error) = mean(ratios);
        let percent = |log: f64| 100.0 * log.exp_m1();
        println!(
            "{name}: {:+.2} % ({:+.2} to {:+.2})",
            percent(mean),
            percent(mean - error),
            percent(mean + error)
        );
    }
    server.stop()
}
