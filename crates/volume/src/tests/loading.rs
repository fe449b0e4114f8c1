//! Volumes are read when they are first used, a group at a time.

use super::support::*;
use crate::{VolumeError, keys};
use base::VolumeId;
use store::{Batch, Family, MetaStore};

const CLONE: u32 = 900;
const OTHER: VolumeId = VolumeId(7);

/// A volume with a clone, and another volume.
fn server() -> Server {
    let (mut server, volume) = Server::with_volume(options());
    let file = volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
    store_at(&volume, file.status.fid(RW), 0, &[1; 500], u64::MAX).unwrap();
    server.clone_rw(CLONE);
    server.create(OTHER, "root.cell");
    server.reopen();
    server
}

fn file_of(volume: &crate::Volume) -> base::Fid {
    let found = volume.lookup(volume.root(), b"file").unwrap();
    base::Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique }
}

#[test]
fn nothing_is_in_memory_before_it_is_used() {
    let server = server();
    assert_eq!(server.volumes.loaded_count(), 0);
    server.volumes.get(RW).unwrap();
    assert_eq!(server.volumes.loaded_count(), 2, "with its clone");
    assert!(matches!(server.volumes.get(VolumeId(8)), Err(VolumeError::NoVolume(_))));
    assert_eq!(server.volumes.find_name(&"root.cell".parse().unwrap()).unwrap(), Some(OTHER));
    assert_eq!(server.volumes.loaded_count(), 2, "a search by name reads headers only");
    assert_eq!(server.volumes.list(partition()).len(), 3);
    assert_eq!(server.volumes.loaded_count(), 3);
}

#[test]
fn a_writer_that_is_loaded_respects_clones_that_nobody_used() {
    let mut server = server();
    let volume = server.volumes.get(RW).unwrap();
    store_at(&volume, file_of(&volume), 0, &[2; 500], u64::MAX).unwrap();
    server.reopen();
    let (clone, volume) = (server.volumes.get(VolumeId(CLONE)).unwrap(), server.volumes.get(RW).unwrap());
    assert_eq!(read_all(&clone, file_of(&clone)), [1; 500]);
    assert_eq!(read_all(&volume, file_of(&volume)), [2; 500]);
    server.check_chunks();
}

#[test]
fn a_volume_that_was_never_used_can_be_deleted_and_purged_after_a_restart() {
    let mut server = server();
    let volume = server.volumes.get(RW).unwrap();
    store_at(&volume, file_of(&volume), 0, &[2; 500], u64::MAX).unwrap();
    server.reopen();
    server.volumes.delete(VolumeId(CLONE)).unwrap();
    server.reopen();
    let before = server.chunks.live_chunks();
    server.purge();
    assert!(server.chunks.live_chunks() < before);
    assert_eq!(server.registry_jobs(), 0);
    server.check_chunks();
    server.volumes.delete(RW).unwrap();
    server.purge();
    assert_eq!(server.chunks.live_chunks(), 0);
    assert_eq!(server.volumes.list(partition()).len(), 1);
}

#[test]
fn a_damaged_header_keeps_only_its_own_group_offline() {
    let mut server = server();
    let mut batch = Batch::new();
    batch.put(Family::Volumes, keys::header(OTHER), [1, 2, 3]);
    batch.put(Family::Volumes, keys::counters(VolumeId(CLONE)), [1]);
    server.meta.commit(batch).unwrap();
    server.reopen();
    assert!(matches!(server.volumes.get(OTHER), Err(VolumeError::NoVolume(_))));
    // Who writes would have to know the epochs of all.
    assert!(matches!(server.volumes.get(RW), Err(VolumeError::Damaged { .. })));
    server.create(VolumeId(8), "serves");
    assert_eq!(server.volumes.list(partition()).len(), 1);
}

#[test]
fn volumes_marked_for_destruction_are_known_after_a_restart() {
    let mut server = server();
    server.volumes.get(OTHER).unwrap().update_header(|header| header.destroy_me = 0xd3).unwrap();
    let marked = |server: &Server| -> Vec<VolumeId> {
        server.volumes.marked().iter().map(|volume| volume.id()).collect()
    };
    assert_eq!(marked(&server), [OTHER]);
    server.reopen();
    assert_eq!(server.volumes.loaded_count(), 0);
    assert_eq!(marked(&server), [OTHER]);
    server.volumes.delete(OTHER).unwrap();
    assert!(marked(&server).is_empty());
}
