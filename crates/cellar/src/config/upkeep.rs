//! How fast a server looks after its partitions in the background.

use volume::{CompactionPolicy, ScrubPolicy};

/// Rates and limits of compaction and scrubbing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// Bytes that compaction moves in a second, on each partition; 0 does none.
    pub compaction_bytes_per_s: u64,
    /// Which segments are compacted.
    pub compaction: CompactionPolicy,
    /// Bytes that the scrubber reads in a second, on each partition; 0 does none.
    pub scrub_bytes_per_s: u64,
    /// How often everything is read.
    pub scrub: ScrubPolicy,
}

impl Default for Upkeep {
    fn default() -> Upkeep {
        Upkeep {
            compaction_bytes_per_s: 32 << 20,
            compaction: CompactionPolicy::default(),
            scrub_bytes_per_s: 16 << 20,
            scrub: ScrubPolicy::default(),
        }
    }
}
