//! Rates of background work on partitions.

use volume::{CompactionPolicy, ScrubPolicy};

/// Rates and limits of compaction and scrubbing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// Rate of compaction in bytes per second, per partition; 0 disables it.
    pub compaction_bytes_per_s: u64,
    /// Which segments are compacted.
    pub compaction: CompactionPolicy,
    /// Rate of the scrubber in bytes per second, per partition; 0 disables it.
    pub scrub_bytes_per_s: u64,
    /// Interval of full passes.
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
