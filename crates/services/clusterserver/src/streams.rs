//! The streams of a forwarded call at its owner, and of the reply of an owner that is not passed on as it is.

use afs_idl::CallStream;
use base::{AbortCode, RecvBuffer};
use bytes::Bytes;
use std::collections::VecDeque;

/// Collects the reply, to be sent once the call's changes are durable and the ownership was checked again. Replies
/// without data are at most some KiB.
pub(crate) struct Collecting<'a> {
    pub(crate) stream: &'a mut dyn CallStream,
    pub(crate) reply: Vec<u8>,
    /// Whether the request has ended with an error of the connection.
    pub(crate) is_cut_off: bool,
}

impl Collecting<'_> {
    fn note<T>(&mut self, read: Result<T, AbortCode>) -> Result<T, AbortCode> {
        self.is_cut_off |= read.is_err();
        read
    }
}

impl CallStream for Collecting<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let read = self.stream.read(buf);
        self.note(read)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        let read = self.stream.read_chunk(max);
        self.note(read)
    }

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        let read = self.stream.fill(rooms);
        self.note(read)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.reply.extend_from_slice(&data);
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.stream.hold(bytes)
    }
}

/// Sends a file's data, as long as the ownership lasts.
pub(crate) struct Checking<'a> {
    pub(crate) stream: &'a mut dyn CallStream,
    pub(crate) check: &'a dyn Fn() -> Result<(), AbortCode>,
}

impl CallStream for Checking<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.stream.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.stream.read_chunk(max)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        (self.check)()?;
        self.stream.write(data)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.stream.hold(bytes)
    }

    fn write_held(&mut self, data: Vec<u8>) -> Result<(), AbortCode> {
        (self.check)()?;
        self.stream.write_held(data)
    }
}

/// Collects the reply of another node, as long as it is not longer than replies to this call are. The request is not read from
/// here.
pub(crate) struct Gathering {
    pub(crate) reply: Vec<u8>,
    bytes_max: usize,
}

impl Gathering {
    pub(crate) fn new(bytes_max: usize) -> Gathering {
        Gathering { reply: Vec::new(), bytes_max }
    }
}

impl CallStream for Gathering {
    fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
        Ok(0)
    }

    fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
        Ok(Bytes::new())
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        if self.reply.len() + data.len() > self.bytes_max {
            return Err(AbortCode::RXGEN_CC_UNMARSHAL);
        }
        self.reply.extend_from_slice(&data);
        Ok(())
    }
}
