//! Partitions in buckets.

use cellar_config::Settings;

/// What a program says that does not serve partitions in buckets.
pub const WITHOUT: &str = "this program does not serve partitions in buckets";

/// Returns why these settings cannot be served by this program, if there is a reason.
pub fn refusal(settings: &Settings) -> Option<String> {
    let bucket = settings.partitions.iter().find_map(|partition| partition.place.bucket())?;
    Some(format!("{}, `partition.bucket`: {WITHOUT}", bucket.at))
}
