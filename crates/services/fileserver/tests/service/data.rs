//! FetchData and StoreData.

use crate::wire::mode;
use crate::world::{World, root};
use afs_idl::MemoryStream;
use afs_idl::fs::{self, Server};
use base::{AbortCode, PartitionId};
use std::net::Ipv4Addr;
use volume::Durability;

#[test]
fn stored_data_is_fetched_in_any_range() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    let data: Vec<u8> = (0..2_000_000u32).map(|i| (i % 251) as u8).collect();
    let status = world.write(&bob, file, &data).unwrap();
    assert_eq!((status.length, status.length_high, status.data_version), (2_000_000, 0, 1));
    assert_eq!(world.read(&bob, file).unwrap(), data);
    assert_eq!(world.read_at(&bob, file, 1_000_001, 5).unwrap(), data[1_000_001..1_000_006]);
    assert_eq!(world.read_at(&bob, file, 1_999_999, 100).unwrap(), data[1_999_999..]);
    assert_eq!(world.read_at(&bob, file, 2_000_000, 100).unwrap(), b"");
    assert_eq!(world.read_at(&bob, file, 9_000_000_000, 100).unwrap(), b"");
}

#[test]
fn the_old_calls_do_the_same_in_one_word() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    let request =
        fs::StoreDataRequest { fid: file, status: mode(None), position: 2, length: 3, file_length: 5 };
    let mut stream = MemoryStream::new(b"abc", 1);
    let stored = world.serve(|call| call.store_data(&bob.call(), request, &mut stream)).unwrap();
    assert_eq!(stored.new_status.length, 5);
    let mut stream = MemoryStream::default();
    let request = fs::FetchDataRequest { fid: file, position: 0, length: 100 };
    let fetched = world.serve(|call| call.fetch_data(&bob.call(), request, &mut stream)).unwrap();
    assert_eq!(stream.outgoing, b"\0\0\0\x05\0\0abc");
    assert_eq!(fetched.status.data_version, 1);
}

#[test]
fn impossible_ranges_are_refused() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    assert_eq!(world.read_at(&bob, file, -1, 10), Err(AbortCode::UAEFBIG));
    assert_eq!(world.read_at(&bob, file, 10, -1), Err(AbortCode::UAEFBIG));
    assert_eq!(world.read_at(&bob, file, i64::MAX, i64::MAX), Err(AbortCode::UAEFBIG));
    assert_eq!(world.write_at(&bob, file, u64::MAX, b"x", 1), Err(AbortCode::UAEFBIG));
    let request = fs::StoreDataRequest {
        fid: file,
        status: mode(None),
        position: 0x7fff_ffff,
        length: 1,
        file_length: 1,
    };
    let refused = world.serve(|call| call.store_data(&bob.call(), request, &mut MemoryStream::new(b"x", 1)));
    assert_eq!(refused, Err(AbortCode::UAEFBIG));
    assert_eq!(world.status(&bob, file).unwrap().status.data_version, 0);
}

#[test]
fn a_store_cuts_overwrites_and_extends() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    world.write(&bob, file, b"0123456789").unwrap();
    world.write_at(&bob, file, 2, b"ab", 10).unwrap();
    assert_eq!(world.read(&bob, file).unwrap(), b"01ab456789");
    world.write_at(&bob, file, 0, b"", 4).unwrap();
    assert_eq!(world.read(&bob, file).unwrap(), b"01ab");
    let status = world.write_at(&bob, file, 7, b"", 7).unwrap();
    assert_eq!(world.read(&bob, file).unwrap(), b"01ab\0\0\0");
    assert_eq!(status.data_version, 4);
}

#[test]
fn a_store_whose_data_does_not_come_changes_nothing() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.write(&bob, file, b"old").unwrap();
    world.status(&alice, file).unwrap();
    world.heard();
    let request = fs::StoreData64Request {
        fid: file,
        status: mode(None),
        position: 0,
        length: 1_000,
        file_length: 1_000,
    };
    let cut_off =
        world.serve(|call| call.store_data64(&bob.call(), request, &mut MemoryStream::new(b"short", 2)));
    assert!(cut_off.is_err());
    assert_eq!(world.heard(), Vec::<String>::new());
    assert_eq!(world.read(&alice, file).unwrap(), b"old");
    let [_, stored] = world.server.transfer_counts();
    assert_eq!((stored.transfers.calls, stored.transfers.successes, stored.bytes), (2, 1, 3));
}

#[test]
fn only_files_have_data_to_store_but_all_can_be_fetched() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let request = fs::SymlinkRequest {
        directory: root(),
        name: "link".into(),
        contents: "there".into(),
        status: mode(Some(0o777)),
    };
    let link = world.serve(|call| call.symlink(&bob.call(), request)).unwrap().fid;
    assert_eq!(world.read(&bob, link).unwrap(), b"there");
    assert_eq!(world.write(&bob, link, b"x"), Err(AbortCode::UAEISDIR));
    assert_eq!(world.write(&bob, root(), b"x"), Err(AbortCode::UAEISDIR));
    let blob = world.read(&bob, root()).unwrap();
    assert_eq!(blob.len() % 2048, 0);
    assert_eq!(u64::from(world.status(&bob, root()).unwrap().status.length), blob.len() as u64);
}

#[test]
fn wrong_fids_have_distinct_errors() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let fid = |volume, vnode, unique| fs::Fid { volume, vnode, unique };
    let home = root().volume;
    let status = |fid| world.status(&bob, fid).map(drop);
    assert_eq!(status(fid(0, 1, 1)), Err(AbortCode::UAEINVAL));
    assert_eq!(status(fid(home, 0, 1)), Err(AbortCode::UAEINVAL));
    assert_eq!(status(fid(4711, 1, 1)), Err(AbortCode::VNOVOL));
    assert_eq!(status(fid(home, 99, 1)), Err(AbortCode::VNOVNODE));
    assert_eq!(status(fid(home, 1, 2)), Err(AbortCode::VNOVNODE));
    let volume = world.volumes.get(crate::world::HOME).unwrap();
    for (state, code) in
        [(volume::VolumeState::Busy, AbortCode::VBUSY), (volume::VolumeState::Offline, AbortCode::VOFFLINE)]
    {
        volume.set_state(state);
        assert_eq!(status(root()), Err(code));
    }
}

/// Never VMOVED, for which Linux's kafs waits forever, but the two codes that it needs, one after the other.
#[test]
fn a_moved_volume_is_answered_vmoved() {
    let world = World::new();
    let bob = world.client("bob", 2);
    world.volumes.get(crate::world::HOME).unwrap().set_state(volume::VolumeState::Moved);
    let reported = || world.status(&bob, root()).map(drop);
    for _ in 0..2 {
        assert_eq!(
            [reported(), reported(), reported()],
            [AbortCode::VNOVOL, AbortCode::VOFFLINE, AbortCode::VOFFLINE].map(Err)
        );
        world.clock.advance(20);
    }
    let alice = world.client("alice", 3);
    assert_eq!(world.status(&alice, root()).map(drop), Err(AbortCode::VNOVOL));
    let request = fs::InlineBulkStatusRequest { fids: vec![root(), root()] };
    assert_eq!(world.serve(|call| call.inline_bulk_status(&bob.call(), request)), Err(AbortCode::VNOVOL));
}

/// The volume itself is deleted right after it was reported as moved.
#[test]
fn a_volume_that_has_left_is_remembered() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let reported = || world.status(&bob, root()).map(drop);
    world.server.volume_moved(crate::world::HOME);
    assert_eq!(reported(), Ok(()), "it is still here");
    world.volumes.delete(crate::world::HOME).unwrap();
    assert_eq!([reported(), reported()], [AbortCode::VNOVOL, AbortCode::VOFFLINE].map(Err));
    let never_here = fs::Fid { volume: 4711, vnode: 1, unique: 1 };
    assert_eq!(world.status(&bob, never_here).map(drop), Err(AbortCode::VNOVOL));
    world.clock.advance(2 * 3600);
    assert_eq!([reported(), reported()], [AbortCode::VNOVOL, AbortCode::VNOVOL].map(Err));
}

/// A call to a volume in a partition that is not open yet is repeated; others are not.
#[test]
fn a_volume_of_an_awaited_partition_is_not_unknown() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let status = |volume| world.status(&bob, fs::Fid { volume, vnode: 1, unique: 1 }).map(drop);
    let (here, there, unknown) = (4711, 4712, 4713);
    let [own, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Ipv4Addr::from);
    world.network.own(own.into());
    world.network.place(here, own);
    world.network.place(there, other);
    let all = || [here, there, unknown].map(status);
    let none = [AbortCode::VNOVOL; 3].map(Err);
    assert_eq!(all(), none);
    let partition = PartitionId::from_index(7).unwrap();
    world.server.await_partition(partition);
    let expected = [AbortCode::VRESTARTING, AbortCode::VNOVOL, AbortCode::VNOVOL].map(Err);
    assert_eq!(all(), expected);
    world.server.partition_opened(partition);
    assert_eq!(all(), none);
    world.server.await_partition(partition);
    world.clock.advance(500);
    world.server.await_partition(partition);
    assert_eq!(all(), expected);
    world.clock.advance(100);
    assert_eq!(all(), none, "it is not expected for ever");
}

#[test]
fn clients_can_always_demand_a_sync() {
    for (durability, unsynced) in [(Durability::Always, 0), (Durability::Close, 1), (Durability::Interval, 2)]
    {
        let world = World::with_durability(durability);
        world.volumes.sync().unwrap();
        let bob = world.client("bob", 2);
        let file = world.create(&bob, root(), "file").unwrap();
        let store = |mask| {
            let status = fs::StoreStatus { mask, ..mode(None) };
            let request = fs::StoreDataRequest { fid: file, status, position: 0, length: 3, file_length: 3 };
            world
                .serve(|call| call.store_data(&bob.call(), request, &mut MemoryStream::new(b"abc", 1)))
                .unwrap();
            world.meta.unsynced_commits()
        };
        assert_eq!(store(0), unsynced, "{durability:?}");
        assert_eq!(store(fs::store_mask::FSYNC), 0, "{durability:?}");
    }
}
