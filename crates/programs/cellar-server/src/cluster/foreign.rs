//! File data of partitions that other nodes own, read from the bucket and written to it.

use crate::buckets::{connect, local_options};
use anyhow::{Result, anyhow};
use bucket_partition::{BucketConfig, Foreign, LoadKey, threads};
use bytes::Bytes;
use cellar_config::encryption::KeySource;
use cellar_config::{PartitionSettings, Settings};
use cluster_proto::PartitionName;
use clusterserver::Data;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::{ChunkPlace, NewObject, StoreError};
use tokio::runtime::Runtime;

/// How long a client's call waits for the bucket. Then the owner is asked for the data.
const PATIENCE: Duration = Duration::from_secs(3);

/// For how long one request to the bucket may take before it is repeated.
const REQUEST_LIMIT: Duration = Duration::from_millis(1500);

/// The partitions in the bucket, as far as other nodes own them. Each has the memory and the folder for copies of the
/// partition, which this node uses itself when it owns the partition.
pub(crate) struct ForeignData {
    /// Nothing waits under the lock.
    partitions: RwLock<HashMap<PartitionName, Arc<Foreign>>>,
    /// The threads of all clients, from the first partition on.
    runtime: OnceLock<Arc<Runtime>>,
    /// Memory for the data of each partition.
    cache_bytes: u64,
}

impl ForeignData {
    /// Prepares to read these partitions. Sends no request.
    ///
    /// # Errors
    /// If the bucket's client cannot be set up, or no threads can be started.
    pub(crate) fn new<'a>(
        settings: &Settings,
        partitions: impl Iterator<Item = (&'a PartitionSettings, PartitionName)>,
    ) -> Result<Arc<ForeignData>> {
        let cache_bytes = crate::stores::partition_config(settings).segments.cache_bytes;
        let data = ForeignData { partitions: RwLock::default(), runtime: OnceLock::new(), cache_bytes };
        for (partition, name) in partitions {
            data.add(partition, name)?;
        }
        Ok(Arc::new(data))
    }

    /// Prepares to read one more partition. Sends no request.
    ///
    /// # Errors
    /// If the bucket's client cannot be set up, or no threads can be started.
    pub(crate) fn add(&self, partition: &PartitionSettings, name: PartitionName) -> Result<()> {
        let Some(bucket) = partition.place.bucket() else { return Ok(()) };
        let place = bucket.address.to_string();
        let runtime = match self.runtime.get() {
            Some(runtime) => Arc::clone(runtime),
            // The error already names its cause.
            None => threads(&place).map_err(|error| anyhow!("{error}"))?,
        };
        let runtime = Arc::clone(self.runtime.get_or_init(|| runtime));
        let limits =
            BucketConfig { patience: PATIENCE, request_limit: REQUEST_LIMIT, ..local_options(bucket) };
        let key = partition.key.clone();
        let load: LoadKey = Box::new(move || {
            let key = key.as_ref().map(KeySource::load).transpose();
            key.map_err(|error| format!("{error:#}"))
        });
        let place = (bucket.address.prefix(), place.as_str());
        let foreign = Foreign::new(&runtime, &connect(bucket)?, place, &limits, (load, self.cache_bytes));
        self.partitions.write().insert(name, Arc::new(foreign));
        Ok(())
    }

    /// A partition is not the cluster's any more.
    pub(crate) fn remove(&self, partition: &PartitionName) {
        let removed = self.partitions.write().remove(partition);
        drop(removed);
    }

    fn get(&self, partition: &PartitionName) -> Option<Arc<Foreign>> {
        self.partitions.read().get(partition).cloned()
    }

    fn partition(&self, partition: &PartitionName) -> Result<Arc<Foreign>, StoreError> {
        self.get(partition).ok_or_else(|| StoreError::Unavailable {
            place: partition.to_string(),
            what: "the partition is not configured here".into(),
        })
    }

    /// Returns the partition with this identity: the named one, unless chunks of that are in objects which it has borrowed. `None` if
    /// that is not known without a request.
    fn known(&self, named: &PartitionName, identity: [u8; 16]) -> Option<Arc<Foreign>> {
        let partitions = self.partitions.read();
        let named = partitions.get(named).filter(|named| named.is_known_as(identity));
        named.or_else(|| partitions.values().find(|foreign| foreign.is_known_as(identity))).cloned()
    }

    /// Returns the partition with this identity, like [`known`](Self::known).
    ///
    /// # Errors
    /// `Unavailable` if there is none, or the bucket does not answer.
    fn identified(&self, named: &PartitionName, identity: [u8; 16]) -> Result<Arc<Foreign>, StoreError> {
        if let Some(known) = self.known(named, identity) {
            return Ok(known);
        }
        let own = self.partition(named)?;
        let others: Vec<Arc<Foreign>> = self.partitions.read().values().cloned().collect();
        let unavailable =
            |what: &str| StoreError::Unavailable { place: named.to_string(), what: what.into() };
        rx::waiting(|| {
            let (begun, mut is_silent) = (Instant::now(), false);
            for foreign in std::iter::once(own).chain(others) {
                match foreign.is_of(identity) {
                    Some(true) => return Ok(foreign),
                    Some(false) => {}
                    None => is_silent = true,
                }
                if is_silent && begun.elapsed() >= REQUEST_LIMIT {
                    break;
                }
            }
            Err(unavailable(if is_silent {
                "the bucket does not answer, or has not answered lately"
            } else {
                "no partition that is configured here contains the chunk"
            }))
        })
    }

    /// Reads nothing of a partition that this node is about to open itself, until the result is dropped.
    pub(crate) fn suspend(self: &Arc<Self>, partition: &PartitionName) -> Suspended {
        if let Some(foreign) = self.get(partition) {
            foreign.suspend();
        }
        Suspended { data: Arc::clone(self), partition: partition.clone() }
    }
}

impl Data for ForeignData {
    fn read(
        &self,
        partition: &PartitionName,
        identity: [u8; 16],
        chunk: ChunkPlace,
    ) -> Result<Bytes, StoreError> {
        let foreign = self.identified(partition, identity)?;
        if foreign.is_at_hand(chunk.address) {
            return foreign.read(identity, chunk);
        }
        rx::waiting(|| foreign.read(identity, chunk))
    }

    fn expect(&self, partition: &PartitionName, identity: [u8; 16], chunks: &[ChunkPlace]) {
        if let Some(foreign) = self.known(partition, identity) {
            foreign.expect(identity, chunks);
        }
    }

    fn begin(
        &self,
        partition: &PartitionName,
        identity: [u8; 16],
        object: &NewObject,
    ) -> Result<(), StoreError> {
        let foreign = self.partition(partition)?;
        rx::waiting(|| foreign.begin(identity, object))
    }

    fn finish(&self, partition: &PartitionName, object: &NewObject) -> Result<(), StoreError> {
        let foreign = self.partition(partition)?;
        rx::waiting(|| foreign.finish(object))
    }

    fn cancel(&self, partition: &PartitionName, object: &NewObject) {
        if let Some(foreign) = self.get(partition) {
            foreign.cancel(object);
        }
    }
}

/// Keeps a partition from being read here as another node's.
pub(crate) struct Suspended {
    data: Arc<ForeignData>,
    partition: PartitionName,
}

impl Drop for Suspended {
    fn drop(&mut self) {
        if let Some(foreign) = self.data.get(&self.partition) {
            foreign.resume();
        }
    }
}
