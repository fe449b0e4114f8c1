//! Seeded histories of all operations, compared with a plain in-memory file system: results, statuses, data,
//! directory blobs, quota and link counts, also of clones, after restarts, crashes and failed commits.

mod history;
mod reference;

use super::crashing::Place;
use history::History;

/// Offset of the seeds of long histories from those of short ones.
const LONG: u64 = 10_000;

#[test]
fn short_histories() {
    seeds::play(2000, |seed| History::new(seed, Place::in_memory()).run(30));
}

#[test]
fn long_histories() {
    seeds::play(20, |seed| History::new(seed + LONG, Place::in_memory()).run(1500));
}

/// The same histories on the engine that servers use. They are fewer, because each opens databases and syncs
/// files.
#[test]
fn short_histories_on_disk() {
    seeds::play(60, |seed| History::new(seed, Place::on_disk()).run(30));
}

#[test]
fn a_long_history_on_disk() {
    seeds::play(1, |seed| History::new(seed + LONG, Place::on_disk()).run(1500));
}

/// The same histories with metadata in a bucket with faults, and file data in memory or in one. `CELLAR_BUCKET_COUNT=n` sets their number.
#[test]
fn short_histories_in_a_bucket() {
    let count = std::env::var("CELLAR_BUCKET_COUNT").map_or(30, |text| text.parse().expect("a number"));
    seeds::play(count, |seed| History::new(seed, Place::in_bucket(seed)).run(30));
}
