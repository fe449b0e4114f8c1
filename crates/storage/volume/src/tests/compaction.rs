//! Tests of moving chunks concurrently with other operations.

use super::support::*;
use crate::{CompactionPolicy, Volume};
use base::{Fid, UnixTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use store::{ChunkAddress, ChunkStore};
use volume_records::families;

const CHUNK: usize = 256;

fn file(volume: &Volume, name: &str, chunks: usize, byte: u8) -> Fid {
    let made = volume.create_file(&actor(1), volume.root(), name.as_bytes(), &nothing()).unwrap();
    let fid = made.status.fid(volume.id());
    store_at(volume, fid, 0, &vec![byte; chunks * CHUNK], u64::MAX).unwrap();
    fid
}

/// Overwrites every other chunk.
fn overwrite(volume: &Volume, fid: Fid, chunks: usize, byte: u8) {
    for index in (0..chunks).step_by(2) {
        store_at(volume, fid, (index * CHUNK) as u64, &[byte; CHUNK], u64::MAX).unwrap();
    }
}

fn expected(chunks: usize, even: u8, odd: u8) -> Vec<u8> {
    (0..chunks).flat_map(|index| [if index % 2 == 0 { even } else { odd }; CHUNK]).collect()
}

fn named(server: &Server) -> Vec<ChunkAddress> {
    let found = server.records(families::EXTENTS);
    found.iter().filter_map(|(_, value)| volume_records::codec::extent_address(value).flatten()).collect()
}

#[test]
fn live_chunks_are_moved_and_dead_ones_are_not_needed() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "f", 60, 1);
    overwrite(&volume, fid, 60, 2);
    assert!(!server.chunks.sparse_segments(50).is_empty());
    server.compact(50);
    assert_eq!(server.chunks.sparse_segments(50), []);
    server.check_chunks();
    assert_eq!(read_all(&volume, fid), expected(60, 2, 1));
    let done = server.volumes.compaction_statistics(partition()).unwrap();
    assert_eq!((done.chunks, done.walks, done.damaged), (30, 1, 0), "{done:?}");
    assert!(done.copied_bytes <= done.dead_bytes, "at 50 % no more is written than is given back");
}

#[test]
fn mostly_live_segments_are_skipped() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "f", 60, 1);
    store_at(&volume, fid, 0, &[2; CHUNK], u64::MAX).unwrap();
    let before = named(&server);
    server.compact(50);
    assert_eq!(named(&server), before);
    // The threshold is lower when the disk is nearly full.
    server.space.lock().free_kib = (1 << 40) / 30;
    let policy = CompactionPolicy::default();
    while !server.volumes.compact_step(partition(), policy, UnixTime(1)).unwrap().is_idle {}
    assert_ne!(named(&server), before);
    assert!(server.volumes.compaction_statistics(partition()).unwrap().is_nearly_full);
    server.check_chunks();
}

#[test]
fn clones_do_not_change() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "f", 40, 1);
    overwrite(&volume, fid, 40, 2);
    let clone = server.clone_rw(2000);
    overwrite(&volume, fid, 40, 3);
    store_at(&volume, fid, 0, &[4; CHUNK], u64::MAX).unwrap();
    server.compact(1);
    server.check_chunks();
    assert_eq!(read_all(&clone, fid), expected(40, 2, 1));
    server.volumes.delete(clone.id()).unwrap();
    server.purge();
    server.compact(1);
    server.check_chunks();
    let mut now = expected(40, 3, 1);
    now[..CHUNK].fill(4);
    assert_eq!(read_all(&volume, fid), now);
}

/// Idle volumes are compacted without being loaded.
#[test]
fn idle_volumes_stay_out_of_memory() {
    let (mut server, volume) = Server::with_volume(options());
    let fid = file(&volume, "f", 60, 1);
    overwrite(&volume, fid, 60, 2);
    drop(volume);
    server.reopen();
    server.compact(50);
    assert_eq!(server.volumes.loaded_count(), 0);
    server.check_chunks();
    assert_eq!(read_all(&server.volumes.get(RW).unwrap(), fid), expected(60, 2, 1));
}

#[test]
fn a_group_that_is_being_built_or_purged_is_left_alone() {
    let (mut server, volume) = Server::with_volume(options());
    let fid = file(&volume, "f", 30, 1);
    overwrite(&volume, fid, 30, 2);
    let mut restoration = server.volumes.restore(RW).unwrap();
    restoration.keep_all().unwrap();
    server.compact(1);
    let header = volume.header();
    let restored = restoration.finish(&server.volumes, header, UnixTime(99)).unwrap();
    assert_eq!(read_all(&restored, fid), expected(30, 2, 1));
    // The chunks of the old group are dead only when the purger has finished.
    server.compact(1);
    server.purge();
    server.compact(1);
    server.check_chunks();
    drop((volume, restored));
    server.volumes.delete(RW).unwrap();
    server.reopen();
    server.compact(1);
    server.purge();
    assert_eq!(server.chunks.live_chunks(), 0);
}

#[test]
fn a_commit_that_fails_changes_nothing() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "f", 60, 1);
    overwrite(&volume, fid, 60, 2);
    let policy = CompactionPolicy::default();
    for _ in 0..20 {
        *server.meta.failures.lock() = 1;
        _ = server.volumes.compact_step(partition(), policy, UnixTime(1));
    }
    *server.meta.failures.lock() = 0;
    server.check_chunks();
    assert_eq!(read_all(&volume, fid), expected(60, 2, 1));
}

/// Readers have looked up addresses that compaction meanwhile releases.
#[test]
fn readers_and_writers_go_on_meanwhile() {
    let (server, volume) = Server::with_volume(options());
    let fids: Vec<Fid> = (0..4).map(|number| file(&volume, &format!("f{number}"), 40, 0)).collect();
    let is_over = AtomicBool::new(false);
    let policy = CompactionPolicy { dead_percent: 1, ..CompactionPolicy::default() };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                server.volumes.compact_step(partition(), policy, UnixTime(1)).unwrap();
            }
        });
        let readers: Vec<_> =
            fids.iter().map(|fid| scope.spawn(|| read_while_written(&volume, *fid))).collect();
        let writers: Vec<_> = fids
            .iter()
            .map(|fid| scope.spawn(|| (1..60).for_each(|byte| overwrite(&volume, *fid, 40, byte))))
            .collect();
        let results: Vec<_> =
            writers.into_iter().chain(readers).map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    server.compact(1);
    server.check_chunks();
    for fid in fids {
        assert_eq!(read_all(&volume, fid), expected(40, 59, 0));
    }
}

fn read_while_written(volume: &Arc<Volume>, fid: Fid) {
    for _ in 0..200 {
        let data = read_all(volume, fid);
        let odd = data.chunks(CHUNK).skip(1).step_by(2).all(|chunk| chunk == [0; CHUNK]);
        assert!(data.len() == 40 * CHUNK && odd, "chunks that nobody writes have changed");
    }
}
