//! What can be wrong with a handshake, a ticket or a packet.

use base::{AbortCode, UnixTime};

/// Why a handshake or a packet was refused. It is always the peer's fault (or its ticket's), except
/// [`SecurityError::UnknownKey`], which may also be a key missing here, and
/// [`SecurityError::PayloadLong`], which is the local caller's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// A challenge, response or packet ends before its fields do.
    #[error("{what} is {got} bytes long, {expected} are needed")]
    PacketShort {
        /// Of what.
        what: &'static str,
        /// Bytes needed.
        expected: usize,
        /// Bytes there.
        got: usize,
    },
    /// The peer's messages contradict themselves or the protocol.
    #[error("inconsistent security message: {0}")]
    Inconsistent(&'static str),
    /// The peer asks for less protection than is required here.
    #[error("security level {got}, at least {expected} is required")]
    LevelTooLow {
        /// The least level allowed.
        expected: u32,
        /// The level asked for.
        got: u32,
    },
    /// A security level that does not exist.
    #[error("security level {got} does not exist")]
    LevelUnknown {
        /// The number received.
        got: u32,
    },
    /// The ticket's length is out of bounds.
    #[error("ticket of {got} bytes, from {min} to {max} are allowed")]
    TicketLength {
        /// Least.
        min: usize,
        /// Most.
        max: usize,
        /// The length received or claimed.
        got: usize,
    },
    /// The response does not answer the challenge that was sent.
    #[error("response to challenge {got:#x}, expected {expected:#x}")]
    OutOfSequence {
        /// The incremented challenge.
        expected: u32,
        /// What the response holds.
        got: u32,
    },
    /// A packet before the connection was verified.
    #[error("connection is not authenticated")]
    NotAuthenticated,
    /// The ticket's session key is unusable.
    #[error("session key is unusable: {0}")]
    BadKey(&'static str),
    /// The ticket does not decrypt or does not hold together.
    #[error("bad ticket: {0}")]
    BadTicket(&'static str),
    /// The first component of the principal has a dot, which is not allowed here.
    #[error("the first component of the principal has a dot")]
    DottedName,
    /// No key here opens the ticket.
    #[error("no key with version {kvno} and encryption type {enctype}")]
    UnknownKey {
        /// Key version asked for.
        kvno: u32,
        /// Kerberos encryption type asked for (1 for single DES).
        enctype: i32,
    },
    /// The ticket has ended.
    #[error("ticket ended {} s ago, at {}", .now.0.saturating_sub(.end.0), .end.0)]
    Expired {
        /// The end of the ticket.
        end: UnixTime,
        /// The time given.
        now: UnixTime,
    },
    /// The ticket begins in the future, by more than clocks may differ.
    #[error("ticket begins in {} s, at {}", .start.0.saturating_sub(.now.0), .start.0)]
    NotYetValid {
        /// The beginning of the ticket.
        start: UnixTime,
        /// The time given.
        now: UnixTime,
    },
    /// A checksum or sealed field is wrong: damaged, forged, or for another connection.
    #[error("sealed data is inconsistent: {0}")]
    SealedInconsistent(&'static str),
    /// A packet's sealed length does not fit the packet.
    #[error("packet claims {claimed} bytes of data, {available} are there")]
    DataLength {
        /// The length in the sealed header.
        claimed: usize,
        /// Bytes after the sealed header.
        available: usize,
    },
    /// A payload too long to protect.
    #[error("payload of {got} bytes, at most {max} can be protected")]
    PayloadLong {
        /// Most.
        max: usize,
        /// Given.
        got: usize,
    },
}

impl SecurityError {
    /// The code that ends the connection or call on the wire (rxkad's error table).
    pub fn abort_code(&self) -> AbortCode {
        match self {
            Self::PacketShort { .. } => AbortCode::RXKADPACKETSHORT,
            Self::Inconsistent(_) => AbortCode::RXKADINCONSISTENCY,
            Self::LevelTooLow { .. } => AbortCode::RXKADLEVELFAIL,
            Self::LevelUnknown { .. } => AbortCode::RXKADILLEGALLEVEL,
            Self::TicketLength { .. } => AbortCode::RXKADTICKETLEN,
            Self::OutOfSequence { .. } => AbortCode::RXKADOUTOFSEQUENCE,
            Self::NotAuthenticated | Self::NotYetValid { .. } => AbortCode::RXKADNOAUTH,
            Self::BadKey(_) => AbortCode::RXKADBADKEY,
            Self::BadTicket(_) | Self::DottedName => AbortCode::RXKADBADTICKET,
            Self::UnknownKey { .. } => AbortCode::RXKADUNKNOWNKEY,
            Self::Expired { .. } => AbortCode::RXKADEXPIRED,
            Self::SealedInconsistent(_) => AbortCode::RXKADSEALEDINCON,
            Self::DataLength { .. } | Self::PayloadLong { .. } => AbortCode::RXKADDATALEN,
        }
    }
}
