//! Protection of data packets: what the call layer hands in and gets back.

use bytes::Bytes;

use crate::SecurityError;

/// The facts about a connection that security depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionFacts {
    /// The client's epoch, as in packet headers.
    pub epoch: u32,
    /// The connection's id with the two channel bits 0.
    pub connection_id: u32,
    /// The service asked for.
    pub service_id: u16,
    /// The security class asked for.
    pub security_index: u8,
}

/// The facts about a data packet that security depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketFacts {
    /// The call's number on its channel.
    pub call_number: u32,
    /// Channel, 0 to 3.
    pub channel: u8,
    /// The packet's sequence number in its call, from 1.
    pub sequence: u32,
}

/// What protection adds to each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes put before the payload.
    pub header_bytes: usize,
    /// Header and payload together are padded to a multiple of this; at least 1.
    pub block_bytes: usize,
}

impl Overhead {
    /// Of a class that adds nothing.
    pub const NONE: Overhead = Overhead { header_bytes: 0, block_bytes: 1 };

    /// The longest payload whose protected form fits into `room` bytes after the Rx header.
    pub fn payload_max(self, room: usize) -> usize {
        (room - room % self.block_bytes).saturating_sub(self.header_bytes)
    }
}

/// A packet ready to send: the checksum for its Rx header, and its body in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protected {
    /// The Rx header's 16-bit "spare" field that rxkad uses; 0 where it is not used.
    pub checksum: u16,
    /// The body, in order.
    pub pieces: Vec<Bytes>,
}

impl Protected {
    /// The body's length.
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
/// Protection depends on nothing but the packet's facts and payload, so packets may be protected
/// and unprotected in any order and any number of times. A packet that is sent again is sent as it
/// was protected the first time.
pub trait PacketProtection: Send {
    /// What protection adds to packets.
    fn overhead(&self) -> Overhead;

    /// Protects a payload, given in pieces. Where the level allows it the pieces are passed on,
    /// not copied. A payload may be up to 65,535 bytes less overhead.
    fn protect(&mut self, packet: PacketFacts, payload: &[Bytes]) -> Result<Protected, SecurityError>;

    /// Protects several packets, each as [`PacketProtection::protect`] does; where packets are
    /// enciphered this takes less than half the time for four or more at once.
    fn protect_all(&mut self, packets: &[(PacketFacts, &[Bytes])]) -> Result<Vec<Protected>, SecurityError> {
        packets.iter().map(|(packet, payload)| self.protect(*packet, payload)).collect()
    }

    /// The header checksums of packets that follow each other in a call, if payloads are passed on as they are
    /// (without [`PacketProtection::overhead`]): what [`PacketProtection::protect`] would give for each.
    /// `checksums` are zeros.
    fn checksums(&mut self, _first: PacketFacts, _checksums: &mut [u16]) {}

    /// Checks a received packet's body and gives its payload. `checksum` is from its Rx header.
    fn unprotect(
        &mut self,
        packet: PacketFacts,
        checksum: u16,
        payload: Bytes,
    ) -> Result<Bytes, SecurityError>;
}
