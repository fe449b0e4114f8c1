//! Protection of data packets: the interface to the call layer.

use bytes::Bytes;

use crate::SecurityError;

/// The properties of a connection that security depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionFacts {
    /// The client's epoch, as in packet headers.
    pub epoch: u32,
    /// The connection id with both channel bits 0.
    pub connection_id: u32,
    /// The requested service.
    pub service_id: u16,
    /// The requested security class.
    pub security_index: u8,
}

/// The properties of a data packet that security depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketFacts {
    /// The call's number on its channel.
    pub call_number: u32,
    /// Channel, 0 to 3.
    pub channel: u8,
    /// The packet's sequence number in its call, from 1.
    pub sequence: u32,
}

/// The space that protection adds to each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Number of bytes before the payload.
    pub header_bytes: usize,
    /// Header and payload together are padded to a multiple of this; at least 1.
    pub block_bytes: usize,
}

impl Overhead {
    /// Overhead of a class that adds nothing.
    pub const NONE: Overhead = Overhead { header_bytes: 0, block_bytes: 1 };

    /// Returns the maximum length of a payload whose protected form fits into `room` bytes after the Rx
    /// header.
    pub fn payload_max(self, room: usize) -> usize {
        (room - room % self.block_bytes).saturating_sub(self.header_bytes)
    }
}

/// A packet ready to send: the checksum for its Rx header, and its body in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protected {
    /// The 16-bit "spare" field of the Rx header, which rxkad uses; otherwise 0.
    pub checksum: u16,
    /// The body, in order.
    pub pieces: Vec<Bytes>,
}

impl Protected {
    /// Returns the length of the body.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Protects one end's packets of one connection.
///
/// Protection depends only on the packet's properties and payload, so packets may be protected and
/// unprotected in any order and any number of times. Retransmissions use the packet as it was protected the
/// first time.
pub trait PacketProtection: Send {
    /// Returns the space that protection adds to packets.
    fn overhead(&self) -> Overhead;

    /// Protects a payload, given in pieces. The pieces are passed on without copying if the level allows it.
    /// A payload may have up to 65,535 bytes minus the overhead.
    fn protect(&mut self, packet: PacketFacts, payload: &[Bytes]) -> Result<Protected, SecurityError>;

    /// Protects several packets, each like [`PacketProtection::protect`]. If packets are encrypted, this
    /// takes less than half the time per packet for four or more packets.
    fn protect_all(&mut self, packets: &[(PacketFacts, &[Bytes])]) -> Result<Vec<Protected>, SecurityError> {
        packets.iter().map(|(packet, payload)| self.protect(*packet, payload)).collect()
    }

    /// Computes the header checksums of consecutive packets of a call, as [`PacketProtection::protect`]
    /// would. Only for payloads that are passed on unchanged (without [`PacketProtection::overhead`]).
    /// `checksums` must be zeros.
    fn checksums(&mut self, _first: PacketFacts, _checksums: &mut [u16]) {}

    /// Checks a received packet's body and returns its payload. `checksum` is from its Rx header.
    fn unprotect(
        &mut self,
        packet: PacketFacts,
        checksum: u16,
        payload: Bytes,
    ) -> Result<Bytes, SecurityError>;
}
