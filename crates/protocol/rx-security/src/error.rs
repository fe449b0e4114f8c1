//! Errors of handshakes, tickets and packets.

use base::{AbortCode, UnixTime};

/// The reason why a handshake or a packet was refused. It is always the fault of the peer (or its ticket),
/// except [`SecurityError::UnknownKey`], which may also be due to a missing local key, and
/// [`SecurityError::PayloadLong`], which is the local caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// A challenge, response or packet ends before its fields do.
    #[error("{what} is {got} bytes long, {expected} are needed")]
    PacketShort {
        /// Name of the message.
        what: &'static str,
        /// Number of bytes required.
        expected: usize,
        /// Number of bytes present.
        got: usize,
    },
    /// The peer's messages contradict themselves or the protocol.
    #[error("inconsistent security message: {0}")]
    Inconsistent(&'static str),
    /// The peer requests less protection than is required.
    #[error("security level {got}, at least {expected} is required")]
    LevelTooLow {
        /// Minimum allowed level.
        expected: u32,
        /// Requested level.
        got: u32,
    },
    /// A security level that does not exist.
    #[error("security level {got} does not exist")]
    LevelUnknown {
        /// The number received.
        got: u32,
    },
    /// The ticket's length is out of range.
    #[error("ticket of {got} bytes, from {min} to {max} are allowed")]
    TicketLength {
        /// Minimum length.
        min: usize,
        /// Maximum length.
        max: usize,
        /// The length received or claimed.
        got: usize,
    },
    /// The response does not answer the challenge that was sent.
    #[error("response to challenge {got:#x}, expected {expected:#x}")]
    OutOfSequence {
        /// The incremented challenge.
        expected: u32,
        /// The value in the response.
        got: u32,
    },
    /// A packet arrived before the connection was verified.
    #[error("connection is not authenticated")]
    NotAuthenticated,
    /// The ticket's session key is unusable.
    #[error("session key is unusable: {0}")]
    BadKey(&'static str),
    /// The ticket cannot be decrypted or is malformed.
    #[error("bad ticket: {0}")]
    BadTicket(&'static str),
    /// The first component of the principal has a dot, which is not allowed.
    #[error("the first component of the principal has a dot")]
    DottedName,
    /// No available key opens the ticket.
    #[error("no key with version {kvno} and encryption type {enctype}")]
    UnknownKey {
        /// Requested key version.
        kvno: u32,
        /// Requested Kerberos encryption type (1 for single DES).
        enctype: i32,
    },
    /// The ticket has expired.
    #[error("ticket ended {} s ago, at {}", .now.0.saturating_sub(.end.0), .end.0)]
    Expired {
        /// The end of the ticket.
        end: UnixTime,
        /// The time of the check.
        now: UnixTime,
    },
    /// The ticket starts in the future, by more than the clock skew.
    #[error("ticket begins in {} s, at {}", .start.0.saturating_sub(.now.0), .start.0)]
    NotYetValid {
        /// The start of the ticket.
        start: UnixTime,
        /// The time of the check.
        now: UnixTime,
    },
    /// A checksum or sealed field is wrong: the message is damaged, forged, or for another connection.
    #[error("sealed data is inconsistent: {0}")]
    SealedInconsistent(&'static str),
    /// A packet's sealed length exceeds the packet.
    #[error("packet claims {claimed} bytes of data, {available} are there")]
    DataLength {
        /// Length in the sealed header.
        claimed: usize,
        /// Number of bytes after the sealed header.
        available: usize,
    },
    /// The payload is too long to protect.
    #[error("payload of {got} bytes, at most {max} can be protected")]
    PayloadLong {
        /// Maximum length.
        max: usize,
        /// Length of the payload.
        got: usize,
    },
}

impl SecurityError {
    /// Returns the wire code that ends the connection or call (rxkad's error table).
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
