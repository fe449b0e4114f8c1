//! What a member asks of its shell, and what the shell reports.

use crate::names::{Epoch, Incarnation, NodeName, PartitionName, Tag};
use crate::phase::Phase;
use crate::takeover::Takeover;
use base::HostUuid;
use std::net::SocketAddr;

/// Number of a request, unique within a [`Member`](crate::Member).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request to the bucket. It is sent at once; how long it may take is
/// [`Timing::request_limit`](crate::Timing::request_limit).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub id: RequestId,
    /// The object's name.
    pub object: String,
    /// What to do.
    pub operation: Operation,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read it.
    Read,
    /// Create it, if there is none (`If-None-Match: *`).
    Create(Vec<u8>),
    /// Replace it, if its version is this one (`If-Match`).
    Replace(Tag, Vec<u8>),
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object was read. Contents beyond
    /// [`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX) may be cut after one byte more.
    Found(Tag, Vec<u8>),
    /// There is no such object.
    Missing,
    /// It was written and has this version now.
    Written(Tag),
    /// It was not written by this request, since its condition was not met; perhaps it was written by an earlier
    /// attempt of the same request that a client library repeated (412, 409; 404 for a replacement).
    Conflict,
    /// It is not known whether it was done: an error (500, 503), no answer in time, an answer without a version.
    Unknown(String),
    /// The bucket does not carry out such requests (no permission), or does not exist (404 for a creation).
    Refused(String),
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a request, and report its outcome by [`Member::answer`](crate::Member::answer).
    Request(Request),
    /// Open the partition's database, which must keep every earlier process from writing to it; then call
    /// [`opened`](crate::Member::opened) or [`not_opened`](crate::Member::not_opened).
    Open(PartitionName, Epoch),
    /// Let a host drop everything that it caches; then call [`reset_done`](crate::Member::reset_done).
    Reset(PartitionName, Epoch, HostUuid),
    /// Let the running calls end, and begin none; then close the database and call
    /// [`drained`](crate::Member::drained).
    Drain(PartitionName, Epoch),
    /// Answer nothing any more and close the database; then call [`closed`](crate::Member::closed).
    Close(PartitionName, Epoch),
    /// Nothing: something has happened.
    Notice(Notice),
}

/// Something that an administrator or a counter wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The node has a lease.
    Joined(Incarnation),
    /// The lease was not renewed in time: nothing is answered until it is.
    Lapsed,
    /// A lease that had lapsed was renewed before any other node evicted this one.
    Resumed,
    /// The membership has ended: another node has evicted this one, or a process with the same name has replaced it.
    Lost(Incarnation),
    /// The node has left.
    Left,
    /// Another process has this node's name, and renews its lease; it is called at these addresses. This one waits until that ends.
    NameTaken(Vec<SocketAddr>),
    /// This node has evicted another, whose lease had ended.
    Evicted(NodeName, Incarnation),
    /// A partition has another phase.
    Phase(PartitionName, Phase, Epoch),
    /// A partition came to this node or left it, which has ended.
    Takeover(Box<Takeover>),
    /// An object cannot be used, or the bucket refuses a request. It is tried again.
    Trouble {
        /// The object's name.
        object: String,
        /// The reason.
        why: String,
    },
}
