//! Calls without a network. The history's dice decide how each call fails.

use super::history::{Cell, Dice, Killed};
use afs_idl::{MemoryConnection, MemoryStream, vl, vol};
use base::{AbortCode, CallContext, Caller, Identity, SecurityLevel};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The server of a call.
#[derive(Clone, Copy)]
pub(super) enum Recipient {
    /// The volume server at an address.
    Volumes(Ipv4Addr),
    /// Any location server.
    Locations,
    /// The location server that accepts changes.
    NewestLocations,
}

impl Recipient {
    /// Returns the address, if it is a volume server.
    fn volume_server(self) -> Option<Ipv4Addr> {
        match self {
            Recipient::Volumes(server) => Some(server),
            Recipient::Locations | Recipient::NewestLocations => None,
        }
    }
}

/// Returns a connection to a server.
pub(super) fn connect(cell: Arc<Cell>, recipient: Recipient) -> MemoryConnection {
    let peer = SocketAddr::from((recipient.volume_server().unwrap_or(Ipv4Addr::LOCALHOST), 7005));
    MemoryConnection::new(peer, 1444, move |stream| serve(&cell, recipient, peer, stream))
}

fn killed() -> ! {
    std::panic::resume_unwind(Box::new(Killed))
}

fn serve(
    cell: &Arc<Cell>,
    recipient: Recipient,
    peer: SocketAddr,
    stream: &mut MemoryStream,
) -> Result<(), AbortCode> {
    let server = recipient.volume_server();
    cell.pass(1);
    let dice = cell.throw();
    match dice {
        Dice::Lost => return Err(AbortCode::RX_CALL_DEAD),
        Dice::KilledBefore => killed(),
        Dice::CrashBefore => cell.crash(server),
        _ => {}
    }
    if server.is_some_and(|server| !cell.is_up(server)) {
        return Err(AbortCode::RX_CALL_DEAD);
    }
    let (identity, level) = (Identity::Anonymous, SecurityLevel::Clear);
    let caller = Caller { identity, level, peer, local: peer.ip(), connection: base::Connection::new() };
    let answer = |stream: &mut MemoryStream| match recipient {
        Recipient::Volumes(server) => vol::dispatch(&cell.server(server), &CallContext::new(&caller), stream),
        Recipient::Locations => vl::dispatch(&cell.database(false), &CallContext::new(&caller), stream),
        Recipient::NewestLocations => vl::dispatch(&cell.database(true), &CallContext::new(&caller), stream),
    };
    if matches!(dice, Dice::Twice) {
        // The first reply is lost.
        let _ = answer(&mut stream.clone());
        cell.check();
        cell.restart(server);
    }
    let outcome = answer(stream);
    cell.check();
    match dice {
        Dice::AnswerLost => Err(AbortCode::RX_CALL_TIMEOUT),
        Dice::KilledAfter => killed(),
        Dice::CrashAfter => {
            cell.crash(server);
            Err(AbortCode::RX_CALL_DEAD)
        }
        _ => outcome,
    }
}
