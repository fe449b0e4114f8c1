//! Vnode indexes.

use super::{Image, Inode, NameiError};
use crate::acl::Acl;
use crate::dump::{ACL_BYTES, parse_acl};
use base::UnixTime;

/// Size in bytes of the record part that all vnodes have.
const STATUS_BYTES: usize = 64;

/// One of a volume's two indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexClass {
    /// Directories, with their access lists; odd vnode numbers.
    Large,
    /// Files and symbolic links; even vnode numbers.
    Small,
}

impl IndexClass {
    /// Returns the size of a record in bytes; the stamp occupies the first record's place.
    pub fn record_bytes(self) -> usize {
        match self {
            IndexClass::Large => 256,
            IndexClass::Small => STATUS_BYTES,
        }
    }

    /// Returns the vnode number of a record, counted from 0 without the stamp's place.
    pub fn vnode(self, place: u32) -> Option<u32> {
        let first = if self == IndexClass::Large { 1 } else { 2 };
        place.checked_mul(2)?.checked_add(first)
    }

    /// Checks the stamp at the start of an index.
    ///
    /// # Errors
    /// The bytes are not the stamp of this class.
    pub fn check_stamp(self, bytes: &[u8]) -> Result<(), NameiError> {
        match self {
            IndexClass::Large => {
                Image(bytes).stamp(0x8866_4433, "the mark of an index of directories (88664433)")
            }
            IndexClass::Small => Image(bytes).stamp(0x9977_6655, "the mark of an index of files (99776655)"),
        }
    }

    fn vnode_magic(self) -> u32 {
        match self {
            IndexClass::Large => 0xad87_65fe,
            IndexClass::Small => 0xda8c_041f,
        }
    }

    fn has_kind(self, kind: u8) -> bool {
        match self {
            IndexClass::Large => kind == 2,
            IndexClass::Small => matches!(kind, 1 | 3),
        }
    }
}

/// A vnode in an index (VnodeDiskObject).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameiVnode {
    /// Kind: 1 file, 2 directory, 3 symbolic link.
    pub kind: u8,
    /// Unix mode bits.
    pub mode: u16,
    /// Number of names.
    pub links: u16,
    /// Length of the data in bytes.
    pub length: u64,
    /// Uniquifier.
    pub unique: u32,
    /// Counts changes of the data.
    pub data_version: u32,
    /// Inode of the data; 0 or all ones if it never had any.
    pub inode: Inode,
    /// Time of the last change of the data, according to the client.
    pub client_modified: UnixTime,
    /// User who made the last change.
    pub author: u32,
    /// Owner.
    pub owner: u32,
    /// Parent directory; 0 for the root directory.
    pub parent: u32,
    /// Time of the last change of any kind, by the server's clock.
    pub server_modified: UnixTime,
    /// Unix group.
    pub group: u32,
    /// Access list of a directory.
    pub acl: Option<Acl>,
}

impl NameiVnode {
    /// Parses a record; returns `None` if no vnode uses it.
    ///
    /// # Errors
    /// The record is malformed.
    pub fn parse(class: IndexClass, bytes: &[u8]) -> Result<Option<NameiVnode>, NameiError> {
        let image = Image(bytes);
        let first = image.word(0)?;
        let kind = (first & 7) as u8;
        if kind == 0 {
            return Ok(None);
        }
        let refused = |offset, expected| Err(NameiError { offset, expected });
        if !class.has_kind(kind) {
            return refused(0, "a vnode of the index's kind");
        }
        if image.word(36)? != class.vnode_magic() {
            return refused(36, "the mark of a vnode");
        }
        let length = image.long(4, 60)?;
        if i64::try_from(length).is_err() {
            return refused(60, "a length below 2^63 bytes");
        }
        Ok(Some(NameiVnode {
            kind,
            mode: (first >> 4 & 0xfff) as u16,
            links: (first >> 16) as u16,
            length,
            unique: image.word(8)?,
            data_version: image.word(12)?,
            inode: Inode(image.long(16, 56)?),
            client_modified: UnixTime(image.word(20)?),
            author: image.word(24)?,
            owner: image.word(28)?,
            parent: image.word(32)?,
            server_modified: UnixTime(image.word(48)?),
            group: image.word(52)?,
            acl: acl(class, image)?,
        }))
    }
}

fn acl(class: IndexClass, image: Image<'_>) -> Result<Option<Acl>, NameiError> {
    const SOUND: &str = "a sound access list";
    if class == IndexClass::Small {
        return Ok(None);
    }
    let bytes: [u8; ACL_BYTES] = image.array(STATUS_BYTES, SOUND)?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    parse_acl(word).map(Some).ok_or(NameiError { offset: STATUS_BYTES, expected: SOUND })
}
