//! Seeded histories of all operations, compared with a plain in-memory file system: results, statuses, data,
//! directory blobs, quota and link counts, also of clones, after restarts, crashes and failed commits.

mod history;
mod reference;

use history::History;

/// Offset of the seeds of long histories from those of short ones.
const LONG: u64 = 10_000;

#[test]
fn short_histories() {
    seeds::play(2000, |seed| History::new(seed).run(30));
}

#[test]
fn long_histories() {
    seeds::play(20, |seed| History::new(seed + LONG).run(1500));
}
