//! Tests of single operations.

use super::support::*;
use crate::{Actor, NewVolume, SetStatus, StoreRequest, Volume, VolumeError, VolumeOptions, VolumeState};
use afs_format::acl::{Acl, AclEntry};
use afs_format::directory::DirectoryBlob;
use base::{AbortCode, Fid, PartitionId, Rights, UnixTime, UserId, VnodeId, VolumeId, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use volume_records::{families, quota};

fn file(volume: &Volume, name: &str) -> Fid {
    let created = volume.create_file(&actor(1), volume.root(), name.as_bytes(), &nothing()).unwrap();
    created.status.fid(volume.id())
}

fn directory(volume: &Volume, parent: Fid, name: &str) -> Fid {
    let created = volume.make_directory(&actor(1), parent, name.as_bytes(), &nothing()).unwrap();
    created.status.fid(volume.id())
}

fn blob(volume: &Arc<Volume>, fid: Fid) -> DirectoryBlob {
    DirectoryBlob::parse(&read_all(volume, fid).into()).unwrap()
}

#[test]
fn a_new_volume_has_the_root_that_openafs_makes() {
    let (_server, volume) = Server::with_volume(options());
    let (status, acl) = volume.status_and_acl(volume.root()).unwrap();
    assert_eq!((status.mode, status.owner, status.links, status.length), (0o777, UserId(0), 2, 2048));
    assert_eq!((status.data_version, status.parent), (1, VnodeId(0)));
    assert_eq!(*acl, Acl::administrators());
    assert!(blob(&volume, volume.root()).is_empty());
    let header = volume.header();
    assert_eq!((header.used_kib, header.file_count, header.parent), (2, 0, RW));
    assert_eq!(volume.dates(), (UnixTime(1000), UnixTime(1000)));
}

#[test]
fn volumes_are_found_by_id_name_and_partition() {
    let (mut server, volume) = Server::with_volume(options());
    server.create(VolumeId(7), "root.cell");
    for _ in 0..2 {
        let names: Vec<String> =
            server.volumes.list(partition()).iter().map(|volume| volume.header().name.to_string()).collect();
        assert_eq!(names, ["root.cell", "user.alice"]);
        assert_eq!(server.volumes.find_name(&"user.alice".parse().unwrap()).unwrap(), Some(RW));
        assert!(server.volumes.get(VolumeId(7)).is_ok());
        assert_eq!(code(server.volumes.get(VolumeId(8)).map(|_| ())), AbortCode::VNOVOL);
        server.reopen();
    }
    let new = NewVolume {
        id: RW,
        name: "again".parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: RW,
        quota_max_kib: 5000,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    assert_eq!(code(server.volumes.create(partition(), &new).map(|_| ())), AbortCode::VVOLEXISTS);
    let other = PartitionId::from_index(1).unwrap();
    assert_eq!(code(server.volumes.create(other, &new).map(|_| ())), AbortCode::UAENODEV);
    assert_eq!(volume.partition(), partition());
}

#[test]
fn a_volume_in_a_transaction_or_out_of_service_is_refused() {
    let (mut server, volume) = Server::with_volume(options());
    let states = [
        (VolumeState::Busy, AbortCode::VBUSY),
        (VolumeState::Offline, AbortCode::VOFFLINE),
        (VolumeState::Moved, AbortCode::VMOVED),
    ];
    for (state, expected) in states {
        volume.set_state(state);
        assert_eq!(code(server.volumes.get(RW).map(|_| ())), expected);
        assert!(server.volumes.get_any_state(RW).is_ok());
    }
    volume.set_state(VolumeState::Online);
    volume.update_header(|header| header.in_service = false).unwrap();
    server.reopen();
    assert_eq!(code(server.volumes.get(RW).map(|_| ())), AbortCode::VOFFLINE);
}

#[test]
fn a_header_keeps_settings_and_counters() {
    let (mut server, volume) = Server::with_volume(options());
    file(&volume, "a");
    volume.count_access(UnixTime(86_400 * 3 + 5));
    volume.count_access(UnixTime(86_400 * 4 + 6));
    let before = volume.header();
    let after = volume
        .update_header(|header| {
            header.name = "user.bob".parse().unwrap();
            header.quota_max_kib = 77;
            header.offline_message = vec![0xe9; 200];
            header.message_of_the_day = b"one\0two".to_vec();
            header.used_kib = 0;
            header.id = VolumeId(1);
        })
        .unwrap();
    assert_eq!((after.used_kib, after.id, after.quota_max_kib), (before.used_kib, RW, 77));
    assert_eq!((&after.offline_message[..], &after.message_of_the_day[..]), (&[0xe9; 127][..], &b"one"[..]));
    assert_eq!((after.day_use, after.week_use[0]), (1, 1));
    server.reopen();
    let stored = server.volumes.get(RW).unwrap().header();
    assert_eq!(stored, after);
}

#[test]
fn files_are_created_with_the_defaults_of_openafs() {
    let (_server, volume) = Server::with_volume(options());
    let set = SetStatus { mode: Some(0o640), client_modified: Some(UnixTime(9)), ..nothing() };
    let created = volume.create_file(&actor(50), volume.root(), b"a", &set).unwrap();
    let status = created.status;
    assert_eq!((status.vnode, status.unique), (VnodeId(2), 2));
    assert_eq!((status.mode, status.owner, status.author), (0o640, UserId(7), UserId(7)));
    let made = volume.header().created;
    assert_eq!((status.client_modified, status.server_modified), (UnixTime(9), made), "the clock went back");
    assert_eq!((status.data_version, status.links, status.length), (0, 1, 0));
    assert_eq!((status.parent, status.parent_unique), (VnodeId(1), 1));
    assert_eq!(created.directory.data_version, 2);
    let made = volume.make_directory(&actor(51), volume.root(), b"d", &nothing()).unwrap();
    assert_eq!((made.status.vnode, made.status.links, made.status.mode), (VnodeId(3), 2, 0o777));
    assert_eq!((made.directory.links, made.status.length), (3, 2048));
    assert_eq!(volume.header().used_kib, 2 + 1 + 2);
    let again = volume.create_file(&actor(52), volume.root(), b"a", &set);
    assert_eq!(code(again), AbortCode::UAEEXIST);
}

#[test]
fn names_that_clients_cannot_use_are_refused() {
    let (_server, volume) = Server::with_volume(options());
    for name in [&b""[..], b"a/b", b"a\0b", b"bin@sys", b"@sys"] {
        let created = volume.create_file(&actor(1), volume.root(), name, &nothing());
        assert_eq!(code(created), AbortCode::UAEINVAL, "{name:?}");
    }
    let long = [b'x'; 256];
    let created = volume.create_file(&actor(1), volume.root(), &long, &nothing());
    assert_eq!(code(created), AbortCode::UAENAMETOOLONG);
    assert!(volume.create_file(&actor(1), volume.root(), &long[..255], &nothing()).is_ok());
    assert_eq!(code(volume.create_file(&actor(1), volume.root(), b"..", &nothing())), AbortCode::UAEEXIST);
    assert_eq!(code(volume.remove_directory(&actor(1), volume.root(), b"..")), AbortCode::UAEINVAL);
}

#[test]
fn symbolic_links_and_mount_points_keep_their_text() {
    let (_server, volume) = Server::with_volume(options());
    let mount = SetStatus { mode: Some(0o644), ..nothing() };
    for (name, target) in [("link", "../elsewhere"), ("mount", "%root.cell.")] {
        let created = volume
            .create_symlink(&actor(1), volume.root(), name.as_bytes(), target.as_bytes(), &mount)
            .unwrap();
        let fid = created.status.fid(RW);
        assert_eq!(read_all(&volume, fid), target.as_bytes());
        assert_eq!(created.status.mode, 0o644);
        assert_eq!(code(volume.set_status(&actor(1), fid, &mount)), AbortCode::UAEINVAL);
    }
    let long = volume.create_symlink(&actor(1), volume.root(), b"long", &[b'x'; 1025], &nothing());
    assert_eq!(code(long), AbortCode::UAENAMETOOLONG);
}

#[test]
fn a_fid_of_an_earlier_use_of_a_vnode_is_refused() {
    let (_server, volume) = Server::with_volume(options());
    let fid = file(&volume, "a");
    let stale = Fid { unique: fid.unique + 1, ..fid };
    assert_eq!(code(volume.status(stale)), AbortCode::VNOVNODE);
    volume.remove_file(&actor(1), volume.root(), b"a").unwrap();
    assert_eq!(code(volume.status(fid)), AbortCode::VNOVNODE);
    assert_eq!(code(store_at(&volume, fid, 0, b"x", u64::MAX)), AbortCode::VNOVNODE);
}

#[test]
fn holes_read_as_zeros_and_cost_only_their_length() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "sparse");
    let far = (5u64 << 30) + 100;
    store_at(&volume, fid, far, b"end", u64::MAX).unwrap();
    let status = volume.status(fid).unwrap();
    assert_eq!(status.length, far + 3);
    assert_eq!(volume.header().used_kib, 2 + quota::blocks(far + 3));
    let (_, data) = volume.read(fid, far - 70_000, 80_000).unwrap();
    let data = data.concat();
    assert_eq!(data.len(), 70_003);
    assert!(data[..70_000].iter().all(|&byte| byte == 0));
    assert_eq!(&data[70_000..], b"end");
    assert_eq!(volume.read(fid, far + 3, 10).unwrap().1.concat(), b"");
    assert_eq!(volume.read(fid, u64::MAX, u64::MAX).unwrap().1.concat(), b"");
    store_at(&volume, fid, 4 << 30, &[7; 1000], u64::MAX).unwrap();
    assert_eq!(volume.read(fid, (4 << 30) + 990, 20).unwrap().1.concat(), [&[7; 10][..], &[0; 10]].concat());
    // After a cut in the middle of a chunk and an extension, the cut part reads as zeros.
    store_at(&volume, fid, (4 << 30) + 500, b"", (4 << 30) + 500).unwrap();
    store_at(&volume, fid, (4 << 30) + 2000, b"", u64::MAX).unwrap();
    let (status, data) = volume.read(fid, (4 << 30) + 490, 100).unwrap();
    assert_eq!(status.length, (4 << 30) + 2000);
    assert_eq!(data.concat(), [&[7; 10][..], &[0; 90]].concat());
    volume.remove_file(&actor(1), volume.root(), b"sparse").unwrap();
    assert_eq!(volume.header().used_kib, 2);
    server.check_chunks();
}

#[test]
fn files_are_limited_to_what_clients_address() {
    let (_server, volume) = Server::with_volume(options());
    let fid = file(&volume, "a");
    for offset in [u64::MAX, 1 << 63] {
        assert_eq!(code(store_at(&volume, fid, offset, b"x", u64::MAX)), AbortCode::UAEFBIG);
    }
    assert!(store_at(&volume, fid, (1 << 63) - 2, b"x", u64::MAX).is_ok());
}

#[test]
fn a_transfer_that_ends_early_changes_nothing() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "a");
    store_at(&volume, fid, 0, &[1; 2000], u64::MAX).unwrap();
    let before = volume.status(fid).unwrap();
    let request = StoreRequest { offset: 100, length: 3000, file_length: 0, set: nothing() };
    let mut calls = 0;
    let outcome = volume.store(&actor(9), fid, &request, &mut |most: usize| {
        calls += 1;
        if calls > 5 { Err(AbortCode::RX_CALL_DEAD) } else { Ok(Bytes::from(vec![2; most])) }
    });
    assert_eq!(code(outcome), AbortCode::RX_CALL_DEAD);
    let short = volume.store(&actor(9), fid, &request, &mut |_| Ok(Bytes::new()));
    assert_eq!(code(short), AbortCode::RXGEN_SS_UNMARSHAL);
    assert_eq!(volume.status(fid).unwrap(), before);
    assert_eq!(read_all(&volume, fid), vec![1; 2000]);
    server.check_chunks();
}

#[test]
fn a_failed_commit_is_undone_in_memory() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "a");
    let fail = || *server.meta.failures.lock() = 1;
    let before = (volume.header(), read_all(&volume, volume.root()));
    fail();
    assert_eq!(code(volume.create_file(&actor(9), volume.root(), b"b", &nothing())), AbortCode::UAEIO);
    fail();
    assert_eq!(code(volume.remove_file(&actor(9), volume.root(), b"a")), AbortCode::UAEIO);
    fail();
    assert_eq!(code(store_at(&volume, fid, 0, &[1; 2000], u64::MAX)), AbortCode::UAEIO);
    assert_eq!((volume.header(), read_all(&volume, volume.root())), before);
    assert_eq!(volume.status(fid).unwrap().length, 0);
    server.check_chunks();
}

#[test]
fn a_reader_sees_one_state_of_a_file_while_it_is_overwritten() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "a");
    store_at(&volume, fid, 0, &[1; 5000], u64::MAX).unwrap();
    let mut reader = volume.reader(fid, 10, 4000).unwrap();
    let mut data = reader.next(700).unwrap().concat();
    store_at(&volume, fid, 0, &[2; 6000], 0).unwrap();
    volume.remove_file(&actor(9), volume.root(), b"a").unwrap();
    while reader.remaining() > 0 {
        data.extend(reader.next(900).unwrap().concat());
    }
    assert_eq!(data, vec![1; 4000]);
    assert_eq!(reader.status().length, 5000);
    drop(reader);
    server.check_chunks();
}

#[test]
fn quota_and_room_are_respected_with_the_spare() {
    let (server, volume) = Server::with_volume(VolumeOptions { spare_kib: 10, ..options() });
    volume.update_header(|header| header.quota_max_kib = 20).unwrap();
    let fid = file(&volume, "a");
    // 2 blocks for the root and 1 for the file are used; 27 more fit with the spare.
    assert_eq!(code(store_at(&volume, fid, 0, &vec![1; 28 * 1024 + 1], u64::MAX)), AbortCode::VOVERQUOTA);
    store_at(&volume, fid, 0, &vec![1; 28 * 1024], u64::MAX).unwrap();
    assert_eq!(volume.header().used_kib, 30);
    // Creating cannot use the spare; operations without growth are always allowed.
    assert_eq!(code(volume.create_file(&actor(1), volume.root(), b"b", &nothing())), AbortCode::VOVERQUOTA);
    store_at(&volume, fid, 0, b"x", u64::MAX).unwrap();
    store_at(&volume, fid, 0, b"", 0).unwrap();
    server.space.lock().free_kib = 0;
    assert_eq!(code(volume.create_file(&actor(1), volume.root(), b"b", &nothing())), AbortCode::VDISKFULL);
    assert_eq!(code(store_at(&volume, fid, 0, &[1; 2048], u64::MAX)), AbortCode::VDISKFULL);
}

#[test]
fn only_the_privileged_keep_set_id_bits() {
    let (_server, volume) = Server::with_volume(options());
    let fid = file(&volume, "a");
    let admin = Actor { privileged: true, ..actor(1) };
    let set_id = SetStatus { mode: Some(0o7755), ..nothing() };
    let owner = SetStatus { owner: Some(UserId(9)), ..nothing() };
    let mark = || assert_eq!(volume.set_status(&admin, fid, &set_id).unwrap().mode, 0o7755);
    mark();
    assert_eq!(store_at(&volume, fid, 0, b"x", u64::MAX).unwrap().mode, 0o1755);
    mark();
    assert_eq!(volume.set_status(&actor(1), fid, &owner).unwrap().mode, 0o1755);
    mark();
    assert_eq!(volume.set_status(&admin, fid, &owner).unwrap().mode, 0o7755);
    volume.set_status(&admin, volume.root(), &owner).unwrap();
    assert_eq!(volume.header().owner, 9);
}

#[test]
fn others_set_permission_bits_only() {
    let (_server, volume) = Server::with_volume(options());
    let all = SetStatus { mode: Some(0o7755), ..nothing() };
    for (privileged, expected) in [(false, 0o755), (true, 0o7755)] {
        let actor = Actor { privileged, ..actor(1) };
        let root = volume.root();
        let name = |kind: &str| format!("{kind} {privileged}").into_bytes();
        let file = volume.create_file(&actor, root, &name("file"), &all).unwrap().status;
        let directory = volume.make_directory(&actor, root, &name("directory"), &all).unwrap().status;
        let link = volume.create_symlink(&actor, root, &name("link"), b"target", &all).unwrap().status;
        assert_eq!([file.mode, directory.mode, link.mode], [expected; 3]);
        for status in [file, directory] {
            let changed = volume.set_status(&actor, status.fid(volume.id()), &all).unwrap();
            assert_eq!(changed.mode, expected);
        }
        let request = StoreRequest { offset: 0, length: 0, file_length: 0, set: all };
        let stored =
            volume.store(&actor, file.fid(volume.id()), &request, &mut |_: usize| Ok(Bytes::new())).unwrap();
        assert_eq!(stored.mode, expected);
    }
}

#[test]
fn access_lists_govern_directories_and_the_files_in_them() {
    let (mut server, volume) = Server::with_volume(options());
    let entries = [AclEntry { id: UserId::ANYUSER, rights: Rights::READ | Rights::LOOKUP }];
    let acl = Acl::new(&entries, &[]).unwrap();
    volume.set_acl(&actor(9), volume.root(), acl.clone()).unwrap();
    let child = directory(&volume, volume.root(), "d");
    let fid = file(&volume, "a");
    server.reopen();
    let volume = server.volumes.get(RW).unwrap();
    for fid in [child, fid, volume.root()] {
        assert_eq!(*volume.status_and_acl(fid).unwrap().1, acl);
    }
    let made = volume.header().created;
    assert_eq!(volume.status(volume.root()).unwrap().server_modified, made, "the clock went back");
    assert_eq!(code(volume.set_acl(&actor(9), fid, acl)), AbortCode::UAENOTDIR);
}

#[test]
fn links_stay_within_their_directory() {
    let (_server, volume) = Server::with_volume(options());
    let (fid, inner) = (file(&volume, "a"), directory(&volume, volume.root(), "d"));
    let linked = volume.link(&actor(9), volume.root(), b"b", fid).unwrap();
    assert_eq!(linked.status.links, 2);
    assert_eq!(code(volume.link(&actor(9), inner, b"c", fid)), AbortCode::UAEXDEV);
    assert_eq!(code(volume.link(&actor(9), volume.root(), b"c", inner)), AbortCode::UAEISDIR);
    assert_eq!(code(volume.rename(&actor(9), volume.root(), b"a", inner, b"a")), AbortCode::UAEXDEV);
    assert_eq!(code(volume.rename(&actor(9), volume.root(), b"a", volume.root(), b"b")), AbortCode::UAEINVAL);
    let removed = volume.remove_file(&actor(9), volume.root(), b"a").unwrap();
    assert!(!removed.is_gone());
    let removed = volume.remove_file(&actor(9), volume.root(), b"b").unwrap();
    assert!(removed.is_gone());
}

#[test]
fn a_directory_cannot_be_moved_below_itself() {
    let (_server, volume) = Server::with_volume(options());
    let a = directory(&volume, volume.root(), "a");
    let b = directory(&volume, a, "b");
    let c = directory(&volume, b, "c");
    for below in [a, b, c] {
        assert_eq!(code(volume.rename(&actor(9), volume.root(), b"a", below, b"x")), AbortCode::UAELOOP);
    }
    let renamed = volume.rename(&actor(9), b, b"c", volume.root(), b"c").unwrap();
    assert!(renamed.moved_changed);
    assert_eq!((renamed.old_directory.links, renamed.new_directory.links), (2, 4));
    assert_eq!(volume.lookup(c, b"..").unwrap().vnode, VnodeId::ROOT);
    assert_eq!(volume.status(c).unwrap().parent, VnodeId::ROOT);
    assert_eq!(code(volume.remove_directory(&actor(9), volume.root(), b"a")), AbortCode::UAEEXIST);
    let over = volume.rename(&actor(9), a, b"b", volume.root(), b"c").unwrap();
    assert_eq!(over.replaced.map(|status| status.links), Some(0));
    assert_eq!((over.old_directory.links, over.new_directory.links), (2, 4));
}

#[test]
fn a_huge_directory_survives_a_restart() {
    let (mut server, volume) = Server::with_volume(options());
    for n in 0..30_000 {
        file(&volume, &format!("file-{n:06}"));
    }
    for n in (0..30_000).step_by(3) {
        volume.remove_file(&actor(1), volume.root(), format!("file-{n:06}").as_bytes()).unwrap();
    }
    file(&volume, "one more");
    let before = read_all(&volume, volume.root());
    assert_eq!(blob(&volume, volume.root()).len(), 20_003);
    server.reopen();
    let volume = server.volumes.get(RW).unwrap();
    assert_eq!(read_all(&volume, volume.root()), before);
    assert_eq!(volume.header().file_count, 20_001);
    assert_eq!(volume.read(volume.root(), 4000, 200).unwrap().1.concat(), before[4000..4200]);
}

#[test]
fn vnode_numbers_are_used_again() {
    let (_server, volume) = Server::with_volume(options());
    for _ in 0..5 {
        for n in 0..3000 {
            file(&volume, &format!("{n}"));
        }
        for n in 0..3000 {
            volume.remove_file(&actor(1), volume.root(), format!("{n}").as_bytes()).unwrap();
        }
    }
    let fid = file(&volume, "last");
    assert!(fid.vnode.0 < 14_000, "{fid}");
    assert_eq!(fid.unique, 15_002);
}

#[test]
fn a_deleted_volume_leaves_nothing_behind() {
    let (mut server, volume) = Server::with_volume(options());
    for n in 0..700 {
        let fid = file(&volume, &format!("{n}"));
        store_at(&volume, fid, 0, &[1; 600], u64::MAX).unwrap();
    }
    let keep = server.create(VolumeId(9), "keep");
    store_at(&keep, file(&keep, "a"), 0, &[3; 600], u64::MAX).unwrap();
    server.volumes.delete(RW).unwrap();
    assert_eq!(code(server.volumes.get(RW).map(|_| ())), AbortCode::VNOVOL);
    assert!(matches!(
        volume.create_file(&actor(1), volume.root(), b"x", &nothing()),
        Err(VolumeError::NoVolume(RW))
    ));
    drop(volume);
    assert!(server.volumes.purge_step().unwrap());
    drop(keep);
    server.reopen();
    server.purge();
    assert_eq!(server.registry_jobs(), 0);
    assert_eq!(server.records(families::VNODES).len(), 2);
    assert_eq!(server.records(families::EXTENTS).len(), 3);
    server.check_chunks();
}

#[test]
fn the_data_of_a_huge_file_goes_in_the_background() {
    let (mut server, volume) = Server::with_volume(options());
    let fid = file(&volume, "huge");
    store_at(&volume, fid, 0, &vec![1; 3000 * 256], u64::MAX).unwrap();
    volume.remove_file(&actor(1), volume.root(), b"huge").unwrap();
    assert_eq!(server.registry_jobs(), 1);
    assert_eq!(server.chunks.live_chunks(), 3000);
    drop(volume);
    server.volumes.purge_step().unwrap();
    server.reopen();
    server.purge();
    assert_eq!((server.registry_jobs(), server.chunks.live_chunks()), (0, 0));
}

#[test]
fn status_and_directories_come_from_the_caches() {
    let (server, volume) = Server::with_volume(options());
    let fid = file(&volume, "a");
    let before = server.volumes.caches();
    for _ in 0..10 {
        volume.status(fid).unwrap();
        volume.lookup(volume.root(), b"a").unwrap();
    }
    let after = server.volumes.caches();
    assert_eq!(after.status.misses, before.status.misses);
    assert_eq!(after.directories.hits - before.directories.hits, 10);
    assert!(after.status.hits >= before.status.hits + 20);
}

#[test]
fn a_volume_that_is_not_finished_says_so_from_the_first_moment() {
    let mut seen = [0, 0];
    for kept in 0..8 {
        let mut server = Server::new(interval());
        server.create(VolumeId(7), "before");
        server.volumes.sync().unwrap();
        let new = NewVolume {
            id: RW,
            name: "half".parse().unwrap(),
            kind: VolumeType::ReadWrite,
            parent: RW,
            quota_max_kib: 5000,
            with_root: true,
            in_service: false,
            destroy_me: 0xd3,
            now: UnixTime(1),
        };
        let made = server.volumes.create(partition(), &new).unwrap().header();
        server.crash(kept.min(server.meta.inner.unsynced_commits()));
        assert!(server.volumes.get(VolumeId(7)).is_ok());
        let found = server.volumes.get_any_state(RW);
        seen[usize::from(found.is_ok())] += 1;
        if let Ok(volume) = found {
            assert_eq!((volume.header(), made.destroy_me), (made, 0xd3));
            volume.status(volume.root()).unwrap();
            server.volumes.delete(RW).unwrap();
            server.purge();
        }
        assert_eq!(server.registry_jobs(), 0);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
