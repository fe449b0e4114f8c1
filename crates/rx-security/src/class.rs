//! What a security class offers to a connection's two ends. The order of calls stands in the
//! crate's description.

use base::{Identity, SecurityLevel, UnixTime};
use std::net::SocketAddr;

use crate::KeyLease;
use crate::{ConnectionFacts, PacketProtection, SecurityError};

/// A class as a client uses it: holds what is needed to open connections (for rxkad a ticket).
pub trait ClientSecurity: Send + Sync {
    /// The number of the class in packet headers (0 null, 2 rxkad).
    fn index(&self) -> u8;

    /// Begins a connection. `connection.security_index` must be [`ClientSecurity::index`].
    fn start(&self, connection: ConnectionFacts) -> Result<Box<dyn ClientHandshake>, SecurityError>;
}

/// The client's end of one connection.
pub trait ClientHandshake: Send {
    /// Protection for the connection's packets; usable before any challenge has come.
    fn protection(&self) -> Box<dyn PacketProtection>;

    /// The body of the response packet for the body of a challenge packet. `call_numbers` are the
    /// current (or last) call numbers of the four channels, 0 where there has been none.
    ///
    /// An error means that the connection cannot go on; its [`SecurityError::abort_code`] is what
    /// the calls on it end with.
    fn respond(&mut self, challenge: &[u8], call_numbers: [u32; 4]) -> Result<Vec<u8>, SecurityError>;
}

/// A class as a server uses it: holds what is needed to accept connections (for rxkad keys).
pub trait ServerSecurity: Send + Sync {
    /// The number of the class in packet headers (0 null, 2 rxkad).
    fn index(&self) -> u8;

    /// Whether a connection has to answer a challenge before its first call is served. If not,
    /// give [`ServerHandshake::verify`] an empty response at once.
    fn needs_challenge(&self) -> bool;

    /// Begins a connection. `nonce` must be fresh and unpredictable.
    fn accept(&self, connection: ConnectionFacts, nonce: [u8; 16]) -> Box<dyn ServerHandshake>;

    /// Receives how the check of a response ended, for logs and counters. It changes nothing.
    fn observe(&self, _: &Attempt<'_>) {}
}

/// A response that was checked.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The connection that it was for.
    pub connection: ConnectionFacts,
    /// Where it came from; may be forged if it was refused.
    pub peer: SocketAddr,
    /// When it was checked.
    pub now: UnixTime,
    /// What it proved, or why it was refused.
    pub outcome: Result<&'a Verified, &'a SecurityError>,
}

/// The server's end of one connection until it is verified.
pub trait ServerHandshake: Send {
    /// The body of the challenge packet: the same each time, for sending it again.
    fn challenge(&mut self) -> Vec<u8>;

    /// Checks the body of a response packet. May be called again after an error (the response may
    /// have been somebody else's); the connection is aborted with the error's code.
    fn verify(&mut self, response: &[u8], now: UnixTime) -> Result<Verified, SecurityError>;
}

/// What a verified connection is allowed and how it goes on.
pub struct Verified {
    /// Protection for the connection's packets.
    pub protection: Box<dyn PacketProtection>,
    /// Who the peer is.
    pub identity: Identity,
    /// How packets are protected.
    pub level: SecurityLevel,
    /// When the ticket begins, which may be in the future by as much as clocks may differ; `None` if that is unknown.
    pub begins: Option<UnixTime>,
    /// When the connection must not start calls any more; `None` is never.
    pub expires: Option<UnixTime>,
    /// The key that this was proved with, if there was one: without it the connection must not start calls either.
    pub lease: Option<KeyLease>,
    /// The client's word on the call numbers of the four channels: a data packet of an older call
    /// is a replay. `None` where the class says nothing.
    pub call_numbers: Option<[u32; 4]>,
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verified")
            .field("identity", &self.identity)
            .field("level", &self.level)
            .field("expires", &self.expires)
            .field("call_numbers", &self.call_numbers)
            .finish_non_exhaustive()
    }
}
