//! Seeds for randomised tests, and a report of the seed that failed.
//!
//! [`play`] runs a history for several consecutive seeds, starting at 0 or at `CELLAR_SEED_FIRST`. With that
//! variable `make soak` runs different histories each time, and a developer repeats the one that failed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Environment variable with the first seed.
const FIRST: &str = "CELLAR_SEED_FIRST";

/// Returns `count` seeds, starting at the first one.
///
/// # Panics
/// If the variable is not a number.
pub fn seeds(count: u64) -> Range<u64> {
    let first = std::env::var(FIRST).map_or(0, |text| number(&text));
    first..first.saturating_add(count)
}

/// Runs a history for each of `count` seeds. If one panics, prints how to start with that seed, and panics.
pub fn play(count: u64, history: impl FnMut(u64)) {
    play_all(seeds(count), history);
}

fn play_all(seeds: Range<u64>, mut history: impl FnMut(u64)) {
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| history(seed))) {
            eprintln!("again with {FIRST}={seed}");
            resume_unwind(panic);
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{FIRST}={text} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_are_played_in_order_until_one_fails() {
        let mut played = Vec::new();
        let failing = |seed| {
            played.push(seed);
            assert!(seed != 12, "it fails");
        };
        assert!(catch_unwind(AssertUnwindSafe(|| play_all(10..20, failing))).is_err());
        assert_eq!(played, [10, 11, 12]);
    }

    #[test]
    fn an_invalid_seed_is_refused() {
        assert_eq!(number("4711"), 4711);
        assert!(catch_unwind(|| number("17 ")).is_err());
        assert!(catch_unwind(|| number("")).is_err());
    }
}
