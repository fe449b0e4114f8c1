//! The byte streams that calls are made of.

use base::{AbortCode, Room};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::net::SocketAddr;
use xdr::{Decode, Source, XdrError};

/// The two streams of one call: what the peer sends, and what we send.
///
/// On a server the peer's stream is the request (opcode, arguments, data), on a client the reply.
/// All methods wait when they must. An error is the call's end: its abort code is the peer's or
/// what went wrong here, and every later use of the call fails with it as well.
pub trait CallStream {
    /// Reads some bytes: as many as are here, at least one. 0 means that the peer has sent all.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode>;

    /// Reads some bytes, at most `max`, without copying where possible. None means that the peer
    /// has sent all.
    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode>;

    /// Fills the first of these rooms and gives it; one that is not full says that the peer has sent all. What comes
    /// behind it may be put into the others meanwhile: those that are taken from the list belong to the stream, and until they have
    /// come back, each as the first of a later call, nothing is read in another way.
    fn fill(&mut self, rooms: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
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

    /// Accounts for this many more bytes of memory that a server holds until it has served the call. A stream without an
    /// account accepts everything.
    ///
    /// # Errors
    /// VBUSY if the caller's calls hold too much already.
    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        let _ = bytes;
        Ok(())
    }

    /// Sends a piece of a large reply, and accounts for it until the client has acknowledged all of it.
    ///
    /// # Errors
    /// As [`write`](CallStream::write); VBUSY for the first piece if the caller's calls hold too much already.
    fn write_held(&mut self, data: Vec<u8>) -> Result<(), AbortCode> {
        self.write(data.into())
    }
}

/// A connection on which calls can be made.
pub trait ClientConnection: Send + Sync {
    /// Begins a call; waits while all the connection's channels are busy.
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode>;

    /// The server's address.
    fn peer(&self) -> SocketAddr;
}

/// One call of a client. Order: write the request, [`end_request`](ClientCall::end_request), read
/// the reply, [`finish`](ClientCall::finish). Dropped before `finish`, the call is aborted.
pub trait ClientCall: CallStream + Send {
    /// Says that the request is complete; nothing may be written after it.
    fn end_request(&mut self) -> Result<(), AbortCode>;

    /// Ends the call, and says how it ended: an error if the peer aborted it.
    fn finish(self: Box<Self>) -> Result<(), AbortCode>;
}

/// Largest piece that decoding asks a stream for, in bytes.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a request after which a caller is charged for them. Smaller ones are not accounted for.
const HELD_STEP_BYTES: usize = 64 * 1024;

/// Memory that a list takes while it grows, in parts of its bytes on the wire.
const DECODED_GROWTH: usize = 2;

/// A stream as a source for decoding. Reads ahead, and is itself a [`CallStream`] that gives out
/// what was read ahead first: who goes on reading behind a decoded value must do it through this.
pub struct StreamSource<'a> {
    ahead: Bytes,
    /// Bytes decoded of a request's arguments; None elsewhere.
    decoded: Option<usize>,
    stream: &'a mut dyn CallStream,
}

impl<'a> StreamSource<'a> {
    /// Reads from `stream`.
    pub fn new(stream: &'a mut dyn CallStream) -> StreamSource<'a> {
        StreamSource { ahead: Bytes::new(), decoded: None, stream }
    }

    /// Decodes a request's opcode or arguments. Large ones count against the caller while they arrive, like replies: many
    /// calls that each bring a long list must not take more memory than one caller may have.
    ///
    /// # Errors
    /// VBUSY if the caller's calls hold too much already, RXGEN_SS_UNMARSHAL if the bytes are malformed, else the code
    /// that the call ended with.
    pub fn decode_request<T: Decode>(&mut self) -> Result<T, AbortCode> {
        self.decoded = Some(0);
        let request = T::decode(self);
        self.decoded = None;
        request.map_err(|error| match error {
            XdrError::Source(code) => AbortCode(code),
            _ => AbortCode::RXGEN_SS_UNMARSHAL,
        })
    }

    /// Charges the caller for `bytes` more of a request.
    fn account(&mut self, bytes: usize) -> Result<(), AbortCode> {
        let Some(decoded) = &mut self.decoded else { return Ok(()) };
        let before = *decoded / HELD_STEP_BYTES;
        *decoded += bytes;
        match *decoded / HELD_STEP_BYTES - before {
            0 => Ok(()),
            steps => self.stream.hold(steps * HELD_STEP_BYTES * DECODED_GROWTH),
        }
    }

    /// Makes sure that something has been read ahead, unless the stream is at its end.
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

    fn fill(&mut self, rooms: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
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
