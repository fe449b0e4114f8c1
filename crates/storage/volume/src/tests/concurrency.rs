//! Tests with many concurrent threads.

use super::support::*;
use crate::{StoreRequest, Volume};
use afs_format::directory::DirectoryBlob;
use base::Fid;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const WRITERS: u8 = 4;
const FILE_BYTES: usize = 3000;

fn shared_file(volume: &Volume) -> Fid {
    let created = volume.create_file(&actor(1), volume.root(), b"shared", &nothing()).unwrap();
    let fid = created.status.fid(RW);
    store_at(volume, fid, 0, &[0; FILE_BYTES], u64::MAX).unwrap();
    fid
}

#[test]
fn readers_see_whole_stores_while_many_overwrite() {
    let (server, volume) = Server::with_volume(options());
    let fid = shared_file(&volume);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let mut reader = volume.reader(fid, 0, u64::MAX).unwrap();
                        let mut data = reader.next(100).unwrap().concat();
                        while reader.remaining() > 0 {
                            data.extend(reader.next(1000).unwrap().concat());
                        }
                        assert!(data.iter().all(|&byte| byte == data[0]), "a mixture was read");
                        assert!(reader.status().data_version >= last, "the file went back");
                        last = reader.status().data_version;
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (1..=WRITERS)
            .map(|writer| {
                let volume = &volume;
                scope.spawn(move || {
                    for _ in 0..200 {
                        store_at(volume, fid, 0, &[writer; FILE_BYTES], u64::MAX).unwrap();
                    }
                })
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        let read: Vec<_> = readers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        assert!(written.iter().chain(&read).all(Result::is_ok));
    });
    assert_eq!(volume.status(fid).unwrap().data_version, 1 + 200 * u64::from(WRITERS));
    server.check_chunks();
}

#[test]
fn concurrent_stores_to_parts_of_one_chunk_are_all_kept() {
    let (server, volume) = Server::with_volume(options());
    let fid = shared_file(&volume);
    thread::scope(|scope| {
        for writer in 1..=WRITERS {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..100 {
                    let offset = u64::from(writer) * 50;
                    store_at(volume, fid, offset, &[writer + round; 50], u64::MAX).unwrap();
                }
            });
        }
    });
    let data = read_all(&volume, fid);
    for writer in 1..=WRITERS {
        let at = usize::from(writer) * 50;
        assert_eq!(data[at..at + 50], [writer + 99; 50]);
    }
    server.check_chunks();
}

#[test]
fn a_slow_store_holds_nobody_up() {
    let (_server, volume) = Server::with_volume(options());
    let fid = shared_file(&volume);
    let request = StoreRequest { offset: 10, length: 20, file_length: u64::MAX, set: nothing() };
    // While one store waits for its data, other operations on the same file proceed.
    let mut is_first = true;
    volume
        .store(&actor(1), fid, &request, &mut |most: usize| {
            if std::mem::take(&mut is_first) {
                store_at(&volume, fid, 0, &[1; 200], 200).unwrap();
                volume.create_file(&actor(1), volume.root(), b"meanwhile", &nothing()).unwrap();
            }
            Ok(Bytes::from(vec![2; most]))
        })
        .unwrap();
    assert_eq!(read_all(&volume, fid), [&[1; 10][..], &[2; 20], &[1; 170]].concat());
}

#[test]
fn names_change_and_are_listed_concurrently() {
    let (mut server, volume) = Server::with_volume(options());
    thread::scope(|scope| {
        for worker in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                for n in 0..150 {
                    let name = format!("{worker}-{n}").into_bytes();
                    volume.create_file(&actor(1), volume.root(), &name, &nothing()).unwrap();
                    if n % 3 == 0 {
                        volume.remove_file(&actor(1), volume.root(), &name).unwrap();
                    }
                }
            });
        }
        for id in 0..5 {
            server.clone_rw(100 + id);
            let blob = read_all(&volume, volume.root());
            DirectoryBlob::parse(&blob.into()).unwrap();
        }
    });
    let before = read_all(&volume, volume.root());
    assert_eq!(volume.header().file_count, 400);
    drop(volume);
    server.reopen();
    let volume: Arc<Volume> = server.volumes.get(RW).unwrap();
    assert_eq!(read_all(&volume, volume.root()), before);
    assert_eq!(volume.status(volume.root()).unwrap().data_version, 1 + 4 * 200);
}

/// Starts a change of the file inside the callback of `report`, and checks that it waits until `report` returns.
fn change_during_a_report(volume: &Volume, fid: Fid, report: impl FnOnce(&dyn Fn()) -> Option<u64>) {
    let before = volume.status(fid).unwrap().data_version;
    thread::scope(|scope| {
        let (changed, changes) = mpsc::channel();
        let reported = report(&|| {
            let changed = changed.clone();
            let change = || store_at(volume, fid, 0, &[1], u64::MAX).unwrap().data_version;
            scope.spawn(move || changed.send(change()).unwrap());
            // The change takes some hundred microseconds if it is not blocked.
            assert!(changes.recv_timeout(Duration::from_millis(100)).is_err(), "it did not wait");
        });
        assert_eq!(reported, Some(before));
        assert_eq!(changes.recv().unwrap(), before + 1);
    });
}

#[test]
fn cached_statuses_do_not_change_while_reported() {
    let (_server, volume) = Server::with_volume(options());
    let fid = shared_file(&volume);
    change_during_a_report(&volume, fid, |wait| {
        volume.with_cached_status(fid, |status, _| {
            wait();
            Some(status.data_version)
        })
    });
    change_during_a_report(&volume, fid, |wait| {
        volume.with_cached_statuses(&[fid], |found| {
            wait();
            Some(found[0].0.data_version)
        })
    });
}
