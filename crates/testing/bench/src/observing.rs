//! Measures the cost of observability: how much more a call costs with a feature than without, from many
//! pairs of consecutive short runs. Disturbances of the machine usually last longer than a pair and affect
//! both runs; the order alternates between pairs. A profile is switched on and off in one running server. A
//! feature that requires configuration is on in one of two servers, and the difference between two identical
//! servers is measured, too.

use crate::disturbed;
use crate::machine::Machine;
use crate::order::{Order, Outcome};
use crate::report::{spread, table};
use crate::side::Side;
use crate::statistics::{Paired, Spread, ratio};
use crate::workload::{self, Unit};
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::Duration;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ObservingOptions {
    /// How many pairs of runs each row of the table takes
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each run of small calls takes, in seconds
    #[arg(long, default_value_t = 0.3, value_parser = crate::seconds)]
    seconds: f64,
    /// MiB moved by each bulk run
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Workloads, by exact name
    #[arg(long, value_name = "WORKLOAD", default_values = ["fetch-1", "fetch-1m-1", "status-32"])]
    only: Vec<String>,
}

/// A server and the features enabled in its configuration.
struct Variant {
    name: &'static str,
    cell: &'static str,
    address: &'static str,
    lines: &'static str,
}

const fn variant(
    name: &'static str,
    cell: &'static str,
    address: &'static str,
    lines: &'static str,
) -> Variant {
    Variant { name, cell, address, lines }
}

const VARIANTS: [Variant; 5] = [
    variant("no counting", "bencho0", "10.99.1.20", "[observe]\ncount_calls = false"),
    variant("no counting, second server", "bencho1", "10.99.1.21", "[observe]\ncount_calls = false"),
    variant("default", "bencho2", "10.99.1.22", ""),
    variant("audit", "bencho3", "10.99.1.23", "[audit.trail]\nfile = \"/var/lib/openafs/audit\""),
    variant(
        "audit of all calls",
        "bencho4",
        "10.99.1.24",
        "[audit.trail]\nfile = \"/var/lib/openafs/audit\"\nevents = [\"all\"]",
    ),
];
const NOTHING: usize = 0;
const ANOTHER: usize = 1;
const DEFAULT: usize = 2;
const AUDIT: usize = 3;
const AUDIT_OF_ALL: usize = 4;

/// A row of the table: what is enabled in the second run of each pair.
struct Comparison {
    name: &'static str,
    against: &'static str,
    /// Indices in [`VARIANTS`].
    off: usize,
    on: usize,
    /// Samples per second of a profile taken during the second run.
    hz: Option<u32>,
}

const fn comparison(name: &'static str, against: &'static str, off: usize, on: usize) -> Comparison {
    Comparison { name, against, off, on, hz: None }
}

const COMPARISONS: [Comparison; 6] = [
    // Baseline: the variation between identical runs.
    comparison("no change", "the same server", DEFAULT, DEFAULT),
    comparison("no counting", "an identical server", NOTHING, ANOTHER),
    comparison("counting (default)", "no counting", NOTHING, DEFAULT),
    comparison("audit", "counting", DEFAULT, AUDIT),
    comparison("audit of all calls", "counting", DEFAULT, AUDIT_OF_ALL),
    Comparison { hz: Some(99), ..comparison("profile, 99 Hz", "the same server", DEFAULT, DEFAULT) },
];

/// Pause before a disturbed pair is repeated.
const PAUSE: Duration = Duration::from_millis(500);

/// Measures and prints the tables.
pub(crate) fn run(options: &ObservingOptions) -> Result<()> {
    if let Err(missing) = Means::Netns.check() {
        bail!("{missing}");
    }
    let _alone = crate::alone()?;
    println!("{}\n\n{} pairs of runs per row\n", Machine::here(), options.rounds);
    let mut sides = VARIANTS.iter().map(start).collect::<Result<Vec<_>>>()?;
    for name in &options.only {
        // Printed immediately, so that an aborted measurement still gives partial results.
        println!("{}\n", measure(&mut sides, name, options)?);
    }
    println!("Overhead: the median of the pairs, and its 95 % confidence interval.");
    Ok(())
}

/// Two consecutive runs: with the feature off, and with it on.
type Pair = (Outcome, Outcome);

fn measure(sides: &mut [Side], name: &str, options: &ObservingOptions) -> Result<String> {
    let workload = workload::by_name(name).with_context(|| format!("there is no workload {name}"))?;
    let order =
        Order { keeps_files: true, ..Order::once(name, (options.seconds * 1e3) as u64, options.size << 20) };
    // Creates the files of each server before the measurement.
    sides.iter_mut().try_for_each(|side| side.run_once(&order).map(drop))?;
    let mut pairs: Vec<Vec<Pair>> = COMPARISONS.iter().map(|_| Vec::new()).collect();
    let mut shares = Vec::new();
    for round in 0..options.rounds {
        eprintln!("bench: {name}, round {} of {}", round + 1, options.rounds);
        for (comparison, pairs) in COMPARISONS.iter().zip(&mut pairs) {
            let (pair, share) =
                disturbed::least(PAUSE, || run_pair(sides, comparison, &order, round % 2 == 1))?;
            shares.push(share);
            pairs.push(pair);
        }
    }
    let mut table = table(&["workload", "with", "against", "server's CPU", "CPU more", "time more"], 3);
    for (comparison, pairs) in COMPARISONS.iter().zip(&pairs) {
        table.add_row(row(name, comparison, workload.unit(), pairs));
    }
    Ok(disturbed::below(&table.to_string(), &shares))
}

fn start(variant: &Variant) -> Result<Side> {
    let cell = Cell::start_configured(variant.cell, variant.address, variant.lines);
    cell.and_then(|cell| Side::in_cell(Server::Cellar, cell)).with_context(|| variant.name.to_owned())
}

/// Performs both runs of a pair; returns the larger share of stolen time as well.
fn run_pair(
    sides: &mut [Side],
    comparison: &Comparison,
    order: &Order,
    on_first: bool,
) -> Result<(Pair, f64)> {
    let with = Order { profile_hz: comparison.hz, ..order.clone() };
    let mut run = |place: usize, order: &Order| {
        sides[place].run_once(order).with_context(|| VARIANTS[place].name.to_owned())
    };
    let ((off, off_share), (on, on_share)) = if on_first {
        let on = run(comparison.on, &with)?;
        (run(comparison.off, order)?, on)
    } else {
        (run(comparison.off, order)?, run(comparison.on, &with)?)
    };
    Ok(((off, on), off_share.max(on_share)))
}

/// Returns the server's CPU seconds per call or byte.
fn cpu(outcome: &Outcome) -> f64 {
    ratio(outcome.cpu.server, outcome.amount).unwrap_or_default()
}

/// Returns the elapsed seconds per call or byte.
fn time(outcome: &Outcome) -> f64 {
    ratio(outcome.seconds, outcome.amount).unwrap_or_default()
}

fn row(workload: &str, comparison: &Comparison, unit: Unit, pairs: &[Pair]) -> Vec<String> {
    // Microseconds per call, milliseconds per megabyte.
    let (scale, of) = if unit == Unit::Bytes { (1e9, "ms/MB") } else { (1e6, "us/call") };
    let costs = Spread::of(pairs.iter().map(|(_, on)| cpu(on) * scale)).unwrap_or_default();
    let more = |cost: fn(&Outcome) -> f64| {
        let ratios = pairs.iter().filter_map(|(off, on)| ratio(cost(on), cost(off)));
        Paired::of(ratios).map_or_else(String::new, Paired::percent)
    };
    vec![
        workload.to_owned(),
        comparison.name.to_owned(),
        comparison.against.to_owned(),
        format!("{} {of}", spread(costs)),
        more(cpu),
        more(time),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::CpuSeconds;

    fn outcome(amount: f64, seconds: f64, server: f64) -> Outcome {
        Outcome { amount, seconds, cpu: CpuSeconds { server, ..CpuSeconds::default() }, latency: None }
    }

    #[test]
    fn a_row_compares_the_two_runs_of_each_pair() {
        // A machine that becomes three times slower, and a setting that always costs a tenth more.
        let pairs: Vec<Pair> = [1.0, 2.0, 3.0]
            .map(|slow| (outcome(100.0, slow, slow), outcome(200.0, 2.0 * slow, 2.2 * slow)))
            .to_vec();
        let row = row("status-32", &COMPARISONS[2], Unit::Calls, &pairs);
        assert_eq!(row[4..], ["+10.0 % (+10.0..+10.0)", "+0.0 % (+0.0..+0.0)"], "{row:?}");
        assert!(row[3].ends_with("us/call"), "{row:?}");
        assert_eq!(super::row("fetch-1", &COMPARISONS[0], Unit::Bytes, &[])[4..], ["", ""]);
    }

    #[test]
    fn compared_runs_differ_in_one_setting() {
        for comparison in &COMPARISONS {
            let is_one_server = comparison.off == comparison.on;
            assert_eq!(comparison.against == "the same server", is_one_server, "{}", comparison.name);
            assert!(comparison.hz.is_none() || is_one_server, "a profile is switched in a running server");
        }
        let audits = |place: usize| VARIANTS[place].lines.contains("[audit.");
        assert_eq!(
            [NOTHING, ANOTHER, DEFAULT, AUDIT, AUDIT_OF_ALL].map(audits),
            [false, false, false, true, true]
        );
        assert_eq!(VARIANTS[NOTHING].lines, VARIANTS[ANOTHER].lines);
    }
}
