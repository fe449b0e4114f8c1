//! Tests that volumes are loaded when first used, a group at a time.

use super::support::*;
use crate::VolumeError;
use base::VolumeId;
use store::{Batch, MetaStore};
use volume_records::{families, keys};

const CLONE: u32 = 900;
const OTHER: VolumeId = VolumeId(7);

/// Creates a volume with a clone, and another volume.
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
fn an_unused_volume_is_purged_after_a_restart() {
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
    batch.put(families::VOLUMES, keys::header(OTHER), [1, 2, 3]);
    batch.put(families::VOLUMES, keys::counters(VolumeId(CLONE)), [1]);
    server.meta.commit(batch).unwrap();
    server.reopen();
    assert!(matches!(server.volumes.get(OTHER), Err(VolumeError::NoVolume(_))));
    // A writer would have to know the epochs of all volumes.
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

/// Creates ten times as many volumes as may be in memory, each in its own group.
fn many(most: usize) -> Server {
    let server = Server::new(crate::VolumeOptions { loaded_volumes_max: most, ..options() });
    for id in 1..=10 * most as u32 {
        server.create(VolumeId(id), &format!("v{id}"));
    }
    server
}

#[test]
fn unused_volumes_are_unloaded_and_reloaded_unchanged() {
    let mut server = many(20);
    assert!(server.volumes.loaded_count() <= 20 + 8, "{}", server.volumes.loaded_count());
    for round in 0..2 {
        for id in 1..=200 {
            let volume = server.volumes.get(VolumeId(id)).unwrap();
            assert_eq!(volume.header().name.as_str(), format!("v{id}"));
            assert_eq!(volume.header().day_use, round, "what was counted was stored");
            volume.count_access(base::UnixTime(5));
            volume.status(volume.root()).unwrap();
            assert!(server.volumes.loaded_count() <= 20 + 8);
        }
    }
    // Their cache entries are evicted too.
    server.purge();
    assert!(server.volumes.caches().status.entries <= 28);
    server.reopen();
    assert_eq!(server.volumes.list(partition()).len(), 200);
}

#[test]
fn used_or_unsaved_headers_stay_in_memory() {
    let server = many(5);
    let held = server.volumes.get(VolumeId(1)).unwrap();
    server.volumes.get(VolumeId(2)).unwrap().set_state(crate::VolumeState::Offline);
    let (clone_of, marked) = (VolumeId(3), VolumeId(4));
    server.volumes.get(marked).unwrap().update_header(|header| header.destroy_me = 0xd3).unwrap();
    let clone = crate::CloneVolume {
        id: VolumeId(900),
        name: "c".parse().unwrap(),
        kind: base::VolumeType::ReadOnly,
        now: base::UnixTime(2),
    };
    let clone = server.volumes.clone_volume(clone_of, &clone).unwrap();
    for id in 5..=50 {
        server.volumes.get(VolumeId(id)).unwrap();
    }
    server.volumes.unload_idle();
    server.volumes.unload_idle();
    assert_eq!(server.volumes.loaded_count(), 5, "held, offline, marked, and a clone with its source");
    assert!(std::sync::Arc::ptr_eq(&held, &server.volumes.get(VolumeId(1)).unwrap()));
    assert!(matches!(server.volumes.get(VolumeId(2)), Err(VolumeError::Offline(_))));
    assert_eq!(server.volumes.marked().len(), 1);
    drop((held, clone));
    server.volumes.unload_idle();
    server.volumes.unload_idle();
    assert_eq!(server.volumes.loaded_count(), 2);
}

#[test]
fn readers_of_a_volume_keep_its_chunks_though_it_was_deleted() {
    let server = server();
    let clone = server.volumes.get(VolumeId(CLONE)).unwrap();
    let mut reader = clone.reader(file_of(&clone), 0, 500).unwrap();
    drop(clone);
    server.volumes.delete(VolumeId(CLONE)).unwrap();
    let volume = server.volumes.get(RW).unwrap();
    store_at(&volume, file_of(&volume), 0, &[2; 500], u64::MAX).unwrap();
    drop(volume);
    server.volumes.unload_idle();
    server.volumes.unload_idle();
    assert_eq!(server.volumes.loaded_count(), 1, "its group is in use");
    let volume = server.volumes.get(RW).unwrap();
    store_at(&volume, file_of(&volume), 0, &[3; 500], u64::MAX).unwrap();
    server.purge();
    assert_eq!(reader.next(1000).unwrap().concat(), [1; 500]);
}

#[test]
fn a_listing_loads_nothing() {
    let server = many(10);
    server.volumes.unload_idle();
    server.volumes.unload_idle();
    assert_eq!(server.volumes.loaded_count(), 0);
    server.volumes.get(VolumeId(7)).unwrap().set_state(crate::VolumeState::Busy);
    server.volumes.get_any_state(VolumeId(7)).unwrap().count_access(base::UnixTime(9));
    let mut listed = Vec::new();
    let reads = server.meta.reads();
    let list = &mut |volume: crate::Listed| {
        listed.push(volume);
        std::ops::ControlFlow::Continue(())
    };
    server.volumes.list_headers(partition(), list).unwrap();
    assert_eq!(server.volumes.loaded_count(), 1);
    assert_eq!(server.meta.reads(), reads, "it reads a snapshot, a page at a time");
    assert!(listed.iter().map(|volume| volume.header.id.0).eq(1..=100));
    assert_eq!((listed[6].state, listed[6].header.day_use), (crate::VolumeState::Busy, 1));
    assert_eq!(listed[7].state, crate::VolumeState::Online);
    assert_eq!(listed[7].header, server.volumes.get(VolumeId(8)).unwrap().header());
    let other = base::PartitionId::from_index(5).unwrap();
    assert!(server.volumes.list_headers(other, &mut |_| unreachable!()).is_err());
}

#[test]
fn a_list_of_more_than_a_page_has_every_volume_once() {
    let server = many(210);
    let mut ids = Vec::new();
    let list = &mut |volume: crate::Listed| {
        ids.push(volume.header.id.0);
        std::ops::ControlFlow::Continue(())
    };
    server.volumes.list_headers(partition(), list).unwrap();
    assert!(ids.into_iter().eq(1..=2100));
    let mut count = 0;
    let first = &mut |_: crate::Listed| {
        count += 1;
        std::ops::ControlFlow::Break(())
    };
    server.volumes.list_headers(partition(), first).unwrap();
    assert_eq!(count, 1);
}
