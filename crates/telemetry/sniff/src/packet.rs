//! The data packets in a datagram.

use rx_proto::limits::{JUMBO_BODY_BYTES, JUMBO_HEADER_BYTES, JUMBO_PACKETS_MAX};
use rx_proto::{Flags, Header};

/// A data packet, possibly from a jumbogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) sequence: u32,
    pub(crate) serial: u32,
    pub(crate) flags: Flags,
    /// Captured part of the body.
    pub(crate) body: &'a [u8],
    /// Length of the body on the wire.
    pub(crate) bytes: usize,
}

/// Returns the packets of a DATA datagram whose body has `bytes` bytes on the wire. Packets of a jumbogram
/// beyond the captured part are not returned.
pub(crate) fn pieces<'a>(header: &Header, body: &'a [u8], bytes: usize) -> impl Iterator<Item = Piece<'a>> {
    let whole = Piece { sequence: header.sequence, serial: header.serial, flags: header.flags, body, bytes };
    let mut rest = Some(whole);
    let next = move || {
        let piece = rest.take()?;
        let (this, following) = piece.cut();
        rest = following;
        Some(this)
    };
    std::iter::from_fn(next).take(JUMBO_PACKETS_MAX)
}

impl<'a> Piece<'a> {
    /// Splits off the first packet.
    fn cut(self) -> (Piece<'a>, Option<Piece<'a>>) {
        let is_jumbo = self.flags.contains(Flags::JUMBO_PACKET) && !self.flags.contains(Flags::LAST_PACKET);
        let head_bytes = JUMBO_BODY_BYTES + JUMBO_HEADER_BYTES;
        if !is_jumbo || self.bytes < head_bytes {
            return (self, None);
        }
        let body = &self.body[..self.body.len().min(JUMBO_BODY_BYTES)];
        let following = self.body.get(head_bytes..).map(|rest| Piece {
            sequence: self.sequence.wrapping_add(1),
            serial: self.serial.wrapping_add(1),
            flags: Flags(self.body[JUMBO_BODY_BYTES]),
            body: rest,
            bytes: self.bytes - head_bytes,
        });
        (Piece { body, bytes: JUMBO_BODY_BYTES, ..self }, following)
    }
}
