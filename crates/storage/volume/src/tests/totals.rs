//! Tests of directory totals.

use super::support::*;
use crate::{Totals, Volume, VolumeError, VolumeOptions};
use base::{AbortCode, Fid, UnixTime, VolumeId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use store::{Batch, MetaStore};
use volume_check::{CheckOptions, check};
use volume_records::{codec, families, keys};

fn file(volume: &Volume, directory: Fid, name: &str, bytes: usize) -> Fid {
    let created = volume.create_file(&actor(1), directory, name.as_bytes(), &nothing()).unwrap();
    let fid = created.status.fid(volume.id());
    store_at(volume, fid, 0, &vec![b'x'; bytes], 0).unwrap();
    fid
}

fn directory(volume: &Volume, above: Fid, name: &str) -> Fid {
    volume.make_directory(&actor(1), above, name.as_bytes(), &nothing()).unwrap().status.fid(volume.id())
}

fn is_sound(server: &Server) {
    let report = check(&*server.meta, None, CheckOptions::default(), &mut |_| {});
    assert!(report.is_clean(), "{:#?}", report.damages);
}

fn totals(bytes: u64, kib: u64, files: u64, directories: u64) -> Totals {
    Totals { bytes, kib, files, directories }
}

#[test]
fn everything_counts_in_all_directories_above() {
    let (mut server, volume) = Server::with_volume(options());
    let root = volume.root();
    assert_eq!(volume.totals(root).unwrap(), totals(0, 2, 0, 0));
    let outer = directory(&volume, root, "outer");
    let inner = directory(&volume, outer, "inner");
    let long = file(&volume, inner, "long", 3000);
    volume.link(&actor(1), inner, b"again", long).unwrap();
    volume.create_symlink(&actor(1), outer, b"link", b"inner/long", &nothing()).unwrap();
    let of_inner = totals(3000, 2 + 3, 1, 0);
    let of_outer = totals(3010, 2 + 5 + 1, 2, 1);
    for _ in 0..2 {
        let volume = server.volumes.get(RW).unwrap();
        assert_eq!(volume.totals(inner).unwrap(), of_inner);
        assert_eq!(volume.totals(outer).unwrap(), of_outer);
        assert_eq!(volume.totals(root).unwrap(), totals(3010, 10, 2, 2));
        assert_eq!(volume.totals(root).unwrap().kib, volume.header().used_kib);
        server.reopen();
    }
    let volume = server.volumes.get(RW).unwrap();
    let other = directory(&volume, root, "other");
    volume.rename(&actor(2), outer, b"inner", other, b"moved").unwrap();
    assert_eq!(volume.totals(outer).unwrap(), totals(10, 3, 1, 0));
    assert_eq!(volume.totals(other).unwrap(), totals(3000, 7, 1, 1));
    store_at(&volume, long, 0, b"", 10).unwrap();
    assert_eq!(volume.totals(other).unwrap(), totals(10, 5, 1, 1), "cut");
    volume.remove_file(&actor(2), inner, b"long").unwrap();
    assert_eq!(volume.totals(other).unwrap(), totals(10, 5, 1, 1), "another name is left");
    volume.remove_file(&actor(2), inner, b"again").unwrap();
    volume.remove_directory(&actor(2), other, b"moved").unwrap();
    assert_eq!(volume.totals(other).unwrap(), totals(0, 2, 0, 0));
    assert_eq!(code(volume.totals(inner)), AbortCode::VNOVNODE);
    is_sound(&server);
}

#[test]
fn sums_beyond_all_bounds_come_back() {
    let (server, volume) = Server::with_volume(options());
    let below = directory(&volume, volume.root(), "below");
    let names = ["a", "b", "c"];
    for name in names {
        let fid = file(&volume, below, name, 0);
        store_at(&volume, fid, (1 << 63) - 2, b"x", u64::MAX).unwrap();
    }
    is_sound(&server);
    for name in names {
        volume.remove_file(&actor(2), below, name.as_bytes()).unwrap();
    }
    assert_eq!(volume.totals(volume.root()).unwrap(), totals(0, 4, 0, 1));
    is_sound(&server);
}

#[test]
fn asking_reads_as_many_records_however_much_there_is() {
    let (mut server, volume) = Server::with_volume(options());
    let large = directory(&volume, volume.root(), "large");
    directory(&volume, volume.root(), "small");
    for number in 0..40 {
        let below = directory(&volume, large, &format!("{number}"));
        (0..40).for_each(|number| _ = file(&volume, below, &format!("{number}"), 10));
    }
    // From now on no changes stay unfolded.
    server.options.unfolded_directories = 0;
    server.reopen();
    directory(&server.volumes.get(RW).unwrap(), volume.root(), "last");
    let mut reads = |name: &[u8]| {
        server.reopen();
        let volume = server.volumes.get(RW).unwrap();
        let found = volume.lookup(volume.root(), name).unwrap();
        let before = server.meta.records_read.load(Ordering::Relaxed);
        let totals = volume.totals(Fid { volume: RW, vnode: found.vnode, unique: found.unique }).unwrap();
        (server.meta.records_read.load(Ordering::Relaxed) - before, totals.files)
    };
    // Reads the vnode and its totals.
    assert_eq!((reads(b"small"), reads(b"large")), ((2, 0), (2, 1600)));
}

#[test]
fn changes_rarely_write_records_of_parent_directories() {
    let (server, volume) = Server::with_volume(options());
    let way: Vec<Fid> = (0..100)
        .scan(volume.root(), |above, _| {
            *above = directory(&volume, *above, "below");
            Some(*above)
        })
        .collect();
    let mut files: Vec<Fid> = Vec::new();
    for number in 0..40 {
        let leaf = directory(&volume, way[99], &format!("{number}"));
        files.push(file(&volume, leaf, "file", 10));
    }
    let written = |stores: &mut dyn FnMut()| {
        let before = server.meta.puts(families::TOTALS);
        stores();
        server.meta.puts(families::TOTALS) - before
    };
    store_at(&volume, files[0], 0, &[1; 50], 0).unwrap();
    let of_one = written(&mut || {
        (0..1000).for_each(|length| _ = store_at(&volume, files[0], 0, &vec![1; length], 0).unwrap());
    });
    assert_eq!(of_one, 0);
    let of_many = written(&mut || {
        for number in 0..170 {
            store_at(&volume, files[number % 40], 0, &vec![1; number], 0).unwrap();
        }
    });
    // They are merged in their parent, and do not affect its hundred ancestors.
    assert!((100..=300).contains(&of_many), "{of_many}");
    is_sound(&server);
}

#[test]
fn a_volume_of_an_older_program_is_counted_while_it_changes() {
    let (mut server, volume) = Server::with_volume(VolumeOptions { unfolded_directories: 2, ..options() });
    let directories: Vec<Fid> =
        (0..600).map(|number| directory(&volume, volume.root(), &format!("{number}"))).collect();
    for (number, fid) in directories.iter().enumerate().step_by(3) {
        file(&volume, *fid, "file", number);
    }
    server.clone_rw(77);
    server.forget_totals();
    let volume = server.volumes.get(RW).unwrap();
    assert!(matches!(volume.totals(volume.root()), Err(VolumeError::NotCounted(RW))));
    assert_eq!(code(volume.totals(volume.root())), AbortCode::UAEAGAIN);
    let clone = server.volumes.get(VolumeId(77)).unwrap();
    assert_eq!(clone.totals(clone.root()).unwrap().directories, 600, "the clone's are known");
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0;
            while !ends.load(Ordering::Relaxed) || round < 100 {
                change(&volume, &directories, round);
                round += 1;
            }
        });
        assert!(server.volumes.count_step().unwrap());
        assert!(volume.is_counted());
        ends.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_eq!(volume.totals(volume.root()).unwrap().kib, volume.header().used_kib);
    assert!(!server.volumes.count_step().unwrap());
    is_sound(&server);
}

/// Stores files, and creates, removes and moves directories.
fn change(volume: &Volume, directories: &[Fid], round: usize) {
    let (from, to) = (directories[round % 600], directories[(round * 7 + 1) % 600]);
    let name = format!("made{round}");
    let made = directory(volume, from, &name);
    file(volume, made, "file", round % 2000);
    if from != to {
        volume.rename(&actor(3), from, name.as_bytes(), to, name.as_bytes()).unwrap();
    }
    if round.is_multiple_of(2) {
        volume.remove_file(&actor(3), made, b"file").unwrap();
        let parent = if from == to { from } else { to };
        volume.remove_directory(&actor(3), parent, name.as_bytes()).unwrap();
    }
}

#[test]
fn an_old_clone_stays_uncounted_until_it_is_made_again() {
    let (mut server, volume) = Server::with_volume(options());
    file(&volume, volume.root(), "file", 10);
    server.forget_totals();
    server.clone_rw(77);
    while server.volumes.count_step().unwrap() {}
    let of = |id: u32| {
        let volume = server.volumes.get(VolumeId(id)).unwrap();
        volume.totals(volume.root()).ok()
    };
    assert_eq!((of(RW.0).map(|totals| totals.files), of(77)), (Some(1), None));
    is_sound(&server);
    server.volumes.reclone(RW, VolumeId(77), UnixTime(9), |_| {}).unwrap();
    assert_eq!(of(77), of(RW.0));
    server.purge();
    is_sound(&server);
}

#[test]
fn a_rollback_brings_the_snapshots_totals_back() {
    let (mut server, volume) = Server::with_volume(VolumeOptions { unfolded_directories: 1, ..options() });
    let (a, b) = (directory(&volume, volume.root(), "a"), directory(&volume, volume.root(), "b"));
    file(&volume, a, "first", 1000);
    let then = volume.totals(volume.root()).unwrap();
    server.snapshot_rw(70).unwrap();
    file(&volume, b, "second", 5000);
    volume.rename(&actor(1), volume.root(), b"a", b, b"moved").unwrap();
    let later = volume.totals(volume.root()).unwrap();
    server.snapshot_rw(71).unwrap();
    let snapshot = |id| server.volumes.get(VolumeId(id)).unwrap();
    assert_eq!(snapshot(70).totals(volume.root()).unwrap(), then);
    assert_eq!(snapshot(71).totals(volume.root()).unwrap(), later);
    let back = |id| server.volumes.roll_back(RW, VolumeId(id), UnixTime(9)).unwrap();
    let volume = back(70);
    assert_eq!(
        (volume.totals(volume.root()).unwrap(), volume.totals(b).unwrap()),
        (then, totals(0, 2, 0, 0))
    );
    file(&volume, b, "third", 1);
    is_sound(&server);
    let volume = back(71);
    assert_eq!((volume.totals(volume.root()).unwrap(), volume.totals(b).unwrap().files), (later, 2));
    server.purge();
    is_sound(&server);
    server.reopen();
    let volume = server.volumes.get(RW).unwrap();
    assert_eq!(volume.totals(volume.root()).unwrap(), later);
}

#[test]
fn rollbacks_without_totals_are_recounted() {
    let (mut server, volume) = Server::with_volume(options());
    file(&volume, volume.root(), "file", 10);
    server.forget_totals();
    server.snapshot_rw(70).unwrap();
    while server.volumes.count_step().unwrap() {}
    let volume = server.volumes.get(RW).unwrap();
    assert!(volume.is_counted());
    file(&volume, volume.root(), "more", 10);
    let volume = server.volumes.roll_back(RW, VolumeId(70), UnixTime(9)).unwrap();
    assert!(!volume.is_counted());
    is_sound(&server);
    while server.volumes.count_step().unwrap() {}
    assert_eq!(volume.totals(volume.root()).unwrap(), totals(10, 3, 1, 0));
    server.purge();
    is_sound(&server);
}

#[test]
fn a_rollback_ends_a_count_of_the_state_before() {
    let (mut server, volume) = Server::with_volume(options());
    (0..600).for_each(|number| _ = directory(&volume, volume.root(), &format!("{number}")));
    server.snapshot_rw(70).unwrap();
    for round in 0..20 {
        server.forget_totals();
        let volume = server.volumes.get(RW).unwrap();
        file(&volume, volume.root(), &format!("file{round}"), 10);
        thread::scope(|scope| {
            let counter = scope.spawn(|| while server.volumes.count_step().unwrap() {});
            (0..round).for_each(|_| thread::yield_now());
            server.volumes.roll_back(RW, VolumeId(70), UnixTime(9)).unwrap();
            counter.join().unwrap();
        });
        while server.volumes.count_step().unwrap() {}
        let volume = server.volumes.get(RW).unwrap();
        assert_eq!(volume.totals(volume.root()).unwrap().files, 0, "round {round}");
        is_sound(&server);
    }
    server.purge();
    is_sound(&server);
}

#[test]
fn damaged_totals_are_counted_anew_and_keep_nobody_from_writing() {
    let (mut server, volume) = Server::with_volume(VolumeOptions { unfolded_directories: 0, ..options() });
    let below = directory(&volume, volume.root(), "below");
    let fid = file(&volume, below, "file", 10);
    let mut batch = Batch::new();
    let key = keys::versioned(&keys::vnode(1, below.vnode), keys::FIRST_EPOCH);
    assert!(codec::get_totals(&server.meta.get(families::TOTALS, &key).unwrap().unwrap()).is_some());
    batch.put(families::TOTALS, key, [1, 2]);
    server.meta.commit(batch).unwrap();
    server.reopen();
    let volume = server.volumes.get(RW).unwrap();
    assert_eq!(code(volume.totals(below)), AbortCode::UAEIO);
    store_at(&volume, fid, 0, b"more than before", 0).unwrap();
    assert_eq!(code(volume.totals(below)), AbortCode::UAEAGAIN);
    assert!(server.volumes.count_step().unwrap());
    assert_eq!(volume.totals(volume.root()).unwrap(), totals(16, 5, 1, 1));
    is_sound(&server);
}

#[test]
fn restored_files_are_counted() {
    let (mut server, volume) = Server::with_volume(options());
    let deepest = (0..50).fold(volume.root(), |above, _| directory(&volume, above, "below"));
    file(&volume, deepest, "file", 1234);
    server.forget_totals();
    let mut restoration = server.volumes.restore(RW).unwrap();
    restoration.keep_all().unwrap();
    let volume = restoration.finish(&server.volumes, volume.header(), UnixTime(99)).unwrap();
    assert_eq!(volume.totals(volume.root()).unwrap(), totals(1234, 51 * 2 + 2, 1, 50));
    server.purge();
    assert_eq!(server.records(families::TOTALS).len(), 51);
    is_sound(&server);
}

#[test]
fn a_failed_change_counts_for_nothing() {
    let (server, volume) = Server::with_volume(VolumeOptions { unfolded_directories: 0, ..options() });
    let below = directory(&volume, volume.root(), "below");
    let before = volume.totals(volume.root()).unwrap();
    *server.meta.failures.lock() = 1;
    volume.create_file(&actor(1), below, b"file", &nothing()).unwrap_err();
    assert_eq!(volume.totals(volume.root()).unwrap(), before);
    file(&volume, below, "file", 1);
    assert_eq!(volume.totals(volume.root()).unwrap(), totals(1, 5, 1, 1));
    is_sound(&server);
}
