//! Background work on a partition: purging, compaction, scrubbing, and the list of damaged data.

pub(crate) mod compactor;
pub(crate) mod purger;
pub(crate) mod quarantine;
pub(crate) mod relocation;
pub(crate) mod scrubber;
