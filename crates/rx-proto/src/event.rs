//! What an endpoint tells its user, and the handles it does it with.

use base::{AbortCode, Caller, Room};
use bytes::Bytes;
use std::net::SocketAddr;

use crate::{Path, Standing};

/// A call. Never used twice by one endpoint; one that has been released is answered like a call
/// that failed with `RX_CALL_DEAD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) crate::slab::Key);

/// A connection. Never used twice by one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) crate::slab::Key);

impl ConnectionId {
    /// A number for logs; unique within the endpoint.
    pub fn number(self) -> u64 {
        self.0.number()
    }
}

impl CallId {
    /// A number for logs; unique within the endpoint.
    pub fn number(self) -> u64 {
        self.0.number()
    }
}

/// Something that happened. Events about a call stop when it is released.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client began a call, and has proved its address or itself. Must be answered by reading and
    /// writing or by [`crate::Endpoint::abort`], and in any case by [`crate::Endpoint::release`].
    CallArrived {
        /// The call.
        call: CallId,
        /// The connection it came on.
        connection: ConnectionId,
        /// The service it asked for.
        service_id: u16,
        /// Who calls, proven by the security class.
        caller: Caller,
        /// How much the caller has proved: reachable or verified.
        standing: Standing,
        /// Where replies go.
        path: Path,
    },
    /// A read that was [`Read::Blocked`], or [`Landed::Blocked`], will now give something else.
    Readable(CallId),
    /// A write that was [`Write::Blocked`] will now accept something.
    Writable(CallId),
    /// All that was written has been acknowledged, after [`crate::Endpoint::end`], and (on a
    /// client) the whole reply has been received. Unread data may still be read.
    Ended(CallId),
    /// The call is over: the peer aborted it, or it was given up with a code below -1 .. -64
    /// (`RX_CALL_DEAD`: peer silent; `RX_CALL_TIMEOUT`: too long without progress).
    Failed(CallId, AbortCode),
    /// A client connection on which [`crate::Endpoint::open_call`] found no channel has one now.
    ChannelFree(ConnectionId),
    /// A client connection is unusable (its security handshake failed, or the server aborted it):
    /// its calls have failed, and new ones are refused. Close it.
    ConnectionFailed(ConnectionId, AbortCode),
    /// The path to a host was found not to carry datagrams of [`crate::EndpointConfig::packet_bytes`]. Told once for each
    /// host while that is remembered, and again if it carries even less.
    PathIsShort {
        /// The host.
        remote: SocketAddr,
        /// The longest datagrams sent to it now, Rx header included.
        packet_bytes: usize,
    },
}

/// What [`crate::Endpoint::read`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Next bytes of the peer's data, never empty; a slice of the datagram they came in.
    Data(Bytes),
    /// Nothing yet; [`Event::Readable`] follows.
    Blocked,
    /// The peer has said all it had to say.
    End,
    /// The call has failed.
    Failed(AbortCode),
}

/// What [`crate::Endpoint::landed`] found.
#[derive(Debug)]
pub enum Landed {
    /// The room that was lent first, full; or not, if the peer has said all it had to say.
    Room(Room),
    /// It is not full yet; [`Event::Readable`] follows.
    Blocked,
    /// The call has failed.
    Failed(AbortCode),
}

/// What became of a [`crate::Endpoint::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// So many bytes were taken off the front of the buffer, at least 1 unless it was empty.
    Accepted(usize),
    /// The send queue is full; [`Event::Writable`] follows.
    Blocked,
    /// The call has failed, or was ended before.
    Failed(AbortCode),
}
