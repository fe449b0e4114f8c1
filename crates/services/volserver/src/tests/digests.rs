//! Tests that DigestContents matches the digest of a dump of the volume.

use super::support::{Cell, LARGE, admin, anybody};
use super::transfers::{ID, Pair, TARGET, noise};
use afs_format::contents::{Contents, Sum, VnodeContents};
use afs_format::dump::{Item, Reader};
use afs_idl::MemoryStream;
use afs_idl::cellar::{self, DigestContentsReply};
use afs_idl::vol::{self, attach_mode};
use base::AbortCode;
use bytes::Bytes;
use volume::SetStatus;

/// More vnodes than one call processes.
const MANY: u32 = 6000;

fn of_dump(dump: &[u8]) -> Sum {
    let mut left = Bytes::copy_from_slice(dump);
    let source = |most: usize| Ok::<_, AbortCode>(left.split_to(most.min(left.len())));
    let (mut reader, _) = Reader::open(source).unwrap();
    let mut vnodes = Vec::new();
    loop {
        match reader.next_item().unwrap() {
            Item::Volume(_) => {}
            Item::Vnode(vnode) => {
                let mut contents = VnodeContents::begin(&vnode).unwrap();
                if contents.is_directory() {
                    contents.directory(&reader.directory(&vnode).unwrap());
                }
                while let piece = reader.data(1000).unwrap()
                    && !piece.is_empty()
                {
                    contents.data(&piece);
                }
                vnodes.push((vnode.vnode, contents.hash(), contents.length()));
            }
            Item::End => break,
        }
    }
    vnodes.sort_unstable();
    let mut all = Contents::default();
    for (_, hash, length) in &vnodes {
        all.add(hash, *length);
    }
    all.sum()
}

/// Returns the final reply and the number of calls.
fn digest(cell: &Cell, transaction: i32) -> (DigestContentsReply, u32) {
    for calls in 1.. {
        let reply =
            cell.server.digest_contents(&admin(), cellar::DigestContentsRequest { transaction }).unwrap();
        if reply.done != 0 {
            return (reply, calls);
        }
    }
    unreachable!()
}

fn check(cell: &Cell, volume: u32) -> Sum {
    let transaction = cell.open(volume, LARGE, attach_mode::BUSY).unwrap();
    let (reply, _) = digest(cell, transaction);
    let mut dump = MemoryStream::default();
    cell.server.dump(&admin(), vol::DumpRequest { transaction, from_date: 0 }, &mut dump).unwrap();
    cell.end(transaction).unwrap();
    let sum = of_dump(&dump.outgoing);
    assert_eq!((reply.digest, reply.vnodes, reply.bytes), (sum.hash, sum.vnodes, sum.bytes));
    sum
}

#[test]
fn the_digest_of_a_volume_is_that_of_its_dump_and_of_its_copies() {
    let pair = Pair::new();
    let volume = pair.volume();
    let below = volume.make_directory(&pair.actor(), volume.root(), b"below", &SetStatus::default()).unwrap();
    let below = below.status.fid(volume.id());
    volume.create_symlink(&pair.actor(), below, b"link", b"../large", &SetStatus::default()).unwrap();
    let to = pair.create();
    pair.forward(to, 0).unwrap();
    pair.other.set_flags(to, 0).unwrap();
    pair.other.end(to).unwrap();
    let first = check(&pair.cell, ID);
    assert_eq!(check(&pair.other, TARGET), first);
    pair.write("tiny", b"hullo");
    assert_ne!(check(&pair.cell, ID).hash, first.hash);
}

#[test]
fn a_large_volume_takes_several_calls() {
    let pair = Pair::new();
    let volume = pair.volume();
    volume.update_header(|header| header.quota_max_kib = 0).unwrap();
    for number in 0..MANY {
        let name = format!("file{number}");
        volume.create_file(&pair.actor(), volume.root(), name.as_bytes(), &SetStatus::default()).unwrap();
    }
    check(&pair.cell, ID);
    let transaction = pair.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let (reply, calls) = digest(&pair.cell, transaction);
    assert_eq!(calls, 2);
    let ask = cellar::DigestContentsRequest { transaction };
    assert_eq!(pair.cell.server.digest_contents(&admin(), ask).unwrap(), reply, "it is done");
    pair.cell.end(transaction).unwrap();
    // A change during the computation restarts it.
    let transaction = pair.cell.open(ID, LARGE, attach_mode::READ_ONLY).unwrap();
    let ask = cellar::DigestContentsRequest { transaction };
    assert_eq!(pair.cell.server.digest_contents(&admin(), ask).unwrap().done, 0);
    pair.write("large", &noise(10, 100));
    let (changed, calls) = digest(&pair.cell, transaction);
    assert!(calls == 2 && changed.digest != reply.digest);
    pair.cell.end(transaction).unwrap();
}

#[test]
fn only_administrators_get_digests() {
    let pair = Pair::new();
    let transaction = pair.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let ask = cellar::DigestContentsRequest { transaction };
    let denied = pair.cell.server.digest_contents(&anybody(), ask);
    assert_eq!(denied, Err(AbortCode::VOLSERBAD_ACCESS));
    pair.cell.end(transaction).unwrap();
    assert_eq!(pair.cell.server.digest_contents(&admin(), ask), Err(AbortCode(2)));
}
