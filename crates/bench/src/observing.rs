//! What it costs that a server tells what it does: one program with nothing counted, as it is, with an audit,
//! and while it is profiled, in turn.

use crate::disturbed;
use crate::machine::Machine;
use crate::order::{Order, Outcome};
use crate::report::{spread, table};
use crate::side::Side;
use crate::statistics::{Spread, ratio};
use crate::workload::{self, Unit};
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server, cellar_program, tools};
use interop::means::Means;
use std::process::{Child, Command, Stdio};

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ObservingOptions {
    /// How often each workload runs with each setting
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each run of small calls takes, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// MiB that each bulk run moves
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Workloads, by their whole names
    #[arg(long, value_name = "WORKLOAD", default_values = ["fetch-1", "fetch-1m-1", "status-32"])]
    only: Vec<String>,
}

/// A server with some of it on.
struct Variant {
    name: &'static str,
    cell: &'static str,
    address: &'static str,
    lines: &'static str,
    /// Samples a second of a profile.
    hz: Option<u32>,
}

const fn variant(
    name: &'static str,
    cell: &'static str,
    address: &'static str,
    lines: &'static str,
) -> Variant {
    Variant { name, cell, address, lines, hz: None }
}

/// The first is what the others are compared with.
const VARIANTS: [Variant; 7] = [
    variant("nothing counted", "bencho0", "10.99.1.20", "[observe]\ncount_calls = false"),
    // How much two of the same differ.
    variant("the same again", "bencho1", "10.99.1.21", "[observe]\ncount_calls = false"),
    variant("counted, as it is", "bencho2", "10.99.1.22", ""),
    variant("and an audit", "bencho3", "10.99.1.23", "[audit.trail]\nfile = \"/var/lib/openafs/audit\""),
    variant(
        "and an audit of all calls",
        "bencho4",
        "10.99.1.24",
        "[audit.trail]\nfile = \"/var/lib/openafs/audit\"\nevents = [\"all\"]",
    ),
    // A program more on the machine, which waits for a profile that sees next to nothing: on few processors that alone
    // may change when the others sleep.
    Variant { hz: Some(1), ..variant("and profiled, 1 Hz", "bencho5", "10.99.1.25", "") },
    Variant { hz: Some(99), ..variant("and profiled, 99 Hz", "bencho6", "10.99.1.26", "") },
];

/// Measures and prints the table.
pub(crate) fn run(options: &ObservingOptions) -> Result<()> {
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let _alone = crate::alone()?;
    println!("{}\n\n{} rounds, settings in turn\n", Machine::here(), options.rounds);
    println!("{}", measure(options)?);
    Ok(())
}

/// Outcomes of a workload by variant and round.
type Outcomes = Vec<Vec<Outcome>>;

fn measure(options: &ObservingOptions) -> Result<String> {
    let mut sides = VARIANTS.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut shares = Vec::new();
    let mut table = table(&["workload", "setting", "rate", "server's CPU", "CPU / nothing counted"], 2);
    for name in &options.only {
        let workload = workload::by_name(name).with_context(|| format!("no workload {name}"))?;
        let mut outcomes: Outcomes = vec![Vec::new(); sides.len()];
        for round in 0..options.rounds as usize {
            for turn in 0..sides.len() {
                let which = (turn + round) % sides.len();
                eprintln!("bench: round {}, {name}, {}", round + 1, VARIANTS[which].name);
                let milliseconds = (options.seconds * 1e3) as u64;
                let order = Order { workload: name.clone(), milliseconds, bytes: options.size << 20 };
                let (outcome, share) = disturbed::least(disturbed::PAUSE, || {
                    run_once(&mut sides[which], &VARIANTS[which], &order, options.seconds)
                })?;
                shares.push(share);
                outcomes[which].push(outcome);
            }
        }
        for (variant, own) in VARIANTS.iter().zip(&outcomes) {
            table.add_row(row(name, variant, workload.unit(), own, &outcomes[0]));
        }
    }
    Ok(disturbed::below(&table.to_string(), &shares))
}

fn start(variant: &Variant) -> Result<Side> {
    let cell = Cell::start_configured(variant.cell, variant.address, variant.lines);
    cell.and_then(|cell| Side::in_cell(Server::Cellar, cell)).with_context(|| variant.name.to_owned())
}

fn run_once(side: &mut Side, variant: &Variant, order: &Order, seconds: f64) -> Result<(Outcome, f64)> {
    let profile = variant.hz.map(|hz| profile(side.cell(), seconds, hz)).transpose()?;
    let outcome = side.run_once(order).with_context(|| variant.name.to_owned());
    if let Some(mut profile) = profile {
        let status = profile.wait()?;
        if !status.success() {
            bail!("`cellar profile` ended with {status}");
        }
    }
    outcome
}

/// A profile of the server that lasts longer than a run, so that nothing is made of its samples meanwhile.
fn profile(cell: &Cell, seconds: f64, hz: u32) -> Result<Child> {
    let seconds = (seconds.ceil() as u64 + 4).to_string();
    let mut command = Command::new(tools().join("openafs-cell"));
    command.arg("-d").arg(cell.path()).arg("run").arg(cellar_program()?);
    command.args(["profile", "cpu", "--seconds", &seconds, "--hz", &hz.to_string(), "--folded", "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("cannot profile")
}

/// The row of a variant; ratios are of runs of the same round.
fn row(workload: &str, variant: &Variant, unit: Unit, own: &[Outcome], base: &[Outcome]) -> Vec<String> {
    let cost = |outcome: &Outcome| ratio(outcome.cpu.server, outcome.amount).unwrap_or_default();
    // Microseconds for a call, milliseconds for a megabyte.
    let (scale, of) = if unit == Unit::Bytes { (1e9, "ms/MB") } else { (1e6, "us/call") };
    let rates = own.iter().map(|outcome| outcome.amount / outcome.seconds / unit.scale());
    let costs = own.iter().map(|outcome| cost(outcome) * scale);
    let ratios = own.iter().zip(base).filter_map(|(own, base)| ratio(cost(own), cost(base)));
    let cell = |figures: Option<Spread>| spread(figures.unwrap_or_default());
    vec![
        workload.to_owned(),
        variant.name.to_owned(),
        format!("{} {}", cell(Spread::of(rates)), unit.rate_name()),
        format!("{} {of}", cell(Spread::of(costs))),
        Spread::of(ratios)
            .map_or_else(String::new, |it| format!("{:.3} ({:.3}..{:.3})", it.median, it.min, it.max)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::CpuSeconds;

    #[test]
    fn ratios_are_of_runs_of_the_same_round() {
        let outcome = |amount, server| Outcome {
            amount,
            seconds: 2.0,
            cpu: CpuSeconds { server, ..CpuSeconds::default() },
            latency: None,
        };
        let base = [outcome(100.0, 1.0), outcome(100.0, 2.0)];
        let own = [outcome(100.0, 1.1), outcome(200.0, 4.4)];
        let row = row("status-32", &VARIANTS[2], Unit::Calls, &own, &base);
        assert_eq!(row[4], "1.100 (1.100..1.100)");
        assert!(row[2].ends_with("calls/s") && row[3].ends_with("us/call"), "{row:?}");
    }
}
