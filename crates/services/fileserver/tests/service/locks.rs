//! Advisory locks.

use crate::world::{World, released_root, root, text};
use afs_idl::fs::{self, Server};
use base::AbortCode;

const READ: i32 = fs::lock_type::READ;
const WRITE: i32 = fs::lock_type::WRITE;

#[test]
fn locks_exclude_lapse_and_are_shown() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    let shown = || world.status(&bob, file).unwrap().status.lock_count as i32;
    world.set_lock(&alice, file, READ).unwrap();
    world.set_lock(&bob, file, READ).unwrap();
    assert_eq!(shown(), 2);
    assert_eq!(world.set_lock(&bob, file, WRITE), Err(AbortCode::UAEAGAIN));
    world.clock.advance(200);
    world.serve(|call| call.extend_lock(&alice.call(), fs::ExtendLockRequest { fid: file })).unwrap();
    world.clock.advance(200);
    assert_eq!(world.set_lock(&bob, file, WRITE), Err(AbortCode::UAEAGAIN));
    world.clock.advance(101);
    assert_eq!(shown(), 0);
    world.set_lock(&bob, file, WRITE).unwrap();
    assert_eq!(shown(), -1);
    assert_eq!(world.set_lock(&alice, file, READ), Err(AbortCode::UAEAGAIN));
    assert_eq!(world.set_lock(&alice, file, 2), Err(AbortCode::UAEINVAL));
}

#[test]
fn the_last_release_notifies_waiting_clients() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.set_lock(&alice, file, READ).unwrap();
    world.set_lock(&bob, file, READ).unwrap();
    world.status(&alice, file).unwrap();
    world.heard();
    let release =
        || world.serve(|call| call.release_lock(&bob.call(), fs::ReleaseLockRequest { fid: file })).unwrap();
    release();
    assert_eq!(world.heard(), Vec::<String>::new());
    release();
    assert_eq!(world.heard(), [format!("alice drops {}", text(file))]);
    let extended = world.serve(|call| call.extend_lock(&alice.call(), fs::ExtendLockRequest { fid: file }));
    assert_eq!(extended, Err(AbortCode::UAEINVAL));
}

#[test]
fn locking_needs_rights() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let file = world.create(&bob, root(), "file").unwrap();
    assert_eq!(world.set_lock(&carol, file, READ), Err(AbortCode::UAEACCES));
    world.set_acl(&bob, root(), "2\n0\nstaff\t127\ncarol\t41\n").unwrap();
    world.set_lock(&carol, file, READ).unwrap();
    world.serve(|call| call.release_lock(&carol.call(), fs::ReleaseLockRequest { fid: file })).unwrap();
    assert_eq!(world.set_lock(&carol, file, WRITE), Err(AbortCode::UAEACCES));
}

#[test]
fn a_read_only_volume_is_always_locked_for_reading() {
    let world = World::new();
    let admin = world.client("admin", 9);
    let fid = released_root();
    world.set_lock(&admin, fid, READ).unwrap();
    assert_eq!(world.set_lock(&admin, fid, WRITE), Err(AbortCode::UAEROFS));
    world.serve(|call| call.extend_lock(&admin.call(), fs::ExtendLockRequest { fid })).unwrap();
    world.serve(|call| call.release_lock(&admin.call(), fs::ReleaseLockRequest { fid })).unwrap();
    let old = fs::OldSetLockRequest { fid, lock_type: READ, sync: fs::VolSync::default() };
    world.serve(|call| call.old_set_lock(&admin.call(), old)).unwrap();
    let old = fs::OldReleaseLockRequest { fid, sync: fs::VolSync::default() };
    world.serve(|call| call.old_release_lock(&admin.call(), old)).unwrap();
}
