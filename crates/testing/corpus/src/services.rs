//! Whole services on stores in memory. An input is a history of calls; the first byte of a piece selects the
//! caller, and the rest is the request.

mod client;
mod cluster_service;
mod file_service;
mod overseer;
mod volume_service;

pub use cluster_service::{Event, Peer, SECRET, cluster_outcomes, serve_cluster};
pub use file_service::{ROOT, serve_fs};
pub use overseer::serve_bozo;
pub use volume_service::{restored_dump, serve_vol};

use crate::frames::frames;
use crate::idl::anonymous;
use crate::records::NOW;
use afs_idl::{CallStream, MemoryStream};
use base::{AbortCode, CallContext, Caller, Connection, Identity, LocalAuthority, Principal, SecurityLevel};
use bytes::Bytes;
use ptdb::{Actor, Kind, NewEntry, Policy, Protection};
use ptserver::PtService;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use store::MemoryMeta;
use vldb::Locations;
use vlserver::{Settings, VlService};

/// Maximum number of calls in a history.
const CALLS_MAX: usize = 64;
/// Number of bytes after which a client aborts the call.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The callers: anonymous, the superuser `admin`, or the user `alice`.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Who {
    /// An anonymous caller.
    Anonymous = 0,
    /// A superuser.
    Admin = 1,
    /// A registered user.
    Alice = 2,
}

/// A connection for each value of a piece's first byte, the same for all calls.
static CONNECTIONS: [OnceLock<Connection>; 256] = [const { OnceLock::new() }; 256];

fn connection(byte: u8) -> Connection {
    CONNECTIONS[usize::from(byte)].get_or_init(Connection::new).clone()
}

/// Returns the caller selected by a piece's first byte; bit 4 selects another workstation.
fn caller(byte: u8) -> Caller {
    let host = 1 + (byte >> 4 & 1);
    let peer = SocketAddr::from(([10, 0, 0, host], 7001));
    let name = match byte & 3 {
        1 => "admin",
        2 => "alice",
        _ => return Caller { peer, connection: connection(byte & 0x10), ..anonymous() },
    };
    let principal = Principal { name: name.to_owned(), instance: String::new(), realm: String::new() };
    let identity = Identity::Known(principal);
    let connection = connection(byte & 0x13);
    Caller { identity, level: SecurityLevel::Encrypted, peer, connection, ..anonymous() }
}

/// Makes `admin` a superuser.
pub(crate) struct Authority;

impl LocalAuthority for Authority {
    fn is_superuser(&self, caller: &Caller) -> bool {
        matches!(&caller.identity, Identity::Known(principal) if principal.name == "admin")
    }

    fn is_local_realm(&self, _: &Principal) -> bool {
        true
    }
}

/// A client that has sent its request and takes a reply of limited length.
struct Patience(MemoryStream);

impl Patience {
    fn new(request: &[u8]) -> Patience {
        Patience(MemoryStream::new(request, 1444))
    }
}

impl CallStream for Patience {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.0.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.0.read_chunk(max)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        assert!(!data.is_empty(), "an empty write");
        let is_too_long = self.0.outgoing.len() + data.len() > REPLY_BYTES_MAX;
        if is_too_long { Err(AbortCode::RX_CALL_DEAD) } else { self.0.write(data) }
    }
}

fn history(
    data: &[u8],
    mut call: impl FnMut(&CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode>,
) {
    for frame in frames(data).take(CALLS_MAX) {
        let Some((who, request)) = frame.split_first() else { continue };
        let outcome = call(&CallContext::new(&caller(*who)), &mut Patience::new(request));
        assert_ne!(outcome, Err(AbortCode(0)), "an abort with the code of success");
    }
}

/// Creates a protection database with the user `alice` and a group that she owns.
pub fn protection(meta: Arc<MemoryMeta>) -> Arc<Protection> {
    let protection = Protection::open(meta, Policy::default(), NOW);
    let protection = protection.expect("an empty store");
    let new = |name: &str, kind, owner, id| NewEntry {
        name: name.as_bytes().to_vec(),
        kind,
        owner: base::UserId(owner),
        id: Some(base::UserId(id)),
    };
    for new in [
        new("admin", Kind::User, 0, 1),
        new("alice", Kind::User, 0, 100),
        new("alice:friends", Kind::Group, 100, -300),
    ] {
        protection.create(&Actor::cell(), &new, NOW).expect("no entry has this name or id");
    }
    Arc::new(protection)
}

/// Exercises the protection service.
pub fn serve_pr(data: &[u8]) {
    let service = PtService::new(protection(Arc::default()), Arc::new(Authority), Arc::new(|| NOW));
    history(data, |caller, stream| afs_idl::pr::dispatch(&service, caller, stream));
}

/// Exercises the volume location service.
pub fn serve_vl(data: &[u8]) {
    let locations = Locations::open(Arc::new(MemoryMeta::new())).expect("an empty store");
    let service =
        VlService::new(Arc::new(locations), Arc::new(Authority), Settings::default(), Arc::new(|| NOW));
    history(data, |caller, stream| afs_idl::vl::dispatch(&service, caller, stream));
}
