//! Tests of named snapshots: creating, listing, rolling back, and the space that deleting one frees.

use super::support::*;
use crate::{Held, Kept, Period, Policy, SnapshotDue, Volume, VolumeError};
use base::{Fid, SnapshotName, UnixTime, VolumeId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use volume_check::{CheckOptions, check};
use volume_records::families;

fn name(text: &str) -> SnapshotName {
    text.parse().unwrap()
}

fn create(volume: &Volume, name: &[u8], data: &[u8]) -> Fid {
    let fid = volume.create_file(&actor(1), volume.root(), name, &nothing()).unwrap().status.fid(RW);
    store_at(volume, fid, 0, data, 0).unwrap();
    fid
}

fn is_sound(server: &Server) {
    let report = check(&*server.meta, None, CheckOptions::default(), &mut |_| {});
    assert!(report.is_clean(), "{:#?}", report.damages);
}

/// Returns everything stored: records of groups and chunks, and their sizes in bytes.
fn stored(server: &Server) -> Held {
    let mut held = Held::default();
    for family in [families::VNODES, families::ENTRIES, families::EXTENTS, families::TOTALS] {
        for (key, value) in server.records(family) {
            held.records += 1;
            held.record_bytes += (key.len() + value.len()) as u64;
            if let Some(Some(address)) =
                (family == families::EXTENTS).then(|| volume_records::codec::extent_address(&value).unwrap())
            {
                held.chunks += 1;
                held.chunk_bytes += u64::from(address.stored_bytes);
            }
        }
    }
    held
}

fn less(all: Held, given_back: Held) -> Held {
    Held {
        records: all.records - given_back.records,
        record_bytes: all.record_bytes - given_back.record_bytes,
        chunks: all.chunks - given_back.chunks,
        chunk_bytes: all.chunk_bytes - given_back.chunk_bytes,
    }
}

#[test]
fn deleting_a_snapshot_frees_only_its_own_data() {
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut server, volume) = Server::with_volume(options());
        let fids: Vec<Fid> = (0..8).map(|at| create(&volume, &[b'a' + at], &[at; 700])).collect();
        let mut left: Vec<u32> = (1..8).map(|at| 10 * at).collect();
        for &id in &left {
            server.snapshot_rw(id).unwrap();
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..fids.len());
                match random.random_range(0..4) {
                    0 => _ = volume.remove_file(&actor(2), volume.root(), &[b'a' + at as u8]),
                    1 => _ = volume.create_file(&actor(2), volume.root(), &[b'a' + at as u8], &nothing()),
                    _ => {
                        _ = store_at(
                            &volume,
                            fids[at],
                            random.random_range(0..900),
                            &[id as u8; 300],
                            u64::MAX,
                        );
                    }
                }
            }
            if random.random_bool(0.2) {
                server.volumes.roll_back(RW, VolumeId(id), UnixTime(9000)).unwrap();
            }
        }
        server.purge();
        if random.random_bool(0.3) {
            server.reopen();
        }
        // Deletes snapshots in random order until none is left.
        while !left.is_empty() {
            let id = VolumeId(left.remove(random.random_range(0..left.len())));
            let (before, held) = (stored(&server), server.volumes.held_only_by(id).unwrap());
            server.volumes.delete(id).unwrap();
            server.purge();
            assert_eq!(stored(&server), less(before, held), "seed {seed}, snapshot {id}");
            assert_eq!(server.chunks.live_chunks() as u64, stored(&server).chunks, "seed {seed}");
            is_sound(&server);
        }
        assert_eq!(server.volumes.held_only_by(RW).unwrap(), stored(&server), "seed {seed}");
    }
}

#[test]
fn a_volume_lists_its_own_snapshots() {
    let (mut server, volume) = Server::with_volume(options());
    server.create(VolumeId(77), "other");
    create(&volume, b"file", b"one");
    let snapshot = server.snapshot_rw(11).unwrap();
    assert!(matches!(server.snapshot_rw(11), Err(VolumeError::SnapshotExists(RW, _))));
    server.snapshot_rw(21).unwrap();
    assert!(matches!(
        server.volumes.reclone(RW, VolumeId(21), UnixTime(5), |_| {}),
        Err(VolumeError::Invalid(_))
    ));
    assert!(matches!(
        server.volumes.convert_to_read_write(VolumeId(21), UnixTime(99)),
        Err(VolumeError::Invalid(_))
    ));
    let refused = snapshot.create_file(&actor(2), snapshot.root(), b"late", &nothing());
    assert!(matches!(refused, Err(VolumeError::ReadOnly)));
    for _ in 0..2 {
        let listed = server.volumes.snapshots(RW).unwrap();
        let names: Vec<&str> = listed.iter().map(|one| one.of.name.as_str()).collect();
        assert_eq!(names, ["s11", "s21"]);
        assert!(server.volumes.snapshots(VolumeId(77)).unwrap().is_empty());
        let header = server.volumes.get(VolumeId(11)).unwrap().header();
        assert_eq!(
            (header.name.as_str(), header.parent, header.created),
            ("snap.11", VolumeId(10), header.updated),
            "the clock went back after the last change"
        );
        assert_eq!(header.snapshot.unwrap().volume, RW);
        server.reopen();
    }
    server.volumes.delete(VolumeId(11)).unwrap();
    assert_eq!(server.volumes.find_snapshot(RW, &name("s11")).unwrap(), None);
    // Deleting the volume does not delete its snapshots.
    server.volumes.set_policy(RW, Some(Policy { daily: 1, ..Policy::default() })).unwrap();
    server.volumes.delete(RW).unwrap();
    server.purge();
    is_sound(&server);
    let left = server.volumes.find_snapshot(RW, &name("s21")).unwrap().unwrap();
    let kept = server.volumes.get(left.id).unwrap();
    assert!(kept.lookup(kept.root(), b"file").is_ok());
    assert!(server.volumes.policies().unwrap().is_empty());
    server.volumes.delete(left.id).unwrap();
    server.purge();
    assert_eq!(stored(&server).records, 4, "the other volume's root is left");
}

#[test]
fn going_back_leaves_snapshots_and_gives_new_versions() {
    let (mut server, volume) = Server::with_volume(options());
    let fid = create(&volume, b"file", b"old contents");
    let gone = create(&volume, b"gone", b"x");
    server.snapshot_rw(11).unwrap();
    for _ in 0..5 {
        store_at(&volume, fid, 0, b"new contents", 0).unwrap();
    }
    volume.remove_file(&actor(3), volume.root(), b"gone").unwrap();
    let late = create(&volume, b"late", b"y");
    server.snapshot_rw(21).unwrap();
    volume.update_header(|header| header.quota_max_kib = 4321).unwrap();
    let before = (volume.header(), volume.status(fid).unwrap());
    let reader = volume.reader(fid, 0, 99).unwrap();
    let volume = server.volumes.roll_back(RW, VolumeId(11), UnixTime(7000)).unwrap();
    let after = (volume.header(), volume.status(fid).unwrap());
    assert_eq!(read_all(&volume, fid), b"old contents");
    assert_eq!(read_all(&volume, gone), b"x");
    assert!(matches!(volume.status(late), Err(VolumeError::NoVnode(..))));
    assert!(after.1.data_version > before.1.data_version, "{after:?}");
    assert_eq!(
        (after.1.server_modified, after.0.created, after.0.quota_max_kib),
        (UnixTime(7000), UnixTime(7000), 4321)
    );
    drop(reader);
    let again = create(&volume, b"again", b"z");
    assert!(again.unique > late.unique, "a uniquifier stands for one file");
    server.purge();
    for _ in 0..2 {
        let newer = server.volumes.get(VolumeId(21)).unwrap();
        assert_eq!(read_all(&newer, fid), b"new contents");
        assert!(newer.lookup(newer.root(), b"late").is_ok() && newer.lookup(newer.root(), b"gone").is_err());
        let volume = server.volumes.get(RW).unwrap();
        assert_eq!(
            (read_all(&volume, fid), read_all(&volume, again)),
            (b"old contents".to_vec(), b"z".to_vec())
        );
        assert_eq!(volume.status(fid).unwrap().data_version, after.1.data_version);
        is_sound(&server);
        server.reopen();
    }
    // Rolls forward again.
    let volume = server.volumes.roll_back(RW, VolumeId(21), UnixTime(7000)).unwrap();
    assert_eq!(read_all(&volume, fid), b"new contents");
    assert!(volume.status(fid).unwrap().data_version > after.1.data_version);
    assert_eq!(volume.header().created, UnixTime(7001), "another date each time");
    server.create(VolumeId(77), "other");
    assert!(matches!(
        server.volumes.roll_back(VolumeId(77), VolumeId(21), UnixTime(1)),
        Err(VolumeError::Invalid(_))
    ));
}

/// The data of a huge file is purged in the background, even while a rollback makes it visible again.
#[test]
fn a_huge_file_comes_back_whole_and_leaves_nothing() {
    for steps in [0, 1, 2, 99] {
        for late in [false, true] {
            let (server, volume) = Server::with_volume(options());
            let huge = create(&volume, b"huge", &vec![b'h'; 3000 * 256]);
            server.snapshot_rw(11).unwrap();
            volume.remove_file(&actor(2), volume.root(), b"huge").unwrap();
            // This snapshot was made when the file was deleted and its data not yet purged.
            server.snapshot_rw(21).unwrap();
            for _ in 0..steps {
                server.volumes.purge_step().unwrap();
            }
            let back = if late { 21 } else { 11 };
            let volume = server.volumes.roll_back(RW, VolumeId(back), UnixTime(7000)).unwrap();
            server.purge();
            is_sound(&server);
            if !late {
                assert_eq!(read_all(&volume, huge), vec![b'h'; 3000 * 256]);
            }
            server.volumes.delete(VolumeId(11)).unwrap();
            server.purge();
            is_sound(&server);
            let expected = if late { 0 } else { 3000 };
            let left =
                server.records(families::EXTENTS).iter().filter(|(_, value)| !value.is_empty()).count();
            assert_eq!(left, expected, "{steps} steps, late: {late}");
            server.volumes.delete(VolumeId(21)).unwrap();
            server.purge();
            server.check_chunks();
            is_sound(&server);
        }
    }
}

#[test]
fn a_restore_can_be_taken_back() {
    for purged in [false, true] {
        let (mut server, volume) = Server::with_volume(options());
        let fid = create(&volume, b"file", b"before");
        server.snapshot_rw(11).unwrap();
        store_at(&volume, fid, 0, b"seen by nobody else", 0).unwrap();
        let mut restoration = server.volumes.restore(RW).unwrap();
        restoration.keep_all().unwrap();
        let restored = restoration.finish(&server.volumes, volume.header(), UnixTime(99)).unwrap();
        store_at(&restored, fid, 0, b"after", 0).unwrap();
        server.snapshot_rw(21).unwrap();
        let shown = restored.status(fid).unwrap().data_version;
        if purged {
            server.purge();
        }
        server.reopen();
        let old = server.volumes.get(RW).unwrap();
        let back = server.volumes.roll_back(RW, VolumeId(11), UnixTime(7000)).unwrap();
        assert!(matches!(old.status(fid), Err(VolumeError::NoVolume(_))), "who still has it must ask again");
        assert_eq!(read_all(&back, fid), b"before");
        assert!(back.status(fid).unwrap().data_version > shown);
        create(&back, b"more", b"");
        server.purge();
        is_sound(&server);
        server.reopen();
        let back = server.volumes.roll_back(RW, VolumeId(21), UnixTime(7001)).unwrap();
        assert_eq!(read_all(&back, fid), b"after");
        for id in [11, 21] {
            server.volumes.delete(VolumeId(id)).unwrap();
        }
        drop((old, volume, restored));
        server.purge();
        is_sound(&server);
        server.check_chunks();
        assert_eq!(server.records(families::VNODES).len(), 2);
    }
}

#[test]
fn after_a_crash_a_rollback_happened_or_not() {
    for kept in 0..4 {
        let (mut server, volume) = Server::with_volume(interval());
        let fid = create(&volume, b"file", b"old");
        server.volumes.sync().unwrap();
        server.snapshot_rw(11).unwrap();
        store_at(&volume, fid, 0, b"new", 0).unwrap();
        server.volumes.roll_back(RW, VolumeId(11), UnixTime(7000)).unwrap();
        server.crash(kept);
        let volume = server.volumes.get(RW).unwrap();
        let expected: &[u8] = if kept == 2 { b"new" } else { b"old" };
        assert_eq!(read_all(&volume, fid), expected, "{kept} commits");
        assert_eq!(server.volumes.snapshots(RW).unwrap().len(), usize::from(kept > 0));
        server.purge();
        is_sound(&server);
    }
}

#[test]
fn the_policy_is_stored_and_followed() {
    let (mut server, volume) = Server::with_volume(options());
    let policy = Policy { hourly: 2, daily: 1, weekly: 0, monthly: 0 };
    server.volumes.set_policy(RW, Some(policy)).unwrap();
    server.reopen();
    assert_eq!(server.volumes.policies().unwrap(), [(RW, policy)]);
    let at = |hour: u32| UnixTime(1_793_577_600 + 3600 * hour);
    server.snapshot_rw(5).unwrap();
    drop(volume);
    for hour in 0..5 {
        let volume = server.volumes.get(RW).unwrap();
        create(&volume, format!("f{hour}").as_bytes(), b"");
        let SnapshotDue::Make(kept) = server.volumes.snapshot_due(RW, at(hour)).unwrap() else {
            panic!("one is due at {hour}");
        };
        server.snapshot_kept(10 + 2 * hour, kept, at(hour)).unwrap();
        assert_eq!(server.volumes.snapshot_due(RW, at(hour)).unwrap(), SnapshotDue::Nothing);
        for outdated in server.volumes.outdated_snapshots(RW).unwrap() {
            server.volumes.delete(outdated.id).unwrap();
        }
    }
    let names = |server: &Server| -> Vec<String> {
        server.volumes.snapshots(RW).unwrap().iter().map(|one| one.of.name.to_string()).collect()
    };
    assert_eq!(names(&server), ["s5", "s10", "s16", "s18"], "the manual one, the day's, two hours'");
    // Nothing changes for a day, so the newest snapshot is kept for it.
    let SnapshotDue::Keep(same, kept) = server.volumes.snapshot_due(RW, at(26)).unwrap() else { panic!() };
    server.volumes.keep_snapshot(&same, kept, UnixTime(0)).unwrap();
    assert!(same.id == VolumeId(18) && kept == Kept::default().with(Period::Hour).with(Period::Day));
    for outdated in server.volumes.outdated_snapshots(RW).unwrap() {
        server.volumes.delete(outdated.id).unwrap();
    }
    assert_eq!(names(&server), ["s5", "s16", "s18"]);
    server.volumes.set_policy(RW, None).unwrap();
    assert_eq!(server.volumes.snapshot_due(RW, at(99)).unwrap(), SnapshotDue::Nothing);
    assert!(server.volumes.outdated_snapshots(RW).unwrap().is_empty(), "without a policy they stay");
    is_sound(&server);
}

/// Otherwise a reader of a deleted volume would find what the purger has left.
#[test]
fn holders_of_a_deleted_volume_get_an_error() {
    let (server, volume) = Server::with_volume(options());
    let fid = create(&volume, b"file", b"data");
    let held: Arc<Volume> = server.volumes.get(RW).unwrap();
    server.volumes.delete(RW).unwrap();
    assert!(matches!(held.status(fid), Err(VolumeError::NoVolume(RW))));
    assert!(matches!(held.reader(fid, 0, 9), Err(VolumeError::NoVolume(RW))));
    assert!(matches!(held.lookup(held.root(), b"file"), Err(VolumeError::NoVolume(RW))));
}
