//! The values that the state machine exchanges with its shell.

use crate::host::HostId;
use base::{AbortCode, Fid, HostUuid};
use std::net::SocketAddr;

/// What to do with a call that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Answer it; the caller is this host, and nothing is owed to it.
    Ready(HostId),
    /// Do this first, report its result, and ask again.
    First(Task),
    /// Another call is doing what has to be done first: wait until something is reported
    /// ([`Callbacks::identified`](crate::Callbacks::identified) or
    /// [`Callbacks::delivered`](crate::Callbacks::delivered)), then ask again.
    Wait,
    /// Fail the call.
    Refuse(Refusal),
}

/// Why a call is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The caller does not answer calls to it, so that no promise to it could be kept.
    Unreachable,
    /// There is no room for another host or identification now.
    Busy,
}

impl Refusal {
    /// The wire code. Clients take a negative one for "server down" and try a replica.
    pub fn abort_code(self) -> AbortCode {
        match self {
            Refusal::Unreachable => AbortCode::RX_CALL_DEAD,
            Refusal::Busy => AbortCode::VBUSY,
        }
    }
}

/// Something to say to a client before a call is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Ask `address` who it is (TellMeAboutYourself; WhoAreYou if that is an unknown opcode) and
    /// report with [`Callbacks::identified`](crate::Callbacks::identified).
    Identify {
        /// The address to ask.
        address: SocketAddr,
        /// The connection of the call that waits.
        connection: u64,
        /// How much may be sent to the address.
        effort: Effort,
    },
    /// Check whether a host still answers at its address (ProbeUuid), and report with
    /// [`Callbacks::probed`](crate::Callbacks::probed). The call is answered whatever the result.
    Probe(Probe),
    /// Send this to the caller, and report with [`Callbacks::delivered`](crate::Callbacks::delivered).
    /// If that returns [`Delivered::Delayed`], refuse the call as [`Refusal::Unreachable`].
    Deliver(Delivery),
    /// Send this to another host that has to make room, and report with
    /// [`Callbacks::delivered`](crate::Callbacks::delivered).
    Evict(Delivery),
}

/// How much an identification may cost at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A host is known at the address: ask, with patience.
    Ask,
    /// No host is known at the address. A client there most likely has to forget everything before it is
    /// answered, and may be sent InitCallBackState3 while it is asked.
    AskAndReset,
    /// The address has called before and then did not answer: send one packet, without repeats.
    Once,
}

/// A check of a known host, because its UUID was named at another address.
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

/// What to tell a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// These promises are broken (RXAFSCB_CallBack); at most 50. Vnode 0 means a whole volume.
    Break(Vec<Fid>),
    /// All promises are void (InitCallBackState3, or InitCallBackState for a host without UUID).
    Reset,
}

/// A message on its way to one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The host whose promises it is about.
    pub host: HostId,
    /// Where to send it.
    pub address: SocketAddr,
    /// The host's UUID.
    pub uuid: Option<HostUuid>,
    /// If set, first make sure that a client with this UUID answers there (ProbeUuid).
    pub probe: bool,
    /// What to say.
    pub message: Message,
    /// Set if this goes to another address than the host's own.
    pub(crate) stand_in: Option<StandIn>,
    /// Further addresses to send it to.
    pub(crate) stand_ins: Vec<StandIn>,
    /// Whether a stand-in has received it.
    pub(crate) heard: bool,
    pub(crate) sequence: u64,
    pub(crate) exclusive: bool,
}

/// Another address at which the client behind a silent host may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandIn {
    /// A host with the same UUID that has answered at its own address.
    Twin(HostId, SocketAddr),
    /// An address that the silent host itself named as one of its interfaces.
    Reported(SocketAddr),
}

/// What became of a [`Delivery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The client knows.
    Done,
    /// Send this next: the same message to another address of the client.
    Retry(Box<Delivery>),
    /// The host is down; it will be told before its next call is answered.
    Delayed,
    /// It did not answer, and was forgotten meanwhile: if it calls again it is told to forget everything.
    Forgotten,
}

/// How long a promise is to last depends on what asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackKind {
    /// A call about one file.
    File,
    /// A call about many files at once.
    Bulk,
    /// A file in a volume that is read-only: the promise is for the whole volume.
    Volume,
}

/// A promise made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// How long the client may rely on it, in seconds from now; 0 if no promise was made.
    pub seconds: u32,
    /// Messages to send because space ran out.
    pub deliveries: Vec<Delivery>,
}
