//! Tests the readers of several small files.

use super::support::*;
use crate::Volume;
use base::{Fid, VnodeId};
use bytes::Bytes;
use std::sync::Arc;

fn file(volume: &Volume, name: &str, data: &[u8]) -> Fid {
    let made = volume.create_file(&actor(1), volume.root(), name.as_bytes(), &nothing()).unwrap();
    let fid = made.status.fid(volume.id());
    if !data.is_empty() {
        store_at(volume, fid, 0, data, data.len() as u64).unwrap();
    }
    fid
}

/// Returns all FIDs of a volume that are not directories, in the order of their numbers.
fn fids(volume: &Volume) -> Vec<Fid> {
    let mut found = Vec::new();
    volume
        .vnodes(VnodeId(0), &mut |status| {
            found.extend((!status.is_directory()).then(|| status.fid(volume.id())));
            true
        })
        .unwrap();
    found
}

/// Checks that each reader returns what one of its own would; returns the FIDs that have one.
fn check(volume: &Arc<Volume>, fids: &[Fid]) -> Vec<Fid> {
    let readers = volume.small_readers(fids).unwrap();
    let read = |mut reader: crate::FileReader| {
        let fid = reader.status().fid(volume.id());
        assert_eq!(*reader.status(), volume.status(fid).unwrap());
        assert_eq!(reader.remaining(), reader.status().length);
        let mut data: Vec<Bytes> = Vec::new();
        while reader.remaining() > 0 {
            data.extend(reader.next(1000).unwrap());
        }
        assert_eq!(data.concat(), read_all(volume, fid), "{fid}");
        fid
    };
    readers.into_iter().map(read).collect()
}

#[test]
fn readers_of_several_files_read_what_single_ones_do() {
    let (mut server, volume) = Server::with_volume(options());
    let chunk = 1 << options().chunk_shift;
    let mut small = vec![file(&volume, "empty", b""), file(&volume, "one", b"1")];
    small.extend(
        [3, 100, chunk - 1, chunk].map(|length| file(&volume, &format!("f{length}"), &vec![7; length])),
    );
    let long = file(&volume, "long", &vec![8; 3 * chunk + 5]);
    let hole = file(&volume, "hole", b"");
    store_at(&volume, hole, 50, b"", 0).unwrap();
    let link = volume.create_symlink(&actor(1), volume.root(), b"link", b"target", &nothing()).unwrap();
    small.push(link.status.fid(volume.id()));
    let gone = file(&volume, "gone", b"gone");
    small.push(file(&volume, "last", b"last"));
    let clone = server.clone_rw(77);
    store_at(&volume, small[1], 0, b"changed", 7).unwrap();
    volume.remove_file(&actor(2), volume.root(), b"gone").unwrap();
    for _ in 0..2 {
        let volume = server.volumes.get(RW).unwrap();
        let mut all = fids(&volume);
        assert!(all.contains(&long) && all.contains(&hole) && !all.contains(&gone));
        assert_eq!(check(&volume, &all), small);
        all.push(gone);
        all.sort_by_key(|fid| fid.vnode);
        let other = Fid { unique: small[0].unique + 999, ..small[0] };
        assert_eq!(check(&volume, &all), small, "a file that is gone has no reader");
        assert_eq!(check(&volume, &[other]), [], "nor has one with another uniquifier");
        assert_eq!(check(&volume, &[volume.root()]), [], "nor has a directory");
        assert_eq!(check(&volume, &[]), []);
        let clone = server.volumes.get(clone.id()).unwrap();
        let mut frozen: Vec<Fid> = small.iter().map(|fid| Fid { volume: clone.id(), ..*fid }).collect();
        frozen.insert(small.len() - 1, Fid { volume: clone.id(), ..gone });
        assert_eq!(check(&clone, &fids(&clone)), frozen);
        server.reopen();
    }
}

#[test]
fn many_versions_of_a_file_end_the_scan_early() {
    let (server, volume) = Server::with_volume(options());
    let files: Vec<Fid> = (0..4).map(|number| file(&volume, &format!("f{number}"), b"data")).collect();
    for id in 100..200 {
        server.clone_rw(id);
        store_at(&volume, files[1], 0, &id.to_be_bytes(), 4).unwrap();
    }
    let read = check(&volume, &files);
    assert_eq!(read, files[..read.len()], "files behind the many versions are left out");
    assert!((1..4).contains(&read.len()), "{read:?}");
}

#[test]
fn opening_many_files_reads_the_metadata_once() {
    let (mut server, volume) = Server::with_volume(options());
    let made: Vec<Fid> = (0..64).map(|number| file(&volume, &format!("f{number}"), b"some data")).collect();
    drop(volume);
    server.reopen();
    let volume = server.volumes.get(RW).unwrap();
    let all = fids(&volume);
    assert_eq!(all, made);
    let before = server.meta.reads();
    assert_eq!(volume.small_readers(&all).unwrap().len(), 64);
    let reads = server.meta.reads() - before;
    assert!(reads <= 2, "{reads} reads for 64 files");
}
