//! Processing of merged datagrams, mostly the data of one call.
//!
//! The kernel merges consecutive datagrams of one sender. The call is looked up for the first of them only.
//! The following data packets of the same call are passed to it one by one, and their effects
//! (acknowledgements, timers, events) are applied once at the end.

use base::{Monotonic, UnixTime};
use bytes::Bytes;

use super::Endpoint;
use super::input::Packet;
use crate::call::Side;
use crate::connection::ConnectionKey;
use crate::header::{Flags, HEADER_BYTES, Header, PacketType};
use crate::path::Path;
use crate::slab::Key;

/// Consecutive data packets of one call.
struct Run {
    /// Header of the first packet.
    header: Header,
    connection: Key,
    call: Key,
    /// Number of packets after the first.
    packets: u32,
    bytes: u64,
}

impl Run {
    fn takes(&self, header: &Header) -> bool {
        let of = |header: &Header| {
            let client_sent = header.flags.contains(Flags::CLIENT_INITIATED);
            (header.epoch, header.cid, header.call_number, header.security_index, client_sent)
        };
        is_plain_data(header) && of(header) == of(&self.header)
    }
}

impl Endpoint {
    /// Processes merged datagrams.
    pub(super) fn input_run(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        path: Path,
        mut datagrams: Bytes,
        segment_bytes: usize,
    ) {
        let mut run: Option<Run> = None;
        while !datagrams.is_empty() {
            let datagram = datagrams.split_to(segment_bytes.clamp(1, datagrams.len()));
            let Some(packet) = self.take_in(path, datagram) else { continue };
            match &mut run {
                Some(run) if run.takes(&packet.header) => self.add_to_run(now, run, packet),
                _ => {
                    self.end_run(now, run.take());
                    let header = packet.header;
                    self.sort(now, wall, packet);
                    run = (!datagrams.is_empty()).then(|| self.begin_run(path, header)).flatten();
                }
            }
        }
        self.end_run(now, run);
    }

    /// Starts a run after a processed data packet, if the packets that follow can be passed directly to its
    /// call.
    fn begin_run(&self, path: Path, header: Header) -> Option<Run> {
        let client_sent = header.flags.contains(Flags::CLIENT_INITIATED);
        let side = if client_sent { Side::Server } else { Side::Client };
        if !is_plain_data(&header) {
            return None;
        }
        let key =
            *self.connections.index.get(&ConnectionKey::new(header.epoch, header.cid, side, path.remote))?;
        let connection = self.connections.all.get(key).filter(|it| it.error.is_none())?;
        let channel = connection.channels[header.channel()];
        let call = channel.call.filter(|_| channel.number == header.call_number)?;
        let fits = connection.facts.security_index == header.security_index;
        fits.then_some(Run { header, connection: key, call, packets: 0, bytes: 0 })
    }

    fn add_to_run(&mut self, now: Monotonic, run: &mut Run, packet: Packet) {
        run.packets += 1;
        run.bytes += (HEADER_BYTES + packet.body.len()) as u64;
        self.on_plain_data(now, run.call, packet);
    }

    fn end_run(&mut self, now: Monotonic, run: Option<Run>) {
        let Some(run) = run.filter(|run| run.packets > 0) else { return };
        if let Some(connection) = self.connections.all.get_mut(run.connection) {
            let counters = &mut connection.counters;
            counters.packets_received = counters.packets_received.wrapping_add(run.packets);
            counters.bytes_received = counters.bytes_received.wrapping_add(run.bytes as u32);
            if let Some(peer) = self.peers.all.get_mut(connection.peer) {
                peer.counters.received += u64::from(run.packets);
                peer.counters.bytes_received += run.bytes;
                peer.on_bytes(u32::try_from(run.bytes).unwrap_or(u32::MAX));
            }
        }
        self.announce(now, run.call);
        self.settle(now, run.call);
    }
}

/// Whether the packet contains data of a call and is not a jumbogram.
fn is_plain_data(header: &Header) -> bool {
    header.kind == PacketType::Data && header.call_number != 0 && !header.flags.contains(Flags::JUMBO_PACKET)
}
