//! The body of ACK packets.
//!
//! ```text
//!  0  u16 buffer space (unused)    2  u16 skew (unused)
//!  4  u32 first packet not yet read by the receiver's application; all earlier ones are complete
//!  8  u32 previous packet          here: the highest one received
//! 12  u32 serial                   of the packet that caused this ACK, or 0
//! 16  u8  reason                  17  u8 count
//! 18  count bytes, bit 0: packet (first + n) has been received
//!     3 bytes 0
//!     u32 longest packet accepted, u32 interface's packet length,
//!     u32 receive window, u32 packets per jumbogram accepted       (each optional)
//!     u32 BEYOND, u16 count, count bytes                           (optional, Cellar only)
//! ```
//!
//! The last field has one bit for each packet from (first + 255) on, the lowest bit of a byte first. It is
//! present if more than 255 packets follow a gap. Only a peer that was offered a larger window than usual,
//! and used it, can send that many.
//!
//! rx-spec, "Acknowledgement packets"; struct rx_ackPacket and the fields after it in rxi_SendAck.

use crate::limits::{ACKS_MAX, WINDOW_MAX};

/// Length of the fixed part that precedes the received bits, in bytes.
const FIXED_BYTES: usize = 18;

/// Number of unused bytes between the received bits and the trailer.
const GAP_BYTES: usize = 3;

/// Length of a complete trailer, in bytes.
const TRAILER_BYTES: usize = 16;

/// Marker that precedes the bits for further packets: "Cell".
const BEYOND: u32 = 0x4365_6c6c;

/// Maximum number of bytes that hold the bits for further packets.
pub(crate) const BEYOND_BYTES_MAX: usize = (WINDOW_MAX - ACKS_MAX).div_ceil(8);

/// Maximum length of a body, in bytes.
pub const ACK_BYTES_MAX: usize = FIXED_BYTES + ACKS_MAX + GAP_BYTES + TRAILER_BYTES + 6 + BEYOND_BYTES_MAX;

/// Reason for sending an ACK (RX_ACK_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The packet requested an ACK.
    Requested,
    /// The packet had been received before.
    Duplicate,
    /// The packet left a gap before it.
    OutOfSequence,
    /// The packet was beyond the window and was dropped.
    ExceedsWindow,
    /// There was no memory for the packet.
    NoSpace,
    /// Asks whether the peer is alive.
    Ping,
    /// Answers a ping.
    PingResponse,
    /// Sent some time after the last packet.
    Delay,
    /// Sent occasionally during a transfer.
    Idle,
    /// An unknown reason.
    Other(u8),
}

impl Reason {
    /// Returns the reason with this number.
    pub fn from_wire(number: u8) -> Reason {
        match number {
            1 => Self::Requested,
            2 => Self::Duplicate,
            3 => Self::OutOfSequence,
            4 => Self::ExceedsWindow,
            5 => Self::NoSpace,
            6 => Self::Ping,
            7 => Self::PingResponse,
            8 => Self::Delay,
            9 => Self::Idle,
            other => Self::Other(other),
        }
    }

    /// Whether an ACK with this reason responds to a DATA packet.
    pub(crate) fn answers_data(self) -> bool {
        matches!(
            self,
            Self::Requested | Self::Duplicate | Self::OutOfSequence | Self::ExceedsWindow | Self::NoSpace
        )
    }

    /// Returns the number of the reason on the wire.
    pub fn to_wire(self) -> u8 {
        match self {
            Self::Requested => 1,
            Self::Duplicate => 2,
            Self::OutOfSequence => 3,
            Self::ExceedsWindow => 4,
            Self::NoSpace => 5,
            Self::Ping => 6,
            Self::PingResponse => 7,
            Self::Delay => 8,
            Self::Idle => 9,
            Self::Other(number) => number,
        }
    }
}

/// The body of an ACK, which borrows the received bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The first packet not yet read.
    pub first: u32,
    /// The highest packet received (from some peers: the latest).
    pub previous: u32,
    /// Serial of the packet answered, or 0.
    pub serial: u32,
    /// Reason for sending the ACK.
    pub reason: Reason,
    /// One byte per packet from `first` on; bit 0 is set if the packet has been received.
    pub received: &'a [u8],
    /// The receiver's limits.
    pub trailer: Trailer,
    /// One bit per packet from `first + 255` on, the lowest bit of a byte first; present only after a
    /// complete trailer.
    pub beyond: &'a [u8],
}

/// The limits of an ACK's sender. Old peers omit fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// Longest packet, Rx header included.
    pub packet_bytes_max: Option<u32>,
    /// Longest packet that the sender's interface carries unfragmented, Rx header included.
    pub interface_bytes: Option<u32>,
    /// Number of packets from `first` on for which the sender has room.
    pub window: Option<u32>,
    /// Packets per datagram.
    pub jumbo_packets: Option<u32>,
}

/// An ACK body that ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ACK body of {got} bytes, at least {FIXED_BYTES} are needed")]
pub struct AckError {
    /// Length of the body, in bytes.
    pub got: usize,
}

/// Decodes the body of an ACK. Packets whose bits the end of the packet cuts off count as not acknowledged.
pub fn parse(body: &[u8]) -> Result<Ack<'_>, AckError> {
    let Some((fixed, rest)) = body.split_first_chunk::<FIXED_BYTES>() else {
        return Err(AckError { got: body.len() });
    };
    let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let count = usize::from(fixed[17]);
    Ok(Ack {
        first: word(4),
        previous: word(8),
        serial: word(12),
        reason: Reason::from_wire(fixed[16]),
        received: &rest[..count.min(rest.len())],
        trailer: parse_trailer(rest.get(count + GAP_BYTES..).unwrap_or_default()),
        beyond: rest.get(count + GAP_BYTES + TRAILER_BYTES..).and_then(parse_beyond).unwrap_or_default(),
    })
}

fn parse_beyond(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<6>()?;
    let count = usize::from(u16::from_be_bytes([head[4], head[5]]));
    rest.get(..count).filter(|bits| head[..4] == BEYOND.to_be_bytes() && bits.len() <= BEYOND_BYTES_MAX)
}

fn parse_trailer(bytes: &[u8]) -> Trailer {
    let word = |at: usize| {
        let field = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes([field[0], field[1], field[2], field[3]]))
    };
    Trailer { packet_bytes_max: word(0), interface_bytes: word(4), window: word(8), jumbo_packets: word(12) }
}

impl Ack<'_> {
    /// Returns for each packet from `first` on whether it has been received.
    pub fn bits(&self) -> impl Iterator<Item = bool> {
        let beyond = if self.received.len() == ACKS_MAX { self.beyond } else { &[] };
        let bit_of = |byte: &u8| {
            (0..8).map({
                let byte = *byte;
                move |bit| byte >> bit & 1 != 0
            })
        };
        self.received.iter().map(|bit| bit & 1 != 0).chain(beyond.iter().flat_map(bit_of))
    }

    /// Appends the encoded body. The trailer ends at its first missing field.
    pub fn encode(&self, out: &mut impl Extend<u8>) {
        let count = self.received.len().min(ACKS_MAX);
        out.extend([0; 4]);
        for value in [self.first, self.previous, self.serial] {
            out.extend(value.to_be_bytes());
        }
        out.extend([self.reason.to_wire(), count as u8]);
        out.extend(self.received[..count].iter().copied());
        out.extend([0; GAP_BYTES]);
        let Trailer { packet_bytes_max, interface_bytes, window, jumbo_packets } = self.trailer;
        for value in [packet_bytes_max, interface_bytes, window, jumbo_packets].into_iter().map_while(|v| v) {
            out.extend(value.to_be_bytes());
        }
        if !self.beyond.is_empty() && jumbo_packets.is_some() {
            let bits = &self.beyond[..self.beyond.len().min(BEYOND_BYTES_MAX)];
            out.extend(BEYOND.to_be_bytes());
            out.extend((bits.len() as u16).to_be_bytes());
            out.extend(bits.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout() {
        let ack = Ack {
            first: 7,
            previous: 9,
            serial: 0x0102_0304,
            reason: Reason::OutOfSequence,
            received: &[0, 0, 1],
            trailer: Trailer {
                packet_bytes_max: Some(1472),
                interface_bytes: Some(1472),
                window: Some(255),
                jumbo_packets: Some(1),
            },
            beyond: &[],
        };
        let mut out = Vec::new();
        ack.encode(&mut out);
        let expected = [
            &[0, 0, 0, 0][..],
            &[0, 0, 0, 7, 0, 0, 0, 9, 1, 2, 3, 4],
            &[3, 3, 0, 0, 1, 0, 0, 0],
            &[0, 0, 5, 0xc0, 0, 0, 5, 0xc0, 0, 0, 0, 255, 0, 0, 0, 1],
        ]
        .concat();
        assert_eq!(out, expected);
        assert_eq!(parse(&out), Ok(ack));
    }

    #[test]
    fn short_forms() {
        assert_eq!(parse(&[0; 17]), Err(AckError { got: 17 }));
        let mut body = vec![0; 18];
        body[17] = 200;
        body.extend([1; 20]);
        let ack = parse(&body).unwrap();
        assert_eq!(ack.received.len(), 20);
        assert_eq!(ack.trailer, Trailer::default());
    }

    #[test]
    fn more_packets_than_others_can_speak_of() {
        let trailer = Trailer {
            packet_bytes_max: Some(1472),
            interface_bytes: Some(1472),
            window: Some(4096),
            jumbo_packets: Some(1),
        };
        let received = [1; ACKS_MAX];
        let ack = Ack {
            first: 7,
            previous: 500,
            serial: 1,
            reason: Reason::OutOfSequence,
            received: &received,
            trailer,
            beyond: &[0b101, 0x80],
        };
        let mut out = Vec::new();
        ack.encode(&mut out);
        assert_eq!(&out[18 + 255 + 3 + 16..], [b'C', b'e', b'l', b'l', 0, 2, 0b101, 0x80]);
        assert_eq!(parse(&out), Ok(ack));
        let bits: Vec<usize> =
            ack.bits().enumerate().skip(255).filter_map(|(n, bit)| bit.then_some(n)).collect();
        assert_eq!(bits, [255, 257, 270]);
        // A truncated field and one with another marker are ignored.
        let last = out.len() - 1;
        assert_eq!(parse(&out[..last]).unwrap().beyond, [0; 0]);
        out[18 + 255 + 3 + 16] = b'K';
        assert_eq!(parse(&out).unwrap().bits().count(), 255);
        assert_eq!(Ack { received: &received[..254], ..ack }.bits().count(), 254);
    }

    proptest! {
        #[test]
        fn survives_anything(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(ack) = parse(&body) {
                let mut out = Vec::new();
                ack.encode(&mut out);
                prop_assert_eq!(parse(&out), Ok(ack));
            }
        }
    }
}
