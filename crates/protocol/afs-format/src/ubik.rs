//! The database files of OpenAFS's database servers: prdb.DB0, vldb.DB0.
//!
//! A file is a header of 64 bytes followed by the database, in which addresses count from the end of that
//! header; all numbers are big-endian. Sources: OpenAFS 1.8 `ubik/ubik.p.h` and `ubik/phys.c`.
//! [`prdb`](crate::prdb) and [`vldb`](crate::vldb) parse the contents.

use std::fmt;
use thiserror::Error;

/// Size of the header in bytes (HDRSIZE).
pub const HEADER_BYTES: usize = 64;
const MAGIC: u32 = 0x0035_4545;

/// Why a database file was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset}: expected {expected}")]
pub struct DatabaseError {
    /// Offset in the file, in bytes.
    pub offset: usize,
    /// What was expected there.
    pub expected: String,
}

/// How an import handles an oddity in a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is imported unchanged.
    Kept,
    /// It is imported in a repaired form.
    Repaired,
    /// It is not imported.
    LeftOut,
    /// Nothing can be imported while it is there.
    Refused,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fate::Kept => "kept",
            Fate::Repaired => "repaired",
            Fate::LeftOut => "left out",
            Fate::Refused => "refused",
        })
    }
}

/// Something in a database file that OpenAFS's servers do not write, or that is not imported unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// Offset in the file, in bytes.
    pub offset: usize,
    /// The entry with its name and id, or the block, and what is odd.
    pub what: String,
    /// How an import handles it.
    pub fate: Fate,
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}: {}", self.offset, self.what, self.fate)
    }
}

impl Oddity {
    /// Creates an oddity at an address of the database.
    pub(crate) fn at(address: usize, fate: Fate, what: impl Into<String>) -> Oddity {
        Oddity { offset: address.saturating_add(HEADER_BYTES), what: what.into(), fate }
    }

    /// Creates the oddity for an error that prevents the import.
    pub(crate) fn refused(error: &DatabaseError) -> Oddity {
        Oddity { offset: error.offset, what: format!("expected {}", error.expected), fate: Fate::Refused }
    }
}

/// A database file, accessed by the addresses used in it.
#[derive(Clone, Copy, Default)]
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

    /// Reads a C string in a field of N bytes.
    pub(crate) fn text<const N: usize>(&self, address: usize) -> Result<Vec<u8>, DatabaseError> {
        let field = self.bytes::<N>(address)?;
        let length = field.iter().position(|byte| *byte == 0);
        let length = length.ok_or_else(|| damaged(address, format!("a name of less than {N} bytes")))?;
        Ok(field[..length].to_vec())
    }

    /// Reports nonzero data after the end of the database, which servers do not read.
    pub(crate) fn behind(&self, end: usize) -> Option<Oddity> {
        let rest = self.0.get(end..).unwrap_or_default();
        let is_used = rest.iter().any(|byte| *byte != 0);
        is_used.then(|| {
            Oddity::at(end, Fate::LeftOut, format!("{} bytes behind the end of the database", rest.len()))
        })
    }

    /// Reads the end of the database from its header; it must be within the file.
    pub(crate) fn end(&self, address: usize) -> Result<usize, DatabaseError> {
        let end = self.word(address)? as usize;
        if end > self.0.len() {
            return Err(damaged(address, format!("an end at {} or before, not {end}", self.0.len())));
        }
        Ok(end)
    }
}
