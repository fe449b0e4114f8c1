//! Where bytes to decode come from.

use crate::XdrError;

/// A supplier of bytes.
pub trait Source {
    /// Fills `buf`, or fails: with [`XdrError::Ended`] when there are not so many bytes.
    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), XdrError>;
}

/// Bytes that are all here already.
#[derive(Clone, Copy, Debug)]
pub struct SliceSource<'a> {
    rest: &'a [u8],
}

impl<'a> SliceSource<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> SliceSource<'a> {
        SliceSource { rest: bytes }
    }

    /// How many bytes have not been read yet.
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
