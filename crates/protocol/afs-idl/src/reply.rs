//! Replies that are sent while they are produced.

use crate::CallStream;
use crate::server::SMALL_REPLY_BYTES;
use base::AbortCode;
use xdr::Encode;

/// Size of the pieces in which replies are sent, in bytes.
pub const PIECE_BYTES: usize = 32 * 1024;

/// Capacity for a piece including the value that completes it.
const PIECE_ROOM_BYTES: usize = PIECE_BYTES + 1024;

/// Maximum size of replies that are not accounted for; nearly all are smaller.
const UNACCOUNTED_BYTES: usize = 8 * 1024;

/// Sends a whole reply.
///
/// Packets refer to the buffer that they were cut from. A large reply is therefore sent in separate pieces;
/// otherwise the last unacknowledged packet would keep all of it in memory.
pub(crate) fn send_whole(stream: &mut dyn CallStream, reply: Vec<u8>) -> Result<(), AbortCode> {
    if reply.is_empty() {
        return Ok(());
    }
    if reply.len() <= SMALL_REPLY_BYTES {
        return send(stream, reply);
    }
    stream.hold(reply.len())?;
    reply.chunks(PIECE_BYTES).try_for_each(|piece| send(stream, piece.to_vec()))
}

fn send(stream: &mut dyn CallStream, piece: Vec<u8>) -> Result<(), AbortCode> {
    if piece.len() > UNACCOUNTED_BYTES { stream.write_held(piece) } else { stream.write(piece.into()) }
}

/// Sends a reply in pieces at the client's pace, so that a long list needs no more memory than a short one.
///
/// Each write waits for space in the call's send queue: hold no lock across it. Data that was sent cannot be
/// taken back; a later error aborts the call, and the client discards the reply.
pub struct ReplyWriter<'a> {
    stream: &'a mut dyn CallStream,
    buffer: Vec<u8>,
}

impl<'a> ReplyWriter<'a> {
    /// Creates a writer for `stream`, whose request has been read.
    pub fn new(stream: &'a mut dyn CallStream) -> ReplyWriter<'a> {
        ReplyWriter { stream, buffer: Vec::new() }
    }

    /// Writes one field, or the number of elements of a list before the elements.
    ///
    /// # Errors
    /// The abort code with which the call ended.
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) -> Result<(), AbortCode> {
        self.put_with(|out| value.encode(out))
    }

    /// Writes what `encode` appends, which should be much smaller than [`PIECE_BYTES`].
    ///
    /// # Errors
    /// The abort code with which the call ended.
    pub fn put_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), AbortCode> {
        encode(&mut self.buffer);
        if self.buffer.len() < PIECE_BYTES { Ok(()) } else { self.flush() }
    }

    /// Accounts for memory that is held until the end of the call; see [`CallStream::hold`].
    ///
    /// # Errors
    /// VBUSY if the caller's calls already hold too much.
    pub fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.stream.hold(bytes)
    }

    /// Sends the remaining data.
    ///
    /// # Errors
    /// The abort code with which the call ended.
    pub fn finish(mut self) -> Result<(), AbortCode> {
        self.flush()
    }

    fn flush(&mut self) -> Result<(), AbortCode> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let next =
            if self.buffer.len() < PIECE_BYTES { Vec::new() } else { Vec::with_capacity(PIECE_ROOM_BYTES) };
        send(self.stream, std::mem::replace(&mut self.buffer, next))
    }
}
