//! Rx security classes: null and rxkad (with Kerberos 5 tickets), as pure functions.
//!
//! An Rx connection names a security class by index. The class decides who may open the connection (challenge
//! and response) and how each data packet is protected. This crate uses neither sockets nor clocks nor random
//! numbers: times and nonces are arguments.
//!
//! # Order of calls
//!
//! Server: call [`ServerSecurity::accept`] on a connection's first packet. If
//! [`ServerSecurity::needs_challenge`] returns true, send [`ServerHandshake::challenge`] (repeatedly if it is
//! lost; it does not change) and pass the response to [`ServerHandshake::verify`]; otherwise call `verify`
//! immediately with an empty response. The resulting [`Verified`] contains the connection's packet protection
//! and the caller's identity.
//!
//! Client: call [`ClientSecurity::start`], then [`ClientHandshake::protection`] for the first packets (the
//! client need not wait for the challenge), and [`ClientHandshake::respond`] for every challenge.

pub mod class;
pub mod error;
mod fcrypt;
pub mod key;
mod krb5;
pub mod null;
pub mod protection;
pub mod rxkad;
#[cfg(test)]
mod test_support;

pub use class::{Attempt, ClientHandshake, ClientSecurity, ServerHandshake, ServerSecurity, Verified};
pub use error::SecurityError;
pub use key::{Enctype, KeyError, KeyLease, KeyRing, KeySet, KeySource, ServiceKey};
pub use null::Null;
pub use protection::{ConnectionFacts, Overhead, PacketFacts, PacketProtection, Protected};
pub use rxkad::{
    LOCAL_TICKET_END_MAX, LocalRealms, RxkadClient, RxkadServer, SessionKey, Ticket, forge_local_ticket,
};
