//! The files in which OpenAFS's database servers keep their databases: prdb.DB0, vldb.DB0.
//!
//! A file is a header of 64 bytes, and behind it the database, in which addresses count from the end
//! of that header; all numbers are big-endian. Facts from OpenAFS 1.8 `ubik/ubik.p.h` and
//! `ubik/phys.c`. [`prdb`](crate::prdb) and [`vldb`](crate::vldb) read what is inside.

use thiserror::Error;

/// Bytes of the header (HDRSIZE).
pub const HEADER_BYTES: usize = 64;
const MAGIC: u32 = 0x0035_4545;

/// Why a database file was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset}: expected {expected}")]
pub struct DatabaseError {
    /// Where in the file.
    pub offset: usize,
    /// What should be there.
    pub expected: String,
}

/// A database file, by addresses as they stand in it.
#[derive(Clone, Copy)]
pub(crate) struct Image<'a>(&'a [u8]);

pub(crate) fn damaged(address: usize, expected: impl Into<String>) -> DatabaseError {
    DatabaseError { offset: address.saturating_add(HEADER_BYTES), expected: expected.into() }
}

impl<'a> Image<'a> {
    /// Checks the file's header.
    pub(crate) fn open(file: &'a [u8]) -> Result<Image<'a>, DatabaseError> {
        let refused = |offset, expected: &str| DatabaseError { offset, expected: expected.to_owned() };
        let header = file.first_chunk::<HEADER_BYTES>();
        let header = header.ok_or_else(|| refused(file.len(), "a header of 64 bytes"))?;
        if header[..4] != MAGIC.to_be_bytes() {
            return Err(refused(0, "the mark of a database of OpenAFS (00354545)"));
        }
        if usize::from(u16::from_be_bytes([header[6], header[7]])) != HEADER_BYTES {
            return Err(refused(6, "64 as the header's length"));
        }
        Ok(Image(&file[HEADER_BYTES..]))
    }

    pub(crate) fn word(&self, address: usize) -> Result<u32, DatabaseError> {
        self.bytes::<4>(address).map(u32::from_be_bytes)
    }

    pub(crate) fn signed(&self, address: usize) -> Result<i32, DatabaseError> {
        self.word(address).map(|word| word as i32)
    }

    pub(crate) fn bytes<const N: usize>(&self, address: usize) -> Result<[u8; N], DatabaseError> {
        let bytes = self.0.get(address..).and_then(|rest| rest.first_chunk::<N>());
        bytes.copied().ok_or_else(|| damaged(address, format!("{N} bytes before the end of the file")))
    }

    /// A C string in a field of N bytes.
    pub(crate) fn text<const N: usize>(&self, address: usize) -> Result<Vec<u8>, DatabaseError> {
        let field = self.bytes::<N>(address)?;
        let length = field.iter().position(|byte| *byte == 0);
        let length = length.ok_or_else(|| damaged(address, format!("a name of less than {N} bytes")))?;
        Ok(field[..length].to_vec())
    }

    /// The end of the database as its header says; must lie within the file.
    pub(crate) fn end(&self, address: usize) -> Result<usize, DatabaseError> {
        let end = self.word(address)? as usize;
        if end > self.0.len() {
            return Err(damaged(address, format!("an end at {} or before, not {end}", self.0.len())));
        }
        Ok(end)
    }
}
