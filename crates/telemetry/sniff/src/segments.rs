//! Splits datagrams that the kernel merged.
//!
//! A sender may pass a run of equally long datagrams in one call (`UDP_SEGMENT`), and a receiver may get one
//! (`UDP_GRO`). A capture on either host shows the run under one UDP header. It is split into pieces that
//! each start with a header of the same epoch and direction, which does not occur within Rx packets.

use crate::frame::Datagram;
use rx_proto::header::{self, HEADER_BYTES, Header};
use rx_proto::limits::CHANNEL_MASK;
use rx_proto::{Flags, PacketType};

/// Maximum number of other packets that one side of a connection may send between two packets of a run.
const SERIALS_MAX: u32 = 1000;

/// Returns the datagrams of a run with their lengths on the wire. If the payload was truncated, the missing
/// bytes count for the last datagram.
pub fn datagrams<'a>(datagram: &Datagram<'a>) -> impl Iterator<Item = (&'a [u8], usize)> {
    let payload = datagram.payload;
    let uncaptured = datagram.payload_bytes - payload.len();
    let bytes = segment_bytes(payload).unwrap_or(payload.len());
    // An empty payload is a datagram too, and `chunks` requires a length above 0.
    let empty = payload.is_empty().then_some(payload);
    let mut rest = payload.len();
    empty.into_iter().chain(payload.chunks(bytes.max(1))).map(move |piece| {
        rest -= piece.len();
        (piece, piece.len() + if rest == 0 { uncaptured } else { 0 })
    })
}

/// Returns the length of each datagram but the last if this is a run.
fn segment_bytes(payload: &[u8]) -> Option<usize> {
    let (first, _) = header::parse(payload).ok()?;
    if !matches!(first.kind, PacketType::Data | PacketType::Ack) {
        return None;
    }
    let epoch = &payload[..4];
    (HEADER_BYTES..payload.len().saturating_sub(HEADER_BYTES - 1))
        .filter(|&at| payload[at] == epoch[0] && payload[at..].starts_with(epoch))
        .find(|&at| is_run(first, payload.chunks(at).skip(1)))
}

fn is_run<'a>(mut last: Header, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut count = 0;
    for piece in pieces {
        match header::parse(piece) {
            Ok((next, _)) if follows(&last, &next) => last = next,
            _ => return false,
        }
        count += 1;
    }
    count > 0
}

/// Whether one side may have sent these packets in this order.
fn follows(last: &Header, next: &Header) -> bool {
    let from_client = |header: &Header| header.flags.contains(Flags::CLIENT_INITIATED);
    let is_same_connection = last.cid & !CHANNEL_MASK == next.cid & !CHANNEL_MASK;
    let later = next.serial.wrapping_sub(last.serial);
    next.epoch == last.epoch
        && from_client(next) == from_client(last)
        && matches!(next.kind, PacketType::Data | PacketType::Ack)
        && (!is_same_connection || next.service_id == last.service_id && (1..=SERIALS_MAX).contains(&later))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(kind: PacketType, sequence: u32, body: &[u8]) -> Vec<u8> {
        let header = Header {
            epoch: 0x8000_0001,
            cid: 0x1234_5678,
            call_number: 1,
            sequence,
            serial: sequence + 5,
            kind,
            flags: Flags(0),
            user_status: 0,
            security_index: 0,
            checksum: 0,
            service_id: 1,
        };
        [&header.encode()[..], body].concat()
    }

    fn cut(payload: &[u8]) -> Vec<&[u8]> {
        let (source, destination) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.1:2".parse().unwrap());
        let payload_bytes = payload.len() + 7;
        let datagram = Datagram { source, destination, payload, payload_bytes, is_fragmented: false };
        let pieces: Vec<(&[u8], usize)> = datagrams(&datagram).collect();
        assert_eq!(pieces.iter().map(|(_, bytes)| bytes).sum::<usize>(), payload_bytes);
        pieces.into_iter().map(|(piece, _)| piece).collect()
    }

    #[test]
    fn runs_are_cut_where_they_were_joined() {
        let data = |sequence, length| packet(PacketType::Data, sequence, &vec![sequence as u8; length]);
        let run = [data(1, 100), data(2, 100), data(3, 20)];
        assert_eq!(cut(&run.concat()), run);
        let acks = [1, 2, 3, 4].map(|number| packet(PacketType::Ack, number, &[9; 37]));
        assert_eq!(cut(&acks.concat()), acks);
        let headers = [data(1, 0), data(2, 0)];
        assert_eq!(cut(&headers.concat()), headers);
    }

    #[test]
    fn single_packets_are_left_whole() {
        let single = packet(PacketType::Data, 1, &[7; 2000]);
        assert_eq!(cut(&single), [&single[..]]);
        let quoted = packet(PacketType::Data, 1, &packet(PacketType::Data, 2, &[0; 40]));
        assert_eq!(
            cut(&[quoted.clone(), vec![1; 40]].concat()).len(),
            1,
            "a packet within a file that is stored"
        );
        let again = [packet(PacketType::Data, 1, &[0; 50]), packet(PacketType::Data, 1, &[0; 50])].concat();
        assert_eq!(cut(&again).len(), 1, "with one serial number");
        assert_eq!(cut(&[]).len(), 1);
        assert_eq!(cut(b"x"), [b"x"]);
    }

    proptest! {
        #[test]
        fn survives_anything(mut payload in proptest::collection::vec(any::<u8>(), 0..300), at in 28usize..200) {
            if payload.len() > 20 {
                payload[20] = 1;
            }
            if let (Some(epoch), true) = (payload.first_chunk::<4>().copied(), payload.len() > at + 4) {
                payload[at..at + 4].copy_from_slice(&epoch);
            }
            prop_assert_eq!(cut(&payload).concat(), payload);
        }
    }
}
