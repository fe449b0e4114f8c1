//! A 32-byte digest of a volume's contents.
//!
//! The digest covers each vnode's number, uniquifier, kind, owner, group, mode, links, author, client
//! modification time, parent, access list and data, in the order of vnode numbers. For a directory it covers
//! the entries but not their positions in the pages. It excludes everything that differs between a volume and
//! its copy: the volume's header, with its ids and dates, the server's modification times, and data versions,
//! which continue above those of a volume that a restore replaces. So equal digests mean that clients see the
//! same contents. It can be computed from a full dump of any server, and directly from a volume
//! (`docs/reference/formats/promotions.md`).

use crate::acl::{Acl, AclEntry};
use crate::directory::{DirectoryBlob, PAGE_BYTES, PAGES_MAX};
use crate::dump::{DumpedVnode, VnodeAttributes};
use blake3::Hasher;

/// Context of the hash, which prevents confusion with hashes for other purposes.
const CONTEXT: &str = "Cellar promotion: contents of a volume, version 2";
const VNODE_CONTEXT: &str = "Cellar promotion: a vnode, version 2";
const DIRECTORY: u8 = 2;

/// Maximum size of a directory in bytes.
pub const DIRECTORY_BYTES_MAX: u64 = (PAGE_BYTES * PAGES_MAX) as u64;

/// Digest of a volume's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// BLAKE3 hash.
    pub hash: [u8; 32],
    /// Number of vnodes.
    pub vnodes: u64,
    /// Bytes of data in files, directories and links.
    pub bytes: u64,
}

/// Accumulates vnodes. Call [`add`](Contents::add) for each, in the order of their numbers.
#[derive(Clone)]
pub struct Contents {
    hasher: Hasher,
    vnodes: u64,
    bytes: u64,
}

impl Default for Contents {
    fn default() -> Contents {
        Contents { hasher: Hasher::new_derive_key(CONTEXT), vnodes: 0, bytes: 0 }
    }
}

impl Contents {
    /// Adds the next vnode: its hash, and the size of its data.
    pub fn add(&mut self, hash: &[u8; 32], bytes: u64) {
        self.hasher.update(hash);
        self.vnodes += 1;
        self.bytes += bytes;
    }

    /// Returns the sum of the vnodes added.
    pub fn sum(&self) -> Sum {
        Sum { hash: self.hasher.finalize().into(), vnodes: self.vnodes, bytes: self.bytes }
    }
}

/// Computes the hash of one vnode. If it [`is_directory`](VnodeContents::is_directory), call
/// [`directory`](VnodeContents::directory) once, otherwise [`data`](VnodeContents::data) with all its data,
/// piece by piece; then [`hash`](VnodeContents::hash).
pub struct VnodeContents {
    hasher: Hasher,
    length: u64,
    is_directory: bool,
}

impl VnodeContents {
    /// Starts with a vnode as described in a dump; `None` if the dump has only its numbers.
    pub fn begin(vnode: &DumpedVnode) -> Option<VnodeContents> {
        let attributes = vnode.attributes.as_ref()?;
        let mut hasher = Hasher::new_derive_key(VNODE_CONTEXT);
        put_attributes(&mut hasher, vnode, attributes);
        let length = attributes.length.unwrap_or(0);
        let is_directory = attributes.kind == DIRECTORY && length > 0;
        if !is_directory {
            hasher.update(&length.to_be_bytes());
        }
        Some(VnodeContents { hasher, length, is_directory })
    }

    /// Returns the number of bytes of data that follow.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns whether the data is the pages of a directory.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Adds some data of a file or link.
    pub fn data(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Adds the entries of a directory.
    pub fn directory(&mut self, blob: &DirectoryBlob) {
        let mut entries: Vec<_> = blob.entries().collect();
        entries.sort_unstable_by_key(|(name, _)| *name);
        put(&mut self.hasher, entries.len() as u32);
        for (name, target) in entries {
            put(&mut self.hasher, name.len() as u32);
            self.hasher.update(name);
            put(&mut self.hasher, target.vnode.0);
            put(&mut self.hasher, target.unique);
        }
    }

    /// Returns the hash of the vnode.
    pub fn hash(&self) -> [u8; 32] {
        self.hasher.finalize().into()
    }
}

fn put_attributes(hasher: &mut Hasher, vnode: &DumpedVnode, attributes: &VnodeAttributes) {
    let numbers = [
        vnode.vnode,
        vnode.unique,
        attributes.kind.into(),
        attributes.links.into(),
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
