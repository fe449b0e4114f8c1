//! Access lists in practice: drop boxes, owners, groups.

use crate::people::{ALICE, BOB};
use crate::wire::mode;
use crate::world::{Client, HOME, World, root};
use afs_idl::MemoryStream;
use afs_idl::fs::{self, Server};
use base::AbortCode;

#[test]
fn a_drop_box_takes_files_and_gives_them_to_nobody_else() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let drop_box = world.make_dir(&bob, root(), "drop").unwrap();
    world.set_acl(&bob, drop_box, "2\n0\nsystem:anyuser\t12\nstaff\t127\n").unwrap();
    let file = world.create_with(&carol, drop_box, "homework", mode(Some(0o444))).unwrap().fid;
    world.write(&carol, file, b"done").unwrap();
    assert_eq!(world.read(&carol, file).unwrap(), b"done");
    assert_eq!(world.remove(&carol, drop_box, "homework"), Err(AbortCode::UAEACCES));
    let other = world.client("", 4);
    assert_eq!(world.read(&other, file), Err(AbortCode::UAEACCES));
    assert_eq!(world.status(&other, file), Err(AbortCode::UAEACCES));
    assert_eq!(world.write(&other, file, b"mine"), Err(AbortCode::UAEACCES));
    assert_eq!(world.read(&bob, file).unwrap(), b"done");
    // The file was created read-only: only its creator may write to it, given "insert".
    assert_eq!(world.write(&bob, file, b"graded"), Err(AbortCode::UAEACCES));
}

#[test]
fn acls_use_names_and_take_effect_immediately() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let sub = world.make_dir(&bob, root(), "sub").unwrap();
    assert_eq!(world.acl(&bob, sub).unwrap(), "2\n0\nstaff\t127\nsystem:anyuser\t9\n");
    let denied = world.create(&carol, sub, "x");
    assert_eq!(denied, Err(AbortCode::UAEACCES));
    world.set_acl(&bob, sub, "2\n1\nstaff\t127\ncarol\t15\nbob\t16\n").unwrap();
    assert_eq!(world.acl(&carol, sub).unwrap(), "2\n1\nstaff\t127\ncarol\t15\nbob\t16\n");
    world.create(&carol, sub, "x").unwrap();
    assert_eq!(world.remove(&bob, sub, "x"), Err(AbortCode::UAEACCES));
    world.remove(&world.client("alice", 1), sub, "x").unwrap();
    assert_eq!(world.set_acl(&carol, sub, "0\n0\n"), Err(AbortCode::UAEACCES));
    // The access list of a file is that of its directory.
    let file = world.create(&carol, sub, "y").unwrap();
    assert_eq!(world.acl(&carol, file).unwrap(), world.acl(&carol, sub).unwrap());
    assert_eq!(world.set_acl(&bob, file, "0\n0\n"), Err(AbortCode::UAENOTDIR));
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let many = |count: usize| {
        (0..count).fold(format!("{count}\n0\n"), |text, id| text + &format!("{}\t1\n", 4_000 + id))
    };
    assert_eq!(world.set_acl(&bob, root(), "1\n0\nnobody at all\t1\n"), Err(AbortCode::UAEINVAL));
    assert_eq!(world.set_acl(&bob, root(), "1\n0\nstranger\t1\n"), Err(AbortCode::UAEINVAL));
    assert_eq!(world.set_acl(&bob, root(), "rubbish"), Err(AbortCode::UAEINVAL));
    assert_eq!(world.set_acl(&bob, root(), &many(21)), Err(AbortCode::UAE2BIG));
    assert_eq!(world.acl(&bob, root()).unwrap(), "2\n0\nstaff\t127\nsystem:anyuser\t9\n");
    // Deleted users appear as numbers.
    world.set_acl(&bob, root(), "2\n0\nstaff\t127\n4711\t1\n").unwrap();
    assert_eq!(world.acl(&bob, root()).unwrap(), "2\n0\nstaff\t127\n4711\t1\n");
}

#[test]
fn the_old_number_of_store_acl_works_too() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let request = fs::OldStoreACLRequest { fid: root(), access_list: b"1\n0\nstaff\t127\n\0".to_vec() };
    let reply = world.wire_call(&bob, fs::OLD_STORE_ACL, &request, &[]);
    assert!(reply.is_ok());
    assert_eq!(world.acl(&bob, root()).unwrap(), "1\n0\nstaff\t127\n");
}

#[test]
fn giving_files_away_is_for_administrators() {
    let world = World::new();
    let (admin, bob) = (world.client("admin", 9), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    let chown = |client: &crate::world::Client, fid| {
        let status = fs::StoreStatus { mask: fs::store_mask::OWNER, owner: ALICE.0 as u32, ..mode(None) };
        let request = fs::StoreStatusRequest { fid, status };
        world.serve(|call| call.store_status(&client.call(), request)).map(|reply| reply.new_status.owner)
    };
    assert_eq!(chown(&bob, file), Err(AbortCode::UAEPERM));
    assert_eq!(chown(&admin, file), Ok(ALICE.0 as u32));
    let status = fs::StoreStatus { mask: fs::store_mask::OWNER, owner: ALICE.0 as u32, ..mode(None) };
    assert_eq!(world.create_with(&bob, root(), "for alice", status), Err(AbortCode::UAEPERM));
    // The owner of the root directory owns the volume, and so may set any access list in it.
    world.set_acl(&admin, root(), "0\n0\n").unwrap();
    assert_eq!(world.set_acl(&bob, root(), "1\n0\nbob\t127\n"), Err(AbortCode::UAEACCES));
    let status = fs::StoreStatus { mask: fs::store_mask::OWNER, owner: BOB.0 as u32, ..mode(None) };
    let request = fs::StoreStatusRequest { fid: root(), status };
    world.serve(|call| call.store_status(&admin.call(), request)).unwrap();
    assert_eq!(world.volumes.get(HOME).unwrap().header().owner, BOB.0);
    world.set_acl(&bob, root(), "1\n0\nbob\t127\n").unwrap();
}

#[test]
fn set_id_bits_do_not_survive_a_store() {
    let world = World::new();
    let (admin, bob) = (world.client("admin", 9), world.client("bob", 2));
    world.set_acl(&admin, root(), "2\n0\nstaff\t127\nadmin\t127\n").unwrap();
    let file = world.create(&bob, root(), "file").unwrap();
    assert_eq!(world.chmod(&world.client("alice", 1), file, 0o4755), Err(AbortCode::UAEACCES));
    assert_eq!(world.chmod(&admin, file, 0o6755), Ok(0o6755));
    assert_eq!(world.write(&admin, file, b"x").unwrap().unix_mode_bits, 0o6755);
    assert_eq!(world.write(&bob, file, b"y").unwrap().unix_mode_bits, 0o755);
}

#[test]
fn only_administrators_set_set_id_and_sticky_bits() {
    let world = World::new();
    let (admin, bob) = (world.client("admin", 9), world.client("bob", 2));
    world.set_acl(&admin, root(), "2\n0\nstaff\t127\nadmin\t127\n").unwrap();
    let bits_given = |client: &Client, name: &str| {
        let made = [0o4755, 0o2755, 0o1777].map(|bits| {
            let name = format!("{name} {bits:o}");
            let file = world.create_with(client, root(), &name, mode(Some(bits))).unwrap();
            let directory =
                world.make_dir_with(client, root(), &(name.clone() + "d"), mode(Some(bits))).unwrap();
            let link = fs::SymlinkRequest {
                directory: root(),
                name: (name + "l").as_str().into(),
                contents: "target".into(),
                status: mode(Some(bits)),
            };
            let link = world.serve(|call| call.symlink(&client.call(), link)).unwrap();
            [file.file_status, directory.file_status, link.file_status].map(|status| status.unix_mode_bits)
        });
        made.map(|[file, directory, link]| {
            assert!(file == directory && file == link, "{file:o} {directory:o} {link:o}");
            file
        })
    };
    assert_eq!(bits_given(&bob, "bob"), [0o755, 0o755, 0o777]);
    assert_eq!(bits_given(&admin, "admin"), [0o4755, 0o2755, 0o1777]);

    let file = world.create(&bob, root(), "file").unwrap();
    let directory = world.make_dir(&bob, root(), "directory").unwrap();
    // With INSERT the owner of a file may set the permitted bits; otherwise set-id bits are refused, as in
    // `Check_PermissionRights`.
    for (bits, of_file, of_directory) in [
        (0o4755, Ok(0o755), Err(AbortCode::UAEACCES)),
        (0o2755, Ok(0o755), Err(AbortCode::UAEACCES)),
        (0o1777, Ok(0o777), Ok(0o777)),
    ] {
        assert_eq!(world.chmod(&bob, file, bits), of_file, "{bits:o}");
        assert_eq!(world.chmod(&bob, directory, bits), of_directory, "{bits:o}");
        assert_eq!(world.chmod(&admin, directory, bits), Ok(bits), "{bits:o}");
    }
    let request = fs::StoreData64Request {
        fid: file,
        status: mode(Some(0o6755)),
        position: 0,
        length: 0,
        file_length: 0,
    };
    let stored =
        world.serve(|call| call.store_data64(&bob.call(), request, &mut MemoryStream::default())).unwrap();
    assert_eq!(stored.new_status.unix_mode_bits, 0o755);
}

#[test]
fn groups_are_remembered_for_a_minute_or_until_flushed() {
    let world = World::new();
    let (admin, bob) = (world.client("admin", 9), world.client("bob", 2));
    let asked = || world.people.asked.load(std::sync::atomic::Ordering::Relaxed);
    world.status(&admin, root()).unwrap();
    world.status(&bob, root()).unwrap();
    let before = asked();
    world.status(&bob, root()).unwrap();
    assert_eq!(asked(), before);
    world.clock.advance(61);
    world.status(&bob, root()).unwrap();
    assert_eq!(asked(), before + 1);
    let flush = fs::FlushCPSRequest { users: vec![BOB.0], addresses: vec![], spare1: 0 };
    assert_eq!(world.serve(|call| call.flush_cps(&bob.call(), flush.clone())), Err(AbortCode::UAEPERM));
    world.serve(|call| call.flush_cps(&admin.call(), flush)).unwrap();
    let before = asked();
    world.status(&bob, root()).unwrap();
    assert_eq!(asked(), before + 1);
}

#[test]
fn a_connection_keeps_its_groups_while_the_database_is_down() {
    use std::sync::atomic::Ordering::Relaxed;
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    world.status(&bob, root()).unwrap();
    world.people.silent.store(true, Relaxed);
    assert_eq!(world.status(&alice, root()), Err(AbortCode::VBUSY), "who is not known yet waits");
    world.clock.advance(61);
    world.create(&bob, root(), "file").unwrap();
    let asked = || world.people.asked.load(Relaxed);
    let before = asked();
    world.status(&bob, root()).unwrap();
    assert_eq!(asked(), before, "for a moment");
    world.clock.advance(6);
    world.status(&bob, root()).unwrap();
    assert_eq!(asked(), before + 1);
    world.people.silent.store(false, Relaxed);
    world.status(&alice, root()).unwrap();
}

#[test]
fn partial_group_lists_are_refreshed_soon() {
    use std::sync::atomic::Ordering::Relaxed;
    let world = World::new();
    let bob = world.client("bob", 2);
    world.people.partial.store(true, Relaxed);
    world.status(&bob, root()).unwrap();
    world.people.partial.store(false, Relaxed);
    world.clock.advance(6);
    let before = world.people.asked.load(Relaxed);
    world.status(&bob, root()).unwrap();
    world.status(&bob, root()).unwrap();
    assert_eq!(world.people.asked.load(Relaxed), before + 1);
}
