//! The callback service of the file service's clients: they agree to everything.

use afs_idl::{CallStream, ClientCall, ClientConnection, Forgetful, MemoryStream, cb};
use base::{AbortCode, HostUuid};
use bytes::Bytes;
use fileserver::CallbackNetwork;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// All clients.
pub(super) struct Network;

impl CallbackNetwork for Network {
    fn connection(&self, peer: SocketAddr, _patience: Duration) -> Arc<dyn ClientConnection> {
        Arc::new(Connection(peer))
    }
}

struct Connection(SocketAddr);

impl ClientConnection for Connection {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        Ok(Box::new(Call { peer: self.0, request: Vec::new(), reply: MemoryStream::default() }))
    }

    fn peer(&self) -> SocketAddr {
        self.0
    }
}

struct Call {
    peer: SocketAddr,
    request: Vec<u8>,
    reply: MemoryStream,
}

impl CallStream for Call {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.reply.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.reply.read_chunk(max)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.request.extend_from_slice(&data);
        Ok(())
    }
}

impl ClientCall for Call {
    fn end_request(&mut self) -> Result<(), AbortCode> {
        let IpAddr::V4(address) = self.peer.ip() else { return Err(AbortCode::RX_CALL_DEAD) };
        let client = Forgetful {
            uuid: HostUuid([address.octets()[3]; 16]),
            addresses: vec![[192, 168, 7, 7].into()],
            capabilities: vec![1],
        };
        let mut stream = MemoryStream::new(&self.request, 1444);
        cb::dispatch(&client, &crate::idl::anonymous(), &mut stream)?;
        self.reply = MemoryStream::new(&stream.outgoing, 1444);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), AbortCode> {
        Ok(())
    }
}
