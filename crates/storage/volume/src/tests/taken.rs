//! Tests of volumes that are taken out of file service while calls work on them, as a move does before it
//! sends the last difference: every acknowledged change must be in all later copies.

use super::support::*;
use crate::{Actor, StoreRequest, Volume, VolumeError, VolumeState};
use afs_format::acl::Acl;
use base::{AbortCode, Fid};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const WRITERS: u32 = 4;
const ROUNDS: u32 = 60;

const TAKEN: [(VolumeState, AbortCode); 3] = [
    (VolumeState::Busy, AbortCode::VBUSY),
    (VolumeState::Offline, AbortCode::VOFFLINE),
    (VolumeState::Moved, AbortCode::VMOVED),
];

/// Makes every change that file service can make, through a volume handle obtained earlier.
fn changes(volume: &Arc<Volume>, file: Fid) -> Vec<(&'static str, Result<(), VolumeError>)> {
    let (by, root) = (actor(9), volume.root());
    vec![
        ("CreateFile", volume.create_file(&by, root, b"new", &nothing()).map(drop)),
        ("MakeDir", volume.make_directory(&by, root, b"new", &nothing()).map(drop)),
        ("Symlink", volume.create_symlink(&by, root, b"new", b"to", &nothing()).map(drop)),
        ("Link", volume.link(&by, root, b"new", file).map(drop)),
        ("Rename", volume.rename(&by, root, b"file", root, b"new").map(drop)),
        ("RemoveFile", volume.remove_file(&by, root, b"file").map(drop)),
        ("RemoveDir", volume.remove_directory(&by, root, b"directory").map(drop)),
        ("StoreStatus", volume.set_status(&by, file, &nothing()).map(drop)),
        ("StoreACL", volume.set_acl(&by, root, Acl::administrators()).map(drop)),
        ("StoreData", store_at(volume, file, 0, b"new", 3).map(drop)),
        ("SetVolumeStatus", volume.update_header_in_service(|header| header.quota_max_kib = 1).map(drop)),
    ]
}

#[test]
fn no_change_is_taken_that_a_copy_would_lack() {
    let (_server, volume) = Server::with_volume(options());
    let file = volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
    let file = file.status.fid(RW);
    volume.make_directory(&actor(1), volume.root(), b"directory", &nothing()).unwrap();
    let before = (read_all(&volume, volume.root()), volume.status(file).unwrap(), volume.header());
    for (state, expected) in TAKEN {
        volume.set_state(state);
        for (what, changed) in changes(&volume, file) {
            assert_eq!(changed.map_err(|error| error.abort_code()), Err(expected), "{what} while {state:?}");
        }
        assert_eq!(before, (read_all(&volume, volume.root()), volume.status(file).unwrap(), volume.header()));
    }
    let server = Actor { in_transaction: true, call: None, ..actor(9) };
    volume.create_file(&server, volume.root(), b"new", &nothing()).unwrap();
    volume.set_state(VolumeState::Online);
    volume.remove_file(&actor(1), volume.root(), b"file").unwrap();
}

#[test]
fn data_that_still_comes_when_the_volume_is_taken_is_refused() {
    let (_server, volume) = Server::with_volume(options());
    let file = volume.create_file(&actor(1), volume.root(), b"file", &nothing()).unwrap();
    let fid = file.status.fid(RW);
    let request = StoreRequest { offset: 0, length: 200, file_length: 200, set: nothing() };
    let stored = volume.store(&actor(2), fid, &request, &mut |_| {
        volume.set_state(VolumeState::Busy);
        Ok(Bytes::from_static(&[7; 100]))
    });
    assert_eq!(code(stored), AbortCode::VBUSY);
    assert_eq!(volume.status(fid).unwrap().length, 0);
}

#[test]
fn acknowledged_changes_are_in_the_copy() {
    for round in 0..ROUNDS {
        let (server, volume) = Server::with_volume(options());
        let begun = AtomicU32::new(0);
        let (acknowledged, seen) = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (volume, begun) = (&volume, &begun);
                    scope.spawn(move || write_until_refused(volume, writer, begun))
                })
                .collect();
            while begun.load(Ordering::Relaxed) < WRITERS + round {
                thread::yield_now();
            }
            volume.set_state(VolumeState::Busy);
            let seen = names(&volume);
            let acknowledged: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            (acknowledged.concat(), seen)
        });
        for name in &acknowledged {
            assert!(seen.contains(name), "round {round}: {} is lost", String::from_utf8_lossy(name));
        }
        assert_eq!(names(&volume), seen, "round {round}: the volume changed after it was taken");
        server.check_chunks();
    }
}

/// Creates files until rejected, and returns the names that were acknowledged.
fn write_until_refused(volume: &Arc<Volume>, writer: u32, begun: &AtomicU32) -> Vec<Vec<u8>> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let name = format!("{writer}.{number}").into_bytes();
        let created = volume.create_file(&actor(3), volume.root(), &name, &nothing());
        begun.fetch_add(1, Ordering::Relaxed);
        match created {
            Ok(_) => acknowledged.push(name),
            Err(VolumeError::Busy(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    acknowledged
}

/// Returns the names that a copy made now would contain.
fn names(volume: &Arc<Volume>) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    volume.entries(volume.root(), &mut |name, _| names.push(name.to_vec())).unwrap();
    names
}
