//! Datagrams ready to send.

use bytes::Bytes;

use crate::Path;
use crate::header::HEADER_BYTES;

/// Datagrams for one path. All but the last have the same length and the last is not longer, so that one
/// `UDP_SEGMENT` send can carry them. Their total length is at most 65,000 bytes.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Destination, and the local address to send from.
    pub path: Path,
    /// The datagrams, at least one.
    pub packets: Vec<Outgoing>,
    /// Concatenated bodies of all packets. Bytes that are contiguous at their source form one piece, however
    /// many packets they fill, so that a packet needs no reference of its own.
    pub bodies: Vec<Bytes>,
}

/// A datagram: an Rx header and a number of bytes of [`Transmit::bodies`].
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The encoded header.
    pub header: [u8; HEADER_BYTES],
    /// Length of the body, in bytes.
    pub body_bytes: u32,
}

impl Outgoing {
    /// Returns the length of the datagram.
    pub fn len_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes as usize
    }
}

impl Transmit {
    /// Returns a reader that takes the bodies packet by packet.
    pub fn bodies(&self) -> Bodies<'_> {
        Bodies { rest: &self.bodies, offset: 0 }
    }

    /// Returns copies of the datagrams, for tests and simulators.
    pub fn datagrams(&self) -> impl Iterator<Item = Vec<u8>> {
        let mut bodies = self.bodies();
        self.packets.iter().map(move |packet| {
            let mut datagram = Vec::with_capacity(packet.len_bytes());
            datagram.extend_from_slice(&packet.header);
            bodies.next(packet.body_bytes as usize, |piece| datagram.extend_from_slice(piece));
            datagram
        })
    }
}

/// A reader of the remaining bodies of a transmit.
#[derive(Clone, Debug)]
pub struct Bodies<'a> {
    rest: &'a [Bytes],
    offset: usize,
}

impl<'a> Bodies<'a> {
    /// Passes the pieces that make up the next `bytes` bytes to `piece`.
    pub fn next(&mut self, bytes: usize, mut piece: impl FnMut(&'a [u8])) {
        let mut left = bytes;
        while left > 0
            && let Some((first, others)) = self.rest.split_first()
        {
            let here = &first[self.offset..];
            if left < here.len() {
                piece(&here[..left]);
                self.offset += left;
                return;
            }
            piece(here);
            left -= here.len();
            (self.rest, self.offset) = (others, 0);
        }
    }
}
