//! Datagrams ready to send.

use bytes::Bytes;

use crate::Path;
use crate::header::HEADER_BYTES;

/// Datagrams for one path. All but the last have the same length and the last is not longer, so
/// that one `UDP_SEGMENT` send can carry them; together they fit into 65,000 bytes.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Where to, and from which address.
    pub path: Path,
    /// At least one.
    pub packets: Vec<Outgoing>,
    /// The bodies of all packets, one after the other: what belongs together where it comes from is one
    /// piece here, however many packets it fills. So a packet costs no reference of its own.
    pub bodies: Vec<Bytes>,
}

/// One datagram: an Rx header, and so many bytes of [`Transmit::bodies`].
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The encoded header.
    pub header: [u8; HEADER_BYTES],
    /// Length of what follows it.
    pub body_bytes: u32,
}

impl Outgoing {
    /// The datagram's length.
    pub fn len_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes as usize
    }
}

impl Transmit {
    /// The bodies, to be taken packet by packet.
    pub fn bodies(&self) -> Bodies<'_> {
        Bodies { rest: &self.bodies, offset: 0 }
    }

    /// The datagrams, copied, for tests and for simulators.
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

/// What is left of a transmit's bodies.
#[derive(Clone, Debug)]
pub struct Bodies<'a> {
    rest: &'a [Bytes],
    offset: usize,
}

impl<'a> Bodies<'a> {
    /// Takes the pieces of the next so many bytes.
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
