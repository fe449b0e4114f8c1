//! The form that all objects share: a line with what it is and its version, a line for each field, a checksum.

use crc_fast::{CrcAlgorithm, checksum};
use std::fmt::{Display, Write};
use thiserror::Error;

/// Longest object in bytes.
pub const RECORD_BYTES_MAX: usize = 4096;

/// The only version of all objects so far.
const VERSION: u32 = 1;

/// Name of the last field.
const CHECKSUM: &str = "crc32c";

/// An object that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It is too long to be one.
    #[error("it has {got} bytes; at most {RECORD_BYTES_MAX} are valid")]
    TooLong {
        /// Its length.
        got: usize,
    },
    /// It is something else.
    #[error("it does not begin with `{expected}` and a version")]
    Foreign {
        /// What it begins with.
        expected: &'static str,
    },
    /// A newer program wrote it.
    #[error(
        "it has version {got} of its format, and this program knows version {VERSION}: use a newer program"
    )]
    Newer {
        /// Its version.
        got: u32,
    },
    /// It was damaged.
    #[error("its checksum is {got}; its contents have {expected}")]
    Checksum {
        /// The checksum of its contents.
        expected: String,
        /// The checksum that it has.
        got: String,
    },
    /// A field is missing, or has a value that no program writes.
    #[error("its field `{0}` is missing or not valid")]
    Field(&'static str),
}

/// Builds an object.
pub(super) struct Writer(String);

impl Writer {
    pub(super) fn new(kind: &'static str) -> Writer {
        Writer(format!("{kind} {VERSION}\n"))
    }

    pub(super) fn field(&mut self, name: &'static str, value: impl Display) {
        writeln!(self.0, "{name}: {value}").expect("a string takes everything");
    }

    /// Adds a field that may have no value.
    pub(super) fn optional(&mut self, name: &'static str, value: Option<impl Display>) {
        match value {
            Some(value) => self.field(name, value),
            None => self.field(name, "-"),
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let crc = crc(&self.0);
        self.field(CHECKSUM, crc);
        debug_assert!(self.0.len() <= RECORD_BYTES_MAX, "fields are bounded");
        self.0.into_bytes()
    }
}

/// Returns the checksum of the text.
fn crc(text: &str) -> String {
    format!("{:08x}", checksum(CrcAlgorithm::Crc32Iscsi, text.as_bytes()) as u32)
}

/// Reads the fields of an object, in their order.
pub(super) struct Reader<'a>(std::str::Split<'a, char>);

impl<'a> Reader<'a> {
    /// Checks kind, version and checksum.
    pub(super) fn open(kind: &'static str, bytes: &'a [u8]) -> Result<Reader<'a>, RecordError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(RecordError::TooLong { got: bytes.len() });
        }
        let foreign = RecordError::Foreign { expected: kind };
        let Ok(text) = std::str::from_utf8(bytes) else { return Err(foreign) };
        let Some((first, _)) = text.split_once('\n') else { return Err(foreign) };
        let version = first.strip_prefix(kind).and_then(|rest| rest.strip_prefix(' ')?.parse().ok());
        match version {
            Some(VERSION) => {}
            Some(got) if got > VERSION => return Err(RecordError::Newer { got }),
            _ => return Err(foreign),
        }
        let last = text.strip_suffix('\n').and_then(|text| text.rfind('\n')).map(|at| at + 1);
        Reader::checked(text, last.ok_or(RecordError::Field(CHECKSUM))?)
    }

    /// Checks the checksum in the last line, which begins at `start`.
    fn checked(text: &'a str, start: usize) -> Result<Reader<'a>, RecordError> {
        let (body, last) = text.split_at(start);
        let value = last.strip_prefix(CHECKSUM).and_then(|rest| rest.strip_prefix(": ")?.strip_suffix('\n'));
        let got = value.ok_or(RecordError::Field(CHECKSUM))?;
        let expected = crc(body);
        if got != expected {
            return Err(RecordError::Checksum { expected, got: got.to_owned() });
        }
        let mut lines = body.split('\n');
        lines.next();
        Ok(Reader(lines))
    }

    /// Returns the value of the next field.
    pub(super) fn field(&mut self, name: &'static str) -> Result<&'a str, RecordError> {
        let line = self.0.next().unwrap_or_default();
        line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).ok_or(RecordError::Field(name))
    }

    /// Returns the name and the value of the next field.
    pub(super) fn any(&mut self) -> Option<(&'a str, &'a str)> {
        self.0.next()?.split_once(": ")
    }

    /// Parses the next field.
    pub(super) fn parse<T: std::str::FromStr>(&mut self, name: &'static str) -> Result<T, RecordError> {
        self.field(name)?.parse().map_err(|_| RecordError::Field(name))
    }

    /// Parses the next field, which may have no value.
    pub(super) fn optional<T: std::str::FromStr>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, RecordError> {
        match self.field(name)? {
            "-" => Ok(None),
            value => Ok(Some(value.parse().map_err(|_| RecordError::Field(name))?)),
        }
    }
}
