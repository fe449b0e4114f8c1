//! Messages of the services. Each piece of the input is used as a request as received by a server (opcode and
//! arguments), and also as a reply of every kind.

use crate::frames::frames;
use crate::replies;
use afs_idl::{CallStream, MemoryStream};
use base::{AbortCode, CallContext, Caller, Identity, SecurityLevel};
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use xdr::{Decode, Encode, SliceSource};

/// Decodes bytes as one kind of message.
pub(crate) type Check = fn(&[u8]);

/// Decodes a message and checks that encoding and decoding it again yields the same.
pub(crate) fn check<T: Encode + Decode + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(value) = T::decode(&mut SliceSource::new(bytes)) {
        assert_eq!(xdr::from_slice::<T>(&xdr::to_vec(&value)).as_ref(), Ok(&value));
    }
}

/// A server that decodes every request and then answers that the procedure does not exist.
struct Nothing;

impl afs_idl::bozo::Server for Nothing {}
impl afs_idl::cb::Server for Nothing {}
impl afs_idl::cellar::Server for Nothing {}
impl afs_idl::cluster::Server for Nothing {}
impl afs_idl::fs::Server for Nothing {}
impl afs_idl::pr::Server for Nothing {}
impl afs_idl::rxstats::Server for Nothing {}
impl afs_idl::vl::Server for Nothing {}
impl afs_idl::vol::Server for Nothing {}

/// Returns an anonymous caller.
pub(crate) fn anonymous() -> Caller {
    Caller {
        identity: Identity::Anonymous,
        level: SecurityLevel::Clear,
        peer: SocketAddr::from(([10, 0, 0, 1], 7001)),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

type Dispatch = fn(&Nothing, &CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode>;

/// Lengths of the pieces in which requests arrive.
const PIECE_BYTES: [usize; 2] = [3, 1444];

fn messages(data: &[u8], dispatch: Dispatch, replies: &[Check]) {
    for frame in frames(data) {
        let caller = anonymous();
        let call = CallContext::new(&caller);
        let outcomes =
            PIECE_BYTES.map(|piece| dispatch(&Nothing, &call, &mut MemoryStream::new(frame, piece)));
        assert_eq!(outcomes[0], outcomes[1], "the outcome depends on the sizes of the pieces");
        for check in replies {
            check(frame);
        }
    }
}

/// Returns the number of replies checked for each service.
pub fn replies_checked() -> [(&'static str, usize); 9] {
    [
        ("bozo", replies::BOZO.len()),
        ("cb", replies::CB.len()),
        ("cellar", replies::CELLAR.len()),
        ("cluster", replies::CLUSTER.len()),
        ("fs", replies::FS.len()),
        ("pr", replies::PR.len()),
        ("rxstats", replies::RXSTATS.len()),
        ("vl", replies::VL.len()),
        ("vol", replies::VOL.len()),
    ]
}

/// Exercises the overseer's service.
pub fn bozo(data: &[u8]) {
    messages(data, afs_idl::bozo::dispatch, replies::BOZO);
}

/// Exercises the callback service.
pub fn cb(data: &[u8]) {
    messages(data, afs_idl::cb::dispatch, replies::CB);
}

/// Exercises Cellar's own service.
pub fn cellar(data: &[u8]) {
    messages(data, afs_idl::cellar::dispatch, replies::CELLAR);
}

/// Exercises the service between the nodes of a cluster.
pub fn cluster(data: &[u8]) {
    messages(data, afs_idl::cluster::dispatch, replies::CLUSTER);
}

/// Exercises the file service.
pub fn fs(data: &[u8]) {
    messages(data, afs_idl::fs::dispatch, replies::FS);
}

/// Exercises the protection service.
pub fn pr(data: &[u8]) {
    messages(data, afs_idl::pr::dispatch, replies::PR);
}

/// Exercises the statistics service.
pub fn rxstats(data: &[u8]) {
    messages(data, afs_idl::rxstats::dispatch, replies::RXSTATS);
}

/// Exercises the volume location service.
pub fn vl(data: &[u8]) {
    messages(data, afs_idl::vl::dispatch, replies::VL);
}

/// Exercises the volume service.
pub fn vol(data: &[u8]) {
    messages(data, afs_idl::vol::dispatch, replies::VOL);
}
