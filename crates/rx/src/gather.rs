//! Transmits laid out for the kernel: one list of pieces, and marks where packets and runs end.

use std::io::IoSlice;

use rx_proto::limits::{TRANSMIT_BYTES_MAX, TRANSMIT_PACKETS_MAX};
use rx_proto::{Outgoing, Path};

use crate::sys::{MESSAGE_PIECES_MAX, Message};

/// Datagrams about to be sent. Borrows headers and payload; nothing is copied.
#[derive(Debug, Default)]
pub(crate) struct Gather<'a> {
    pieces: Vec<IoSlice<'a>>,
    packets: Vec<Packet>,
    runs: Vec<Run>,
}

/// One datagram: a range of the pieces.
#[derive(Clone, Copy, Debug)]
struct Packet {
    piece_begin: usize,
    piece_end: usize,
    bytes: usize,
}

/// Datagrams that one system call may carry: one path, equal sizes save for a shorter last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    path: Path,
    packet_begin: usize,
    packet_end: usize,
    bytes: usize,
}

impl Run {
    /// Where it goes.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// How many datagrams.
    pub(crate) fn packets(&self) -> usize {
        self.packet_end - self.packet_begin
    }

    /// Payload bytes of all datagrams.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<'a> Gather<'a> {
    /// Adds datagrams for `path`. Those that do not fit into one run (a contract of the endpoint,
    /// but the kernel would send garbage sizes if it were broken) begin another.
    pub(crate) fn push(&mut self, path: Path, packets: &'a [Outgoing]) {
        let mut run = self.new_run(path);
        for packet in packets {
            let packet = self.push_packet(packet);
            if !self.fits(&run, packet) {
                self.runs.push(run);
                run = self.new_run(path);
            }
            self.packets.push(packet);
            run.packet_end = self.packets.len();
            run.bytes += packet.bytes;
        }
        if run.packets() > 0 {
            self.runs.push(run);
        }
    }

    /// The runs, in the order in which they were added.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The run as one message; the kernel cuts it if there is more than one datagram in it.
    pub(crate) fn whole(&'a self, run: &Run) -> Message<'a> {
        let first = self.packets[run.packet_begin];
        let last = self.packets[run.packet_end - 1];
        let segment_bytes = (run.packets() > 1).then_some(first.bytes as u16);
        self.message(run.path, segment_bytes, first.piece_begin, last.piece_end)
    }

    /// The run as one message per datagram.
    pub(crate) fn singles(&'a self, run: &Run) -> impl Iterator<Item = Message<'a>> {
        let path = run.path;
        self.packets[run.packet_begin..run.packet_end]
            .iter()
            .map(move |packet| self.message(path, None, packet.piece_begin, packet.piece_end))
    }

    fn message(&'a self, path: Path, segment_bytes: Option<u16>, begin: usize, end: usize) -> Message<'a> {
        Message { to: path.remote, from: path.local, segment_bytes, pieces: &self.pieces[begin..end] }
    }

    fn new_run(&self, path: Path) -> Run {
        Run { path, packet_begin: self.packets.len(), packet_end: self.packets.len(), bytes: 0 }
    }

    fn push_packet(&mut self, packet: &'a Outgoing) -> Packet {
        let piece_begin = self.pieces.len();
        self.pieces.push(IoSlice::new(&packet.header));
        self.pieces.extend(packet.pieces.as_slice().iter().map(|piece| IoSlice::new(piece)));
        Packet { piece_begin, piece_end: self.pieces.len(), bytes: packet.len_bytes() }
    }

    /// Whether `packet` can be the run's next.
    fn fits(&self, run: &Run, packet: Packet) -> bool {
        let Some(first) = self.packets[run.packet_begin..run.packet_end].first() else { return true };
        let last_bytes = self.packets[run.packet_end - 1].bytes;
        packet.bytes <= first.bytes
            && last_bytes == first.bytes
            && run.packets() < TRANSMIT_PACKETS_MAX
            && run.bytes + packet.bytes <= TRANSMIT_BYTES_MAX
            && packet.piece_end - first.piece_begin <= MESSAGE_PIECES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    fn outgoing(bytes: usize) -> Outgoing {
        let body = Bytes::from((0..bytes).map(|n| n as u8).collect::<Vec<u8>>());
        let (one, two) = (body.slice(..bytes / 3), body.slice(bytes / 3..));
        Outgoing { header: [7; 28], pieces: [one, two].into_iter().collect() }
    }

    fn flat(message: &Message<'_>) -> Vec<u8> {
        message.pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    proptest! {
        #[test]
        fn runs_carry_the_packets_in_order_and_can_be_cut(sizes in prop::collection::vec(
            prop_oneof![Just(1444usize), 0..2000usize], 0..200))
        {
            let packets: Vec<Outgoing> = sizes.iter().map(|bytes| outgoing(*bytes)).collect();
            let path = Path::to(SocketAddr::from(([127, 0, 0, 1], 7000)));
            let mut gather = Gather::default();
            gather.push(path, &packets);
            let mut cut = Vec::new();
            for run in gather.runs() {
                let message = gather.whole(run);
                let all = flat(&message);
                prop_assert_eq!(all.len(), run.bytes());
                prop_assert!(all.len() <= TRANSMIT_BYTES_MAX && run.packets() <= TRANSMIT_PACKETS_MAX);
                let segment = message.segment_bytes.map_or(all.len(), usize::from);
                cut.extend(all.chunks(segment).map(<[u8]>::to_vec));
                let singles: Vec<Vec<u8>> = gather.singles(run).map(|single| flat(&single)).collect();
                prop_assert_eq!(&cut[cut.len() - singles.len()..], &singles[..]);
            }
            let sent: Vec<Vec<u8>> = packets.iter().map(Outgoing::to_vec).collect();
            prop_assert_eq!(cut, sent);
        }
    }
}
