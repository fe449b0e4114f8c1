//! Settings of the engine.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of all databases of an engine.
#[derive(Clone, Debug)]
pub struct SlateConfig {
    /// For how long one call waits for the bucket before it fails with `Unavailable`.
    pub patience: Duration,
    /// For how long one request to the bucket may take before it is repeated.
    pub request_limit: Duration,
    /// How often the bucket is asked whether another process has taken over, while nothing is written.
    pub poll_interval: Duration,
    /// How often tables are checked for being due to be merged.
    pub compaction_interval: Duration,
    /// Age after which an object that nothing refers to is deleted; `None` if none is. It is the machine's clock
    /// against the bucket's, so it must be longer than they may differ and than the longest upload takes.
    pub garbage_age: Option<Duration>,
    /// For how long replaced tables stay readable: no scan or snapshot may take longer.
    pub snapshot_life: Duration,
    /// Folder on the local disk for copies of tables, and its maximum size in bytes.
    pub disk_cache: Option<(PathBuf, usize)>,
    /// Seed for ids of objects and pauses between repeated requests; random if `None`. With a seed, clocks begin at a
    /// fixed time. For tests.
    pub seed: Option<u64>,
}

impl Default for SlateConfig {
    fn default() -> SlateConfig {
        SlateConfig {
            patience: Duration::from_secs(60),
            request_limit: Duration::from_secs(20),
            poll_interval: Duration::from_secs(1),
            compaction_interval: Duration::from_secs(5),
            garbage_age: Some(Duration::from_secs(3600)),
            snapshot_life: Duration::from_secs(24 * 3600),
            disk_cache: None,
            seed: None,
        }
    }
}
