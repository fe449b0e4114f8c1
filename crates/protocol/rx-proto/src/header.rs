//! The 28-byte header of every Rx packet.
//!
//! ```text
//!  0  u32 epoch            time at which the client started, or random with the high bit set
//!  4  u32 connection id    low two bits: channel
//!  8  u32 call number      0: concerns the connection
//! 12  u32 sequence         of a data packet in its call, from 1
//! 16  u32 serial           counts packets sent on the connection
//! 20  u8  type   21 u8 flags   22 u8 user status   23 u8 security index
//! 24  u16 checksum ("spare")   26 u16 service id
//! ```
//!
//! All fields are big-endian (rx-spec, "Packet format"; rx_packet.h).

use crate::limits::CHANNEL_MASK;

/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 28;

/// Offsets of the fields that differ between the packets of a batch.
pub(crate) mod place {
    use std::ops::Range;

    pub(crate) const SEQUENCE: Range<usize> = 12..16;
    pub(crate) const SERIAL: Range<usize> = 16..20;
    pub(crate) const FLAGS: usize = 21;
    pub(crate) const CHECKSUM: Range<usize> = 24..26;
}

/// Type of a packet (rx_packet.h, RX_PACKET_TYPE_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// Carries part of a call's data.
    Data = 1,
    /// Reports which packets have been received.
    Ack = 2,
    /// Reports that the server cannot accept the call now.
    Busy = 3,
    /// Ends the call or the connection with an error.
    Abort = 4,
    /// Reports that everything has been received.
    AckAll = 5,
    /// Requires the client to prove its identity.
    Challenge = 6,
    /// The client's answer to a challenge.
    Response = 7,
    /// Requests of rxdebug and their answers.
    Debug = 8,
    /// Unused.
    Params = 9,
    /// Unused.
    Unused10 = 10,
    /// Unused.
    Unused11 = 11,
    /// Unused.
    Unused12 = 12,
    /// Requests the version of the peer's software.
    Version = 13,
}

impl PacketType {
    /// Returns the type with this number.
    pub fn from_wire(number: u8) -> Option<PacketType> {
        Some(match number {
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Busy,
            4 => Self::Abort,
            5 => Self::AckAll,
            6 => Self::Challenge,
            7 => Self::Response,
            8 => Self::Debug,
            9 => Self::Params,
            10 => Self::Unused10,
            11 => Self::Unused11,
            12 => Self::Unused12,
            13 => Self::Version,
            _ => return None,
        })
    }

    /// Returns the type's position in tables of counters.
    pub fn index(self) -> usize {
        self as usize - 1
    }
}

/// The flags of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender is the client of the connection.
    pub const CLIENT_INITIATED: Flags = Flags(1);
    /// The receiver should acknowledge the packet immediately.
    pub const REQUEST_ACK: Flags = Flags(2);
    /// The packet is the sender's last data packet of the call.
    pub const LAST_PACKET: Flags = Flags(4);
    /// More packets follow immediately.
    pub const MORE_PACKETS: Flags = Flags(8);
    /// On an ACK: the receiver acknowledges frequently enough for slow start.
    pub const SLOW_START_OK: Flags = Flags(32);
    /// On data: another packet follows in the same datagram.
    pub const JUMBO_PACKET: Flags = Flags(32);

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both sets of flags.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns these flags, and those of `other` if `condition` is true.
    #[must_use]
    pub fn with_if(self, condition: bool, other: Flags) -> Flags {
        if condition { self.with(other) } else { self }
    }

    /// Returns these flags without those of `other`.
    #[must_use]
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number chosen by the client. If its high bit is set, it is random and the connection is found without
    /// the peer's address.
    pub epoch: u32,
    /// Connection id, with the channel in the low two bits.
    pub cid: u32,
    /// Number of the call on its channel; 0 for packets that concern the connection.
    pub call_number: u32,
    /// Sequence number of a data packet, from 1.
    pub sequence: u32,
    /// Serial of the packet among those that the sender has sent on the connection.
    pub serial: u32,
    /// Type of the packet.
    pub kind: PacketType,
    /// Flags of the packet.
    pub flags: Flags,
    /// Field for use by applications.
    pub user_status: u8,
    /// Security class of the connection.
    pub security_index: u8,
    /// Field for use by the security class.
    pub checksum: u16,
    /// Id of the called service.
    pub service_id: u16,
}

/// The reason why a datagram is not a valid Rx packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The datagram is shorter than a header.
    #[error("datagram of {got} bytes is shorter than an Rx header")]
    Short {
        /// Length of the datagram.
        got: usize,
    },
    /// The packet type does not exist.
    #[error("packet type {got} does not exist")]
    Type {
        /// Number of the type.
        got: u8,
    },
}

impl Header {
    /// Returns the channel of the connection.
    pub fn channel(&self) -> usize {
        (self.cid & CHANNEL_MASK) as usize
    }

    /// Returns the encoded header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        for (place, value) in
            [self.epoch, self.cid, self.call_number, self.sequence, self.serial].into_iter().enumerate()
        {
            out[place * 4..place * 4 + 4].copy_from_slice(&value.to_be_bytes());
        }
        out[20] = self.kind as u8;
        out[21] = self.flags.0;
        out[22] = self.user_status;
        out[23] = self.security_index;
        out[24..26].copy_from_slice(&self.checksum.to_be_bytes());
        out[26..28].copy_from_slice(&self.service_id.to_be_bytes());
        out
    }
}

/// Splits a datagram into header and body.
pub fn parse(datagram: &[u8]) -> Result<(Header, &[u8]), HeaderError> {
    let Some((head, body)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
        return Err(HeaderError::Short { got: datagram.len() });
    };
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let kind = PacketType::from_wire(head[20]).ok_or(HeaderError::Type { got: head[20] })?;
    let header = Header {
        epoch: word(0),
        cid: word(4),
        call_number: word(8),
        sequence: word(12),
        serial: word(16),
        kind,
        flags: Flags(head[21]),
        user_status: head[22],
        security_index: head[23],
        checksum: half(24),
        service_id: half(26),
    };
    Ok((header, body))
}
