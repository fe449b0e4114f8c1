//! Tests that planted damage is found and listed, and removed from the list when it has been repaired.

use super::support::*;
use crate::{Quarantined, ScrubPolicy, Volume};
use base::{AbortCode, Fid, UnixTime};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Batch, ChunkAddress, Family, MetaStore};
use volume_records::{codec, families, keys};

const CHUNK: usize = 256;

fn with_file() -> (Server, Arc<Volume>, Fid) {
    let (server, volume) = Server::with_volume(options());
    let made = volume.create_file(&actor(1), volume.root(), b"f", &nothing()).unwrap();
    let fid = made.status.fid(RW);
    let data: Vec<u8> = (0..5 * CHUNK).map(|at| (at / CHUNK) as u8).collect();
    store_at(&volume, fid, 0, &data, u64::MAX).unwrap();
    (server, volume, fid)
}

/// Damages the chunk that holds this part of the file.
fn damage(server: &Server, index: usize) -> ChunkAddress {
    let (_, value) = &server.records(families::EXTENTS)[index];
    let address = codec::extent_address(value).flatten().unwrap();
    server.chunks.damage(address);
    address
}

fn listed(server: &Server) -> Vec<Quarantined> {
    server.volumes.quarantine(partition()).unwrap()
}

#[test]
fn a_damaged_chunk_costs_its_range_until_it_is_rewritten() {
    let (mut server, volume, fid) = with_file();
    server.scrub(50);
    assert_eq!(listed(&server), []);
    let address = damage(&server, 2);
    for index in 0..5u64 {
        let read = volume.read(fid, index * 256, 256);
        if index == 2 {
            assert_eq!(code(read.map(|_| ())), AbortCode::UAEIO);
        } else {
            assert_eq!(read.unwrap().1.concat(), [index as u8; CHUNK]);
        }
    }
    server.scrub(100);
    server.scrub(200);
    let found = listed(&server);
    let ChunkAddress { segment, offset, .. } = address;
    let expected = Quarantined {
        fid: Some(fid),
        offset: 512,
        length: 256,
        place: format!("segment {segment:016x} at offset {offset}"),
        what: "no chunk there".into(),
        first_seen: UnixTime(100),
        last_seen: UnixTime(200),
    };
    assert_eq!(found, [expected]);
    // The list survives a restart, after which no scrubber has run yet.
    drop(volume);
    server.reopen();
    assert_eq!(listed(&server), found);
    // Compaction does not move it.
    server.compact(1);
    assert_eq!(listed(&server).len(), 1);
    let volume = server.volumes.get(RW).unwrap();
    store_at(&volume, fid, 512, &[9; CHUNK], u64::MAX).unwrap();
    assert_eq!(listed(&server), []);
    assert_eq!(volume.read(fid, 512, 256).unwrap().1.concat(), [9; CHUNK]);
    server.scrub(300);
    let kept = server.records(Family::SYSTEM).into_iter().filter(|(key, _)| key.starts_with(keys::DAMAGES));
    assert_eq!(kept.count(), 0, "it left the metadata too");
    let statistics = server.volumes.scrub_statistics(partition()).unwrap();
    assert_eq!((statistics.passes, statistics.damages, statistics.finished), (4, 0, UnixTime(300)));
}

#[test]
fn deleted_and_clone_only_damage_are_distinguished() {
    let (server, volume, fid) = with_file();
    let clone = server.clone_rw(2000);
    damage(&server, 1);
    store_at(&volume, fid, 256, &[9; CHUNK], u64::MAX).unwrap();
    server.scrub(100);
    let found = listed(&server);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].fid, Some(Fid { volume: clone.id(), ..fid }));
    server.volumes.delete(clone.id()).unwrap();
    server.purge();
    assert_eq!(listed(&server), []);
    damage(&server, 0);
    server.scrub(200);
    assert_eq!(listed(&server)[0].fid, Some(fid));
    volume.remove_file(&actor(1), volume.root(), b"f").unwrap();
    assert_eq!(listed(&server), []);
}

#[test]
fn damaged_metadata_is_reported_until_it_is_good_again() {
    let (server, _, _) = with_file();
    for (family, now) in [(families::VNODES, 100), (families::ENTRIES, 300), (families::EXTENTS, 500)] {
        let (key, value) = server.records(family)[1].clone();
        let put = |value: &[u8]| {
            let mut batch = Batch::new();
            batch.put(family, key.clone(), value);
            server.meta.commit(batch).unwrap();
        };
        put(&[7; 3]);
        server.scrub(now);
        let found = listed(&server);
        assert_eq!(found.len(), 1, "{family:?}");
        assert!(found[0].place.contains(family.name()) && found[0].fid.is_none(), "{found:?}");
        put(&value);
        server.scrub(now + 100);
        assert_eq!(listed(&server), []);
    }
}

#[test]
fn a_pass_goes_on_after_a_restart_and_waits_for_its_time() {
    let (mut server, volume, _) = with_file();
    for number in 0..1500 {
        let name = format!("n{number}");
        volume.create_file(&actor(1), volume.root(), name.as_bytes(), &nothing()).unwrap();
    }
    drop(volume);
    let policy = ScrubPolicy { period_seconds: 1000 };
    let meta = server.meta.clone();
    let read_anew = || meta.read_anew.load(Ordering::Relaxed);
    let mut steps = 0;
    while !server.volumes.scrub_step(partition(), policy, UnixTime(500)).unwrap().is_idle {
        let before = server.volumes.scrub_statistics(partition()).unwrap();
        server.reopen();
        let after = server.volumes.scrub_statistics(partition()).unwrap();
        assert_eq!((before.position, before.records), (after.position, after.records));
        steps += 1;
    }
    let done = server.volumes.scrub_statistics(partition()).unwrap();
    assert!(steps > 4 && done.passes == 1 && !done.is_running, "{steps} {done:?}");
    // Vnodes and entries of 1501 files and a root with two entries and totals, header and counters, extents.
    assert_eq!((done.records, done.chunks), (1502 + 1503 + 1 + 2 + 5, 5));
    assert!(server.volumes.scrub_step(partition(), policy, UnixTime(1499)).unwrap().is_idle);
    assert_eq!(read_anew(), 1, "once a pass, which asks the disk and not the system's cache");
    assert!(!server.volumes.scrub_step(partition(), policy, UnixTime(1500)).unwrap().is_idle);
    assert_eq!(read_anew(), 2);
}
