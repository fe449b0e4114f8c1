//! Client hosts, callback promises and file locks of a file server.
//!
//! A file server promises each client to tell it before somebody else changes a file that the client
//! caches. This crate is the memory of those promises. It is a pure state machine: time comes in as
//! an argument, and what has to be said to a client comes out as a value ([`Task`], [`Delivery`])
//! that the shell sends and reports back. Nothing here waits, locks or reads a clock.
//!
//! The rules it keeps, in the order in which they matter:
//!
//! 1. A promise ends only by a delivered break, by the client's giving it up, or by expiry. While a
//!    break is under way the promise still stands, so a second change of the same file waits for a
//!    break of its own and is not acknowledged early.
//! 2. A client that did not answer is *down*. What it missed is kept and delivered before the answer
//!    to its next call; if that would be too much, it is told to forget everything
//!    (`InitCallBackState3`) instead.
//! 3. A client first seen since the server started may hold promises that the server has forgotten:
//!    it is told to forget everything before the answer to its first call.
//! 4. Memory is bounded, in total and for each IP address. When it runs out, hosts that hold nothing go first, then the
//!    least recently active client is told to forget everything; until it has heard that, it counts as holding a
//!    promise on every file.
//! 5. A promise belongs to the address that it was made to, which has answered calls to it. Naming a client's
//!    UUID from another address takes nothing from it: not its promises, not its messages, not its place.
//!
//! A client is identified on every new connection (`TellMeAboutYourself`), since addresses change hands. A UUID
//! groups hosts: one client with several addresses, cloned machines or an impostor cannot be told apart, so each
//! address is a host of its own. It is told to forget everything before its first answer, and what a silent host misses is
//! also sent to the others with its UUID. A host whose UUID appears elsewhere is probed, so that changes do not wait
//! for a client that has moved. OpenAFS keeps one host for each UUID with several addresses instead.
//!
//! Procedures and data are those of the RXAFSCB interface; times and limits follow OpenAFS 1.8's
//! file server (`callback.c`, `host.c`).

mod config;
mod connections;
mod counters;
mod host;
mod hosts;
mod identifying;
mod locks;
mod message;
mod numbers;
mod promises;
mod ranking;
mod state;
mod twins;

pub use config::CallbackConfig;
pub use counters::Counters;
pub use host::{HostId, HostInfo, Identification};
pub use locks::{LOCK_TIME, LockError, LockKind, Locks};
pub use message::{
    Arrival, CallbackKind, Delivered, Delivery, Effort, Message, Probe, Promised, Refusal, Task,
};
pub use state::{Callbacks, SharedUuid};
