//! When a reply may be sent: after the changes of the call, and the removals that it reveals, are durable.

use crate::wire::mode;
use crate::world::{World, root};
use afs_idl::MemoryStream;
use afs_idl::fs::{self, Server};
use base::{AbortCode, CallContext};
use fileserver::FileCall;

/// Serves a call whose reply has to wait for one commit, and waits for it.
fn waits<T>(
    world: &World,
    name: &str,
    call: impl FnOnce(&FileCall<'_>) -> Result<T, AbortCode>,
) -> Result<T, AbortCode> {
    let (reply, durable) = world.server.serve(call).into_parts();
    assert_eq!(world.meta.unsynced_commits(), 1, "{name} does not wait for the disk itself");
    let Err(durable) = durable.into_ready() else { panic!("the reply to {name} waits for nothing") };
    durable.wait().unwrap();
    assert_eq!(world.meta.unsynced_commits(), 0, "{name}");
    reply
}

#[test]
fn replies_to_changes_wait_until_they_are_durable() {
    let world = World::new();
    let bob = world.client("bob", 1);
    let caller = &bob.caller;
    let (directory, status) = (root(), mode(None));
    let (file, name) = (world.create(&bob, root(), "file").unwrap(), "new".into());
    let request = fs::CreateFileRequest { directory, name, status };
    waits(&world, "CreateFile", |call| call.create_file(&CallContext::new(caller), request)).unwrap();
    let request = fs::MakeDirRequest { directory, name: "directory".into(), status };
    waits(&world, "MakeDir", |call| call.make_dir(&CallContext::new(caller), request)).unwrap();
    let contents = "file".into();
    let request =
        fs::SymlinkRequest { directory, name: "symlink".into(), contents, status: mode(Some(0o755)) };
    waits(&world, "Symlink", |call| call.symlink(&CallContext::new(caller), request)).unwrap();
    let request = fs::LinkRequest { directory, name: "link".into(), existing: file };
    waits(&world, "Link", |call| call.link(&CallContext::new(caller), request)).unwrap();
    let (old_name, new_name) = ("new".into(), "renamed".into());
    let request =
        fs::RenameRequest { old_directory: directory, old_name, new_directory: directory, new_name };
    waits(&world, "Rename", |call| call.rename(&CallContext::new(caller), request)).unwrap();
    let request = fs::StoreData64Request { fid: file, status, position: 0, length: 4, file_length: 4 };
    let mut data = MemoryStream::new(b"data", 4);
    waits(&world, "StoreData64", |call| call.store_data64(&CallContext::new(caller), request, &mut data))
        .unwrap();
    let request = fs::StoreStatusRequest { fid: file, status: mode(Some(0o600)) };
    waits(&world, "StoreStatus", |call| call.store_status(&CallContext::new(caller), request)).unwrap();
    let access_list = b"2\n0\nstaff\t127\nsystem:anyuser\t9\n".to_vec();
    let request = fs::StoreACLRequest { fid: directory, access_list };
    waits(&world, "StoreACL", |call| call.store_acl(&CallContext::new(caller), request)).unwrap();
    let request = fs::RemoveFileRequest { directory, name: "link".into() };
    waits(&world, "RemoveFile", |call| call.remove_file(&CallContext::new(caller), request)).unwrap();
    let request = fs::RemoveDirRequest { directory, name: "directory".into() };
    waits(&world, "RemoveDir", |call| call.remove_dir(&CallContext::new(caller), request)).unwrap();
    let request = fs::SetVolumeStatusRequest { volume_id: directory.volume, ..Default::default() };
    let admin = world.client("admin", 2);
    waits(&world, "SetVolumeStatus", |call| call.set_volume_status(&admin.call(), request)).unwrap();
}

#[test]
fn a_missing_file_is_reported_when_its_removal_is_durable() {
    let world = World::new();
    let bob = world.client("bob", 1);
    let caller = &bob.caller;
    let fid = world.create(&bob, root(), "file").unwrap();
    // Each of these calls follows a removal that is not durable yet.
    let removed = |again: bool| {
        let fid = if again { world.create(&bob, root(), "file").unwrap() } else { fid };
        let request = fs::RemoveFileRequest { directory: root(), name: "file".into() };
        drop(world.server.serve(|call| call.remove_file(&CallContext::new(caller), request).unwrap()));
        fid
    };
    let missing = Some(AbortCode::VNOVNODE);
    let fid = removed(false);
    let reply = waits(&world, "FetchStatus", |call| {
        call.fetch_status(&CallContext::new(caller), fs::FetchStatusRequest { fid })
    });
    assert_eq!(reply.err(), missing);
    let fid = removed(true);
    let request = fs::FetchData64Request { fid, position: 0, length: 10 };
    let mut data = MemoryStream::default();
    let reply =
        waits(&world, "FetchData64", |call| call.fetch_data64(&CallContext::new(caller), request, &mut data));
    assert_eq!(reply.err(), missing);
    let fid = removed(true);
    let request = fs::InlineBulkStatusRequest { fids: vec![root(), fid] };
    let reply =
        waits(&world, "InlineBulkStatus", |call| call.inline_bulk_status(&CallContext::new(caller), request))
            .unwrap();
    assert_eq!(reply.statuses.iter().filter(|status| status.error_code != 0).count(), 1);
    let fid = removed(true);
    let request = fs::StoreStatusRequest { fid, status: mode(Some(0o600)) };
    let reply = waits(&world, "StoreStatus", |call| call.store_status(&CallContext::new(caller), request));
    assert_eq!(reply.err(), missing);
}

#[test]
fn a_read_waits_only_for_changes_that_it_shows() {
    let world = World::new();
    let bob = world.client("bob", 1);
    let carol = world.client("carol", 2);
    let caller = &carol.caller;
    let changed = world.create(&bob, root(), "changed").unwrap();
    let other = world.create(&bob, root(), "other").unwrap();
    world.status(&carol, changed).unwrap();
    assert!(world.try_status(&carol, changed).is_some());
    // Each of these calls follows a change that is not durable yet.
    let change = || {
        let request = fs::StoreStatusRequest { fid: changed, status: mode(Some(0o600)) };
        drop(world.server.serve(|call| call.store_status(&bob.call(), request).unwrap()));
    };
    change();
    let read = world.server.serve(|call| {
        let fids = vec![root(), other];
        let listed =
            call.inline_bulk_status(&CallContext::new(caller), fs::InlineBulkStatusRequest { fids }).unwrap();
        let status =
            call.fetch_status(&CallContext::new(caller), fs::FetchStatusRequest { fid: other }).unwrap();
        (listed.statuses.len(), status.status.error_code)
    });
    let Ok(found) = read.into_ready() else { panic!("a read waits for a change of another file") };
    assert_eq!((found, world.meta.unsynced_commits()), ((2, 0), 1));
    let fid = changed;
    let status = waits(&world, "FetchStatus", |call| {
        call.fetch_status(&CallContext::new(caller), fs::FetchStatusRequest { fid })
    });
    assert_eq!(status.unwrap().status.unix_mode_bits & 0o777, 0o600);
    change();
    let request = fs::FetchData64Request { fid, position: 0, length: 10 };
    let mut data = MemoryStream::default();
    waits(&world, "FetchData64", |call| call.fetch_data64(&CallContext::new(caller), request, &mut data))
        .unwrap();
    change();
    let request = fs::InlineBulkStatusRequest { fids: vec![other, fid] };
    waits(&world, "InlineBulkStatus", |call| call.inline_bulk_status(&CallContext::new(caller), request))
        .unwrap();
    let request = fs::StoreACLRequest { fid: root(), access_list: b"1\n0\nsystem:anyuser\t9\n".to_vec() };
    let admin = world.client("admin", 3);
    drop(world.server.serve(|call| call.store_acl(&admin.call(), request).unwrap()));
    let request = fs::FetchACLRequest { fid: root() };
    waits(&world, "FetchACL", |call| call.fetch_acl(&CallContext::new(caller), request)).unwrap();
}
