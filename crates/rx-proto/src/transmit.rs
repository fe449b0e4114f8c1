//! Datagrams ready to send.

use crate::header::HEADER_BYTES;
use crate::{Path, Pieces};

/// Datagrams for one path. All but the last have the same length and the last is not longer, so
/// that one `UDP_SEGMENT` send can carry them; together they fit into 65,000 bytes.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Where to, and from which address.
    pub path: Path,
    /// At least one.
    pub packets: Vec<Outgoing>,
}

/// One datagram: an Rx header and a body.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The encoded header.
    pub header: [u8; HEADER_BYTES],
    /// What follows it.
    pub pieces: Pieces,
}

impl Outgoing {
    /// The datagram's length.
    pub fn len_bytes(&self) -> usize {
        HEADER_BYTES + self.pieces.len_bytes()
    }

    /// The datagram in one piece, for tests and for simulators.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = self.header.to_vec();
        self.pieces.as_slice().iter().for_each(|piece| all.extend_from_slice(piece));
        all
    }
}
