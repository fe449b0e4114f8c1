//! Calls that are repeated to the server that has taken the partition over.

use crate::takeover::{next, next_with_locks, world};
use crate::world::{Client, World, root};
use afs_idl::fs::{self, Server};
use base::{AbortCode, CallContext, CallId, Fid};
use std::sync::atomic::Ordering::SeqCst;
use volume::recorded_locks;

/// Returns the context of a call that a node has forwarded.
fn forwarded(client: &Client, number: u64) -> CallContext<'_> {
    let call = client.call();
    call.identify(CallId { process: 7, number });
    call
}

fn create(world: &World, client: &Client, name: &str, number: u64) -> Result<fs::CreateFileReply, AbortCode> {
    let status = fs::StoreStatus::default();
    let request = fs::CreateFileRequest { directory: root(), name: name.into(), status };
    world.serve(|call| call.create_file(&forwarded(client, number), request))
}

/// Returns the server that has taken the partition over, after the resets.
fn taken_over(world: &World) -> World {
    let (next, lease, _) = next(world);
    lease.is_resetting.store(false, SeqCst);
    next
}

#[test]
fn a_repeated_creation_promises_only_what_exists() {
    let world = world();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let made = [("kept", 1), ("gone", 2)].map(|(name, number)| create(&world, &bob, name, number).unwrap());
    let next = taken_over(&world);
    next.remove(&alice, root(), "gone").unwrap();
    let [kept, gone] =
        [("kept", 1), ("gone", 2)].map(|(name, number)| create(&next, &bob, name, number).unwrap());
    assert_eq!([kept.fid, gone.fid], [made[0].fid, made[1].fid]);
    assert!(kept.call_back.expiration_time > 0);
    assert_eq!(gone.call_back.expiration_time, 0);
    // The directory is as it is now.
    let version = |reply: &fs::CreateFileReply| reply.directory_status.data_version;
    assert_eq!([version(&kept), version(&gone)], [version(&made[1]) + 1; 2]);
    assert_eq!(create(&next, &bob, "kept", 3).map(drop), Err(AbortCode::UAEEXIST), "another call");
}

/// The new name exists after a rename, and would need the right to delete it.
#[test]
fn a_repeated_rename_needs_no_more_rights() {
    let world = world();
    let (admin, bob) = (world.client("admin", 99), world.client("bob", 2));
    let [from, to] = ["from", "to"].map(|name| world.make_dir(&bob, root(), name).unwrap());
    world.set_acl(&admin, from, "1\n0\nsystem:anyuser\t31\n").unwrap();
    world.set_acl(&admin, to, "1\n0\nsystem:anyuser\t13\n").unwrap();
    let file = world.create(&bob, from, "old").unwrap();
    let rename = |world: &World, number| {
        let (old_name, new_name) = ("old".into(), "new".into());
        let request = fs::RenameRequest { old_directory: from, old_name, new_directory: to, new_name };
        world.serve(|call| call.rename(&forwarded(&bob, number), request)).map(drop)
    };
    rename(&world, 1).unwrap();
    let next = taken_over(&world);
    assert_eq!(rename(&next, 1), Ok(()));
    assert_eq!(rename(&next, 2), Err(AbortCode::UAEACCES), "another call");
    let found = fs::LookupRequest { directory: to, name: "new".into() };
    assert_eq!(next.serve(|call| call.lookup(&bob.call(), found)).unwrap().fid, file);
}

/// The call is bob's. With its identity, alice gets nothing that she may not do, and none of his results.
#[test]
fn a_result_belongs_to_its_caller() {
    let world = world();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    create(&world, &bob, "file", 1).unwrap();
    let next = taken_over(&world);
    assert_eq!(create(&next, &alice, "file", 1).map(drop), Err(AbortCode::VRESTARTING));
    let remove = fs::RemoveFileRequest { directory: root(), name: "file".into() };
    let removed = next.serve(|call| call.remove_file(&forwarded(&alice, 1), remove));
    assert_eq!(removed.map(drop), Err(AbortCode::VRESTARTING));
    assert!(create(&next, &bob, "file", 1).is_ok());
}

fn set_lock(world: &World, client: &Client, fid: fs::Fid, number: u64) -> Result<(), AbortCode> {
    let request = fs::SetLockRequest { fid, lock_type: fs::lock_type::WRITE };
    world.serve(|call| call.set_lock(&forwarded(client, number), request)).map(drop)
}

fn release(world: &World, client: &Client, fid: fs::Fid, number: u64) -> Result<(), AbortCode> {
    world
        .serve(|call| call.release_lock(&forwarded(client, number), fs::ReleaseLockRequest { fid }))
        .map(drop)
}

#[test]
fn a_repeated_lock_finds_its_result() {
    let first = world();
    let (alice, bob) = (first.client("alice", 1), first.client("bob", 2));
    let file = first.create(&bob, root(), "file").unwrap();
    set_lock(&first, &alice, file, 1).unwrap();
    let repeat = |world: &World| {
        assert_eq!(set_lock(world, &alice, file, 1), Ok(()), "her own");
        assert_eq!(set_lock(world, &alice, file, 2), Err(AbortCode::UAEAGAIN), "another call");
        assert_eq!(set_lock(world, &bob, file, 1), Err(AbortCode::VRESTARTING), "not his");
        assert_eq!(create(world, &alice, "new", 1).map(drop), Err(AbortCode::VRESTARTING), "not a lock");
    };
    repeat(&first);
    repeat(&next_with_locks(&first));
}

/// A second release would release the lock that another client has got meanwhile, even if the first one released none.
#[test]
fn a_repeated_release_releases_nothing_more() {
    let first = world();
    let (alice, bob) = (first.client("alice", 1), first.client("bob", 2));
    let file = first.create(&bob, root(), "file").unwrap();
    set_lock(&first, &alice, file, 1).unwrap();
    release(&first, &alice, file, 2).unwrap();
    release(&first, &alice, file, 3).unwrap();
    set_lock(&first, &bob, file, 4).unwrap();
    let repeat = |world: &World| {
        assert_eq!(release(world, &alice, file, 2), Ok(()));
        assert_eq!(release(world, &alice, file, 3), Ok(()));
        assert_eq!(set_lock(world, &alice, file, 5), Err(AbortCode::UAEAGAIN), "it is still bob's");
    };
    repeat(&first);
    repeat(&next_with_locks(&first));
}

/// The first attempt has not been answered: its lock is not durable yet.
#[test]
fn a_repeated_lock_is_answered_when_it_is_durable() {
    let world = world();
    let alice = world.client("alice", 1);
    let file = world.create(&alice, root(), "file").unwrap();
    let set = || {
        let request = fs::SetLockRequest { fid: file, lock_type: fs::lock_type::WRITE };
        world.server.serve(|call| call.set_lock(&forwarded(&alice, 1), request))
    };
    let first = set();
    let Err(second) = set().into_ready() else { panic!("it is not durable") };
    assert_eq!(recorded_locks(&world.meta.crash(0)).unwrap(), []);
    second.wait().unwrap().unwrap();
    assert_eq!(recorded_locks(&world.meta.crash(0)).unwrap(), [(Fid::from(file), -1)]);
    first.wait().unwrap().unwrap();
}
