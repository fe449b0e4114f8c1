//! Inode numbers, and the locations of their files.

use super::{Image, NameiError};

const LINKS_MAGIC: u32 = 0x9987_7712;

/// Size in bytes of the header of a link table.
pub const LINKS_HEADER_BYTES: usize = 8;

/// Folder of all data in a partition.
pub const FOLDER: &str = "AFSIDat";
/// Folder of a group's special files.
const SPECIAL: &str = "special";
const VNODE_BITS: u64 = 0x3ff_ffff;
const TAG_SHIFT: u32 = 26;
const TAG_BITS: u64 = 7;
const DIGITS: &[u8; 64] = b"+=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Number of digits of the volume id in the name of a header file.
const NUMBER_DIGITS: usize = 10;

/// The number of a file: the lowest 26 bits are the vnode number, or all ones; the next three distinguish
/// versions of a vnode's data (or special files); the upper 32 are the vnode's uniquifier (or the volume id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode(pub u64);

impl Inode {
    /// Returns whether it refers to a file.
    pub fn is_some(self) -> bool {
        self.0 != 0 && self.0 != u64::MAX
    }

    /// Returns whether it is one of a volume's special files.
    pub fn is_special(self) -> bool {
        self.is_some() && self.0 & VNODE_BITS == VNODE_BITS
    }

    /// Returns the vnode whose data it is.
    pub fn vnode(self) -> u32 {
        (self.0 & VNODE_BITS) as u32
    }

    /// Returns the path in its partition, for a group with this read-write volume. No part of the path comes
    /// from the file system.
    pub fn path(self, group: u32) -> String {
        let digits = |number: u64| base64(number);
        let folder = Inode::folder(group);
        if self.is_special() {
            return format!("{folder}/{SPECIAL}/{}", digits(self.0));
        }
        let vnode = u64::from(self.vnode());
        format!("{folder}/{}/{}/{}", digits(vnode >> 14 & 0xff), digits(vnode >> 9 & 0x1ff), digits(self.0))
    }

    /// Returns the folder that contains all files of a group.
    pub fn folder(group: u32) -> String {
        format!("{FOLDER}/{}/{}", base64(u64::from(group & 0xff)), base64(group.into()))
    }

    /// Parses the name of a file in its folder.
    pub fn from_file_name(name: &str) -> Option<Inode> {
        let mut number = 0u64;
        for (place, byte) in name.bytes().enumerate() {
            let digit = DIGITS.iter().position(|digit| *digit == byte)? as u64;
            let shift = u32::try_from(6 * place).ok().filter(|shift| *shift < u64::BITS)?;
            number |= digit << shift;
        }
        Some(Inode(number)).filter(|inode| base64(inode.0) == name)
    }

    /// Returns the offset of its two bytes in the link table.
    pub fn links_offset(self) -> u64 {
        LINKS_HEADER_BYTES as u64 + 2 * u64::from(self.vnode())
    }

    /// Returns the number of volumes that use it, from the two bytes at that offset.
    pub fn links(self, row: [u8; 2]) -> u8 {
        let tag = (self.0 >> TAG_SHIFT & TAG_BITS) as u32;
        (u32::from(u16::from_le_bytes(row)) >> (3 * tag) & 7) as u8
    }
}

/// Encodes a number in 6-bit digits, lowest first.
fn base64(mut number: u64) -> String {
    let mut out = String::new();
    loop {
        out.push(char::from(DIGITS[(number & 63) as usize]));
        number >>= 6;
        if number == 0 {
            return out;
        }
    }
}

/// Checks the start of a link table.
///
/// # Errors
/// The bytes are not a link table.
pub fn check_links(bytes: &[u8]) -> Result<(), NameiError> {
    Image(bytes).stamp(LINKS_MAGIC, "the mark of a table of links (99877712)")
}

/// Returns the name of a volume's header file.
pub fn header_name(volume: u32) -> String {
    format!("V{volume:010}.vol")
}

/// Returns the volume whose header file has this name.
pub fn header_volume(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('V')?.strip_suffix(".vol")?;
    let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}
