//! Client hosts, callback promises and file locks of a file server.
//!
//! A file server promises each client to notify it before another client changes a file that it caches. This
//! crate stores those promises. It is a pure state machine: time is an argument, and messages to clients are
//! returned as values ([`Task`], [`Delivery`]) that the shell sends and reports back. Nothing here waits,
//! locks or reads a clock.
//!
//! To *reset* a client is to make it drop all cached state and promises (`InitCallBackState3`).
//!
//! The rules, in order of importance:
//!
//! 1. A promise ends only by a delivered break, by the client's giving it up, or by expiry. While a
//!    break is in flight the promise remains, so a second change of the same file waits for its own
//!    break and is not acknowledged early.
//! 2. A client that did not answer is *down*. The messages that it missed are kept and delivered before
//!    its next call is executed; if there are too many, it is reset instead.
//! 3. A client first seen since the server started may hold promises that the server has lost. It is
//!    reset before its first call is executed.
//! 4. Memory is bounded, in total and for each IP address. When it runs out, hosts that hold nothing are
//!    dropped first; then the least recently active client is reset, and counts as holding a promise on
//!    every file until it has received the message. Changes wait for that, but for few hosts of one address: the
//!    others get it before their next calls, or when there is room.
//! 5. A promise belongs to the address that it was made to, which has answered calls to it. Claiming a
//!    client's UUID at another address does not affect its promises, its messages or its table entry.
//!
//! 6. A message counts as received only if its client was there: a host that has not called for two minutes is
//!    probed first (ProbeUuid), since another client at its address would accept the message. Promises of an earlier
//!    server may have been made to whichever client is at a listed address, so that one is reset, and then probed.
//!
//! A client is identified on every new connection (`TellMeAboutYourself`), since addresses are reassigned. A
//! UUID groups hosts: one client with several addresses cannot be distinguished from cloned machines or an
//! impostor, so each address is a separate host. Each is reset before its first call is executed, and
//! messages that an unresponsive host misses are also sent to the others with its UUID. A host whose UUID
//! appears elsewhere is probed, so that changes do not wait for a client that has moved. OpenAFS instead
//! keeps one host with several addresses for each UUID.
//!
//! What a client was promised at one address must not be lost when it calls from another one. Therefore a known
//! host is reset before its next call if its client reports other interfaces than before, or if the host was down
//! while another one with its UUID was up. An interface that has received messages for a host that is down is reset
//! when that host loses its promises, before the next change is acknowledged.
//!
//! Procedures and data are those of the RXAFSCB interface; times and limits follow OpenAFS 1.8's file server
//! (`callback.c`, `host.c`).

mod config;
mod connections;
mod counters;
mod host;
mod hosts;
mod identifying;
mod locks;
mod message;
mod numbers;
mod origins;
mod owing;
mod promises;
mod ranking;
mod state;
mod strays;
mod twins;

pub use config::{CallbackConfig, PROMISE_MAX};
pub use counters::Counters;
pub use host::{HostId, HostInfo, Identification};
pub use locks::{LOCK_TIME, LockError, LockKind, Locks};
pub use message::{
    Arrival, Asked, CallbackKind, Check, Delivered, Delivery, Effort, Message, Probe, Promised, Refusal, Task,
};
pub use state::{Callbacks, SharedUuid};
