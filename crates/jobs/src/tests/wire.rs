//! Calls without a network: what goes wrong with each is thrown by the history's dice.

use super::history::{Cell, Dice, Killed};
use afs_idl::{CallStream, ClientCall, ClientConnection, MemoryStream, vl, vol};
use base::{AbortCode, Caller, Identity, SecurityLevel};
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// A way to a server; without an address to the location servers.
pub(super) struct Way {
    pub(super) cell: Arc<Cell>,
    pub(super) server: Option<Ipv4Addr>,
}

impl ClientConnection for Way {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        let (cell, server) = (self.cell.clone(), self.server);
        Ok(Box::new(Call { way: Way { cell, server }, request: Vec::new(), reply: MemoryStream::default() }))
    }

    fn peer(&self) -> SocketAddr {
        SocketAddr::from((self.server.unwrap_or(Ipv4Addr::LOCALHOST), 7005))
    }
}

struct Call {
    way: Way,
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

fn killed() -> ! {
    std::panic::resume_unwind(Box::new(Killed))
}

impl ClientCall for Call {
    fn end_request(&mut self) -> Result<(), AbortCode> {
        let Way { cell, server } = &self.way;
        cell.pass(1);
        let dice = cell.throw();
        match dice {
            Dice::Lost => return Err(AbortCode::RX_CALL_DEAD),
            Dice::KilledBefore => killed(),
            Dice::CrashBefore => cell.crash(*server),
            _ => {}
        }
        if server.is_some_and(|server| !cell.is_up(server)) {
            return Err(AbortCode::RX_CALL_DEAD);
        }
        let mut stream = MemoryStream::new(&self.request, 1444);
        let peer = self.way.peer();
        let (identity, level) = (Identity::Anonymous, SecurityLevel::Clear);
        let caller = Caller { identity, level, peer, local: peer.ip(), connection: 1 };
        let outcome = match server {
            Some(server) => vol::dispatch(&cell.server(*server), &caller, &mut stream),
            None => vl::dispatch(&cell.database(), &caller, &mut stream),
        };
        cell.check();
        match dice {
            Dice::AnswerLost => return Err(AbortCode::RX_CALL_TIMEOUT),
            Dice::KilledAfter => killed(),
            Dice::CrashAfter => {
                cell.crash(*server);
                return Err(AbortCode::RX_CALL_DEAD);
            }
            _ => {}
        }
        outcome?;
        self.reply = MemoryStream::new(&stream.outgoing, 1444);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), AbortCode> {
        Ok(())
    }
}
