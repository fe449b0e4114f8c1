//! Tests of contents stored in the metadata of an encrypted partition.

use super::support::*;
use crate::{FileKind, Volume, VolumeError};
use base::Fid;
use std::sync::Arc;
use store::{Batch, MemoryChunks, MetaStore};
use volume_records::codec::{self, Extent};
use volume_records::families;

const SECRET: &[u8] = b"nobody reads this";

fn world() -> (Server, Arc<Volume>, [Fid; 2]) {
    let server = Server::on(MemoryChunks::encrypted(), options());
    let volume = server.create(RW, "user.alice");
    let file = |name: &[u8]| {
        let fid = volume.create_file(&actor(1), volume.root(), name, &nothing()).unwrap().status.fid(RW);
        store_at(&volume, fid, 0, SECRET, u64::MAX).unwrap();
        fid
    };
    let files = [file(b"one"), file(b"two")];
    (server, volume, files)
}

fn put(server: &Server, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(families::EXTENTS, key, value.to_vec());
    server.meta.commit(batch).unwrap();
}

fn read(volume: &Arc<Volume>, fid: Fid) -> Result<Vec<u8>, VolumeError> {
    volume.read(fid, 0, u64::MAX).map(|(_, pieces)| pieces.concat())
}

#[test]
fn small_files_and_links_are_encrypted_and_read_back() {
    let (mut server, volume, files) = world();
    let path = b"a/path/that/is/secret/too";
    let link = volume.create_symlink(&actor(2), volume.root(), b"link", path, &nothing()).unwrap();
    let stored = server.records(families::EXTENTS);
    assert_eq!(stored.len(), 3);
    for (_, value) in &stored {
        let Some(extent @ Extent::Sealed(_)) = codec::get_extent(value) else { panic!("not encrypted") };
        assert!([SECRET.len(), path.len()].contains(&(extent.length() as usize)));
        assert!(!value.windows(6).any(|window| window == b"secret" || window == b"nobody"));
    }
    drop(volume);
    server.reopen();
    let volume = server.volumes.get(RW).unwrap();
    assert_eq!(read(&volume, files[0]).unwrap(), SECRET);
    assert_eq!(link.status.kind, FileKind::SymbolicLink);
    assert_eq!(read(&volume, link.status.fid(RW)).unwrap(), path);
    // A partial write keeps the rest of the old contents.
    store_at(&volume, files[1], 7, b"writes", u64::MAX).unwrap();
    assert_eq!(read(&volume, files[1]).unwrap(), b"nobody writesthis");
}

#[test]
fn every_flipped_bit_is_an_error_and_never_other_data() {
    let (server, volume, files) = world();
    let (key, value) = server.records(families::EXTENTS)[0].clone();
    for bit in 0..value.len() * 8 {
        let mut damaged = value.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        put(&server, &key, &damaged);
        let got = read(&volume, files[0]);
        assert!(matches!(got, Err(VolumeError::Damaged { .. })), "bit {bit}: {got:?}");
    }
    put(&server, &key, &value);
    assert_eq!(read(&volume, files[0]).unwrap(), SECRET);
}

#[test]
fn contents_do_not_open_in_another_place() {
    let (server, volume, files) = world();
    let stored = server.records(families::EXTENTS);
    put(&server, &stored[0].0, &stored[1].1);
    let text = read(&volume, files[0]).unwrap_err().to_string();
    assert!(text.contains("cannot be decrypted"), "{text}");
    assert_eq!(read(&volume, files[1]).unwrap(), SECRET);
}
