//! Tests of similar purge jobs.

use super::support::*;
use crate::{CloneVolume, NewVolume, PartitionHandle, Space, Volume, Volumes};
use base::{Fid, PartitionId, UnixTime, VolumeId, VolumeType};
use std::sync::Arc;
use store::{MemoryChunks, MemoryMeta};

/// More than one step of the purger examines.
const FILES: u32 = 700;

fn partition_at(index: u32) -> PartitionHandle {
    PartitionHandle {
        id: PartitionId::from_index(index).unwrap(),
        meta: Arc::new(MemoryMeta::new()),
        chunks: Arc::new(MemoryChunks::new()),
        space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
    }
}

/// Creates a read-write volume with many files, all of which changed after clones of them were made.
fn volume_with_clones(volumes: &Volumes, partition: u32, id: u32, clones: &[u32]) -> (Arc<Volume>, Vec<Fid>) {
    let new = NewVolume {
        id: VolumeId(id),
        name: format!("v{id}").parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    let volume = volumes.create(PartitionId::from_index(partition).unwrap(), &new).unwrap();
    let file = |number: u32| {
        let name = format!("f{number}");
        let made = volume.create_file(&actor(1), volume.root(), name.as_bytes(), &nothing()).unwrap();
        let fid = made.status.fid(volume.id());
        store_at(&volume, fid, 0, &[1; 300], u64::MAX).unwrap();
        fid
    };
    let files: Vec<Fid> = (0..FILES).map(file).collect();
    let mut source = volume.id();
    for &clone in clones {
        let new = CloneVolume {
            id: VolumeId(clone),
            name: format!("c{clone}").parse().unwrap(),
            kind: VolumeType::ReadOnly,
            now: UnixTime(2),
        };
        // The second is a clone of the first: both read at the same epoch.
        source = volumes.clone_volume(source, &new).unwrap().id();
    }
    for fid in &files {
        store_at(&volume, *fid, 0, &[2; 300], u64::MAX).unwrap();
    }
    (volume, files)
}

#[test]
fn jobs_of_two_partitions_with_the_same_key_are_two() {
    let volumes = Volumes::open(vec![partition_at(0), partition_at(1)], options()).unwrap();
    let (here, files) = volume_with_clones(&volumes, 0, 10, &[11, 12]);
    let (there, _) = volume_with_clones(&volumes, 1, 20, &[21]);
    assert_eq!((here.group.id, here.view().read_view.epoch), (there.group.id, there.view().read_view.epoch));
    volumes.delete(VolumeId(21)).unwrap();
    assert!(volumes.purge_step().unwrap(), "the other partition's job is under way");
    volumes.delete(VolumeId(11)).unwrap();
    while volumes.purge_step().unwrap() {}
    let clone = volumes.get(VolumeId(12)).unwrap();
    for fid in files {
        assert_eq!(read_all(&clone, fid), [1; 300]);
        assert_eq!(read_all(&here, fid), [2; 300]);
    }
}

#[test]
fn a_volume_deleted_during_its_job_leaves_nothing() {
    for steps in 1..6 {
        let server = Server::new(options());
        let (volume, _) = volume_with_clones(&server.volumes, 0, 10, &[11, 12]);
        server.volumes.delete(VolumeId(11)).unwrap();
        (0..steps).for_each(|_| _ = server.volumes.purge_step().unwrap());
        server.volumes.delete(VolumeId(12)).unwrap();
        server.purge();
        server.check_chunks();
        assert_eq!(server.chunks.live_chunks(), FILES as usize * 2, "only those of {}", volume.id());
        assert_eq!(server.registry_jobs(), 0);
    }
}
