//! Tests of calls that complete when their changes are durable.

use super::support::*;
use crate::{CallActor, Commits, FileKind, InCall, Pending, Removed, Volume, VolumeError};
use base::{AbortCode, Fid};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use store::StoreError;

type Ending = Receiver<Result<(), VolumeError>>;

/// Serves a call as [`actor`].
fn call<T>(serve: impl FnOnce(&CallActor<'_>) -> T) -> Pending<T> {
    Commits::collect(|commits| serve(&CallActor { actor: actor(1), commits }))
}

/// Creates a file as a call that does not wait for the disk.
fn create(volume: &Volume, name: &str) -> Pending<()> {
    let (made, pending) =
        call(|by| volume.create_file(by, volume.root(), name.as_bytes(), &nothing())).into_parts();
    assert_eq!(made.unwrap().status.kind, FileKind::File);
    pending.into_ready().expect_err("the file is not durable yet")
}

/// Removes a file as a call that does not wait for the disk.
fn remove(volume: &Volume, name: &[u8]) -> Pending<Removed> {
    call(|by| volume.remove_file(by, volume.root(), name)).map(Result::unwrap)
}

fn end_of(pending: Pending<()>) -> Ending {
    let (sender, ending) = channel();
    pending.when_durable(move |durable| drop(sender.send(durable)));
    ending
}

#[test]
fn a_change_is_durable_before_its_call_ends_and_not_before() {
    let (server, volume) = Server::with_volume(options());
    let pending = create(&volume, "a");
    assert_eq!(server.meta.inner.unsynced_commits(), 1);
    end_of(pending).try_recv().unwrap().unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
    create(&volume, "b").wait().unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
    let served = Commits::collect(|commits| {
        InCall::new(Arc::clone(&volume), commits).access(|volume| volume.status(volume.root()))
    });
    let status = served.into_ready().unwrap_or_else(|_| panic!("a read has nothing to wait for"));
    assert_eq!(status.unwrap().vnode, volume.root().vnode);
}

/// A client must not learn of a removal before the client that requested it.
#[test]
fn a_missing_vnode_is_reported_when_its_removal_is_durable() {
    let (server, volume) = Server::with_volume(options());
    let made = volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap();
    let fid = made.status.fid(volume.id());
    let removal = remove(&volume, b"a");
    assert_eq!(server.meta.inner.unsynced_commits(), 1);
    // A FID whose number is now used by another vnode, which is in memory.
    let others = Fid { unique: volume.root().unique + 1, ..volume.root() };
    let root = volume.root();
    for (missing, unsynced) in [(fid, 1), (others, 0)] {
        let report = |read: &dyn Fn(&InCall<'_>) -> Option<VolumeError>| {
            let served = Commits::collect(|commits| read(&InCall::new(Arc::clone(&volume), commits)));
            let (error, pending) = served.into_parts();
            assert!(matches!(error, Some(VolumeError::NoVnode(..))), "{error:?}");
            pending.into_ready().expect_err("the removal is not durable yet")
        };
        drop(report(&|volume| volume.access(|volume| volume.status(missing)).err()));
        drop(report(&|volume| {
            volume
                .read_all(&[root, missing], |volume| volume.statuses_and_acls(&[root, missing]))
                .pop()?
                .err()
        }));
        drop(report(&|volume| volume.access(|volume| volume.lookup(missing, b"x")).err()));
        drop(report(&|volume| volume.access(|volume| volume.reader(missing, 0, 1)).err()));
        assert_eq!(server.meta.inner.unsynced_commits(), unsynced, "a read does not wait");
        let pending = report(&|volume| volume.access(|volume| volume.status_and_acl(missing)).err());
        pending.wait().unwrap();
        assert_eq!(server.meta.inner.unsynced_commits(), 0);
    }
    removal.wait().unwrap();
}

/// The same holds for a change that fails because the vnode is missing.
#[test]
fn a_refused_change_waits_for_the_removal_that_it_reports() {
    let (server, volume) = Server::with_volume(options());
    let made = volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap();
    let fid = made.status.fid(volume.id());
    let removal = remove(&volume, b"a");
    let served = Commits::collect(|commits| {
        let by = CallActor { actor: actor(2), commits };
        InCall::new(Arc::clone(&volume), commits).access(|volume| volume.set_status(&by, fid, &nothing()))
    });
    let (refused, pending) = served.into_parts();
    assert!(matches!(refused, Err(VolumeError::NoVnode(..))), "{refused:?}");
    assert_eq!(server.meta.inner.unsynced_commits(), 1);
    pending.wait().unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
    removal.wait().unwrap();
}

#[test]
fn the_reply_to_a_call_of_several_changes_waits_once() {
    let (server, volume) = Server::with_volume(options());
    let before = server.meta.syncs.load(Relaxed);
    let changes = |by: &CallActor<'_>| {
        for name in [b"a", b"b", b"c"] {
            volume.create_file(by, volume.root(), name, &nothing()).unwrap();
        }
        "served"
    };
    let served = call(changes);
    assert_eq!((server.meta.syncs.load(Relaxed) - before, server.meta.inner.unsynced_commits()), (0, 3));
    let (sender, ending) = channel();
    served.when_durable(move |durable| drop(sender.send(durable)));
    assert_eq!(ending.try_recv().unwrap().unwrap(), "served");
    assert_eq!((server.meta.syncs.load(Relaxed) - before, server.meta.inner.unsynced_commits()), (1, 0));
}

/// Reads of a failed partition show what was durable, and nothing else.
#[test]
fn changes_that_did_not_become_durable_are_reverted() {
    let (server, volume) = Server::with_volume(options());
    create(&volume, "durable").wait().unwrap();
    server.volumes.revert_failed().unwrap();
    assert!(Arc::ptr_eq(&volume, &server.volumes.get(RW).unwrap()), "nothing has failed");
    let before = volume.status(volume.root()).unwrap();
    let lost = create(&volume, "lost");
    let found = volume.lookup(volume.root(), b"lost").unwrap();
    let fid = Fid { volume: RW, vnode: found.vnode, unique: found.unique };
    assert!(server.meta.inner.fail());
    let read = |fid: Fid| {
        let volume = server.volumes.get(RW).unwrap();
        let served =
            Commits::collect(|commits| InCall::new(volume, commits).read(fid, |volume| volume.status(fid)));
        served.wait().and_then(|result| result)
    };
    // The call that made the change learns of the failure; others are asked to come again.
    assert!(matches!(lost.wait(), Err(VolumeError::Store(StoreError::ReadOnly(_)))));
    for fid in [volume.root(), fid] {
        let error = read(fid).unwrap_err();
        assert!(matches!(error, VolumeError::Reverting), "{error}");
        assert_eq!(error.abort_code(), AbortCode::VBUSY);
    }
    server.volumes.revert_failed().unwrap();
    assert_eq!(read(volume.root()).unwrap(), before);
    assert!(matches!(read(fid), Err(VolumeError::NoVnode(..))));
    let volume = server.volumes.get(RW).unwrap();
    assert!(
        volume.lookup(volume.root(), b"durable").is_ok() && volume.lookup(volume.root(), b"lost").is_err()
    );
    let refused = volume.create_file(&actor(1), volume.root(), b"late", &nothing()).map(drop);
    assert!(matches!(refused, Err(VolumeError::Store(StoreError::ReadOnly(_)))), "{refused:?}");
    server.volumes.revert_failed().unwrap();
    assert!(Arc::ptr_eq(&volume, &server.volumes.get(RW).unwrap()), "it is done once");
}

#[test]
fn a_dropped_result_leaves_its_changes_to_the_next_sync() {
    let (server, volume) = Server::with_volume(options());
    let file = volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap().status;
    store_at(&volume, file.fid(RW), 0, &[1; 1000], 1000).unwrap();
    let before = server.chunks.live_chunks();
    let syncs = server.meta.syncs.load(Relaxed);
    drop(remove(&volume, b"a"));
    assert_eq!(server.meta.syncs.load(Relaxed), syncs, "nobody waits for the removal");
    assert_eq!(server.chunks.live_chunks(), before, "the contents are there until the removal is durable");
    server.volumes.sync().unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
    assert!(server.chunks.live_chunks() < before);
    server.check_chunks();
}

#[test]
fn only_one_thread_waits_for_the_disk() {
    let (server, volume) = Server::with_volume(options());
    let disk = server.meta.syncs_fail.lock();
    thread::scope(|scope| {
        let (sender, first) = channel();
        let pending = create(&volume, "a");
        scope.spawn(move || pending.when_durable(move |durable| drop(sender.send(durable))));
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
fn results_are_dropped_after_the_last_end() {
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
fn a_failed_sync_fails_each_call() {
    let (server, volume) = Server::with_volume(options());
    *server.meta.syncs_fail.lock() = true;
    assert!(matches!(end_of(create(&volume, "a")).try_recv().unwrap(), Err(VolumeError::Store(_))));
    assert!(matches!(create(&volume, "b").wait(), Err(VolumeError::Store(_))));
    *server.meta.syncs_fail.lock() = false;
    end_of(create(&volume, "c")).try_recv().unwrap().unwrap();
}

#[test]
fn a_failed_sync_refuses_the_result_and_keeps_superseded_chunks() {
    fn end(removal: Pending<Removed>, leads: bool) -> Result<Removed, VolumeError> {
        if !leads {
            return removal.wait();
        }
        let (sender, ending) = channel();
        removal.when_durable(move |durable| drop(sender.send(durable)));
        ending.try_recv().unwrap()
    }
    for leads in [false, true] {
        let (server, volume) = Server::with_volume(options());
        let file = volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap().status;
        store_at(&volume, file.fid(RW), 0, &[1; 1000], 1000).unwrap();
        let before = server.chunks.live_chunks();
        let removal = remove(&volume, b"a");
        *server.meta.syncs_fail.lock() = true;
        assert!(matches!(end(removal, leads), Err(VolumeError::Store(_))));
        assert_eq!(server.chunks.live_chunks(), before, "a crash may restore the file");
        *server.meta.syncs_fail.lock() = false;
        server.volumes.sync().unwrap();
        assert!(server.chunks.live_chunks() < before);
        server.check_chunks();
    }
}

#[test]
fn a_call_that_panics_leaves_its_changes_to_the_next_sync() {
    let (server, volume) = Server::with_volume(options());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(call(|by| -> () {
            volume.create_file(by, volume.root(), b"a", &nothing()).unwrap();
            panic!("a test wanted this")
        }));
    }));
    assert!(panic.is_err());
    assert_eq!(server.meta.inner.unsynced_commits(), 1);
    server.volumes.sync().unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0);
    volume.create_file(&actor(1), volume.root(), b"b", &nothing()).unwrap();
    assert_eq!(server.meta.inner.unsynced_commits(), 0, "outside of a call a change waits");
}

#[test]
fn replaced_chunks_are_released_at_the_calls_end() {
    let (server, volume) = Server::with_volume(options());
    let file = volume.create_file(&actor(1), volume.root(), b"a", &nothing()).unwrap().status;
    let fid = file.fid(RW);
    store_at(&volume, fid, 0, &[1; 1000], 1000).unwrap();
    let before = server.chunks.live_chunks();
    let stored = call(|by| store_as(by, &volume, fid, 0, &[2; 1000], 1000));
    assert!(server.chunks.live_chunks() > before, "the old contents are there until the new are durable");
    assert_eq!(stored.wait().unwrap().unwrap().length, 1000);
    assert_eq!(server.chunks.live_chunks(), before);
    server.check_chunks();
}

#[test]
fn answered_changes_survive_whichever_call_synced() {
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
