//! Tests of calls that complete when their changes are durable.

use super::support::*;
use crate::{Deferred, FileKind, Volume, VolumeError};
use base::Fid;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

type Ending = Receiver<Result<(), VolumeError>>;

/// Creates a file as a call that does not wait for the disk.
fn create(volume: &Volume, name: &str) -> Deferred {
    let (made, deferred) =
        Deferred::collect(|| volume.create_file(&actor(1), volume.root(), name.as_bytes(), &nothing()));
    assert_eq!(made.unwrap().status.kind, FileKind::File);
    assert!(!deferred.is_nothing());
    deferred
}

fn end_of(deferred: Deferred) -> Ending {
    let (sender, ending) = channel();
    deferred.when_durable(move |durable| drop(sender.send(durable)));
    ending
}

#[test]
fn a_change_is_durable_before_its_call_ends_and_not_before() {
    let (server, volume) = Server::with_volume(options());
    let deferred = create(&volume, "a");
    assert_eq!(server.meta.inner.unsynced_commits(), 1);
    end_of(deferred).try_recv().unwrap().unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
    create(&volume, "b").wait().unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
    let (status, deferred) = Deferred::collect(|| volume.status(volume.root()));
    assert!(status.is_ok() && deferred.is_nothing(), "a look owes nothing");
    end_of(deferred).try_recv().unwrap().unwrap();
}

/// A client must not learn of a removal before the client that requested it.
#[test]
fn a_missing_vnode_is_reported_when_its_removal_is_durable() {
    let (server, volume) = Server::with_volume(options());
    let made = volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap();
    let fid = made.status.fid(volume.id());
    let (removed, removal) = Deferred::collect(|| volume.remove_file(&actor(1), volume.root(), b"a"));
    removed.unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 1);
    // A FID whose number is now used by another vnode, which is in memory.
    let others = Fid { unique: volume.root().unique + 1, ..volume.root() };
    for missing in [fid, others] {
        let deferred = |error: &dyn Fn() -> Option<VolumeError>| {
            let (error, deferred) = Deferred::collect(error);
            assert!(matches!(error, Some(VolumeError::NoVnode(..))), "{error:?}");
            assert!(!deferred.is_nothing());
            deferred
        };
        drop(deferred(&|| volume.status(missing).err()));
        drop(deferred(&|| volume.statuses_and_acls(&[volume.root(), missing]).pop().unwrap().err()));
        let deferred = deferred(&|| volume.status_and_acl(missing).err());
        deferred.wait().unwrap();
        assert_eq!(server.meta.inner.unsynced_commits(), 0);
    }
    removal.wait().unwrap();
}

#[test]
fn only_one_thread_waits_for_the_disk() {
    let (server, volume) = Server::with_volume(options());
    let disk = server.meta.syncs_fail.lock();
    thread::scope(|scope| {
        let (sender, first) = channel();
        let deferred = create(&volume, "a");
        scope.spawn(move || deferred.when_durable(move |durable| drop(sender.send(durable))));
        // That thread leads once this one has nothing left to do.
        let others: Vec<Ending> = (0..5)
            .map(|number| {
                while !volume.home.ends.is_led() {
                    thread::yield_now();
                }
                end_of(create(&volume, &format!("b{number}")))
            })
            .collect();
        assert_eq!(first.try_recv().unwrap_err(), TryRecvError::Empty);
        assert!(others.iter().all(|ending| matches!(ending.try_recv(), Err(TryRecvError::Empty))));
        drop(disk);
        for ending in others.iter().chain([&first]) {
            ending.recv().unwrap().unwrap();
        }
    });
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
}

#[test]
fn what_ends_return_is_dropped_when_all_have_ended() {
    /// Reports when it is dropped.
    struct Last(std::sync::mpsc::Sender<&'static str>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
    let (server, volume) = Server::with_volume(options());
    let disk = server.meta.syncs_fail.lock();
    let (sender, order) = channel();
    thread::scope(|scope| {
        scope.spawn(|| end_of(create(&volume, "a")).recv().unwrap().unwrap());
        while !volume.home.ends.is_led() || volume.home.ends.waiting() > 0 {
            thread::yield_now();
        }
        // The first commit is being synced, and the next sync covers both of these.
        for name in ["b", "c"] {
            let sender = sender.clone();
            create(&volume, name).when_durable(move |durable| {
                durable.unwrap();
                sender.send("ended").unwrap();
                Last(sender)
            });
        }
        drop(disk);
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["ended", "ended", "dropped", "dropped"]);
}

#[test]
fn a_sync_that_fails_is_told_to_each_call() {
    let (server, volume) = Server::with_volume(options());
    *server.meta.syncs_fail.lock() = true;
    assert!(matches!(end_of(create(&volume, "a")).try_recv().unwrap(), Err(VolumeError::Store(_))));
    assert!(matches!(create(&volume, "b").wait(), Err(VolumeError::Store(_))));
    *server.meta.syncs_fail.lock() = false;
    end_of(create(&volume, "c")).try_recv().unwrap().unwrap();
}

#[test]
fn a_service_that_panics_leaves_the_next_call_alone() {
    let (server, volume) = Server::with_volume(options());
    let panic = std::panic::catch_unwind(|| Deferred::collect(|| panic!("a test wanted this")));
    assert!(panic.is_err());
    volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0, "outside of a call a change waits");
}

#[test]
fn what_a_call_replaced_is_given_back_at_its_end() {
    let (server, volume) = Server::with_volume(options());
    let file = volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap().status;
    let fid = file.fid(RW);
    store_at(&volume, fid, 0, &[1; 1000], 1000).unwrap();
    let before = server.chunks.live_chunks();
    let (stored, deferred) = Deferred::collect(|| store_at(&volume, fid, 0, &[2; 1000], 1000));
    stored.unwrap();
    assert!(server.chunks.live_chunks() > before, "the old contents are there until the new are durable");
    end_of(deferred).try_recv().unwrap().unwrap();
    assert_eq!(server.chunks.live_chunks(), before);
    server.check_chunks();
}

#[test]
fn what_was_answered_survives_a_crash_whoever_synced() {
    let (mut server, volume) = Server::with_volume(options());
    let answered: Vec<Bytes> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let volume = Arc::clone(&volume);
                scope.spawn(move || {
                    let name = |number: i32| format!("{thread}-{number}");
                    let endings = (0..40).map(|number| end_of(create(&volume, &name(number))));
                    let endings: Vec<Ending> = endings.collect();
                    let ended = endings.iter().map(|ending| ending.recv().unwrap());
                    ended
                        .enumerate()
                        .map(|(number, ended)| {
                            ended.unwrap();
                            Bytes::from(name(number as i32))
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answered.len(), 320);
    drop(volume);
    server.crash(0);
    let volume = server.volumes.get(RW).unwrap();
    for name in answered {
        volume.lookup(volume.root(), &name).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
}
