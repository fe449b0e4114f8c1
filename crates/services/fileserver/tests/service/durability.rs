//! When a reply may be sent: after the changes of the call, and the removals that it reveals, are durable.

use crate::wire::mode;
use crate::world::{World, root};
use afs_idl::MemoryStream;
use afs_idl::fs::{self, Server};
use base::AbortCode;
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
    waits(&world, "CreateFile", |call| call.create_file(caller, request)).unwrap();
    let request = fs::MakeDirRequest { directory, name: "directory".into(), status };
    waits(&world, "MakeDir", |call| call.make_dir(caller, request)).unwrap();
    let contents = "file".into();
    let request =
        fs::SymlinkRequest { directory, name: "symlink".into(), contents, status: mode(Some(0o755)) };
    waits(&world, "Symlink", |call| call.symlink(caller, request)).unwrap();
    let request = fs::LinkRequest { directory, name: "link".into(), existing: file };
    waits(&world, "Link", |call| call.link(caller, request)).unwrap();
    let (old_name, new_name) = ("new".into(), "renamed".into());
    let request =
        fs::RenameRequest { old_directory: directory, old_name, new_directory: directory, new_name };
    waits(&world, "Rename", |call| call.rename(caller, request)).unwrap();
    let request = fs::StoreData64Request { fid: file, status, position: 0, length: 4, file_length: 4 };
    let mut data = MemoryStream::new(b"data", 4);
    waits(&world, "StoreData64", |call| call.store_data64(caller, request, &mut data)).unwrap();
    let request = fs::StoreStatusRequest { fid: file, status: mode(Some(0o600)) };
    waits(&world, "StoreStatus", |call| call.store_status(caller, request)).unwrap();
    let access_list = b"2\n0\nstaff\t127\nsystem:anyuser\t9\n".to_vec();
    let request = fs::StoreACLRequest { fid: directory, access_list };
    waits(&world, "StoreACL", |call| call.store_acl(caller, request)).unwrap();
    let request = fs::RemoveFileRequest { directory, name: "link".into() };
    waits(&world, "RemoveFile", |call| call.remove_file(caller, request)).unwrap();
    let request = fs::RemoveDirRequest { directory, name: "directory".into() };
    waits(&world, "RemoveDir", |call| call.remove_dir(caller, request)).unwrap();
    let request = fs::SetVolumeStatusRequest { volume_id: directory.volume, ..Default::default() };
    let admin = world.client("admin", 2);
    waits(&world, "SetVolumeStatus", |call| call.set_volume_status(&admin.caller, request)).unwrap();
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
        drop(world.server.serve(|call| call.remove_file(caller, request).unwrap()));
        fid
    };
    let missing = Some(AbortCode::VNOVNODE);
    let fid = removed(false);
    let reply =
        waits(&world, "FetchStatus", |call| call.fetch_status(caller, fs::FetchStatusRequest { fid }));
    assert_eq!(reply.err(), missing);
    let fid = removed(true);
    let request = fs::FetchData64Request { fid, position: 0, length: 10 };
    let mut data = MemoryStream::default();
    let reply = waits(&world, "FetchData64", |call| call.fetch_data64(caller, request, &mut data));
    assert_eq!(reply.err(), missing);
    let fid = removed(true);
    let request = fs::InlineBulkStatusRequest { fids: vec![root(), fid] };
    let reply = waits(&world, "InlineBulkStatus", |call| call.inline_bulk_status(caller, request)).unwrap();
    assert_eq!(reply.statuses.iter().filter(|status| status.error_code != 0).count(), 1);
    let fid = removed(true);
    let request = fs::StoreStatusRequest { fid, status: mode(Some(0o600)) };
    let reply = waits(&world, "StoreStatus", |call| call.store_status(caller, request));
    assert_eq!(reply.err(), missing);
}

#[test]
fn replies_to_reads_wait_for_nothing() {
    let world = World::new();
    let bob = world.client("bob", 1);
    let caller = &bob.caller;
    let fid = world.create(&bob, root(), "file").unwrap();
    let request = fs::StoreStatusRequest { fid, status: mode(Some(0o600)) };
    let change = world.server.serve(|call| call.store_status(caller, request).unwrap());
    let read = world.server.serve(|call| {
        let mut data = MemoryStream::default();
        let fetched =
            call.fetch_data64(caller, fs::FetchData64Request { fid, position: 0, length: 10 }, &mut data);
        let fids = vec![root(), fid];
        let listed = call.inline_bulk_status(caller, fs::InlineBulkStatusRequest { fids });
        (fetched.unwrap(), listed.unwrap()).0.status.unix_mode_bits
    });
    let Ok(bits) = read.into_ready() else { panic!("a read waits for a change") };
    assert_eq!((bits, world.meta.unsynced_commits()), (0o600, 1), "the change is visible, but not durable");
    change.wait().unwrap();
}
