//! The streams of calls, for code that blocks.

use crate::hub::Hub;
use crate::tasks::{self, Wait};
use afs_idl::{CallStream, ClientCall, ClientConnection};
use base::AbortCode;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The request of an incoming call, as far as it has arrived.
#[derive(Debug, Default)]
pub(crate) struct Incoming(Mutex<Arrived>);

#[derive(Debug, Default)]
struct Arrived {
    pieces: VecDeque<Bytes>,
    /// The first bytes: opcode and arguments.
    head: Vec<u8>,
    is_whole: bool,
    failure: Option<AbortCode>,
}

/// Maximum number of bytes of a request that are kept for the record.
const HEAD_BYTES: usize = 400;

impl Incoming {
    /// Adds data.
    pub(crate) fn put(&self, piece: Bytes) {
        let mut arrived = self.0.lock();
        let missing = HEAD_BYTES.saturating_sub(arrived.head.len()).min(piece.len());
        arrived.head.extend_from_slice(&piece[..missing]);
        arrived.pieces.push_back(piece);
    }

    /// Marks the request as whole.
    pub(crate) fn end(&self) {
        self.0.lock().is_whole = true;
    }

    /// Ends the call with an error, which unread data do not delay.
    pub(crate) fn fail(&self, code: AbortCode) {
        self.0.lock().failure = Some(code);
    }

    /// Whether a reader need not wait.
    pub(crate) fn is_readable(&self) -> bool {
        let arrived = self.0.lock();
        !arrived.pieces.is_empty() || arrived.is_whole || arrived.failure.is_some()
    }

    /// Returns the request, if it has arrived.
    pub(crate) fn whole(&self) -> Option<Vec<u8>> {
        let arrived = self.0.lock();
        (arrived.is_whole && arrived.failure.is_none())
            .then(|| arrived.pieces.iter().flat_map(|piece| piece.iter().copied()).collect())
    }

    /// Returns the first bytes of the request.
    pub(crate) fn head(&self) -> Vec<u8> {
        self.0.lock().head.clone()
    }

    /// Returns up to `max` bytes; none at the end, and `None` if nothing is there yet.
    fn take(&self, max: usize) -> Result<Option<Bytes>, AbortCode> {
        let mut arrived = self.0.lock();
        if let Some(code) = arrived.failure {
            return Err(code);
        }
        let Some(front) = arrived.pieces.front_mut() else {
            return Ok(arrived.is_whole.then(Bytes::new));
        };
        let piece = front.split_to(max.min(front.len()));
        if front.is_empty() {
            arrived.pieces.pop_front();
        }
        Ok(Some(piece))
    }
}

/// An incoming call. Its reply leaves when the call has been served.
pub(crate) struct ServedCall {
    incoming: Arc<Incoming>,
    /// The reply.
    pub(crate) reply: Vec<u8>,
}

impl ServedCall {
    pub(crate) fn new(incoming: Arc<Incoming>) -> ServedCall {
        ServedCall { incoming, reply: Vec::new() }
    }
}

impl CallStream for ServedCall {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        loop {
            if let Some(piece) = self.incoming.take(max)? {
                return Ok(piece);
            }
            tasks::wait(Wait::Data(Arc::clone(&self.incoming))).map_err(|_| AbortCode::RX_CALL_DEAD)?;
        }
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.reply.extend_from_slice(&data);
        Ok(())
    }
}

/// Connections of one host to a service on another one.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) hub: Arc<Hub>,
    /// The calling host.
    pub(crate) from: usize,
    /// The called host.
    pub(crate) to: SocketAddr,
    /// The service.
    pub(crate) service: u16,
    /// Time of silence after which calls fail; `None` is the endpoint's.
    pub(crate) patience: Option<Duration>,
    /// A fault planted in the caller.
    pub(crate) loss: Option<Loss>,
}

/// A planted fault: calls of a procedure succeed for the caller, but are not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) opcode: u32,
    /// Whether they are made, but not awaited.
    pub(crate) is_late: bool,
}

impl ClientConnection for Line {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        let call = OutgoingCall { line: self.clone(), request: Vec::new(), number: None, reply: None };
        Ok(Box::new(call))
    }

    fn peer(&self) -> SocketAddr {
        self.to
    }
}

struct OutgoingCall {
    line: Line,
    request: Vec<u8>,
    /// Its number in the hub, once the request is complete.
    number: Option<u64>,
    reply: Option<Result<Bytes, AbortCode>>,
}

impl OutgoingCall {
    fn reply(&mut self) -> Result<&mut Bytes, AbortCode> {
        let number = self.number.ok_or(AbortCode::RX_PROTOCOL_ERROR)?;
        while self.reply.is_none() {
            self.reply = self.line.hub.result(number);
            if self.reply.is_none() {
                tasks::wait(Wait::Call(number)).map_err(|_| AbortCode::RX_CALL_DEAD)?;
            }
        }
        let reply = self.reply.as_mut().ok_or(AbortCode::RX_CALL_DEAD)?;
        reply.as_mut().map_err(|code| *code)
    }
}

impl CallStream for OutgoingCall {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        let reply = self.reply()?;
        Ok(reply.split_to(max.min(reply.len())))
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.request.extend_from_slice(&data);
        Ok(())
    }
}

impl ClientCall for OutgoingCall {
    fn end_request(&mut self) -> Result<(), AbortCode> {
        let opcode = self.request.first_chunk().map(|word| u32::from_be_bytes(*word));
        let loss = self.line.loss.filter(|loss| Some(loss.opcode) == opcode);
        if loss.is_none_or(|loss| loss.is_late) {
            let request = std::mem::take(&mut self.request);
            self.number = Some(self.line.hub.call(&self.line, request.into()));
        }
        if loss.is_some() {
            (self.number, self.reply) = (Some(0), Some(Ok(Bytes::new())));
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), AbortCode> {
        self.reply().map(drop)
    }
}
