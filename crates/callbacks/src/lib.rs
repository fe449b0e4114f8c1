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
//! 4. Memory is bounded. When it runs out, the least recently active client is told to forget
//!    everything; until it has heard that, it counts as holding a promise on every file.
//!
//! A client is known by its UUID whatever its addresses, or by address and port if it has none. Every
//! new connection is asked who it is (`TellMeAboutYourself`), since addresses change hands.
//!
//! Procedures and data are those of the RXAFSCB interface; times and limits follow OpenAFS 1.8's
//! file server (`callback.c`, `host.c`).

mod config;
mod counters;
mod host;
mod hosts;
mod locks;
mod numbers;
mod promises;
mod state;

pub use config::CallbackConfig;
pub use counters::Counters;
pub use host::{HostId, HostInfo, Identification};
pub use locks::{LOCK_TIME, LockError, LockKind, Locks};
pub use state::{Arrival, CallbackKind, Callbacks, Delivered, Delivery, Message, Promised, Refusal, Task};
