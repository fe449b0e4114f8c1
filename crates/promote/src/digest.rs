//! What a volume holds, in 32 bytes.
//!
//! The digest is taken from a full dump, of whatever server: over each vnode's number, uniquifier, kind,
//! owner, group, mode, links, data version, author, time of change, place, access list and data, in the
//! order of the vnodes' numbers. Of a directory its entries count and not their places in its pages. Left
//! out is what differs between a volume and its copy: the volume's header, with its numbers and dates, and the
//! server's own times of change. So equal digests mean: clients see the same.

use afs_format::acl::{Acl, AclEntry};
use afs_format::directory::{DirectoryBlob, PAGE_BYTES, PAGES_MAX};
use afs_format::dump::{DumpError, DumpedVnode, Item, Reader, VnodeAttributes};
use blake3::Hasher;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Begins everything that is hashed, so that no other hash can be taken for one of these.
const CONTEXT: &str = "Cellar promotion: contents of a volume, version 1";
const VNODE_CONTEXT: &str = "Cellar promotion: a vnode, version 1";
/// Most bytes that a directory has.
const DIRECTORY_BYTES_MAX: u64 = (PAGE_BYTES * PAGES_MAX) as u64;
const DIRECTORY: u8 = 2;
/// Data is asked for in pieces of this many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// What a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// The hash (BLAKE3).
    #[serde(with = "crate::manifest::hexadecimal")]
    pub hash: [u8; 32],
    /// How many vnodes.
    pub vnodes: u64,
    /// Bytes of data in files, directories and links.
    pub bytes: u64,
}

/// The digest of a full dump. `source` is called as [`Reader::open`] says.
///
/// # Errors
/// The source's error, or what is wrong with the dump; an incremental one is refused.
pub fn of_dump<E>(source: impl FnMut(usize) -> Result<Bytes, E>) -> Result<Digest, DumpError<E>> {
    let (mut reader, header) = Reader::open(source)?;
    if header.dates.iter().any(|(from, _)| from.0 != 0) {
        return Err(reader.damaged("a full dump, not one of changes only"));
    }
    let (mut vnodes, mut bytes) = (Vec::new(), 0);
    loop {
        match reader.next_item()? {
            Item::Volume(_) => {}
            Item::Vnode(vnode) => {
                let number = vnode.vnode;
                let (hash, length) = hash_vnode(&vnode, &mut reader)?;
                vnodes.push((number, hash));
                bytes += length;
            }
            Item::End => return Ok(combine(vnodes, bytes)),
        }
    }
}

fn combine(mut vnodes: Vec<(u32, [u8; 32])>, bytes: u64) -> Digest {
    vnodes.sort_unstable();
    let mut hasher = Hasher::new_derive_key(CONTEXT);
    for (_, hash) in &vnodes {
        hasher.update(hash);
    }
    Digest { hash: hasher.finalize().into(), vnodes: vnodes.len() as u64, bytes }
}

fn hash_vnode<E, F: FnMut(usize) -> Result<Bytes, E>>(
    vnode: &DumpedVnode,
    reader: &mut Reader<F>,
) -> Result<([u8; 32], u64), DumpError<E>> {
    let Some(attributes) = &vnode.attributes else {
        return Err(reader.damaged("a full dump, with the status of every vnode"));
    };
    let mut hasher = Hasher::new_derive_key(VNODE_CONTEXT);
    put_attributes(&mut hasher, vnode, attributes);
    let length = attributes.length.unwrap_or(0);
    if attributes.kind == DIRECTORY && length > 0 {
        put_directory(&mut hasher, reader, length)?;
    } else {
        hasher.update(&length.to_be_bytes());
        loop {
            let piece = reader.data(PIECE_BYTES)?;
            if piece.is_empty() {
                break;
            }
            hasher.update(&piece);
        }
    }
    Ok((hasher.finalize().into(), length))
}

fn put_attributes(hasher: &mut Hasher, vnode: &DumpedVnode, attributes: &VnodeAttributes) {
    let numbers = [
        vnode.vnode,
        vnode.unique,
        attributes.kind.into(),
        attributes.links.into(),
        attributes.data_version,
        attributes.client_modified.0,
        attributes.author,
        attributes.owner,
        attributes.group,
        attributes.mode.into(),
        attributes.parent,
    ];
    for number in numbers {
        put(hasher, number);
    }
    put_acl(hasher, attributes.acl.as_ref());
}

fn put(hasher: &mut Hasher, number: u32) {
    hasher.update(&number.to_be_bytes());
}

fn put_acl(hasher: &mut Hasher, acl: Option<&Acl>) {
    let lists = acl.map_or([&[][..], &[][..]], |acl| [acl.positive(), acl.negative()]);
    for entries in lists {
        let mut entries: Vec<AclEntry> = entries.to_vec();
        entries.sort_unstable_by_key(|entry| entry.id.0);
        put(hasher, entries.len() as u32);
        for entry in entries {
            put(hasher, entry.id.0.cast_unsigned());
            put(hasher, entry.rights.bits());
        }
    }
}

fn put_directory<E, F: FnMut(usize) -> Result<Bytes, E>>(
    hasher: &mut Hasher,
    reader: &mut Reader<F>,
    length: u64,
) -> Result<(), DumpError<E>> {
    if length > DIRECTORY_BYTES_MAX {
        return Err(reader.damaged("a directory of at most 1023 pages"));
    }
    let mut pages = Vec::new();
    loop {
        let piece = reader.data(PIECE_BYTES)?;
        if piece.is_empty() {
            break;
        }
        pages.extend_from_slice(&piece);
    }
    let pages = Bytes::from(pages);
    let blob = DirectoryBlob::parse(&pages).map_err(|_| reader.damaged("a sound directory before this"))?;
    let mut entries: Vec<_> = blob.entries().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    put(hasher, entries.len() as u32);
    for (name, target) in entries {
        put(hasher, name.len() as u32);
        hasher.update(name);
        put(hasher, target.vnode.0);
        put(hasher, target.unique);
    }
    Ok(())
}
