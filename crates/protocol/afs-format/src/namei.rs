//! OpenAFS's storage of volumes as files in a partition ("namei").
//!
//! A volume is a header file `V*.vol`, which names the volume's *special* files below `AFSIDat`: its
//! information, the indexes of its large vnodes (directories) and small ones, and the link table that it
//! shares with its clones. Every vnode's data is a separate file. Numbers are in the byte order of the
//! machine that wrote them; only files of little-endian machines are supported. See
//! `docs/reference/formats/namei.md` for the layout. Sources: OpenAFS 1.8 `vol/volume.h`, `vol/vnode.h`,
//! `vol/namei_ops.c` and `util/flipbase64.c`.

mod info;
mod inode;
mod vnode;

pub use info::{DESTROY_ME, HEADER_BYTES, INFO_BYTES, NEEDS_SALVAGE, VolumeInfo, VolumePlaces};
pub use inode::{FOLDER, Inode, LINKS_HEADER_BYTES, check_links, header_name, header_volume};
pub use vnode::{IndexClass, NameiVnode};

use thiserror::Error;

/// Why a file was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("byte {offset}: expected {expected}")]
pub struct NameiError {
    /// Offset in the given bytes.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

/// Bytes of a file, with little-endian numbers.
#[derive(Clone, Copy)]
struct Image<'a>(&'a [u8]);

impl Image<'_> {
    fn array<const N: usize>(self, offset: usize, expected: &'static str) -> Result<[u8; N], NameiError> {
        let found = self.0.get(offset..).and_then(|rest| rest.first_chunk::<N>());
        found.copied().ok_or(NameiError { offset: self.0.len(), expected })
    }

    fn word(self, offset: usize) -> Result<u32, NameiError> {
        self.array(offset, "four bytes more").map(u32::from_le_bytes)
    }

    fn byte(self, offset: usize) -> Result<u8, NameiError> {
        self.array(offset, "a byte more").map(|[byte]: [u8; 1]| byte)
    }

    /// Reads a number from two separate words.
    fn long(self, low: usize, high: usize) -> Result<u64, NameiError> {
        Ok(u64::from(self.word(high)?) << 32 | u64::from(self.word(low)?))
    }

    /// Reads a C string in a field of N bytes.
    fn text<const N: usize>(self, offset: usize, expected: &'static str) -> Result<Vec<u8>, NameiError> {
        let field: [u8; N] = self.array(offset, expected)?;
        let length = field.iter().position(|&byte| byte == 0).ok_or(NameiError { offset, expected })?;
        Ok(field[..length].to_vec())
    }

    /// Checks the magic and the version at the start of every file except vnode data.
    fn stamp(self, magic: u32, expected: &'static str) -> Result<(), NameiError> {
        let found = self.word(0)?;
        if found == magic.swap_bytes() {
            let expected = "the byte order of a little-endian machine; these files are of another";
            return Err(NameiError { offset: 0, expected });
        }
        if found != magic {
            return Err(NameiError { offset: 0, expected });
        }
        if self.word(4)? == 1 { Ok(()) } else { Err(NameiError { offset: 4, expected: "version 1" }) }
    }
}

#[cfg(test)]
mod tests;
