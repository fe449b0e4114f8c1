//! Tests what the caches hold, and what purging a volume costs.

use super::support::*;
use crate::{PartitionHandle, Purged, Space, Volume, VolumeError, Volumes};
use base::{Fid, VolumeId};
use disk::RealDisk;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{MemoryMeta, MetaStore, SegmentConfig, SegmentStore};

fn fill(volume: &Arc<Volume>, files: u32) -> Vec<Fid> {
    let file = |number: u32| {
        let name = format!("f{number}");
        volume
            .create_file(&actor(1), volume.root(), name.as_bytes(), &nothing())
            .unwrap()
            .status
            .fid(volume.id())
    };
    (0..files).map(file).collect()
}

#[test]
fn purging_a_volume_costs_its_own_entries_and_changes_no_answer() {
    let (server, volume) = Server::with_volume(options());
    let other = server.create(VolumeId(9), "other");
    fill(&other, 2000);
    let files = fill(&volume, 50);
    let before = server.volumes.caches();
    let purged = server.volumes.purge_cache(RW).unwrap();
    assert_eq!(purged, Purged { status: 51, directories: 1, totals: 0, chunks: 0 });
    let after = server.volumes.caches();
    assert_eq!(after.status.entries, before.status.entries - 51);
    assert!(after.status.purge_steps - before.status.purge_steps < 51 + 50, "{after:?}");
    assert!(after.directories.purge_steps - before.directories.purge_steps < 50, "{after:?}");
    for fid in &files {
        volume.status(*fid).unwrap();
    }
    assert_eq!(server.volumes.caches().status.misses - after.status.misses, 50);
    volume.lookup(volume.root(), b"f7").unwrap();
    assert_eq!(server.volumes.caches().directories.misses - after.directories.misses, 1);
    assert!(server.volumes.purge_cache(VolumeId(77)).is_err());
}

#[test]
fn a_listing_reads_vnodes_ahead_and_scattered_requests_do_not() {
    let (server, volume) = Server::with_volume(options());
    let files = fill(&volume, 2000);
    let list = |fids: &[Fid]| {
        for (fid, found) in fids.iter().zip(volume.statuses_and_acls(fids)) {
            assert_eq!(found.unwrap().0.vnode, fid.vnode);
        }
    };
    server.volumes.purge_cache(RW).unwrap();
    volume.status(volume.root()).unwrap();
    let before = server.meta.reads();
    files.chunks(50).for_each(list);
    let reads = server.meta.reads() - before;
    assert!((5..=9).contains(&reads), "{reads} reads for 40 requests");
    server.volumes.purge_cache(RW).unwrap();
    volume.status(volume.root()).unwrap();
    let before = server.meta.records_read.load(Ordering::Relaxed);
    files.chunks(50).step_by(2).for_each(list);
    assert_eq!(server.meta.records_read.load(Ordering::Relaxed) - before, 1000);
}

#[test]
fn caches_of_deleted_volumes_are_purged_later() {
    let (server, volume) = Server::with_volume(options());
    let before = server.volumes.caches().status.entries;
    let obsolete = server.create(VolumeId(9), "doomed");
    fill(&obsolete, 2500);
    server.volumes.delete(VolumeId(9)).unwrap();
    drop(obsolete);
    assert!(server.volumes.caches().status.entries > 2500, "deleting does not wait for it");
    server.purge();
    let after = server.volumes.caches();
    assert_eq!(after.status.entries, before);
    assert_eq!(after.status.purged, 2501);
    volume.status(volume.root()).unwrap();
}

#[test]
fn cached_status_does_not_read_the_store() {
    let (server, volume) = Server::with_volume(options());
    let files = fill(&volume, 300);
    let reads = server.meta.reads();
    for fid in &files {
        volume.status(*fid).unwrap();
        volume.status_and_acl(*fid).unwrap();
    }
    for number in 0..300 {
        volume.lookup(volume.root(), format!("f{number}").as_bytes()).unwrap();
    }
    assert_eq!(server.meta.reads(), reads);
    server.volumes.purge_cache(RW).unwrap();
    volume.status(files[0]).unwrap();
    assert!(server.meta.reads() > reads, "the counter counts");
}

#[test]
fn file_data_is_purged_with_its_volume() {
    let folder = tempfile::tempdir().unwrap();
    let meta: Arc<dyn MetaStore> = Arc::new(MemoryMeta::new());
    let config = SegmentConfig { cache_bytes: 1 << 20, ..SegmentConfig::default() };
    let chunks = SegmentStore::open(Arc::new(RealDisk), folder.path(), Arc::clone(&meta), config).unwrap();
    let handle = PartitionHandle {
        id: partition(),
        meta,
        chunks: Arc::new(chunks),
        space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
    };
    let volumes = Volumes::open(vec![handle], options()).unwrap();
    for id in [1, 2] {
        let volume = volumes.create(partition(), &new_volume(VolumeId(id), "v")).unwrap();
        let fid = fill(&volume, 1)[0];
        store_at(&volume, fid, 0, &[7; 2000], u64::MAX).unwrap();
        assert_eq!(read_all(&volume, fid), [7; 2000]);
    }
    assert_eq!(volumes.purge_cache(VolumeId(1)).unwrap().chunks, 8);
    assert_eq!(volumes.purge_cache(VolumeId(1)).unwrap().chunks, 0);
    assert_eq!(volumes.purge_cache(VolumeId(2)).unwrap().chunks, 8);
}

#[test]
fn a_directory_is_looked_at_while_a_change_is_committed() {
    let (_server, volume) = Server::with_volume(options());
    let (before, acl) = volume.status_and_acl(volume.root()).unwrap();
    let publish = volume.group.publish.write();
    let (now, same_acl) = volume.status_and_acl(volume.root()).unwrap();
    drop(publish);
    assert_eq!((now, same_acl), (before, acl));
    let another = Fid { unique: before.unique + 1, ..volume.root() };
    assert!(matches!(volume.status_and_acl(another), Err(VolumeError::NoVnode(..))));
}

#[test]
fn making_and_removing_an_empty_file_reads_no_records() {
    let (server, volume) = Server::with_volume(options());
    let make = || volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap();
    let remove = || volume.remove_file(&actor(1), volume.root(), b"a").unwrap();
    make();
    remove();
    let before = server.meta.reads();
    make();
    remove();
    assert_eq!(server.meta.reads(), before);
}
