//! Replies that are sent while they are made.

use crate::CallStream;
use base::AbortCode;
use xdr::Encode;

/// Bytes that are collected before they are sent.
pub const PIECE_BYTES: usize = 32 * 1024;

/// Sends a reply in pieces as the client takes them, so that a long list needs no more memory than a short one.
///
/// Each write waits for room in the call's send queue: hold no lock across it. What has been sent cannot be taken
/// back; an error after that aborts the call, and the client discards the reply.
pub struct ReplyWriter<'a> {
    stream: &'a mut dyn CallStream,
    buffer: Vec<u8>,
}

impl<'a> ReplyWriter<'a> {
    /// Writes to `stream`, whose request has been read.
    pub fn new(stream: &'a mut dyn CallStream) -> ReplyWriter<'a> {
        ReplyWriter { stream, buffer: Vec::new() }
    }

    /// Writes one field, or the number of elements of a list before the elements.
    ///
    /// # Errors
    /// The abort code that ended the call.
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) -> Result<(), AbortCode> {
        self.put_with(|out| value.encode(out))
    }

    /// Writes what `encode` appends, which should be much less than [`PIECE_BYTES`].
    ///
    /// # Errors
    /// The abort code that ended the call.
    pub fn put_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), AbortCode> {
        encode(&mut self.buffer);
        if self.buffer.len() < PIECE_BYTES { Ok(()) } else { self.flush() }
    }

    /// Accounts for memory that is held until the end of the call; see [`CallStream::hold`].
    ///
    /// # Errors
    /// VBUSY if the caller's calls hold too much already.
    pub fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.stream.hold(bytes)
    }

    /// Sends what is left.
    ///
    /// # Errors
    /// The abort code that ended the call.
    pub fn finish(mut self) -> Result<(), AbortCode> {
        self.flush()
    }

    fn flush(&mut self) -> Result<(), AbortCode> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.buffer);
        self.stream.write(piece.into())
    }
}
