//! The interface of a security class for both ends of a connection. The crate's documentation describes the
//! order of calls.

use base::{Identity, SecurityLevel, UnixTime};
use std::net::SocketAddr;

use crate::KeyLease;
use crate::{ConnectionFacts, PacketProtection, SecurityError};

/// The client side of a class, with everything needed to open connections (for rxkad a ticket).
pub trait ClientSecurity: Send + Sync {
    /// Returns the number of the class in packet headers (0 null, 2 rxkad).
    fn index(&self) -> u8;

    /// Starts a connection. `connection.security_index` must equal [`ClientSecurity::index`].
    fn start(&self, connection: ConnectionFacts) -> Result<Box<dyn ClientHandshake>, SecurityError>;
}

/// The client's end of one connection.
pub trait ClientHandshake: Send {
    /// Returns the protection for the connection's packets. It is usable before any challenge has arrived.
    fn protection(&self) -> Box<dyn PacketProtection>;

    /// Returns the body of the response to a challenge packet with this body. `call_numbers` are the current
    /// (or last) call numbers of the four channels, 0 for unused ones.
    ///
    /// After an error the connection is unusable; calls on it end with the error's
    /// [`SecurityError::abort_code`].
    fn respond(&mut self, challenge: &[u8], call_numbers: [u32; 4]) -> Result<Vec<u8>, SecurityError>;
}

/// The server side of a class, with everything needed to accept connections (for rxkad keys).
pub trait ServerSecurity: Send + Sync {
    /// Returns the number of the class in packet headers (0 null, 2 rxkad).
    fn index(&self) -> u8;

    /// Whether a connection has to answer a challenge before its first call is served. If not, call
    /// [`ServerHandshake::verify`] immediately with an empty response.
    fn needs_challenge(&self) -> bool;

    /// Starts a connection. `nonce` must be fresh and unpredictable.
    fn accept(&self, connection: ConnectionFacts, nonce: [u8; 16]) -> Box<dyn ServerHandshake>;

    /// Receives the result of checking a response, for logs and counters. Has no effect on the connection.
    fn observe(&self, _: &Attempt<'_>) {}
}

/// A response that has been checked.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The connection of the response.
    pub connection: ConnectionFacts,
    /// Source address; may be forged if the response was refused.
    pub peer: SocketAddr,
    /// Time of the check.
    pub now: UnixTime,
    /// The verified facts, or the reason for the refusal.
    pub outcome: Result<&'a Verified, &'a SecurityError>,
}

/// The server's end of one connection until it is verified.
pub trait ServerHandshake: Send {
    /// Returns the body of the challenge packet, the same for each retransmission.
    fn challenge(&mut self) -> Vec<u8>;

    /// Checks the body of a response packet. May be called again after an error, since the response may have
    /// come from a third party; the connection is aborted with the error's code.
    fn verify(&mut self, response: &[u8], now: UnixTime) -> Result<Verified, SecurityError>;
}

/// The rights and the packet protection of a verified connection.
pub struct Verified {
    /// Protection for the connection's packets.
    pub protection: Box<dyn PacketProtection>,
    /// Identity of the peer.
    pub identity: Identity,
    /// Protection level of the packets.
    pub level: SecurityLevel,
    /// Start of the ticket's validity, which may be in the future by up to the clock skew; `None` if unknown.
    pub begins: Option<UnixTime>,
    /// Time after which the connection must not start calls; `None` if unlimited.
    pub expires: Option<UnixTime>,
    /// The key that verified the connection, if any. After it is revoked the connection must not start calls.
    pub lease: Option<KeyLease>,
    /// The call numbers of the four channels according to the client: a data packet of an older call is a
    /// replay. `None` if the class does not provide them.
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
