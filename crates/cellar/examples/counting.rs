//! What counting costs of a server's time: `cargo run --release -p cellar --example counting -- CONFIG PAIRS`. It serves the
//! cell of that configuration, and while somebody asks it as much as it can answer (`cellar bench fs`), it switches
//! counting on and off many times a second and compares the processor time of a call. So the same process, with the same memory
//! and the same clients, is measured against itself; every second pair is a sham, off and off, which has to come out as
//! nothing. Docs/benchmarks.md has the figures.

use anyhow::{Context, Result, ensure};
use cellar::config;
use cellar::serve::{self, Running};
use rand::seq::SliceRandom;
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long counting stays on, or off.
const PHASE: Duration = Duration::from_millis(100);
/// Fewer calls in a phase mean that nobody asks.
const CALLS_MIN: u32 = 20;
/// How long to wait for somebody who asks.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the processors have done for this process, all its threads.
fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::ProcessCPUTime).try_into()?)
}

/// Processor time of a call, in nanoseconds; `None` if nobody asked.
fn phase(server: &Running, counting: bool) -> Result<Option<f64>> {
    server.recorder().count(counting);
    let (calls, time) = (server.calls_ended(), processor_time()?);
    std::thread::sleep(PHASE);
    let calls = u32::try_from(server.calls_ended() - calls)?;
    let ns = processor_time()?.saturating_sub(time).as_secs_f64() * 1e9;
    Ok((calls >= CALLS_MIN).then(|| ns / f64::from(calls)))
}

/// Two phases, of which the second in mind may be the first in time: the logarithm of their ratio, and the first's.
fn pair(server: &Running, counting: bool) -> Result<(f64, f64)> {
    let mut order = [(0, false), (1, counting)];
    order.shuffle(&mut rand::rng());
    let mut ns = [0.0; 2];
    for (place, counting) in order {
        ns[place] = phase(server, counting)?.context("the clients went before the end")?;
    }
    Ok(((ns[1] / ns[0]).ln(), ns[0]))
}

/// The mean, and 1.96 times its standard error.
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
    let config: PathBuf = arguments.next().context("wanted: CONFIG PAIRS")?.into();
    let pairs: usize = arguments.next().context("wanted: CONFIG PAIRS")?.parse().context("PAIRS")?;
    ensure!(pairs >= 4, "of fewer than 4 pairs nothing can be said");
    let server = serve::start(&Arc::new(config::file::load(&config)?))?;
    let deadline = Instant::now() + PATIENCE;
    while phase(&server, true)?.is_none() {
        ensure!(Instant::now() < deadline, "nobody asks");
    }
    let mut ratios = [Vec::new(), Vec::new()];
    let mut off = Vec::new();
    for number in 0..pairs {
        let counting = number % 2 == 1;
        let (ratio, ns) = pair(&server, counting)?;
        ratios[usize::from(counting)].push(ratio);
        off.push(ns);
    }
    println!("{pairs} pairs; {:.2} us a call with nothing counted", mean(&off).0 / 1e3);
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
