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

#[test]
fn short_histories() {
    (0..2000).for_each(|seed| run(seed, 30));
}

#[test]
fn long_histories() {
    (10_000..10_020).for_each(|seed| run(seed, 1500));
}
