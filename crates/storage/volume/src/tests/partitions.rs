//! Tests that a failed partition does not affect the others.

use super::support::*;
use crate::{NewVolume, PartitionHandle, Space, VolumeError, Volumes};
use base::{PartitionId, UnixTime, VolumeId, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use store::{Batch, CommitNumber, Family, KeyRange, MemoryChunks, MetaStore, Snapshot, StoreError, Visit};

/// A metadata store in which nothing can be read.
struct Unreadable;

fn unreadable<T>() -> Result<T, StoreError> {
    Err(StoreError::Meta("made unreadable".into()))
}

impl Snapshot for Unreadable {
    fn scan(&self, _: Family, _: KeyRange<'_>, _: Visit<'_>) -> Result<(), StoreError> {
        unreadable()
    }
}

impl MetaStore for Unreadable {
    fn get(&self, _: Family, _: &[u8]) -> Result<Option<Bytes>, StoreError> {
        unreadable()
    }

    fn scan(&self, _: Family, _: KeyRange<'_>, _: Visit<'_>) -> Result<(), StoreError> {
        unreadable()
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(Unreadable)
    }

    fn commit(&self, _: Batch) -> Result<CommitNumber, StoreError> {
        unreadable()
    }

    fn sync(&self, _: CommitNumber) -> Result<(), StoreError> {
        unreadable()
    }
}

fn place(index: u32) -> PartitionId {
    PartitionId::from_index(index).unwrap()
}

fn handle(index: u32, meta: Arc<dyn MetaStore>, chunks: &Arc<MemoryChunks>) -> PartitionHandle {
    let space = Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 });
    PartitionHandle { id: place(index), meta, chunks: chunks.clone(), space }
}

fn make(volumes: &Volumes, index: u32, id: u32) -> Arc<crate::Volume> {
    let new = NewVolume {
        id: VolumeId(id),
        name: format!("volume.{id}").parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(id),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1000),
    };
    volumes.create(place(index), &new).unwrap()
}

#[test]
fn an_unreadable_partition_takes_only_its_own_volumes_offline() {
    let (meta, chunks) = (Arc::new(Meta::default()), Arc::new(MemoryChunks::new()));
    let whole = handle(1, meta, &chunks);
    make(&Volumes::open(vec![whole.clone()], options()).unwrap(), 1, 7);
    let broken = handle(0, Arc::new(Unreadable), &chunks);
    let volumes = Volumes::open(vec![broken.clone(), whole], options()).unwrap();
    assert_eq!(volumes.partitions(), [place(1)]);
    assert_eq!(volumes.list(place(1)).len(), 1);
    let volume = volumes.get(VolumeId(7)).unwrap();
    volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
    assert!(matches!(volumes.space(place(0)), Err(VolumeError::NoPartition(_))));
    volumes.sync().unwrap();
    assert!(Volumes::open(vec![broken], options()).is_err(), "nothing is left to serve");
}

#[test]
fn a_read_only_partition_does_not_block_purging_of_others() {
    let metas = [Arc::new(Meta::default()), Arc::new(Meta::default())];
    let chunks = [Arc::new(MemoryChunks::new()), Arc::new(MemoryChunks::new())];
    let partition = |index: usize| handle(index as u32, metas[index].clone(), &chunks[index]);
    let volumes = Volumes::open(vec![partition(0), partition(1)], options()).unwrap();
    for index in [0, 1] {
        let volume = make(&volumes, index, 10 + index);
        let file = volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
        store_at(&volume, file.status.fid(volume.id()), 0, &[1; 5000], u64::MAX).unwrap();
        volumes.delete(volume.id()).unwrap();
    }
    *metas[0].failures.lock() = u32::MAX;
    while volumes.purge_step().is_ok() {}
    assert_eq!(chunks[1].live_chunks(), 0);
    assert!(chunks[0].live_chunks() > 0);
    *metas[0].failures.lock() = 0;
    while volumes.purge_step().unwrap() {}
    assert_eq!(chunks[0].live_chunks(), 0);
}
