//! What tests make worse on purpose, to see that it is found.

use disk::{Disk, RealDisk};
use std::sync::Arc;
use std::time::Duration;
use volume::PartitionHandle;

/// What is changed on the way from a partition to its volumes.
type Change = dyn Fn(PartitionHandle) -> PartitionHandle + Send + Sync;

/// What is worse than it need be; by default nothing.
pub struct Hindrances {
    /// What holds file data.
    pub disk: Arc<dyn Disk>,
    /// What stands between partitions and their volumes.
    pub partition: Box<Change>,
    /// The shortest pause between two steps of reclaiming what deleted volumes held.
    pub reclaim_pause: Duration,
    /// How long a lane of the file server's port pauses after each batch that it received.
    pub receive_pause: Duration,
}

impl Default for Hindrances {
    fn default() -> Hindrances {
        Hindrances {
            disk: Arc::new(RealDisk),
            partition: Box::new(|handle| handle),
            reclaim_pause: Duration::ZERO,
            receive_pause: Duration::ZERO,
        }
    }
}
