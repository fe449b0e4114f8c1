//! Fault injection for tests.

use disk::{Disk, RealDisk};
use std::sync::Arc;
use std::time::Duration;
use volume::PartitionHandle;

/// Wraps a partition before its volumes are opened.
type Change = dyn Fn(PartitionHandle) -> PartitionHandle + Send + Sync;

/// Faults to inject; none by default.
pub struct FaultInjection {
    /// The disk that holds file data.
    pub disk: Arc<dyn Disk>,
    /// Wraps each partition.
    pub partition: Box<Change>,
    /// Minimum pause between two steps of the purger.
    pub reclaim_pause: Duration,
    /// Pause of a lane of the file server's port after each received batch.
    pub receive_pause: Duration,
    /// Pause of the start after a port has begun to serve.
    pub port_pause: Duration,
}

impl Default for FaultInjection {
    fn default() -> FaultInjection {
        FaultInjection {
            disk: Arc::new(RealDisk),
            partition: Box::new(|handle| handle),
            reclaim_pause: Duration::ZERO,
            receive_pause: Duration::ZERO,
            port_pause: Duration::ZERO,
        }
    }
}
