//! Forward and ForwardMultiple: dumps that go straight to other volume servers.

use crate::codes::{E2BIG, ENOTCONN};
use crate::dumping::{self, Extract};
use crate::server::VolumeServer;
use afs_idl::ClientConnection;
use afs_idl::vol::{self, DestServer, ForwardMultipleRequest, ForwardRequest, Replica, RestoreCookie};
use base::{AbortCode, UnixTime};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::thread;
use tracing::info;
use volume::Volume;

/// Most destinations at a time: a volume has at most 13 sites.
const DESTINATIONS_MAX: usize = 13;

/// Connections to other volume servers, on which this one is an administrator.
pub trait OtherServers: Send + Sync {
    /// A connection to the volume service at this address.
    ///
    /// # Errors
    /// When this server cannot say who it is.
    fn connect(&self, server: SocketAddrV4) -> Result<Arc<dyn ClientConnection>, AbortCode>;
}

/// What is sent, and as what it is to be restored.
#[derive(Clone, Copy)]
struct Parcel<'a> {
    volume: &'a Arc<Volume>,
    from_date: u32,
    cookie: &'a RestoreCookie,
}

/// AFSVolForward.
pub(crate) fn forward(
    server: &VolumeServer,
    volume: &Arc<Volume>,
    request: &ForwardRequest,
) -> Result<(), AbortCode> {
    let parcel = Parcel { volume, from_date: request.from_date, cookie: &request.cookie };
    let replica = Replica { transaction: request.destination_transaction, server: request.destination };
    send(others(server)?, parcel, &replica)
}

/// AFSVolForwardMultiple: to all destinations at the same time. Returns a code for each.
pub(crate) fn forward_multiple(
    server: &VolumeServer,
    volume: &Arc<Volume>,
    request: &ForwardMultipleRequest,
) -> Result<Vec<i32>, AbortCode> {
    let others = others(server)?;
    if request.destinations.len() > DESTINATIONS_MAX {
        return Err(E2BIG);
    }
    let parcel = Parcel { volume, from_date: request.from_date, cookie: &request.cookie };
    let outcomes: Vec<Result<(), AbortCode>> = thread::scope(|scope| {
        let destinations = request.destinations.iter();
        let sending: Vec<_> =
            destinations.map(|replica| scope.spawn(move || send(others, parcel, replica))).collect();
        let wait = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        sending.into_iter().map(wait).collect()
    });
    Ok(outcomes.into_iter().map(|outcome| outcome.err().map_or(0, |code| code.0)).collect())
}

fn others(server: &VolumeServer) -> Result<&dyn OtherServers, AbortCode> {
    server.other_servers().ok_or(AbortCode::RXGEN_OPCODE)
}

fn send(others: &dyn OtherServers, parcel: Parcel<'_>, replica: &Replica) -> Result<(), AbortCode> {
    let Parcel { volume, from_date, cookie } = parcel;
    let address = address(&replica.server)?;
    let connection = others.connect(address)?;
    let request = vol::RestoreRequest {
        transaction: replica.transaction,
        flags: i32::from(from_date != 0),
        cookie: cookie.clone(),
    };
    let extract = Extract { since: UnixTime(from_date), all_directories: false };
    let sent = vol::restore(&*connection, &request, |stream| dumping::dump(volume, extract, stream));
    info!(volume = %volume.id(), to = %address, from_date, outcome = ?sent, "a volume is sent to another server");
    sent.map(drop)
}

fn address(server: &DestServer) -> Result<SocketAddrV4, AbortCode> {
    let port = u16::try_from(server.port).map_err(|_| ENOTCONN)?;
    Ok(SocketAddrV4::new(Ipv4Addr::from(server.host), port))
}
