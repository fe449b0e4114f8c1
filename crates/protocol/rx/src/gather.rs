//! Transmits laid out for the kernel: one list of pieces, with marks where packets and runs end.

use std::io::IoSlice;

use rx_proto::limits::{TRANSMIT_BYTES_MAX, TRANSMIT_PACKETS_MAX};
use rx_proto::{Path, Transmit};

use crate::sys::{MESSAGE_PIECES_MAX, Message};

/// Datagrams to send. Borrows headers and payload without copying them.
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

/// Datagrams that one system call may carry: one path, and equal sizes except for a shorter last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    path: Path,
    packet_begin: usize,
    packet_end: usize,
    bytes: usize,
}

impl Run {
    /// Returns the path of the datagrams.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// Returns the number of datagrams.
    pub(crate) fn packets(&self) -> usize {
        self.packet_end - self.packet_begin
    }

    /// Returns the payload bytes of all datagrams.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<'a> Gather<'a> {
    /// Creates an empty list that reuses the allocations of another.
    pub(crate) fn reuse(mut used: Gather<'_>) -> Gather<'a> {
        used.pieces.clear();
        used.packets.clear();
        used.runs.clear();
        // Collecting in place keeps the allocation, as there are no elements to convert.
        let pieces = used.pieces.into_iter().map(|_| IoSlice::new(&[])).collect();
        Gather { pieces, packets: used.packets, runs: used.runs }
    }

    /// Adds the datagrams of a transmit. They join the previous transmit's run if they have the same path and
    /// fit: replies to the calls of one client often have the same size, and the kernel processes each run
    /// once.
    pub(crate) fn push(&mut self, transmit: &'a Transmit) {
        let last = self.runs.pop_if(|run| run.path == transmit.path);
        let mut run = last.unwrap_or_else(|| self.new_run(transmit.path));
        let mut bodies = transmit.bodies();
        for packet in &transmit.packets {
            let piece_begin = self.pieces.len();
            self.pieces.push(IoSlice::new(&packet.header));
            bodies.next(packet.body_bytes as usize, |piece| self.pieces.push(IoSlice::new(piece)));
            let packet = Packet { piece_begin, piece_end: self.pieces.len(), bytes: packet.len_bytes() };
            if !self.fits(&run, packet) {
                self.runs.push(run);
                run = self.new_run(transmit.path);
            }
            self.packets.push(packet);
            run.packet_end = self.packets.len();
            run.bytes += packet.bytes;
        }
        if run.packets() > 0 {
            self.runs.push(run);
        }
    }

    /// Returns the runs in the order in which they were added.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the run as one message, which the kernel segments if it has more than one datagram.
    pub(crate) fn whole(&'a self, run: &Run) -> Message<'a> {
        let first = self.packets[run.packet_begin];
        let last = self.packets[run.packet_end - 1];
        let segment_bytes = (run.packets() > 1).then_some(first.bytes as u16);
        self.message(run.path, segment_bytes, first.piece_begin, last.piece_end)
    }

    /// Returns the run as one message per datagram.
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

    /// Whether `packet` can extend the run.
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
    use rx_proto::Outgoing;
    use std::net::SocketAddr;

    /// Builds datagrams with bodies of these sizes, in pieces with different boundaries.
    fn transmit(client: u8, sizes: &[usize]) -> Transmit {
        let all: Bytes = (0..sizes.iter().sum::<usize>()).map(|n| (n % 251) as u8).collect();
        let bodies = all.chunks(1000).map(|piece| all.slice_ref(piece)).collect();
        let packets = sizes.iter().map(|bytes| Outgoing { header: [7; 28], body_bytes: *bytes as u32 });
        let path = Path::to(SocketAddr::from(([127, 0, 0, client], 7000)));
        Transmit { path, packets: packets.collect(), bodies }
    }

    fn flat(message: &Message<'_>) -> Vec<u8> {
        message.pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    #[test]
    fn packets_of_one_path_form_a_run() {
        let all = [(1, 148), (1, 148), (1, 60), (1, 148), (2, 148), (1, 148), (1, 150)];
        let transmits = all.map(|(client, bytes)| transmit(client, &[bytes]));
        let mut gather = Gather::default();
        for transmit in &transmits {
            gather.push(transmit);
        }
        // A run ends after a shorter datagram, before a longer one, and at a different destination.
        let packets: Vec<usize> = gather.runs().iter().map(Run::packets).collect();
        assert_eq!(packets, [3, 1, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn runs_carry_the_packets_in_order_and_can_be_cut(transmits in prop::collection::vec(
            (1..3_u8, prop::collection::vec(prop_oneof![Just(1444usize), Just(148), 0..2000usize], 0..100)), 0..8))
        {
            let transmits: Vec<Transmit> =
                transmits.iter().map(|(client, sizes)| transmit(*client, sizes)).collect();
            let mut gather = Gather::default();
            for transmit in &transmits {
                gather.push(transmit);
            }
            let mut cut = Vec::new();
            for run in gather.runs() {
                let message = gather.whole(run);
                prop_assert_eq!(message.to, run.path().remote);
                let all = flat(&message);
                prop_assert_eq!(all.len(), run.bytes());
                prop_assert!(all.len() <= TRANSMIT_BYTES_MAX && run.packets() <= TRANSMIT_PACKETS_MAX);
                let segment = message.segment_bytes.map_or(all.len(), usize::from);
                cut.extend(all.chunks(segment).map(|datagram| (message.to, datagram.to_vec())));
                let singles: Vec<_> =
                    gather.singles(run).map(|single| (single.to, flat(&single))).collect();
                prop_assert_eq!(&cut[cut.len() - singles.len()..], &singles[..]);
            }
            let to = |transmit: &Transmit| transmit.path.remote;
            let sent: Vec<_> = transmits
                .iter()
                .flat_map(|transmit| transmit.datagrams().map(move |datagram| (to(transmit), datagram)))
                .collect();
            prop_assert_eq!(cut, sent);
        }
    }
}
