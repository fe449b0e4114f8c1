//! The digest of a volume's contents, as used in manifests ([`afs_format::contents`]), computed from a full
//! dump.

use afs_format::contents::{Contents, Sum, VnodeContents};
use afs_format::dump::{DumpError, DumpedVnode, Item, Reader};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Size of the pieces in which data is read.
const PIECE_BYTES: usize = 256 << 10;

/// Digest of a volume's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// BLAKE3 hash.
    #[serde(with = "crate::manifest::hexadecimal")]
    pub hash: [u8; 32],
    /// Number of vnodes.
    pub vnodes: u64,
    /// Bytes of data in files, directories and links.
    pub bytes: u64,
}

impl From<Sum> for Digest {
    fn from(Sum { hash, vnodes, bytes }: Sum) -> Digest {
        Digest { hash, vnodes, bytes }
    }
}

/// Computes the digest of a full dump. `source` is called as described in [`Reader`].
///
/// # Errors
/// The source's error, or a description of what is wrong with the dump; an incremental dump is rejected.
pub fn of_dump<E>(source: impl FnMut(usize) -> Result<Bytes, E>) -> Result<Digest, DumpError<E>> {
    let (mut reader, header) = Reader::open(source)?;
    if header.dates.iter().any(|(from, _)| from.0 != 0) {
        return Err(reader.damaged("a full dump, not one of changes only"));
    }
    let mut vnodes = Vec::new();
    loop {
        match reader.next_item()? {
            Item::Volume(_) => {}
            Item::Vnode(vnode) => {
                let contents = read(&vnode, &mut reader)?;
                vnodes.push((vnode.vnode, contents.hash(), contents.length()));
            }
            Item::End => return Ok(combine(vnodes)),
        }
    }
}

fn combine(mut vnodes: Vec<(u32, [u8; 32], u64)>) -> Digest {
    vnodes.sort_unstable();
    let mut contents = Contents::default();
    for (_, hash, length) in &vnodes {
        contents.add(hash, *length);
    }
    contents.sum().into()
}

fn read<E, F: FnMut(usize) -> Result<Bytes, E>>(
    vnode: &DumpedVnode,
    reader: &mut Reader<F>,
) -> Result<VnodeContents, DumpError<E>> {
    let Some(mut contents) = VnodeContents::begin(vnode) else {
        return Err(reader.damaged("a full dump, with the status of every vnode"));
    };
    if !contents.is_directory() {
        loop {
            let piece = reader.data(PIECE_BYTES)?;
            if piece.is_empty() {
                return Ok(contents);
            }
            contents.data(&piece);
        }
    }
    contents.directory(&reader.directory(vnode)?);
    Ok(contents)
}
