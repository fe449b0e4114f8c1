//! Sources of bytes to decode.

use crate::XdrError;

/// A source of bytes.
pub trait Source {
    /// Fills `buf`; fails with [`XdrError::Ended`] if there are not enough bytes.
    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), XdrError>;
}

/// A source of bytes in memory.
#[derive(Clone, Copy, Debug)]
pub struct SliceSource<'a> {
    rest: &'a [u8],
}

impl<'a> SliceSource<'a> {
    /// Creates a source that starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> SliceSource<'a> {
        SliceSource { rest: bytes }
    }

    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl Source for SliceSource<'_> {
    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), XdrError> {
        let (head, rest) = self.rest.split_at_checked(buf.len()).ok_or(XdrError::Ended)?;
        buf.copy_from_slice(head);
        self.rest = rest;
        Ok(())
    }
}
