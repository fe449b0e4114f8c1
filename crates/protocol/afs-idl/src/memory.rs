//! Calls in memory, for tests and for calls within the process.

use crate::{CallStream, ClientCall, ClientConnection, ReplyWriter};
use base::AbortCode;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// The two streams of a call, in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStream {
    /// Unread data.
    pub incoming: VecDeque<Bytes>,
    /// Written data.
    pub outgoing: Vec<u8>,
}

impl MemoryStream {
    /// Creates a stream whose peer has sent these bytes, in pieces of `piece_bytes`.
    pub fn new(incoming: &[u8], piece_bytes: usize) -> MemoryStream {
        let incoming = incoming.chunks(piece_bytes.max(1)).map(Bytes::copy_from_slice).collect();
        MemoryStream { incoming, outgoing: Vec::new() }
    }
}

impl CallStream for MemoryStream {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        let Some(front) = self.incoming.front_mut() else { return Ok(Bytes::new()) };
        let piece = front.split_to(max.min(front.len()));
        if front.is_empty() {
            self.incoming.pop_front();
        }
        Ok(piece)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.outgoing.extend_from_slice(&data);
        Ok(())
    }
}

/// Returns the reply that `procedure` writes in pieces.
///
/// # Errors
/// Errors of `procedure`; RXGEN_CC_UNMARSHAL if it wrote something other than a `Reply`.
pub fn collect<Reply: xdr::Decode>(
    procedure: impl FnOnce(&mut ReplyWriter<'_>) -> Result<(), AbortCode>,
) -> Result<Reply, AbortCode> {
    let mut stream = MemoryStream::default();
    let mut writer = ReplyWriter::new(&mut stream);
    procedure(&mut writer)?;
    writer.finish()?;
    xdr::from_slice(&stream.outgoing).map_err(|_| AbortCode::RXGEN_CC_UNMARSHAL)
}

/// Serves one call: reads the request from the stream and writes the reply to it.
type Serve = dyn Fn(&mut MemoryStream) -> Result<(), AbortCode> + Send + Sync;

/// A connection to a service in memory. The calling thread serves a call as soon as its request is complete.
/// An abort is reported when the reply is read or the call finished, as over a network.
#[derive(Clone)]
pub struct MemoryConnection {
    peer: SocketAddr,
    piece_bytes: usize,
    serve: Arc<Serve>,
}

impl MemoryConnection {
    /// Creates a connection to a server with the address `peer`; `serve` serves its calls. Data arrives in
    /// pieces of `piece_bytes`.
    pub fn new(
        peer: SocketAddr,
        piece_bytes: usize,
        serve: impl Fn(&mut MemoryStream) -> Result<(), AbortCode> + Send + Sync + 'static,
    ) -> MemoryConnection {
        MemoryConnection { peer, piece_bytes, serve: Arc::new(serve) }
    }
}

impl ClientConnection for MemoryConnection {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        Ok(Box::new(MemoryCall { connection: self.clone(), request: Vec::new(), reply: None }))
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

struct MemoryCall {
    connection: MemoryConnection,
    request: Vec<u8>,
    /// `None` until the request is complete.
    reply: Option<Result<MemoryStream, AbortCode>>,
}

impl MemoryCall {
    fn reply(&mut self) -> Result<&mut MemoryStream, AbortCode> {
        let reply = self.reply.as_mut().ok_or(AbortCode::RX_PROTOCOL_ERROR)?;
        reply.as_mut().map_err(|code| *code)
    }
}

impl CallStream for MemoryCall {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.reply()?.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.reply()?.read_chunk(max)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        if self.reply.is_some() {
            return Err(AbortCode::RX_PROTOCOL_ERROR);
        }
        self.request.extend_from_slice(&data);
        Ok(())
    }
}

impl ClientCall for MemoryCall {
    fn end_request(&mut self) -> Result<(), AbortCode> {
        let MemoryConnection { piece_bytes, serve, .. } = &self.connection;
        let mut stream = MemoryStream::new(&self.request, *piece_bytes);
        let served = serve(&mut stream);
        self.reply = Some(served.map(|()| MemoryStream::new(&stream.outgoing, *piece_bytes)));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), AbortCode> {
        self.reply.ok_or(AbortCode::RX_PROTOCOL_ERROR)?.map(drop)
    }
}
