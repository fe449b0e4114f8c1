//! Creating, renaming and removing entries.

use crate::people::BOB;
use crate::wire::mode;
use crate::world::{CREATED, World, released_root, root};
use afs_idl::fs::{self, Server};
use base::AbortCode;

#[test]
fn a_new_file_belongs_to_its_maker_and_is_promised() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let status = fs::StoreStatus {
        mask: fs::store_mask::MODE | fs::store_mask::MOD_TIME,
        client_mod_time: 5,
        unix_mode_bits: 0o640,
        ..fs::StoreStatus::default()
    };
    let reply = world.create_with(&bob, root(), "file", status).unwrap();
    assert_eq!(reply.sync.spare1, CREATED);
    assert_eq!(reply.call_back.expiration_time, 4 * 60 * 60);
    let fs::FetchStatus { interface_version, file_type, link_count, length, data_version, .. } =
        reply.file_status;
    assert_eq!((interface_version, file_type, link_count, length, data_version), (1, 1, 1, 0, 0));
    let fs::FetchStatus { owner, author, unix_mode_bits, client_mod_time, .. } = reply.file_status;
    let maker = BOB.0 as u32;
    assert_eq!((owner, author, unix_mode_bits, client_mod_time), (maker, maker, 0o640, 5));
    let fs::FetchStatus { caller_access, anonymous_access, parent_vnode, parent_unique, .. } =
        reply.file_status;
    assert_eq!((caller_access, anonymous_access, parent_vnode, parent_unique), (127, 9, 1, 1));
    assert_eq!((reply.directory_status.file_type, reply.directory_status.parent_vnode), (2, 1));
    assert_eq!(world.status(&bob, reply.fid).unwrap().status, reply.file_status);
    assert_eq!(reply.directory_status, world.status(&bob, root()).unwrap().status);
}

#[test]
fn names_that_cannot_be_are_refused() {
    let world = World::new();
    let bob = world.client("bob", 2);
    world.create(&bob, root(), "file").unwrap();
    let too_long = "x".repeat(256);
    let table = [
        ("", AbortCode::UAEINVAL),
        ("a/b", AbortCode::UAEINVAL),
        ("x@sys", AbortCode::UAEINVAL),
        ("file", AbortCode::UAEEXIST),
        (too_long.as_str(), AbortCode::UAENAMETOOLONG),
    ];
    for (name, code) in table {
        assert_eq!(world.create(&bob, root(), name), Err(code), "{name}");
        assert_eq!(world.make_dir(&bob, root(), name), Err(code), "{name}");
    }
}

#[test]
fn directories_are_made_found_and_removed() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let sub = world.make_dir(&bob, root(), "sub").unwrap();
    let file = world.create(&bob, sub, "file").unwrap();
    let lookup = |name: &str| {
        let request = fs::LookupRequest { directory: sub, name: name.into() };
        world.serve(|call| call.lookup(&bob.call(), request))
    };
    assert_eq!(lookup("file").unwrap().fid, file);
    assert_eq!(lookup("file").unwrap().file_status, world.status(&bob, file).unwrap().status);
    assert_eq!(lookup("none"), Err(AbortCode::UAENOENT));
    let remove = |name: &str| {
        let request = fs::RemoveDirRequest { directory: root(), name: name.into() };
        world
            .serve(|call| call.remove_dir(&bob.call(), request))
            .map(|reply| reply.directory_status.link_count)
    };
    assert_eq!(world.status(&bob, root()).unwrap().status.link_count, 3);
    assert_eq!(remove("sub"), Err(AbortCode::UAEEXIST));
    assert_eq!(remove("none"), Err(AbortCode::UAENOENT));
    assert_eq!(remove("."), Err(AbortCode::UAEINVAL));
    assert_eq!(world.remove(&bob, root(), "sub"), Err(AbortCode::UAEISDIR));
    world.remove(&bob, sub, "file").unwrap();
    assert_eq!(remove("sub"), Ok(2));
    assert_eq!(world.status(&bob, sub), Err(AbortCode::VNOVNODE));
    world.create(&bob, root(), "plain").unwrap();
    assert_eq!(remove("plain"), Err(AbortCode::UAENOTDIR));
    assert_eq!(world.create(&bob, file, "in a file"), Err(AbortCode::VNOVNODE));
}

#[test]
fn links_stay_in_their_directory() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    let sub = world.make_dir(&bob, root(), "sub").unwrap();
    let link = |directory, name: &str, existing| {
        let request = fs::LinkRequest { directory, name: name.into(), existing };
        world.serve(|call| call.link(&bob.call(), request)).map(|reply| reply.file_status.link_count)
    };
    assert_eq!(link(root(), "second", file), Ok(2));
    assert_eq!(link(root(), "second", file), Err(AbortCode::UAEEXIST));
    assert_eq!(link(sub, "third", file), Err(AbortCode::UAEXDEV));
    assert_eq!(link(root(), "loop", sub), Err(AbortCode::UAEISDIR));
    let elsewhere = fs::Fid { volume: released_root().volume, ..file };
    assert_eq!(link(root(), "far", elsewhere), Err(AbortCode::UAEXDEV));
    assert_eq!(link(file, "in a file", file), Err(AbortCode::UAENOTDIR));
    // A file with several names cannot move to another directory.
    let rename = |name: &str, new_directory| {
        let (old_name, new_name) = (name.into(), "moved".into());
        let request = fs::RenameRequest { old_directory: root(), old_name, new_directory, new_name };
        world.serve(|call| call.rename(&bob.call(), request)).map(drop)
    };
    assert_eq!(rename("second", sub), Err(AbortCode::UAEXDEV));
    world.remove(&bob, root(), "file").unwrap();
    assert_eq!(world.status(&bob, file).unwrap().status.link_count, 1);
    assert_eq!(rename("second", sub), Ok(()));
    assert_eq!(world.status(&bob, file).unwrap().status.parent_vnode, sub.vnode);
}

#[test]
fn renaming_follows_posix() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let outer = world.make_dir(&bob, root(), "outer").unwrap();
    let inner = world.make_dir(&bob, outer, "inner").unwrap();
    let one = world.create(&bob, root(), "one").unwrap();
    let two = world.create(&bob, root(), "two").unwrap();
    let rename = |old_directory, old: &str, new_directory, new: &str| {
        let (old_name, new_name) = (old.into(), new.into());
        let request = fs::RenameRequest { old_directory, old_name, new_directory, new_name };
        world.serve(|call| call.rename(&bob.call(), request)).map(drop)
    };
    assert_eq!(rename(root(), "one", root(), "two"), Ok(()));
    assert_eq!(world.status(&bob, two), Err(AbortCode::VNOVNODE));
    assert_eq!(world.status(&bob, one).unwrap().status.link_count, 1);
    assert_eq!(rename(root(), "one", root(), "x"), Err(AbortCode::UAENOENT));
    assert_eq!(rename(root(), "two", root(), "outer"), Err(AbortCode::UAEISDIR));
    assert_eq!(rename(root(), "outer", root(), "two"), Err(AbortCode::UAENOTDIR));
    assert_eq!(rename(root(), "outer", inner, "x"), Err(AbortCode::UAELOOP));
    assert_eq!(rename(root(), ".", root(), "x"), Err(AbortCode::UAEINVAL));
    assert_eq!(rename(root(), "two", root(), ".."), Err(AbortCode::UAEINVAL));
    assert_eq!(rename(root(), "two", released_root(), "x"), Err(AbortCode::UAEXDEV));
    assert_eq!(rename(outer, "inner", root(), "up"), Ok(()));
    assert_eq!(world.status(&bob, root()).unwrap().status.link_count, 4);
}

#[test]
fn a_mount_point_needs_administer_and_cannot_become_a_link() {
    let world = World::new();
    let (admin, bob) = (world.client("admin", 9), world.client("bob", 2));
    world.set_acl(&admin, root(), "1\n0\nstaff\t63\n").unwrap();
    let mount = |bits| {
        let request = fs::SymlinkRequest {
            directory: root(),
            name: "mount".into(),
            contents: "#root.cell.".into(),
            status: mode(Some(bits)),
        };
        world.serve(|call| call.symlink(&bob.call(), request))
    };
    assert_eq!(mount(0o644), Err(AbortCode::UAEACCES));
    world.set_acl(&admin, root(), "1\n0\nstaff\t127\n").unwrap();
    let reply = mount(0o644).unwrap();
    assert_eq!((reply.file_status.file_type, reply.file_status.unix_mode_bits), (3, 0o644));
    let request = fs::StoreStatusRequest { fid: reply.fid, status: mode(Some(0o755)) };
    assert_eq!(world.serve(|call| call.store_status(&bob.call(), request)), Err(AbortCode::UAEINVAL));
}

#[test]
fn nothing_changes_in_a_read_only_volume() {
    let world = World::new();
    let admin = world.client("admin", 9);
    let rofs = AbortCode::UAEROFS;
    let root = released_root();
    assert_eq!(world.create(&admin, root, "x"), Err(rofs));
    assert_eq!(world.make_dir(&admin, root, "x"), Err(rofs));
    assert_eq!(world.remove(&admin, root, "x"), Err(rofs));
    assert_eq!(world.set_acl(&admin, root, "0\n0\n"), Err(rofs));
    let request = fs::StoreStatusRequest { fid: root, status: mode(Some(0o700)) };
    assert_eq!(world.serve(|call| call.store_status(&admin.call(), request)), Err(rofs));
    // Callers without write access get the same error.
    assert_eq!(world.create(&world.client("carol", 3), root, "x"), Err(rofs));
}
