//! Tests of volumes that share chunks of equal contents.

use super::support::*;
use crate::{DeduplicationStatistics, StoreRequest, Volume};
use base::{AbortCode, Fid, UnixTime, VolumeId};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use store::{ChunkStore, MemoryChunks};
use volume_check::{CheckOptions, check};
use volume_records::codec::{self, Extent};
use volume_records::families;
use volume_records::rows::Row;

const OTHER: VolumeId = VolumeId(536_870_930);
const CHUNK: usize = 256;

fn share(volume: &Volume) {
    volume.update_header(|header| header.deduplicates = true).unwrap();
}

/// Creates two volumes that share chunks.
fn two_on(chunks: MemoryChunks) -> (Server, Arc<Volume>, Arc<Volume>) {
    let server = Server::on(chunks, options());
    let (one, other) = (server.create(RW, "user.alice"), server.create(OTHER, "user.bob"));
    share(&one);
    share(&other);
    (server, one, other)
}

fn two() -> (Server, Arc<Volume>, Arc<Volume>) {
    two_on(MemoryChunks::new())
}

fn create(volume: &Volume, name: &str) -> Fid {
    let made = volume.create_file(&actor(1), volume.root(), name.as_bytes(), &nothing()).unwrap();
    made.status.fid(volume.id())
}

fn put(volume: &Volume, name: &str, data: &[u8]) -> Fid {
    let fid = create(volume, name);
    store_at(volume, fid, 0, data, u64::MAX).unwrap();
    fid
}

fn remove(volume: &Volume, name: &str) {
    volume.remove_file(&actor(1), volume.root(), name.as_bytes()).unwrap();
}

/// Returns one chunk filled with each of these bytes.
fn chunks_of(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|&byte| [byte; CHUNK]).collect()
}

fn rows(server: &Server) -> Vec<Row> {
    server.records(families::EXTENTS).iter().filter_map(|(_, value)| codec::get_row(value)).collect()
}

fn statistics(server: &Server) -> DeduplicationStatistics {
    server.volumes.deduplication(partition()).unwrap()
}

/// Checks all invariants, and that every stored chunk is named once.
fn is_sound(server: &Server) {
    let report = check(&*server.meta, None, CheckOptions::default(), &mut |_| {});
    assert!(report.is_clean(), "{:#?}", report.damages);
    server.check_chunks();
}

#[test]
fn equal_contents_are_stored_once_where_both_volumes_want_it() {
    let server = Server::new(options());
    let (one, other) = (server.create(RW, "user.alice"), server.create(OTHER, "user.bob"));
    let data = chunks_of(&[1, 2, 1]);
    put(&one, "apart", &data);
    put(&one, "apart too", &data);
    assert_eq!((server.chunks.live_chunks(), rows(&server).len()), (6, 0), "off by default");
    share(&one);
    put(&one, "x", &data);
    put(&other, "apart", &data);
    assert_eq!((server.chunks.live_chunks(), rows(&server).len()), (6 + 2 + 3, 2));
    share(&other);
    let fid = put(&other, "y", &data);
    assert_eq!((server.chunks.live_chunks(), rows(&server).len()), (6 + 2 + 3, 2));
    assert_eq!(rows(&server).iter().map(|row| row.count).collect::<BTreeSet<_>>(), [2, 4].into());
    assert_eq!(read_all(&other, fid), data);
    let stored = CHUNK as u64 + 1;
    let expected = DeduplicationStatistics {
        chunks: 2,
        shared_chunks: 2,
        names: 6,
        stored_bytes: 2 * stored,
        saved_bytes: 4 * stored,
        row_bytes: 2 * 98,
        memory_bytes: statistics(&server).memory_bytes,
    };
    assert_eq!(statistics(&server), expected);
    assert!(expected.memory_bytes > 0);
    is_sound(&server);
}

#[test]
fn chunks_go_with_their_last_name() {
    let (mut server, one, other) = two();
    let data = chunks_of(&[1, 2, 3]);
    let x = put(&one, "x", &data);
    put(&other, "y", &data);
    let clone = server.clone_rw(77);
    // The clone keeps the versions that it shares with the volume.
    store_at(&one, x, 0, &chunks_of(&[4]), u64::MAX).unwrap();
    assert_eq!((rows(&server).len(), statistics(&server).names), (4, 3 + 3 + 1));
    remove(&other, "y");
    assert_eq!((rows(&server).len(), statistics(&server).names), (4, 4));
    assert_eq!(read_all(&clone, Fid { volume: clone.id(), ..x }), data);
    server.volumes.delete(clone.id()).unwrap();
    server.purge();
    assert_eq!(rows(&server).len(), 3, "nobody shows the first chunk any more");
    // Less remains of the second chunk, which is then no longer shared.
    store_at(&one, x, 0, &[], 300).unwrap();
    assert_eq!(rows(&server).len(), 2);
    is_sound(&server);
    drop((one, other, clone));
    server.reopen();
    server.volumes.delete(RW).unwrap();
    server.purge();
    assert_eq!((rows(&server).len(), server.chunks.live_chunks()), (0, 0));
    assert_eq!(
        DeduplicationStatistics { memory_bytes: 0, ..statistics(&server) },
        DeduplicationStatistics::default()
    );
    is_sound(&server);
}

#[test]
fn switching_it_off_keeps_existing_sharing() {
    let (server, one, other) = two();
    let data = chunks_of(&[1, 2]);
    let (x, y) = (put(&one, "x", &data), put(&other, "y", &data));
    one.update_header(|header| header.deduplicates = false).unwrap();
    assert!(!one.deduplicates() && other.deduplicates());
    let z = put(&one, "z", &data);
    assert_eq!((rows(&server).len(), server.chunks.live_chunks()), (2, 4));
    // Overwrites part of a shared chunk.
    store_at(&one, x, 10, b"new", u64::MAX).unwrap();
    let mut expected = data.clone();
    expected[10..13].copy_from_slice(b"new");
    assert_eq!((read_all(&one, x), read_all(&other, y), read_all(&one, z)), (expected, data.clone(), data));
    assert_eq!(rows(&server).iter().map(|row| row.count).sum::<u64>(), 3);
    is_sound(&server);
}

#[test]
fn the_same_contents_may_come_again_and_again_in_one_store() {
    for append_threads in [0, 2] {
        let options = crate::VolumeOptions { codec: store::Codec::Zstd(1), append_threads, ..options() };
        let (server, volume) = Server::with_volume(options);
        share(&volume);
        let data = chunks_of(&[1, 2, 1, 1, 2, 3]);
        let fid = put(&volume, "x", &data);
        assert_eq!((rows(&server).len(), server.chunks.live_chunks()), (3, 3));
        // Stores the data again, then shifted so that partial chunks are merged, and then in its original
        // form.
        store_at(&volume, fid, 0, &data, u64::MAX).unwrap();
        store_at(&volume, fid, 100, &data, u64::MAX).unwrap();
        store_at(&volume, fid, 0, &data, data.len() as u64).unwrap();
        assert_eq!(read_all(&volume, fid), data);
        assert_eq!((rows(&server).len(), statistics(&server).names), (3, 6));
        is_sound(&server);
    }
}

/// Stores chunks filled with these bytes; `between` is called when all but the last have arrived.
fn store_slowly(volume: &Volume, fid: Fid, bytes: &[u8], between: impl FnOnce()) {
    let mut rest = Bytes::from(chunks_of(bytes));
    let request = StoreRequest { offset: 0, length: rest.len() as u64, file_length: 0, set: nothing() };
    let mut between = Some(between);
    let stored = volume.store(&actor(1), fid, &request, &mut |most: usize| {
        if rest.len() == CHUNK
            && let Some(between) = between.take()
        {
            between();
        }
        Ok(rest.split_to(rest.len().min(most)))
    });
    stored.unwrap();
}

#[test]
fn an_abandoned_chunk_that_another_needs_is_stored_again() {
    let (server, one, other) = two();
    put(&one, "x", &chunks_of(&[1, 2]));
    let y = create(&other, "y");
    store_slowly(&other, y, &[1, 2, 3], || remove(&one, "x"));
    assert_eq!(read_all(&other, y), chunks_of(&[1, 2, 3]));
    assert_eq!(rows(&server).len(), 3);
    is_sound(&server);
    // Another store creates the row again in time.
    let z = create(&one, "z");
    store_slowly(&one, z, &[1, 2, 4], || {
        remove(&other, "y");
        put(&other, "again", &chunks_of(&[2, 1]));
    });
    assert_eq!(read_all(&one, z), chunks_of(&[1, 2, 4]));
    assert_eq!((rows(&server).len(), statistics(&server).names), (3, 5));
    // Both stores bring the same new contents at the same time.
    let (a, b) = (create(&one, "a"), create(&other, "b"));
    store_slowly(&one, a, &[7, 8, 9], || store_at(&other, b, 0, &chunks_of(&[8, 7]), 0).map(|_| ()).unwrap());
    assert_eq!((read_all(&one, a), read_all(&other, b)), (chunks_of(&[7, 8, 9]), chunks_of(&[8, 7])));
    is_sound(&server);
}

#[test]
fn readers_keep_released_chunks() {
    let (server, one, other) = two();
    let data = chunks_of(&[1, 2, 3]);
    let x = put(&one, "x", &data);
    put(&other, "y", &data);
    let mut reader = one.reader(x, 0, u64::MAX).unwrap();
    let mut got = reader.next(10).unwrap().concat();
    remove(&one, "x");
    remove(&other, "y");
    assert_eq!(rows(&server).len(), 0);
    assert_eq!(server.chunks.live_chunks(), 3);
    while reader.remaining() > 0 {
        got.extend(reader.next(1000).unwrap().concat());
    }
    assert_eq!(got, data);
    drop(reader);
    is_sound(&server);
}

#[test]
fn damage_is_listed_per_file_and_healed_by_equal_data() {
    let (server, one, other) = two();
    let data = chunks_of(&[1, 2]);
    let (x, y) = (put(&one, "x", &data), put(&other, "y", &chunks_of(&[5, 2])));
    let clone = server.clone_rw(77);
    let bad = rows(&server).into_iter().find(|row| row.count == 2).unwrap().address;
    server.chunks.damage(bad);
    server.scrub(100);
    let listed = || server.volumes.quarantine(partition()).unwrap();
    let found: Vec<_> = listed().iter().map(|damage| (damage.fid, damage.offset, damage.length)).collect();
    assert_eq!(found, [(Some(x), 256, 256), (Some(y), 256, 256)]);
    assert_eq!(server.volumes.scrub_statistics(partition()).unwrap().damages, 2);
    assert_eq!(code(one.read(x, 256, 256).map(|_| ())), AbortCode::UAEIO);
    assert_eq!(one.read(x, 0, 256).unwrap().1.concat(), [1; CHUNK]);
    // Compaction does not move it.
    server.compact(1);
    assert_eq!(listed().len(), 2);
    // A store of the same contents does not rely on the unreadable chunk.
    let z = put(&other, "z", &chunks_of(&[2]));
    assert_eq!(listed(), []);
    for (volume, fid) in [(&one, x), (&clone, Fid { volume: clone.id(), ..x }), (&other, y), (&other, z)] {
        assert_eq!(volume.reader(fid, 0, u64::MAX).unwrap().next(1 << 20).unwrap().concat().last(), Some(&2));
    }
    server.scrub(200);
    assert_eq!(server.volumes.scrub_statistics(partition()).unwrap().damages, 0);
    assert_eq!(statistics(&server).names, 5);
    is_sound(&server);
}

#[test]
fn compaction_moves_the_row_and_touches_no_extent() {
    let (server, one, other) = two();
    let all: Vec<u8> = (0..60).collect();
    let (x, y) = (put(&one, "x", &chunks_of(&all)), put(&other, "y", &chunks_of(&all)));
    // Part of every segment becomes dead.
    let some: Vec<u8> = (0..60).map(|byte| if byte % 4 == 0 { byte + 100 } else { byte }).collect();
    store_at(&one, x, 0, &chunks_of(&some), u64::MAX).unwrap();
    store_at(&other, y, 0, &chunks_of(&some), u64::MAX).unwrap();
    let extents = |server: &Server| {
        let extent =
            |value: &[u8]| codec::get_extent(value).filter(|extent| matches!(extent, Extent::Shared { .. }));
        let found = server.records(families::EXTENTS);
        found.iter().filter_map(|(key, value)| Some((key.clone(), extent(value)?))).collect::<Vec<_>>()
    };
    let (before, places) = (extents(&server), rows(&server));
    let mut reader = one.reader(x, 0, u64::MAX).unwrap();
    server.compact(1);
    assert_eq!(extents(&server), before);
    let moved = places.iter().zip(rows(&server)).filter(|(old, new)| old.address != new.address).count();
    assert!(moved > 20, "{moved}");
    assert_eq!(reader.next(1 << 20).unwrap().concat(), chunks_of(&some));
    drop(reader);
    assert_eq!((read_all(&one, x), read_all(&other, y)), (chunks_of(&some), chunks_of(&some)));
    assert_eq!(server.chunks.sparse_segments(1), []);
    is_sound(&server);
}

#[test]
fn a_restore_shares_and_an_abandoned_one_leaves_exact_counts() {
    let (server, one, other) = two();
    let data = chunks_of(&[1, 2, 3]);
    let x = put(&one, "x", &data);
    put(&other, "y", &chunks_of(&[3]));
    let mut restoration = server.volumes.restore(RW).unwrap();
    restoration.keep_all().unwrap();
    drop(restoration);
    assert_eq!(server.chunks.live_chunks(), 3);
    assert_eq!(statistics(&server).names, 4 + 3, "until it is purged");
    let report = check(&*server.meta, None, CheckOptions::default(), &mut |_| {});
    assert!(report.is_clean(), "{:#?}", report.damages);
    server.purge();
    assert_eq!(statistics(&server).names, 4);
    // A chunk that it shares is given up before it commits.
    let mut restoration = server.volumes.restore(OTHER).unwrap();
    restoration.keep_all().unwrap();
    remove(&other, "y");
    store_at(&one, x, 0, &chunks_of(&[1]), CHUNK as u64).unwrap();
    let restored = restoration.finish(&server.volumes, other.header(), UnixTime(99)).unwrap();
    server.purge();
    let y = restored.lookup(restored.root(), b"y").unwrap();
    let y = Fid { volume: OTHER, vnode: y.vnode, unique: y.unique };
    assert_eq!(read_all(&restored, y), [3; CHUNK]);
    assert!(restored.deduplicates());
    assert_eq!((rows(&server).len(), statistics(&server).names), (2, 2));
    is_sound(&server);
}

#[test]
fn deleting_frees_unshared_chunks() {
    let (server, one, other) = two();
    let data = chunks_of(&[1, 1, 2, 3]);
    let x = put(&one, "x", &data);
    put(&other, "y", &chunks_of(&[3]));
    let clone = server.clone_rw(77);
    remove(&one, "x");
    let before = server.chunks.live_chunks();
    let held = server.volumes.held_only_by(clone.id()).unwrap();
    assert_eq!((held.chunks, held.chunk_bytes), (2, 2 * (CHUNK as u64 + 1)), "not what the other has too");
    assert_eq!(read_all(&clone, Fid { volume: clone.id(), ..x }), data);
    server.volumes.delete(clone.id()).unwrap();
    server.purge();
    assert_eq!(before - server.chunks.live_chunks(), 2);
    is_sound(&server);
}

#[test]
fn digests_that_are_half_the_same_do_not_mix_chunks_up() {
    let (server, one, other) = two_on(MemoryChunks::new().with_colliding_digests());
    let bytes: Vec<u8> = (0..40).collect();
    let (x, y) = (put(&one, "x", &chunks_of(&bytes)), put(&other, "y", &chunks_of(&bytes)));
    assert_eq!((read_all(&one, x), read_all(&other, y)), (chunks_of(&bytes), chunks_of(&bytes)));
    assert_eq!(rows(&server).len(), 4, "all others are stored as without sharing");
    // Another chunk gets the same key between the lookup and the commit.
    for byte in 0..40 {
        let (server, one, other) = two_on(MemoryChunks::new().with_colliding_digests());
        let (x, y) = (create(&one, "x"), create(&other, "y"));
        let request = StoreRequest { offset: 0, length: 512, file_length: 0, set: nothing() };
        let mut rest = Bytes::from(chunks_of(&[byte, 100]));
        let stored = one.store(&actor(1), x, &request, &mut |most: usize| {
            if rest.len() == CHUNK {
                store_at(&other, y, 0, &chunks_of(&bytes), u64::MAX).unwrap();
            }
            Ok(rest.split_to(rest.len().min(most)))
        });
        match stored {
            Ok(_) => assert_eq!(read_all(&one, x), chunks_of(&[byte, 100])),
            Err(error) => assert_eq!(error.abort_code(), AbortCode::VBUSY),
        }
        assert_eq!(read_all(&other, y), chunks_of(&bytes));
        is_sound(&server);
    }
}

#[test]
fn digests_are_the_partitions_own_where_it_is_encrypted() {
    let digest = |chunks: MemoryChunks| {
        let (server, one, _) = two_on(chunks);
        put(&one, "x", &chunks_of(&[1]));
        rows(&server)[0].digest
    };
    let plain = digest(MemoryChunks::new());
    assert_eq!(digest(MemoryChunks::new()), plain);
    let encrypted = [digest(MemoryChunks::encrypted()), digest(MemoryChunks::encrypted())];
    assert!(encrypted[0] != encrypted[1] && !encrypted.contains(&plain));
}

/// Many files of few different contents in volumes that share chunks, during background maintenance.
#[test]
fn many_writers_leave_counts_exact() {
    let server = Server::new(options());
    let volumes: Vec<_> = (0..4).map(|at| server.create(VolumeId(RW.0 + at), &format!("v{at}"))).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let upkeep = scope.spawn(|| {
            let mut now = 1;
            while !is_over.load(Relaxed) {
                while server.volumes.purge_step().unwrap() {}
                server.compact(1);
                server.scrub(now);
                now += 1;
            }
        });
        let writers: Vec<_> = volumes
            .iter()
            .enumerate()
            .map(|(at, volume)| scope.spawn(move || write_much(at, volume)))
            .collect();
        let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Relaxed);
        assert!(upkeep.join().is_ok() && written.iter().all(Result::is_ok));
    });
    server.purge();
    assert_eq!(server.volumes.quarantine(partition()).unwrap(), []);
    is_sound(&server);
    assert!(statistics(&server).shared_chunks > 0);
}

/// Runs a separate history on a volume, in which every stored file is read back.
fn write_much(seed: usize, volume: &Arc<Volume>) {
    share(volume);
    let fids: Vec<Fid> = (0..6).map(|at| create(volume, &format!("f{at}"))).collect();
    for round in 0..250 {
        let number = seed * 7 + round * 5;
        let fid = fids[number % fids.len()];
        let bytes: Vec<u8> = (0..=number % 5).map(|at| ((number / 3 + at) % 6) as u8).collect();
        store_at(volume, fid, 0, &chunks_of(&bytes), 0).unwrap();
        assert_eq!(read_all(volume, fid), chunks_of(&bytes), "volume {seed}, round {round}");
    }
}
