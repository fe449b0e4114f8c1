//! Events and results that an endpoint reports to its application, and the handles they use.

use base::{AbortCode, Caller, RecvBuffer};
use bytes::Bytes;
use std::net::SocketAddr;

use crate::{Path, Standing};

/// Handle of a call, never reused within an endpoint. Operations on a released call behave as if it had
/// failed with `RX_CALL_DEAD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) crate::slab::Key);

/// Handle of a connection, never reused within an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) crate::slab::Key);

impl ConnectionId {
    /// Returns a number for logs, unique within the endpoint.
    pub fn number(self) -> u64 {
        self.0.number()
    }
}

impl CallId {
    /// Returns a number for logs, unique within the endpoint.
    pub fn number(self) -> u64 {
        self.0.number()
    }
}

/// An event. Events about a call stop when it is released.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client has started a call and has proved its address or its identity. The application has to answer
    /// by reading and writing or with [`crate::Endpoint::abort`], and must call [`crate::Endpoint::release`]
    /// in either case.
    CallArrived {
        /// The call.
        call: CallId,
        /// The connection on which it arrived.
        connection: ConnectionId,
        /// The requested service.
        service_id: u16,
        /// Caller whose identity the security class has proved.
        caller: Caller,
        /// Level of proof: reachable or verified.
        standing: Standing,
        /// Path of the replies.
        path: Path,
    },
    /// A read that returned [`Read::Blocked`] or [`Filled::Blocked`] can make progress now.
    Readable(CallId),
    /// A write that returned [`Write::Blocked`] can make progress now.
    Writable(CallId),
    /// Everything written before [`crate::Endpoint::end`] has been acknowledged and, on a client, the whole
    /// reply has been received. Unread data can still be read.
    Ended(CallId),
    /// The call has failed: the peer aborted it, or this endpoint gave it up with a code from -1 to -64
    /// (`RX_CALL_DEAD`: the peer is silent; `RX_CALL_TIMEOUT`: too long without progress).
    Failed(CallId, AbortCode),
    /// A client connection on which [`crate::Endpoint::open_call`] found no free channel has one now.
    ChannelFree(ConnectionId),
    /// A client connection is unusable because its security handshake failed or the server aborted it. Its
    /// calls have failed, and new ones are refused. The application should close it.
    ConnectionFailed(ConnectionId, AbortCode),
    /// The path to a host does not carry datagrams of [`crate::EndpointConfig::packet_bytes`]. Reported once
    /// per host while this is remembered, and again if the path carries even less.
    PathIsShort {
        /// The host.
        remote: SocketAddr,
        /// Maximum length of datagrams sent to the host now, Rx header included.
        packet_bytes: usize,
    },
}

/// The result of [`crate::Endpoint::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes of the peer's data, never empty; a slice of the datagram in which they arrived.
    Data(Bytes),
    /// No data has arrived yet; [`Event::Readable`] follows.
    Blocked,
    /// The peer's data is complete.
    End,
    /// The call has failed.
    Failed(AbortCode),
}

/// The result of [`crate::Endpoint::landed`].
#[derive(Debug)]
pub enum Filled {
    /// The buffer that was provided first. It is full, unless the peer's data is complete.
    RecvBuffer(RecvBuffer),
    /// The buffer is not full yet; [`Event::Readable`] follows.
    Blocked,
    /// The call has failed.
    Failed(AbortCode),
}

/// The result of [`crate::Endpoint::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Number of bytes taken off the front of the buffer, at least 1 unless it was empty.
    Accepted(usize),
    /// The send queue is full; [`Event::Writable`] follows.
    Blocked,
    /// The call has failed, or its data has already been ended.
    Failed(AbortCode),
}
