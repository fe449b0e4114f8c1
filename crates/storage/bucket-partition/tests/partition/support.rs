//! Processes that open the partition.

use crate::writers::{options, partition_id};
use bucket::faulty::{Faults, FaultyBucket};
use bucket_partition::{BucketConfig, Opener};
use bytes::Bytes;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;
use std::time::Duration;
use store::{
    Batch, ChunkAddress, Codec, Family, MasterKey, MetaConfig, Partition, PartitionConfig, SegmentConfig,
    StoreError,
};
use tokio::runtime::{Builder, Runtime};
use volume::{PartitionHandle, Space, VolumeOptions, Volumes, families};

/// The address that messages show.
pub(crate) const PLACE: &str = "s3://cellar/cells/a";
pub(crate) const PREFIX: &str = "cells/a";

/// Runs requests only while a call waits for them, by a clock that does not wait.
pub(crate) fn runtime() -> Arc<Runtime> {
    Arc::new(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap())
}

pub(crate) fn bucket() -> FaultyBucket {
    FaultyBucket::new(1, Faults::default())
}

/// Without threads of the partition.
pub(crate) fn config() -> PartitionConfig {
    PartitionConfig {
        families: &families::ALL,
        maintenance: None,
        meta: MetaConfig::small(),
        segments: SegmentConfig { cache_bytes: 10_000, ..SegmentConfig::default() },
        ..PartitionConfig::default()
    }
}

pub(crate) fn unasked() -> PartitionConfig {
    PartitionConfig { create: false, ..config() }
}

pub(crate) fn opener_with(bucket: &FaultyBucket, options: &BucketConfig) -> Opener {
    Opener::with_runtime(runtime(), Arc::new(bucket.clone()), PREFIX, PLACE, options)
}

pub(crate) fn opener(bucket: &FaultyBucket) -> Opener {
    let request_limit = Duration::from_secs(5);
    opener_with(bucket, &BucketConfig { request_limit, ..BucketConfig::default() })
}

pub(crate) fn open(bucket: &FaultyBucket) -> Result<Partition, StoreError> {
    opener(bucket).open(&config(), None)
}

pub(crate) fn open_encrypted(bucket: &FaultyBucket, key: u8) -> Result<Partition, StoreError> {
    opener(bucket).open(&config(), Some(&master(key)))
}

pub(crate) fn master(byte: u8) -> MasterKey {
    MasterKey::parse(&[byte; 32]).unwrap()
}

/// Stores a chunk and a record that refers to it.
pub(crate) fn put(partition: &Partition, key: &str, data: &[u8]) -> Result<ChunkAddress, StoreError> {
    let (meta, chunks) = (partition.meta(), partition.chunks());
    let address = chunks.append(&[Bytes::copy_from_slice(data)], Codec::Raw)?;
    chunks.sync()?;
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, key, address.to_bytes());
    meta.sync(meta.commit(batch)?)?;
    Ok(address)
}

/// Returns the chunk that this record refers to.
pub(crate) fn get(partition: &Partition, key: &str) -> Result<Option<Bytes>, StoreError> {
    let Some(record) = partition.meta().get(Family::SYSTEM, key.as_bytes())? else { return Ok(None) };
    partition.chunks().read(ChunkAddress::from_bytes(&record).unwrap()).map(Some)
}

/// Opens the volumes of a partition that never is full.
pub(crate) fn volumes(partition: &Partition) -> Volumes {
    let handle = PartitionHandle {
        id: partition_id(),
        meta: partition.meta(),
        chunks: partition.chunks(),
        space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
    };
    Volumes::open(vec![handle], VolumeOptions { append_threads: 0, ..options() }).unwrap()
}

/// Access to the objects themselves.
pub(crate) struct Raw(pub(crate) FaultyBucket);

impl Raw {
    fn wait<T>(future: impl Future<Output = object_store::Result<T>>) -> Option<T> {
        match runtime().block_on(future) {
            Ok(found) => Some(found),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn name(name: &str) -> Name {
        Name::from(format!("{PREFIX}/{name}"))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Bytes> {
        Raw::wait(async { self.0.get(&Raw::name(name)).await?.bytes().await })
    }

    pub(crate) fn put(&self, name: &str, contents: impl Into<Bytes>) {
        let contents: Bytes = contents.into();
        Raw::wait(async { self.0.put(&Raw::name(name), contents.into()).await });
    }

    pub(crate) fn delete(&self, name: &str) {
        Raw::wait(async { self.0.delete(&Raw::name(name)).await });
    }

    /// Returns the names in this folder, with their sizes.
    pub(crate) fn list(&self, folder: &str) -> Vec<(String, u64)> {
        use futures::TryStreamExt;
        let prefix = Raw::name(folder);
        let found = Raw::wait(async { self.0.list(Some(&prefix)).try_collect::<Vec<_>>().await }).unwrap();
        let name = |object: &object_store::ObjectMeta| object.location.filename().unwrap().to_owned();
        let mut names: Vec<_> = found.iter().map(|object| (name(object), object.size)).collect();
        names.sort();
        names
    }

    /// Whether any object contains these bytes.
    pub(crate) fn contains(&self, bytes: &[u8]) -> bool {
        use futures::TryStreamExt;
        let prefix = Name::from(PREFIX);
        let all = Raw::wait(async { self.0.list(Some(&prefix)).try_collect::<Vec<_>>().await }).unwrap();
        all.iter().any(|object| {
            let contents = Raw::wait(async { self.0.get(&object.location).await?.bytes().await }).unwrap();
            contents.windows(bytes.len()).any(|window| window == bytes)
        })
    }
}
