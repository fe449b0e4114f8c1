//! Packets out: acknowledgements, pings and data of the calls that have something to send.

use base::Monotonic;
use bytes::{BufMut, Bytes, BytesMut};
use rx_security::{Overhead, PacketFacts};

use super::Endpoint;
use super::finish::Tell;
use crate::ack::{Ack, Reason, Trailer};
use crate::call::{Call, Ping, Side};
use crate::connection::Connection;
use crate::header::{Flags, HEADER_BYTES, Header, PacketType};
use crate::limits::{ACKS_MAX, REACH_INTERVAL, TRANSMIT_BYTES_MAX, TRANSMIT_PACKETS_MAX};
use crate::peer::Peer;
use crate::pieces::Pieces;
use crate::slab::Key;
use crate::transmit::{Outgoing, Transmit};

/// Place of the flags in an encoded header.
const FLAGS_BYTE: usize = 21;

/// Only calls that send more than this look for longer packets.
const PROBE_AFTER_PACKETS: u32 = 8;

/// Packets enciphered at a time; more gain nothing.
const SEALED_MAX: usize = 16;

/// The packets of one [`Transmit`] in the making.
struct Batch {
    packets: Vec<Outgoing>,
    /// Body length of the first one.
    body_bytes: usize,
    total_bytes: usize,
    closed: bool,
}

impl Batch {
    /// Whether a body of this length may be added.
    fn takes(&self, body_bytes: usize, packets_max: usize) -> bool {
        let first = self.packets.is_empty();
        let fits = self.total_bytes + HEADER_BYTES + body_bytes <= TRANSMIT_BYTES_MAX;
        first || (!self.closed && body_bytes <= self.body_bytes && fits && self.packets.len() < packets_max)
    }

    fn push(&mut self, header: &Header, pieces: Pieces, body_bytes: usize) {
        if self.packets.is_empty() {
            self.body_bytes = body_bytes;
        }
        self.closed = body_bytes < self.body_bytes;
        self.total_bytes += HEADER_BYTES + body_bytes;
        self.packets.push(Outgoing { header: header.encode(), pieces });
    }

    /// Marks all packets but the last, and the last as well if others follow at once.
    fn mark_more(&mut self, follows: bool) {
        let count = self.packets.len() - usize::from(!follows);
        for packet in &mut self.packets[..count] {
            packet.header[FLAGS_BYTE] |= Flags::MORE_PACKETS.0;
        }
    }
}

impl Endpoint {
    /// The next datagrams to send.
    pub(super) fn next_transmit(&mut self, now: Monotonic) -> Option<Transmit> {
        self.rearm_settled(now);
        if let Some((path, outgoing)) = self.control.pop_front() {
            let mut packets = self.spare.pop().unwrap_or_default();
            packets.push(outgoing);
            return Some(Transmit { path, packets });
        }
        while let Some(key) = self.ready.pop_front() {
            if let Some(call) = self.calls.get_mut(key) {
                call.ready = false;
            }
            let transmit = self.transmit_call(now, key);
            self.settle(now, key);
            if transmit.is_some() {
                return transmit;
            }
        }
        self.rearm_settled(now);
        None
    }

    fn transmit_call(&mut self, now: Monotonic, key: Key) -> Option<Transmit> {
        let call = self.calls.get_mut(key)?;
        if call.failure().is_some() {
            return None;
        }
        if let Some(ping) = call.ping.take() {
            return self.transmit_ack(now, key, Reason::Ping, 0, ping);
        }
        let speaks = call.is_running() && call.may_send() && call.reach_at.is_none();
        let pong = call.receive.acks.has_pong();
        if let Some(transmit) = (speaks && !pong).then(|| self.transmit_data(now, key)).flatten() {
            return Some(transmit);
        }
        let (reason, serial) = self.calls.get_mut(key)?.receive.acks.take()?;
        self.transmit_ack(now, key, reason, serial, Ping::Plain)
    }

    /// Sends as much data as one transmit holds and the windows allow.
    fn transmit_data(&mut self, now: Monotonic, key: Key) -> Option<Transmit> {
        let payload_max = self.payload_max(self.calls.get(key)?.connection);
        let packets_max = self.config.transmit_packets.clamp(1, TRANSMIT_PACKETS_MAX);
        let packets = self.spare.pop().unwrap_or_default();
        let mut batch = Batch { packets, body_bytes: 0, total_bytes: 0, closed: false };
        while self.data_packet(now, key, payload_max, packets_max, &mut batch) {}
        if batch.packets.is_empty() {
            self.spare.push(batch.packets);
            return None;
        }
        let call = self.calls.get_mut(key)?;
        batch.mark_more(call.send.wants_to_send(payload_max) && call.reach_at.is_none());
        call.clocks.sent = now;
        call.owed = None; // a new call says that the last one is through
        if call.side == Side::Server {
            call.receive.acks.cancel(); // a reply says that the request has arrived
        }
        let connection = self.connections.get_mut(call.connection)?;
        connection.used_at = now;
        let path = connection.path;
        if call.ping.is_none() && call.send.sequences() > PROBE_AFTER_PACKETS {
            let probe = self.peers.get_mut(connection.peer).and_then(|peer| peer.mtu.probe(now));
            call.ping = probe.map(Ping::Probe);
        }
        self.wake_writer(key);
        Some(Transmit { path, packets: batch.packets })
    }

    /// Adds one data packet to the batch; tells whether there may be another.
    fn data_packet(
        &mut self,
        now: Monotonic,
        key: Key,
        payload_max: usize,
        packets_max: usize,
        batch: &mut Batch,
    ) -> bool {
        let Some(call) = self.calls.get_mut(key) else { return false };
        let Some(connection) = self.connections.get_mut(call.connection) else { return false };
        let Some(peer) = self.peers.get_mut(connection.peer) else { return false };
        if !may_reach(now, call, connection, peer) {
            return false;
        }
        let Some(place) = (match next_place(now, call, connection, payload_max, packets_max, batch) {
            Ok(place) => place,
            Err(code) => {
                self.fail(now, key, code, Tell::Peer);
                return false;
            }
        }) else {
            return false;
        };
        let again = call.send.on_sent(place, now);
        let unproven = connection.needs_reach() && !peer.is_reached(now);
        let request_ack = unproven || call.send.should_request_ack(place, payload_max);
        if unproven {
            peer.on_unproven_sent();
        }
        let (header, pieces, body_bytes) = data_header(call, connection, place, request_ack);
        if request_ack {
            call.send.add_probe(header.serial, now);
        }
        batch.push(&header, pieces, body_bytes);
        self.statistics.sent(PacketType::Data, HEADER_BYTES + body_bytes);
        if again {
            let bytes = HEADER_BYTES + body_bytes;
            waits::probes::packet_resend(header.cid, header.call_number, header.sequence, bytes);
            self.statistics.data_resent += 1;
            peer.counters.resent += 1;
        } else {
            self.statistics.data_sent += 1;
        }
        peer.counters.sent += 1;
        count_bytes(connection, peer, HEADER_BYTES + body_bytes);
        true
    }

    /// Sends an ACK, padded if it is a ping that probes the path.
    fn transmit_ack(
        &mut self,
        now: Monotonic,
        key: Key,
        reason: Reason,
        serial: u32,
        ping: Ping,
    ) -> Option<Transmit> {
        let trailer = self.trailer();
        let call = self.calls.get_mut(key)?;
        let connection = self.connections.get_mut(call.connection)?;
        let peer = self.peers.get_mut(connection.peer)?;
        let mut header = connection.call_header(PacketType::Ack, call.channel, call.number);
        header.flags = header.flags.with(Flags::SLOW_START_OK);
        header.flags = header.flags.with_if(reason == Reason::Ping, Flags::REQUEST_ACK);
        let mut body = ack_body(&mut self.arena, call, reason, serial, trailer);
        if reason == Reason::Ping {
            call.send.add_probe(header.serial, now);
            self.statistics.pings_sent += 1;
            if let Ping::Probe(length) = ping {
                call.length_probe = Some((header.serial, length));
                body = pad(&mut self.arena, &body, length);
            }
        }
        call.clocks.sent = now;
        let bytes = HEADER_BYTES + body.len();
        count_bytes(connection, peer, bytes);
        self.statistics.sent(PacketType::Ack, bytes);
        let mut packets = self.spare.pop().unwrap_or_default();
        packets.push(Outgoing { header: header.encode(), pieces: Pieces::from(body) });
        Some(Transmit { path: connection.path, packets })
    }

    /// What ACKs say about what we can take.
    pub(super) fn trailer(&self) -> Trailer {
        let length = self.config.packet_bytes_max.max(self.config.packet_bytes) as u32;
        Trailer {
            packet_bytes_max: Some(length),
            interface_bytes: Some(length),
            window: Some(u32::from(self.config.receive_window_packets).clamp(1, ACKS_MAX as u32)),
            jumbo_packets: Some(1),
        }
    }

    /// Payload bytes of a full packet on this connection.
    pub(super) fn payload_max(&self, key: Key) -> usize {
        let connection = self.connections.get(key);
        let peer = connection.and_then(|it| self.peers.get(it.peer));
        let packet = peer.map_or(self.config.packet_bytes, |peer| peer.mtu.packet_bytes());
        let overhead = connection.map_or(Overhead::NONE, |it| it.security.overhead());
        Call::payload_max(packet - HEADER_BYTES, overhead)
    }
}

/// Whether a reply may go on: not too far before its receiver has shown that it is there.
fn may_reach(now: Monotonic, call: &mut Call, connection: &Connection, peer: &mut Peer) -> bool {
    if !connection.needs_reach() || peer.is_reached(now) {
        return true;
    }
    if call.reach_at.is_some() {
        return false;
    }
    if !peer.may_send(now) {
        call.reach_at = Some(now + REACH_INTERVAL);
        call.ping = Some(Ping::Plain);
        return false;
    }
    true
}

/// The place of the packet to send next: a lost one, or a new one, cut and sealed.
fn next_place(
    now: Monotonic,
    call: &mut Call,
    connection: &mut Connection,
    payload_max: usize,
    packets_max: usize,
    batch: &Batch,
) -> Result<Option<usize>, base::AbortCode> {
    if let Some(place) = call.send.next_lost() {
        let length = call.send.packet(place).0.body_bytes;
        return Ok(batch.takes(length, packets_max).then_some(place));
    }
    let Some(payload) = call.send.next_new(payload_max) else { return Ok(None) };
    let overhead = connection.security.overhead();
    let length = (overhead.header_bytes + payload).next_multiple_of(overhead.block_bytes);
    if !batch.takes(length, packets_max) {
        return Ok(None);
    }
    if overhead.block_bytes > 1 {
        return seal_some(now, call, connection, payload_max, packets_max - batch.packets.len());
    }
    let sequence = call.send.next_to_cut();
    let (payload, last) = call.send.cut(payload_max);
    let facts = PacketFacts { call_number: call.number, channel: call.channel, sequence };
    let (body, checksum) = match connection.security.protect(facts, payload.as_slice()) {
        None => (payload, 0),
        Some(Ok(protected)) => (protected.pieces.into_iter().collect(), protected.checksum),
        Some(Err(error)) => return Err(error.abort_code()),
    };
    Ok(Some(call.send.push_sealed(body, checksum, last, now)))
}

/// Cuts and enciphers several packets, which takes a third of the time of one after the other. Gives
/// the place of the first; the others follow it as if they had been lost.
fn seal_some(
    now: Monotonic,
    call: &mut Call,
    connection: &mut Connection,
    payload_max: usize,
    packets_max: usize,
) -> Result<Option<usize>, base::AbortCode> {
    let count = packets_max.min(SEALED_MAX).min(call.send.new_packets_max());
    let (place, first) = (call.send.packets(), call.send.next_to_cut());
    let mut cut = Vec::with_capacity(count);
    while cut.len() < count && call.send.has_new(payload_max) {
        cut.push(call.send.cut(payload_max));
    }
    let facts =
        (first..).map(|sequence| PacketFacts { call_number: call.number, channel: call.channel, sequence });
    let packets: Vec<(PacketFacts, &[Bytes])> =
        facts.zip(cut.iter().map(|(payload, _)| payload.as_slice())).collect();
    let sealed = connection.security.protect_all(&packets).map_err(|error| error.abort_code())?;
    for (protected, (_, last)) in sealed.into_iter().zip(&cut) {
        let body = protected.pieces.into_iter().collect();
        call.send.push_sealed(body, protected.checksum, *last, now);
    }
    Ok((call.send.packets() > place).then_some(place))
}

fn data_header(
    call: &mut Call,
    connection: &mut Connection,
    place: usize,
    request_ack: bool,
) -> (Header, Pieces, usize) {
    let (packet, sequence) = call.send.packet(place);
    let header = connection.call_header(PacketType::Data, call.channel, call.number);
    let flags =
        header.flags.with_if(packet.last, Flags::LAST_PACKET).with_if(request_ack, Flags::REQUEST_ACK);
    let header = Header { sequence, flags, checksum: packet.checksum, ..header };
    (header, packet.body.clone(), packet.body_bytes)
}

fn count_bytes(connection: &mut Connection, peer: &mut Peer, bytes: usize) {
    peer.counters.bytes_sent += bytes as u64;
    let counters = &mut connection.counters;
    counters.packets_sent = counters.packets_sent.wrapping_add(1);
    counters.bytes_sent = counters.bytes_sent.wrapping_add(bytes as u32);
}

fn ack_body(arena: &mut BytesMut, call: &Call, reason: Reason, serial: u32, trailer: Trailer) -> Bytes {
    let mut bits = [0; ACKS_MAX];
    let mut count = 0;
    for (slot, bit) in bits.iter_mut().zip(call.receive.bits()) {
        *slot = bit;
        count += 1;
    }
    let ack = Ack {
        first: call.receive.next(),
        previous: call.receive.highest(),
        serial,
        reason,
        received: &bits[..count],
        trailer: Trailer { window: Some(call.receive.window()), ..trailer },
    };
    ack.encode(arena);
    arena.split().freeze()
}

fn pad(arena: &mut BytesMut, body: &Bytes, length: usize) -> Bytes {
    arena.put_slice(body);
    arena.put_bytes(0, length.saturating_sub(HEADER_BYTES + body.len()));
    arena.split().freeze()
}
