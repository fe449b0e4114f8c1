//! Sending of packets: acknowledgements, pings and data of the calls that have something to send.

use base::Monotonic;
use bytes::{BufMut, Bytes, BytesMut};
use rx_security::{Overhead, PacketFacts};

use super::finish::Notify;
use super::{Endpoint, SpareTransmit};
use crate::Path;
use crate::ack::{Ack, BEYOND_BYTES_MAX, Reason, Trailer};
use crate::call::rope::Gathered;
use crate::call::send::SentFacts;
use crate::call::{Call, Ping, Side, State};
use crate::connection::Connection;
use crate::header::{Flags, HEADER_BYTES, PacketType, place};
use crate::limits::{ACKS_MAX, SHARED_WINDOW_MIN, TRANSMIT_BYTES_MAX, TRANSMIT_PACKETS_MAX, WINDOW_MAX};
use crate::peer::Peer;
use crate::slab::Key;
use crate::transmit::{Outgoing, Transmit};

/// Number of sent packets beyond which a call probes the path for longer packets.
const PROBE_AFTER_PACKETS: u32 = 8;

/// Maximum number of packets encrypted together; more have no benefit.
const SEALED_MAX: usize = 16;

/// The packets of a [`Transmit`] under construction.
struct Batch {
    packets: Vec<Outgoing>,
    bodies: Gathered,
    packets_max: usize,
    /// Body length of the first packet.
    body_bytes: usize,
    total_bytes: usize,
    closed: bool,
    resent: u64,
    /// The last packet and its serial, if it does not request an ACK.
    unasked: Option<(SentFacts, u32)>,
}

impl Batch {
    fn new(spare: SpareTransmit, packets_max: usize) -> Batch {
        Batch {
            packets: spare.packets,
            bodies: Gathered::reusing(spare.bodies),
            packets_max,
            body_bytes: 0,
            total_bytes: 0,
            closed: false,
            resent: 0,
            unasked: None,
        }
    }

    /// Returns the number of bodies of this length that can still be added.
    fn room(&self, body_bytes: usize) -> usize {
        if self.packets.is_empty() {
            return self.packets_max.min(TRANSMIT_BYTES_MAX / (HEADER_BYTES + body_bytes)).max(1);
        }
        if self.closed || body_bytes > self.body_bytes {
            return 0;
        }
        let bytes = TRANSMIT_BYTES_MAX - self.total_bytes;
        (self.packets_max - self.packets.len()).min(bytes / (HEADER_BYTES + body_bytes))
    }

    fn push(&mut self, mut header: [u8; HEADER_BYTES], packet: SentFacts, serial: u32, flags: Flags) {
        if self.packets.is_empty() {
            self.body_bytes = packet.body_bytes;
        }
        self.closed = packet.body_bytes < self.body_bytes;
        self.total_bytes += HEADER_BYTES + packet.body_bytes;
        header[place::SEQUENCE].copy_from_slice(&packet.sequence.to_be_bytes());
        header[place::SERIAL].copy_from_slice(&serial.to_be_bytes());
        header[place::FLAGS] |= flags.0;
        header[place::CHECKSUM].copy_from_slice(&packet.checksum.to_be_bytes());
        self.packets.push(Outgoing { header, body_bytes: packet.body_bytes as u32 });
        self.unasked = (!flags.contains(Flags::REQUEST_ACK)).then_some((packet, serial));
    }

    /// Sets MORE_PACKETS on all packets but the last, and on the last as well if others follow immediately.
    fn mark_more(&mut self, follows: bool) {
        let count = self.packets.len() - usize::from(!follows);
        for packet in &mut self.packets[..count] {
            packet.header[place::FLAGS] |= Flags::MORE_PACKETS.0;
        }
    }

    /// Makes the last packet request an ACK.
    fn ask_for_ack(&mut self) {
        if let Some(last) = self.packets.last_mut() {
            last.header[place::FLAGS] |= Flags::REQUEST_ACK.0;
        }
    }
}

impl Endpoint {
    /// Returns the next datagrams to send.
    pub(super) fn next_transmit(&mut self, now: Monotonic) -> Option<Transmit> {
        if let Some((path, header, body)) = self.output.control.pop_front() {
            return Some(self.single(path, header, body));
        }
        while let Some(key) = self.output.ready.pop_front() {
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
        if call.state == State::Waiting {
            let serial = call.receive.acks.take_pong()?;
            return self.transmit_ack(now, key, Reason::PingResponse, serial, Ping::Plain);
        }
        let speaks = call.state.is_running() && call.may_send();
        let pong = call.receive.acks.has_pong();
        if let Some(transmit) = (speaks && !pong).then(|| self.transmit_data(now, key)).flatten() {
            return Some(transmit);
        }
        let (reason, serial) = self.calls.get_mut(key)?.receive.acks.take()?;
        self.transmit_ack(now, key, reason, serial, Ping::Plain)
    }

    /// Creates a transmit of one packet.
    fn single(&mut self, path: Path, header: [u8; HEADER_BYTES], body: Bytes) -> Transmit {
        let SpareTransmit { mut packets, mut bodies } = self.output.spare.pop().unwrap_or_default();
        packets.push(Outgoing { header, body_bytes: body.len() as u32 });
        bodies.push(body);
        Transmit { path, packets, bodies }
    }

    /// Sends as much data as fits into one transmit and the windows allow.
    fn transmit_data(&mut self, now: Monotonic, key: Key) -> Option<Transmit> {
        let payload_max = self.payload_max(self.calls.get(key)?.connection);
        let call = self.calls.get_mut(key)?;
        let connection = self.connections.all.get_mut(call.connection)?;
        let peer = self.peers.all.get_mut(connection.peer)?;
        // The path is probed before the first packet of a long reply: near the end of a call the peer may no
        // longer answer.
        let may_probe = call.side == Side::Server && call.send.is_unstarted();
        if may_probe
            && call.send.pending_bytes() > payload_max
            && let Some(bytes) = peer.probe(now)
        {
            return self.transmit_ack(now, key, Reason::Ping, 0, Ping::Probe(bytes));
        }
        let packets_max = self.config.transmit_packets.clamp(1, TRANSMIT_PACKETS_MAX);
        let mut batch = Batch::new(self.output.spare.pop().unwrap_or_default(), packets_max);
        let filled = fill(now, call, connection, peer, payload_max, &mut batch);
        call.send.close_gathered(&mut batch.bodies);
        if !batch.packets.is_empty() {
            after_filling(now, call, connection, peer, payload_max, &mut batch);
            self.statistics.sent_data(batch.packets.len() as u64, batch.resent, batch.total_bytes as u64);
        }
        let (path, peer) = (connection.path, connection.peer);
        self.note_short_path(now, peer);
        if let Err(code) = filled {
            self.fail(now, key, code, Notify::Peer);
        }
        let (packets, bodies) = (batch.packets, batch.bodies.slices);
        if packets.is_empty() {
            self.output.spare.push(SpareTransmit { packets, bodies });
            return None;
        }
        self.wake_writer(key);
        Some(Transmit { path, packets, bodies })
    }

    /// Sends an ACK. A ping that probes the path is padded.
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
        let connection = self.connections.all.get_mut(call.connection)?;
        let peer = self.peers.all.get_mut(connection.peer)?;
        let mut header = connection.call_header(PacketType::Ack, call.channel, call.number);
        header.flags = header.flags.with(Flags::SLOW_START_OK);
        header.flags = header.flags.with_if(reason == Reason::Ping, Flags::REQUEST_ACK);
        let window = trailer.window.map(|window| window.min(call.receive.window()));
        let trailer = Trailer { window, ..trailer };
        let mut body = ack_body(&mut self.output.arena, call, reason, serial, trailer);
        if reason == Reason::Ping {
            call.send.add_probe(header.serial, now, &peer.rtt);
            self.statistics.pings_sent += 1;
            if let Ping::Probe(length) = ping {
                peer.mtu.on_probe_sent(now, call.connection, header.serial, length);
                body = pad(&mut self.output.arena, &body, length);
            }
        }
        call.clocks.sent = now;
        let bytes = HEADER_BYTES + body.len();
        if call.side == Side::Server && !peer.spend(bytes) {
            self.statistics.unproven_withheld += 1;
            return None;
        }
        count_bytes(connection, peer, 1, bytes);
        self.statistics.sent(PacketType::Ack, bytes);
        let path = connection.path;
        Some(self.single(path, header.encode(), body))
    }

    /// Returns the maximum window of a call, given the other calls that receive much data.
    fn window_share(&self) -> u32 {
        let share = self.config.receive_budget_packets / self.bulk_calls.max(1);
        share.clamp(SHARED_WINDOW_MIN, WINDOW_MAX) as u32
    }

    /// Returns the limits that ACKs report to peers.
    pub(super) fn trailer(&self) -> Trailer {
        let length = self.config.packet_bytes_max.max(self.config.packet_bytes) as u32;
        Trailer {
            packet_bytes_max: Some(length),
            interface_bytes: Some(length),
            window: Some(self.config.receive_window().min(self.window_share())),
            jumbo_packets: Some(1),
        }
    }

    /// Returns the payload length of a full packet on this connection.
    pub(super) fn payload_max(&self, key: Key) -> usize {
        let connection = self.connections.all.get(key);
        let peer = connection.and_then(|it| self.peers.all.get(it.peer));
        let packet = peer.map_or(self.config.packet_bytes, |peer| peer.mtu.packet_bytes());
        let overhead = connection.map_or(Overhead::NONE, |it| it.security.overhead());
        Call::payload_max(packet - HEADER_BYTES, overhead)
    }
}

/// Adds packets to a batch, retransmissions first, as many as fit and the windows allow.
fn fill(
    now: Monotonic,
    call: &mut Call,
    connection: &mut Connection,
    peer: &mut Peer,
    payload_max: usize,
    batch: &mut Batch,
) -> Result<(), base::AbortCode> {
    let is_fresh = !connection.needs_reach() || peer.is_fresh(now);
    let header = connection.call_template(PacketType::Data, call.channel, call.number).encode();
    call.send.begin_batch();
    let mut from = 0;
    loop {
        let mut next = call.send.next_unsent(from);
        if next.is_none() {
            cut_some(call, connection, payload_max, batch)?;
            next = call.send.next_unsent(from);
        }
        let Some(place) = next else { break };
        let packet = call.send.packet(place);
        if batch.room(packet.body_bytes) == 0 {
            break;
        }
        let serial = connection.next_serial();
        let again = call.send.on_sent(place, now);
        // The acknowledgement renews the proof of the address before the last one expires.
        let request_ack = !is_fresh || call.send.should_request_ack(packet, again);
        if request_ack {
            call.send.add_probe(serial, now, &peer.rtt);
        }
        if again {
            batch.resent += 1;
            let bytes = HEADER_BYTES + packet.body_bytes;
            let cid = connection.facts.connection_id | u32::from(call.channel);
            waits::probes::packet_resend(cid, call.number, packet.sequence, bytes);
        }
        let flags = Flags::default()
            .with_if(packet.last, Flags::LAST_PACKET)
            .with_if(request_ack, Flags::REQUEST_ACK);
        batch.push(header, packet, serial, flags);
        call.send.gather(place, &mut batch.bodies);
        from = place + 1;
    }
    Ok(())
}

/// Cuts new packets for a batch and has the security class process them. Processing several at a time takes a
/// third of the time of processing them one by one.
fn cut_some(
    call: &mut Call,
    connection: &mut Connection,
    payload_max: usize,
    batch: &Batch,
) -> Result<(), base::AbortCode> {
    let place = call.send.packets();
    let facts = |place: usize, call: &Call| PacketFacts {
        call_number: call.number,
        channel: call.channel,
        sequence: call.send.sequence(place),
    };
    if connection.security.is_plain() {
        let shortest = payload_max.min(call.send.pending_bytes());
        let count = call.send.cut(payload_max, batch.room(shortest));
        let mut checksums = [0; TRANSMIT_PACKETS_MAX];
        let checksums = &mut checksums[..count];
        connection.security.checksums(facts(place, call), checksums);
        call.send.set_checksums(place, checksums);
        return Ok(());
    }
    let overhead = connection.security.overhead();
    let payload = payload_max.min(call.send.pending_bytes());
    let shortest = (overhead.header_bytes + payload).next_multiple_of(overhead.block_bytes);
    let count = call.send.cut(payload_max, SEALED_MAX.min(batch.room(shortest)));
    let payloads: Vec<Vec<Bytes>> = (place..place + count).map(|place| call.send.payload(place)).collect();
    let packets: Vec<(PacketFacts, &[Bytes])> =
        (place..).zip(&payloads).map(|(place, payload)| (facts(place, call), &payload[..])).collect();
    let sealed = connection.security.protect_all(&packets).map_err(|error| error.abort_code())?;
    call.send.set_sealed(place, sealed);
    Ok(())
}

/// Applies the effects of a batch's packets, once for all of them.
fn after_filling(
    now: Monotonic,
    call: &mut Call,
    connection: &mut Connection,
    peer: &mut Peer,
    payload_max: usize,
    batch: &mut Batch,
) {
    if let Some((_, serial)) =
        batch.unasked.filter(|(packet, _)| call.send.should_ask_before_silence(*packet, payload_max))
    {
        batch.ask_for_ack();
        call.send.add_probe(serial, now, &peer.rtt);
    }
    batch.mark_more(call.send.wants_to_send(payload_max));
    call.clocks.sent = now;
    call.owed = None; // a new call acknowledges the last reply
    if call.side == Side::Server {
        call.receive.acks.cancel(); // a reply acknowledges the request
    }
    connection.used_at = now;
    peer.counters.sent += batch.packets.len() as u64;
    peer.counters.resent += batch.resent;
    count_bytes(connection, peer, batch.packets.len(), batch.total_bytes);
    let goes_on = call.send.sequences() > PROBE_AFTER_PACKETS && !call.send.is_all_cut();
    if call.ping.is_none() && goes_on && call.send.is_heard() {
        call.ping = peer.probe(now).map(Ping::Probe);
    }
}

/// Counts the packets and bytes sent on a connection.
pub(super) fn count_bytes(connection: &mut Connection, peer: &mut Peer, packets: usize, bytes: usize) {
    peer.counters.bytes_sent += bytes as u64;
    let counters = &mut connection.counters;
    counters.packets_sent = counters.packets_sent.wrapping_add(packets as u32);
    counters.bytes_sent = counters.bytes_sent.wrapping_add(bytes as u32);
}

fn ack_body(arena: &mut BytesMut, call: &Call, reason: Reason, serial: u32, trailer: Trailer) -> Bytes {
    let (mut received, mut beyond) = ([0; ACKS_MAX], [0; BEYOND_BYTES_MAX]);
    let acknowledges = call.state != State::Waiting;
    let mut bits = call.receive.bits().filter(|_| acknowledges);
    let mut count = 0;
    for (slot, bit) in received.iter_mut().zip(bits.by_ref()) {
        *slot = bit;
        count += 1;
    }
    let mut count_beyond = 0;
    for (number, bit) in bits.enumerate().take(8 * BEYOND_BYTES_MAX) {
        beyond[number / 8] |= bit << (number % 8);
        count_beyond = number / 8 + 1;
    }
    let ack = Ack {
        first: call.receive.next(),
        previous: call.receive.highest(),
        serial,
        reason,
        received: &received[..count],
        trailer,
        beyond: &beyond[..count_beyond],
    };
    ack.encode(arena);
    arena.split().freeze()
}

fn pad(arena: &mut BytesMut, body: &Bytes, length: usize) -> Bytes {
    arena.put_slice(body);
    arena.put_bytes(0, length.saturating_sub(HEADER_BYTES + body.len()));
    arena.split().freeze()
}
