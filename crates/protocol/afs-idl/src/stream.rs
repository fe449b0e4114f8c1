//! The byte streams of calls.

use base::{AbortCode, Monotonic, RecvBuffer};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::net::SocketAddr;
use xdr::{Decode, Source, XdrError};

/// The two streams of one call: data from the peer, and data to the peer.
///
/// On a server the peer sends the request (opcode, arguments, data), on a client the reply. All methods block
/// if necessary. An error ends the call: its abort code is the peer's or that of a local failure, and every
/// later use of the call fails with it as well.
pub trait CallStream {
    /// Reads the available bytes, at least one. Returns 0 at the end of the peer's data.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode>;

    /// Reads up to `max` bytes, without copying where possible. Returns no bytes at the end of the peer's
    /// data.
    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode>;

    /// Fills and returns the first of these buffers; a buffer that is not full marks the end of the peer's
    /// data. The stream may take further buffers from the list and fill them with subsequent data. Until each
    /// of them has been returned, as the first buffer of a later call, data must not be read in any other
    /// way.
    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        let mut room = rooms.pop_front().unwrap_or_default();
        while room.left() > 0 {
            let piece = self.read_chunk(room.left())?;
            if piece.is_empty() {
                break;
            }
            room.put(&piece);
        }
        Ok(room)
    }

    /// Sends `data`, without copying where possible.
    fn write(&mut self, data: Bytes) -> Result<(), AbortCode>;

    /// Accounts for additional memory, in bytes, that a server holds until it has served the call. A stream
    /// without an account accepts any amount.
    ///
    /// # Errors
    /// VBUSY if the caller's calls already hold too much.
    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        let _ = bytes;
        Ok(())
    }

    /// Sends a piece of a large reply, and accounts for it until the client has acknowledged all of it.
    ///
    /// # Errors
    /// As for [`write`](CallStream::write); VBUSY for the first piece if the caller's calls already hold too
    /// much.
    fn write_held(&mut self, data: Vec<u8>) -> Result<(), AbortCode> {
        self.write(data.into())
    }
}

/// A connection on which calls can be made.
pub trait ClientConnection: Send + Sync {
    /// Starts a call; blocks while all channels of the connection are busy.
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode>;

    /// Returns the server's address.
    fn peer(&self) -> SocketAddr;
}

/// One call of a client. Write the request, call [`end_request`](ClientCall::end_request), read the reply,
/// and call [`finish`](ClientCall::finish). Dropping it before `finish` aborts the call.
pub trait ClientCall: CallStream + Send {
    /// Sends what was written so far, even if it does not fill a packet. Without this, a call whose client pauses may not have begun
    /// at the server.
    ///
    /// # Errors
    /// The code with which the call ended.
    fn flush(&mut self) -> Result<(), AbortCode> {
        Ok(())
    }

    /// Marks the request as complete; nothing may be written after it.
    fn end_request(&mut self) -> Result<(), AbortCode>;

    /// Returns when something has come from the server last, by the transport's clock; `None` if nothing has since the call began, or
    /// that is not known. A call that has failed still says so: its abort code does not, since codes of the server may also be those of a
    /// local failure.
    fn heard_at(&self) -> Option<Monotonic> {
        None
    }

    /// Ends the call; fails if the peer aborted it.
    fn finish(self: Box<Self>) -> Result<(), AbortCode>;
}

/// Maximum number of bytes requested from a stream at a time for decoding.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Step in which the bytes of a request are charged to the caller. Smaller requests are not accounted for.
const HELD_STEP_BYTES: usize = 64 * 1024;

/// Ratio of a growing list's memory to its size on the wire.
const DECODED_GROWTH: usize = 2;

/// A stream as a source for decoding. It reads ahead, and is itself a [`CallStream`] that first returns the
/// data read ahead, so data after a decoded value must be read through it.
pub struct StreamSource<'a> {
    ahead: Bytes,
    /// Number of bytes of a request decoded so far; `None` while no request is decoded.
    decoded: Option<usize>,
    stream: &'a mut dyn CallStream,
}

impl<'a> StreamSource<'a> {
    /// Creates a source that reads from `stream`.
    pub fn new(stream: &'a mut dyn CallStream) -> StreamSource<'a> {
        StreamSource { ahead: Bytes::new(), decoded: None, stream }
    }

    /// Creates a source that returns `ahead` before the data of `stream`.
    pub fn continuing(ahead: Bytes, stream: &'a mut dyn CallStream) -> StreamSource<'a> {
        StreamSource { ahead, decoded: None, stream }
    }

    /// Decodes a request's opcode or arguments. Large ones are charged to the caller while they arrive, like
    /// replies: many calls with long lists must not take more memory than one caller may have.
    ///
    /// # Errors
    /// VBUSY if the caller's calls already hold too much, RXGEN_SS_UNMARSHAL if the bytes are malformed,
    /// otherwise the code with which the call ended.
    pub fn decode_request<T: Decode>(&mut self) -> Result<T, AbortCode> {
        self.decoded = Some(0);
        let request = T::decode(self);
        self.decoded = None;
        request.map_err(|error| match error {
            XdrError::Source(code) => AbortCode(code),
            _ => AbortCode::RXGEN_SS_UNMARSHAL,
        })
    }

    /// Charges another `bytes` of a request to the caller.
    fn account(&mut self, bytes: usize) -> Result<(), AbortCode> {
        let Some(decoded) = &mut self.decoded else { return Ok(()) };
        let before = *decoded / HELD_STEP_BYTES;
        *decoded += bytes;
        match *decoded / HELD_STEP_BYTES - before {
            0 => Ok(()),
            steps => self.stream.hold(steps * HELD_STEP_BYTES * DECODED_GROWTH),
        }
    }

    /// Reads ahead if no data has been read ahead, unless the stream is at its end.
    fn fill(&mut self) -> Result<(), AbortCode> {
        if self.ahead.is_empty() {
            self.ahead = self.stream.read_chunk(CHUNK_BYTES_MAX)?;
        }
        Ok(())
    }
}

impl Source for StreamSource<'_> {
    fn read_exact(&mut self, mut buf: &mut [u8]) -> Result<(), XdrError> {
        self.account(buf.len()).map_err(|code| XdrError::Source(code.0))?;
        while !buf.is_empty() {
            match self.read(buf).map_err(|code| XdrError::Source(code.0))? {
                0 => return Err(XdrError::Ended),
                got => buf = &mut buf[got..],
            }
        }
        Ok(())
    }
}

impl CallStream for StreamSource<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.fill()?;
        let length = buf.len().min(self.ahead.len());
        self.ahead.copy_to_slice(&mut buf[..length]);
        Ok(length)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        if self.ahead.is_empty() {
            return self.stream.read_chunk(max);
        }
        Ok(self.ahead.split_to(max.min(self.ahead.len())))
    }

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        if !self.ahead.is_empty()
            && let Some(mut first) = rooms.pop_front()
        {
            let put = first.put(&self.ahead);
            self.ahead.advance(put);
            if first.left() == 0 {
                return Ok(first);
            }
            rooms.push_front(first);
        }
        self.stream.fill(rooms)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.stream.write(data)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.stream.hold(bytes)
    }

    fn write_held(&mut self, data: Vec<u8>) -> Result<(), AbortCode> {
        self.stream.write_held(data)
    }
}
