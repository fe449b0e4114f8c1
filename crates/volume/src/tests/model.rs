//! Seeded histories of all operations, compared with a plain file system in memory: answers,
//! statuses, data, directory blobs, quota and link counts, also of clones, after restarts, crashes
//! and commits that fail.

mod history;
mod reference;

use history::History;

/// Runs one seed; its failure names it.
fn run(seed: u64, steps: usize) {
    let outcome = std::panic::catch_unwind(|| History::new(seed).run(steps));
    assert!(outcome.is_ok(), "seed {seed} with {steps} steps failed");
}

/// `CELLAR_SEED_FIRST` (a number) lives through other histories.
fn first_seed() -> u64 {
    std::env::var("CELLAR_SEED_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn short_histories() {
    (first_seed()..first_seed() + 2000).for_each(|seed| run(seed, 30));
}

#[test]
fn long_histories() {
    (first_seed() + 10_000..first_seed() + 10_020).for_each(|seed| run(seed, 1500));
}
