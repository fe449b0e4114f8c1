//! Calls without a network: what goes wrong with each is thrown by the history's dice.

use super::history::{Cell, Dice, Killed};
use afs_idl::{MemoryConnection, MemoryStream, vl, vol};
use base::{AbortCode, Caller, Identity, SecurityLevel};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// A way to a server; without an address to the location servers.
pub(super) fn way(cell: Arc<Cell>, server: Option<Ipv4Addr>) -> MemoryConnection {
    let peer = SocketAddr::from((server.unwrap_or(Ipv4Addr::LOCALHOST), 7005));
    MemoryConnection::new(peer, 1444, move |stream| serve(&cell, server, peer, stream))
}

fn killed() -> ! {
    std::panic::resume_unwind(Box::new(Killed))
}

fn serve(
    cell: &Arc<Cell>,
    server: Option<Ipv4Addr>,
    peer: SocketAddr,
    stream: &mut MemoryStream,
) -> Result<(), AbortCode> {
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
    let caller = Caller { identity, level, peer, local: peer.ip(), connection: 1 };
    let outcome = match server {
        Some(server) => vol::dispatch(&cell.server(server), &caller, stream),
        None => vl::dispatch(&cell.database(), &caller, stream),
    };
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
