//! Settings of a partition in a bucket.

use disk::{Disk, RealDisk};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{BucketMeter, ObjectConfig, Tenure};

/// Settings of a partition in a bucket, besides those that every partition has.
#[derive(Clone)]
pub struct BucketConfig {
    /// Copies on the local disk; `None` if data is cached in memory only.
    pub cache: Option<LocalCache>,
    /// Size of the partition in bytes, since a bucket has none; `None` if it is not limited.
    pub size_bytes: Option<u64>,
    /// Size of an object of file data in bytes at which the next one is begun.
    pub object_bytes_max: u32,
    /// For how long one call waits for the bucket, or for a lapsed tenure, before it fails with `Unavailable`.
    pub patience: Duration,
    /// For how long one request to the bucket may take before it is repeated.
    pub request_limit: Duration,
    /// The time during which this process may answer for the partition.
    pub tenure: Tenure,
    /// The local disk.
    pub disk: Arc<dyn Disk>,
    /// Counts the requests.
    pub meter: Arc<BucketMeter>,
    /// Seed of random choices; random if `None`. For tests.
    pub seed: Option<u64>,
}

impl Default for BucketConfig {
    fn default() -> BucketConfig {
        BucketConfig {
            cache: None,
            size_bytes: None,
            object_bytes_max: ObjectConfig::default().object_bytes_max,
            patience: Duration::from_secs(60),
            request_limit: Duration::from_secs(20),
            tenure: Tenure::default(),
            disk: Arc::new(RealDisk),
            meter: Arc::default(),
            seed: None,
        }
    }
}

impl fmt::Debug for BucketConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketConfig")
            .field("cache", &self.cache)
            .field("size_bytes", &self.size_bytes)
            .field("object_bytes_max", &self.object_bytes_max)
            .field("patience", &self.patience)
            .field("request_limit", &self.request_limit)
            .field("tenure", &self.tenure)
            .finish_non_exhaustive()
    }
}

/// A folder on the local disk for copies of data in the bucket. Nothing in it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalCache {
    /// The folder. It is created if it does not exist, and must be used for one partition only.
    pub folder: PathBuf,
    /// Size of all its files together, in bytes: three quarters for file data, the rest for metadata.
    pub bytes_max: u64,
}
