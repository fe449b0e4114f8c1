//! An in-memory network between volume servers, with fault injection.

use super::support::{Cell, admin};
use crate::OtherServers;
use afs_idl::{CallStream, ClientCall, ClientConnection, MemoryStream, cellar, vol};
use base::AbortCode;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

/// Port of a server that fails after this many bytes of a stream.
pub(super) const DYING: i32 = 2;
const DYING_BYTES: usize = 1 << 20;

/// Port of a server that accepts nothing before this many other streams have arrived.
pub(super) const SLOW: i32 = 3;
const BEFORE_SLOW: usize = 2;

/// Port of a server other than Cellar.
pub(super) const OTHERS: i32 = 4;

/// Port to which volumes may not be sent, and the resulting error.
pub(super) const FORBIDDEN: u16 = 5;
pub(super) const REFUSED: AbortCode = AbortCode(13);

/// Behaviour and counters of the network.
#[derive(Default)]
pub(super) struct Network {
    /// Whether the other server is a Cellar server.
    is_cellars: bool,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of bytes that arrive of each of the next streams, in reverse order.
    cuts: Vec<usize>,
    /// Called when a stream is cut, before the target notices.
    at_cut: Option<Box<dyn FnMut() + Send>>,
    /// Offset of a byte to corrupt in the next stream.
    damage: Option<usize>,
    /// Lengths of the streams that were sent completely.
    streams: Vec<usize>,
    /// Number of calls that requested digests.
    asked: usize,
    pauses: u32,
}

impl Network {
    /// Creates a network on which the other server accepts only dumps.
    pub(super) fn of_dumps() -> Network {
        Network::default()
    }

    pub(super) fn of_cellars() -> Network {
        Network { is_cellars: true, ..Network::default() }
    }

    /// Cuts the next streams, each after the given number of bytes.
    pub(super) fn cut(&self, after: &[usize]) {
        self.state.lock().cuts = after.iter().rev().copied().collect();
    }

    /// Sets a function to call whenever a stream is cut, before the target notices.
    pub(super) fn at_cut(&self, work: impl FnMut() + Send + 'static) {
        self.state.lock().at_cut = Some(Box::new(work));
    }

    pub(super) fn damage(&self, at: usize) {
        self.state.lock().damage = Some(at);
    }

    /// Returns the lengths of the streams since the last call.
    pub(super) fn streams(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.lock().streams)
    }

    pub(super) fn asked(&self) -> usize {
        std::mem::take(&mut self.state.lock().asked)
    }

    pub(super) fn pauses(&self) -> u32 {
        self.state.lock().pauses
    }
}

/// The other server, at any port except 1.
pub(super) struct Other {
    cell: Mutex<Arc<Cell>>,
    network: Arc<Network>,
}

impl Other {
    pub(super) fn new(cell: &Arc<Cell>, network: &Arc<Network>) -> Other {
        Other { cell: Mutex::new(Arc::clone(cell)), network: Arc::clone(network) }
    }

    /// Replaces the server after a restart.
    pub(super) fn replace(&self, cell: &Arc<Cell>) {
        *self.cell.lock() = Arc::clone(cell);
    }

    fn way(&self, server: SocketAddrV4, is_cellars: bool) -> Arc<dyn ClientConnection> {
        let (cell, network) = (Arc::clone(&self.cell.lock()), Arc::clone(&self.network));
        Arc::new(Way { cell, network, server, is_cellars })
    }
}

impl OtherServers for Other {
    fn check(&self, server: SocketAddrV4) -> Result<(), AbortCode> {
        if server.port() == FORBIDDEN { Err(REFUSED) } else { Ok(()) }
    }

    fn connect(&self, server: SocketAddrV4) -> Result<Arc<dyn ClientConnection>, AbortCode> {
        if server.port() == 1 { Err(AbortCode::RX_CALL_DEAD) } else { Ok(self.way(server, false)) }
    }

    fn connect_cellar(&self, server: SocketAddrV4) -> Option<Arc<dyn ClientConnection>> {
        Some(self.way(server, true))
    }

    fn pause(&self, _: Duration) {
        self.network.state.lock().pauses += 1;
    }
}

struct Way {
    cell: Arc<Cell>,
    network: Arc<Network>,
    server: SocketAddrV4,
    is_cellars: bool,
}

impl ClientConnection for Way {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        let (cell, network) = (Arc::clone(&self.cell), Arc::clone(&self.network));
        let (request, reply, outcome) = (Vec::new(), MemoryStream::default(), Ok(()));
        let port = i32::from(self.server.port());
        Ok(Box::new(Call { cell, network, port, is_cellars: self.is_cellars, request, reply, outcome }))
    }

    fn peer(&self) -> SocketAddr {
        self.server.into()
    }
}

/// A call that the other server processes when the request is complete.
struct Call {
    cell: Arc<Cell>,
    network: Arc<Network>,
    port: i32,
    is_cellars: bool,
    request: Vec<u8>,
    reply: MemoryStream,
    outcome: Result<(), AbortCode>,
}

impl CallStream for Call {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.outcome.and_then(|()| self.reply.read(buf))
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.outcome.and_then(|()| self.reply.read_chunk(max))
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        let is_stream = !self.request.is_empty();
        self.request.extend_from_slice(&data);
        if self.port == DYING && self.request.len() > DYING_BYTES {
            return Err(AbortCode::RX_CALL_DEAD);
        }
        if self.port == SLOW && is_stream {
            let mut state = self.network.state.lock();
            self.network.arrived.wait_while(&mut state, |state| state.streams.len() < BEFORE_SLOW);
        }
        Ok(())
    }
}

/// A stream of which only some bytes arrive.
struct Arriving<'a> {
    stream: MemoryStream,
    left: usize,
    network: &'a Network,
}

impl Arriving<'_> {
    fn cut_off<T>(&self) -> Result<T, AbortCode> {
        if let Some(at_cut) = &mut self.network.state.lock().at_cut {
            at_cut();
        }
        Err(AbortCode::RX_CALL_DEAD)
    }
}

impl CallStream for Arriving<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let most = buf.len().min(self.left);
        if most == 0 && !buf.is_empty() {
            return self.cut_off();
        }
        let got = self.stream.read(&mut buf[..most])?;
        self.left -= got;
        Ok(got)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        if self.left == 0 {
            return self.cut_off();
        }
        let piece = self.stream.read_chunk(max.min(self.left))?;
        self.left -= piece.len();
        Ok(piece)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.stream.write(data)
    }
}

impl Call {
    fn opcode(&self) -> u32 {
        self.request.get(..4).map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()))
    }

    fn serve(&mut self) -> Result<(), AbortCode> {
        let is_transfer = self.is_cellars && self.opcode() == cellar::TAKE_VOLUME;
        let mut left = usize::MAX;
        if is_transfer || self.opcode() == vol::RESTORE {
            let mut state = self.network.state.lock();
            left = state.cuts.pop().unwrap_or(left);
            if let Some(at) = state.damage.take() {
                let length = self.request.len();
                self.request[at % length] ^= 1;
            }
            if left >= self.request.len() {
                left = usize::MAX;
                state.streams.push(self.request.len());
                self.network.arrived.notify_all();
            }
        }
        let network = Arc::clone(&self.network);
        let mut stream = Arriving { stream: MemoryStream::new(&self.request, 1444), left, network: &network };
        match self.is_cellars {
            true if !self.network.is_cellars || self.port == OTHERS => {
                return Err(AbortCode::RX_INVALID_OPERATION);
            }
            true => cellar::dispatch(&self.cell.server, &admin(), &mut stream)?,
            false => vol::dispatch(&self.cell.server, &admin(), &mut stream)?,
        }
        self.network.state.lock().asked += usize::from(self.opcode() == cellar::GET_CHUNK_DIGESTS);
        self.reply = MemoryStream::new(&stream.stream.outgoing, 1444);
        Ok(())
    }
}

impl ClientCall for Call {
    fn end_request(&mut self) -> Result<(), AbortCode> {
        self.outcome = self.serve();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), AbortCode> {
        self.outcome
    }
}
