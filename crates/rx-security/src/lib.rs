//! Rx security classes: null and rxkad (with Kerberos 5 tickets), as pure functions.
//!
//! An Rx connection names a security class by index. The class decides who may open the
//! connection (challenge and response) and how each data packet is protected. Nothing here knows
//! sockets, clocks or random numbers: times and nonces come in as arguments.
//!
//! # Order of calls
//!
//! Server: on a connection's first packet [`ServerSecurity::accept`]. Where
//! [`ServerSecurity::needs_challenge`] says so, send [`ServerHandshake::challenge`] (again and again
//! if it gets lost; it stays the same) and give the answer to [`ServerHandshake::verify`];
//! otherwise call `verify` at once with an empty response. [`Verified`] then holds the connection's
//! packet protection and the caller's identity.
//!
//! Client: [`ClientSecurity::start`], then [`ClientHandshake::protection`] for packets at once (the
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
