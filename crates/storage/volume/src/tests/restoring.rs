//! Tests of replacing all contents of a volume.

use super::support::{RW, Server, actor, interval, nothing, options, read_all, store_at};
use crate::{Volume, VolumeError, VolumeHeader};
use afs_format::acl::Acl;
use afs_format::directory::DirectoryBlob;
use base::{Fid, UnixTime, VnodeId, VolumeId};
use std::sync::Arc;
use volume_check::{CheckOptions, check};
use volume_records::families;

/// Creates a file of several chunks, one stored inline, a directory and a link.
fn fill(volume: &Volume) {
    let root = volume.root();
    let file = |directory: Fid, name: &[u8], bytes: usize| {
        let created = volume.create_file(&actor(1), directory, name, &nothing()).unwrap();
        store_at(volume, created.status.fid(RW), 0, &vec![b'x'; bytes], 0).unwrap();
    };
    let below = volume.make_directory(&actor(1), root, b"below", &nothing()).unwrap().status.fid(RW);
    file(root, b"long", 3000);
    file(below, b"short", 10);
    volume.create_symlink(&actor(1), below, b"link", b"short", &nothing()).unwrap();
}

fn long(volume: &Arc<Volume>) -> Option<usize> {
    let found = volume.lookup(volume.root(), b"long").ok()?;
    Some(read_all(volume, Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique }).len())
}

fn is_sound(server: &Server) {
    server.purge();
    let report = check(&*server.meta, None, CheckOptions::default(), &mut |_| {});
    assert!(report.is_clean(), "{:#?}", report.damages);
    assert_eq!(server.registry_jobs(), 0);
}

#[test]
fn restored_data_is_complete_and_old_data_purged() {
    let (mut server, volume) = Server::with_volume(options());
    fill(&volume);
    server.clone_rw(77);
    let records = server.records(families::ENTRIES).len();
    let mut restoration = server.volumes.restore(RW).unwrap();
    restoration.keep_all().unwrap();
    let restored = restoration.finish(&server.volumes, volume.header(), UnixTime(99)).unwrap();
    assert_eq!(long(&restored), Some(3000));
    let (old, new) = (volume.header(), restored.header());
    assert_eq!(
        (old.used_kib, old.file_count, old.directory_count),
        (new.used_kib, new.file_count, new.directory_count)
    );
    let refused = volume.create_file(&actor(2), volume.root(), b"late", &nothing());
    assert!(matches!(refused, Err(VolumeError::NoVolume(_))), "the old one is gone");
    assert!(restored.create_file(&actor(2), restored.root(), b"late", &nothing()).is_ok());
    let clone = server.volumes.get(VolumeId(77)).unwrap();
    assert_eq!(long(&clone), Some(3000));
    is_sound(&server);
    server.volumes.reclone(RW, VolumeId(77), UnixTime(9), |_| {}).unwrap();
    drop((volume, clone));
    is_sound(&server);
    assert_eq!(server.records(families::ENTRIES).len(), records + 1, "one copy is left");
    server.check_chunks();
    server.reopen();
    assert!(server.volumes.get(VolumeId(77)).unwrap().lookup(Fid::root(RW), b"late").is_ok());
}

#[test]
fn a_directory_without_itself_or_its_parent_is_refused() {
    let (server, volume) = Server::with_volume(options());
    fill(&volume);
    let (root, acl) = volume.status_and_acl(volume.root()).unwrap();
    let whole = DirectoryBlob::parse(&read_all(&volume, volume.root()).into()).unwrap();
    for missing in [&b"."[..], b".."] {
        let mut restoration = server.volumes.restore(RW).unwrap();
        let mut blob = whole.clone();
        blob.remove(missing).unwrap();
        let refused = restoration.directory(root, Acl::clone(&acl), &blob);
        assert!(matches!(refused, Err(VolumeError::Unsound { .. })), "{refused:?}");
    }
    is_sound(&server);
    assert_eq!(long(&volume), Some(3000), "the volume stays as it was");
}

#[test]
fn names_that_sort_before_a_directorys_own_entry_are_sound() {
    let (server, volume) = Server::with_volume(options());
    for name in [&b"#draft#"[..], b" ", b"!", b"-x", b"+", b"\x01"] {
        volume.create_file(&actor(1), volume.root(), name, &nothing()).unwrap();
    }
    is_sound(&server);
}

#[test]
fn a_restoration_that_is_given_up_leaves_nothing() {
    let (mut server, volume) = Server::with_volume(options());
    fill(&volume);
    let chunks = server.chunks.live_chunks();
    for ends_without_warning in [false, true] {
        let mut restoration = server.volumes.restore(RW).unwrap();
        restoration.keep_all().unwrap();
        restoration.append_gathered().unwrap();
        server.purge();
        assert!(server.chunks.live_chunks() > chunks, "the purger leaves it alone while it lives");
        if ends_without_warning {
            drop(restoration);
            server.reopen();
        } else {
            let empty =
                server.volumes.restore(RW).unwrap().finish(&server.volumes, volume.header(), UnixTime(99));
            assert!(matches!(empty, Err(VolumeError::Unsound { .. })), "no root directory");
            drop(restoration);
        }
        is_sound(&server);
        assert_eq!(server.chunks.live_chunks(), chunks);
        assert_eq!(long(&server.volumes.get(RW).unwrap()), Some(3000));
    }
    let restoration = server.volumes.restore(RW).unwrap();
    server.volumes.delete(RW).unwrap();
    assert!(restoration.finish(&server.volumes, volume.header(), UnixTime(99)).is_err(), "deleted meanwhile");
    is_sound(&server);
}

#[test]
fn after_a_crash_a_volume_is_the_old_or_the_new_one() {
    for kept in 0..8 {
        let (mut server, volume) = Server::with_volume(interval());
        fill(&volume);
        server.volumes.sync().unwrap();
        let mut restoration = server.volumes.restore(RW).unwrap();
        restoration.keep(volume.root().vnode, 1).unwrap();
        restoration.keep_all().unwrap_err();
        drop(restoration);
        let mut restoration = server.volumes.restore(RW).unwrap();
        restoration.keep_all().unwrap();
        let mut header = volume.header();
        header.name = "restored".parse().unwrap();
        restoration.finish(&server.volumes, header, UnixTime(99)).unwrap();
        server.crash(kept);
        let volume = server.volumes.get(RW).unwrap();
        assert_eq!(long(&volume), Some(3000), "{kept} commits");
        is_sound(&server);
    }
}

/// Restores the contents of `source` over the volume `target`, and puts it into service.
fn mirror(server: &Server, source: &Arc<Volume>, target: VolumeId) -> Arc<Volume> {
    let mut restoration = server.volumes.restore(target).unwrap();
    restoration.take_over_all(source).unwrap();
    let (from, old) = (source.header(), restoration.target().header());
    let header =
        VolumeHeader { updated: from.updated, next_unique: from.next_unique, in_service: true, ..old };
    restoration.finish(&server.volumes, header, UnixTime(9000)).unwrap();
    let mirrored = server.volumes.get(target).unwrap();
    mirrored.update_header(|_| {}).unwrap();
    mirrored
}

/// Returns the uniquifier and data version of each vnode.
fn versions(volume: &Volume) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    volume
        .vnodes(VnodeId(0), &mut |status| {
            found.push((status.unique, status.data_version));
            true
        })
        .unwrap();
    found
}

#[test]
fn a_mirror_keeps_versions_until_it_is_changed_itself() {
    const MIRROR: VolumeId = VolumeId(30);
    let (server, source) = Server::with_volume(options());
    fill(&source);
    let first = server.clone_rw(77);
    server.create_empty(MIRROR, "mirror");
    assert_eq!(versions(&mirror(&server, &source, MIRROR)), versions(&source));
    let fid = |volume: &Volume| {
        let long = volume.lookup(volume.root(), b"long").unwrap();
        Fid { volume: volume.id(), vnode: long.vnode, unique: long.unique }
    };
    store_at(&source, fid(&source), 0, b"changed", 3000).unwrap();
    source.create_file(&actor(3000), source.root(), b"new", &nothing()).unwrap();
    let mirrored = mirror(&server, &source, MIRROR);
    assert_eq!(versions(&mirrored), versions(&source), "what is sent to it continues its history");
    let above =
        |volume: &Volume, highest: u64| versions(volume).iter().all(|&(_, version)| version > highest);
    let highest = |volume: &Volume| versions(volume).iter().map(|&(_, version)| version).max().unwrap();
    store_at(&mirrored, fid(&mirrored), 0, b"changed here", 3000).unwrap();
    store_at(&source, fid(&source), 0, b"changed there", 3000).unwrap();
    let before = highest(&mirrored);
    assert!(above(&mirror(&server, &source, MIRROR), before), "after a change of its own");
    let before = highest(&server.volumes.get(MIRROR).unwrap());
    let back = mirror(&server, &first, MIRROR);
    assert!(above(&back, before), "older contents");
    let made = back.create_file(&actor(9000), back.root(), b"late", &nothing()).unwrap();
    assert!(
        made.status.unique >= source.header().next_unique,
        "the uniquifier of `new` is not given out again"
    );
    is_sound(&server);
}
