//! Thousands of short histories. A failure prints its seed and how to replay it: `CELLAR_SIM_SEED=n cargo
//! test -p sim --test histories -- --nocapture`, with `CELLAR_SIM_TRACE=1` to see every packet.
//! `CELLAR_SIM_COUNT=n` sets the number of histories, `CELLAR_SOAK=1` increases it, and `CELLAR_SIM_FIRST=n`
//! sets the first seed.

use sim::{History, Report};

/// Default number of histories.
const COUNT: u64 = 3000;

/// Factor for `CELLAR_SOAK`.
const SOAK_FACTOR: u64 = 20;

/// Number of failures after which the run stops.
const FAILURES_MAX: usize = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn count() -> u64 {
    let factor = if std::env::var_os("CELLAR_SOAK").is_some() { SOAK_FACTOR } else { 1 };
    number("CELLAR_SIM_COUNT").unwrap_or(COUNT * factor)
}

/// Runs all histories. The messages of failed ones have been printed before their seeds are.
fn run(make: fn(u64) -> History, seeds: impl Iterator<Item = u64>) -> Report {
    let mut sum = Report::default();
    let mut failed = Vec::new();
    for seed in seeds {
        match std::panic::catch_unwind(|| make(seed).run()) {
            Ok(report) => sum += report,
            Err(_) => failed.push(seed),
        }
        if failed.len() == FAILURES_MAX {
            break;
        }
    }
    let replay = "cargo test -p sim --test histories -- --nocapture";
    assert!(failed.is_empty(), "histories failed: {failed:?}; replay each with CELLAR_SIM_SEED=n {replay}");
    sum
}

fn part(make: fn(u64) -> History, part: u64) {
    if let Some(seed) = number("CELLAR_SIM_SEED") {
        if part == 0 {
            println!("{:?}", run(make, std::iter::once(seed)));
        }
        return;
    }
    let (first, count) = (number("CELLAR_SIM_FIRST").unwrap_or(0), count() / 2);
    let sum = run(make, first + part * count..first + (part + 1) * count);
    println!("{sum:?}");
    assert!(sum.replied as u64 > count, "most calls end well: {sum:?}");
}

/// Attackers see all packets and send forged ones from their own addresses, and clients change theirs.
#[test]
fn hijackers_change_no_history() {
    part(History::attacked, 0);
}

#[test]
fn histories_first_half() {
    part(History::new, 0);
}

#[test]
fn histories_second_half() {
    part(History::new, 1);
}

#[test]
fn looking_ahead_changes_nothing() {
    for seed in 0..200 {
        let [with, without] = [true, false].map(|looks| History::looking_ahead(seed, looks).run());
        assert_eq!(with, without, "seed {seed}");
    }
}
