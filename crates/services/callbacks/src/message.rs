//! The values that the state machine exchanges with its shell.

use crate::host::{HostId, Identification};
use base::{AbortCode, Fid, HostUuid};
use std::net::SocketAddr;

/// The decision on a call that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Execute the call. The caller is this host, and has no outstanding messages.
    Ready(HostId),
    /// Perform this task, report its result, and call `arrive` again.
    First(Task),
    /// Another call is performing the required task: wait until its result is reported
    /// ([`Callbacks::identified`](crate::Callbacks::identified) or
    /// [`Callbacks::delivered`](crate::Callbacks::delivered)), then call `arrive` again.
    Wait,
    /// Fail the call.
    Refuse(Refusal),
}

/// The reason why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The caller does not answer the server's calls, so that no promise to it could be kept.
    Unreachable,
    /// The call may succeed soon: there is no space for another host or identification now, or the caller could not be
    /// identified, but may be at the next attempt.
    Busy,
}

impl Refusal {
    /// Returns the wire code. VBUSY is repeated by all clients. A negative code is final for kafs, which fails the
    /// system call with EREMOTEIO (`afs_select_fileserver`); OpenAFS's client tries another server (`afs_Analyze`).
    pub fn abort_code(self) -> AbortCode {
        match self {
            Refusal::Unreachable => AbortCode::RX_CALL_DEAD,
            Refusal::Busy => AbortCode::VBUSY,
        }
    }
}

/// The result of asking a client to identify itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It did.
    Known(Identification),
    /// Nothing was heard from its address during the whole time that a silent client is waited for.
    Silent,
    /// What is there has answered, but not with an identification. It may be a program without a callback service.
    Refused,
    /// The outcome is unknown: the call could not be made or took too long.
    Failed,
}

/// Something to send to a client before a call is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Ask the client at `address` to identify itself (TellMeAboutYourself; WhoAreYou if that is an unknown
    /// opcode) and report with [`Callbacks::identified`](crate::Callbacks::identified).
    Identify {
        /// Address of the caller.
        address: SocketAddr,
        /// Connection of the waiting call.
        connection: u64,
        /// How much may be sent to the address.
        effort: Effort,
    },
    /// Ask another host that may be the caller's client to identify itself, and report with
    /// [`Callbacks::twin_asked`](crate::Callbacks::twin_asked). The call is executed whatever the result.
    AskTwin {
        /// The other host.
        twin: HostId,
        /// Its address.
        address: SocketAddr,
    },
    /// Check whether a host still answers at its address (ProbeUuid), and report with
    /// [`Callbacks::probed`](crate::Callbacks::probed), unless the probe could not be made. The call is executed whatever the
    /// result.
    Probe(Probe),
    /// Send this to the caller, and report with [`Callbacks::delivered`](crate::Callbacks::delivered).
    /// If that returns [`Delivered::Delayed`], refuse the call: as [`Refusal::Busy`] if the message could not be sent, otherwise as
    /// [`Refusal::Unreachable`].
    Deliver(Delivery),
    /// Send this to another host that is being evicted, and report with
    /// [`Callbacks::delivered`](crate::Callbacks::delivered).
    Evict(Delivery),
}

/// Permitted cost of an identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A host is known at the address, or it has been silent once: ask, with repetitions.
    Ask,
    /// No host is known at the address. A client there most likely has to be reset before its call is
    /// executed, and may be sent InitCallBackState3 together with the query.
    AskAndReset,
    /// No host is known at the address, which has called before and then did not answer, twice in a row: send one packet,
    /// without repetitions.
    Once,
}

/// A check of a known host, because its UUID was claimed at another address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The host to check.
    pub host: HostId,
    /// Its address.
    pub address: SocketAddr,
    /// The UUID that it must answer to.
    pub uuid: HostUuid,
    pub(crate) newcomer: HostId,
}

/// A message to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Breaks these promises (RXAFSCB_CallBack); at most 50. Vnode 0 means a whole volume.
    Break(Vec<Fid>),
    /// Resets the client: all its promises are void (InitCallBackState3, or InitCallBackState for a host
    /// without UUID).
    Reset,
}

/// When to check that the client to which a message is addressed is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Not at all: it was there a short time ago.
    Unneeded,
    /// Before the message is sent. No other client gets it.
    Before,
    /// After the message was received. Whichever client is there gets it.
    After,
}

/// A message to one host. Ask [`Callbacks::check`](crate::Callbacks::check) when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The host whose promises the message concerns.
    pub host: HostId,
    /// Destination address.
    pub address: SocketAddr,
    /// The host's UUID.
    pub uuid: Option<HostUuid>,
    /// The message to send.
    pub message: Message,
    /// Set if the message goes to an address other than the host's own.
    pub(crate) stand_in: Option<StandIn>,
    /// Further addresses to send the message to.
    pub(crate) stand_ins: Vec<StandIn>,
    /// Whether a stand-in has received it.
    pub(crate) heard: bool,
    /// Whether whichever client is at the host's own address must get it.
    pub(crate) for_anyone: bool,
    pub(crate) sequence: u64,
    pub(crate) exclusive: bool,
}

impl Delivery {
    /// Whether the message goes to the host's own address.
    pub fn is_at_home(&self) -> bool {
        self.stand_in.is_none()
    }
}

/// Another address at which the client of an unresponsive host may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandIn {
    /// A host with the same UUID that has answered at its own address.
    Twin(HostId, SocketAddr),
    /// An address that the unresponsive host itself reported as one of its interfaces.
    Reported(SocketAddr),
}

/// The outcome of a [`Delivery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The client has received the message.
    Done,
    /// Send this next: the same message to another address of the client.
    Retry(Box<Delivery>),
    /// The host is down; it gets the message before its next call is executed.
    Delayed,
    /// The host did not answer, and has been removed in the meantime. It is reset when it calls again.
    Forgotten,
}

/// The kind of call that obtained a promise, which determines how long the promise lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackKind {
    /// A call about one file.
    File,
    /// A call about many files.
    Bulk,
    /// A call about a file in a read-only volume: the promise covers the whole volume.
    Volume,
}

/// The result of making a promise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// How long the client may rely on the promise, in seconds from now; 0 if none was made.
    pub seconds: u32,
    /// Messages to send to clients whose promises were dropped for lack of space.
    pub deliveries: Vec<Delivery>,
}
