//! Processing of DATA and ACK packets of calls.

use base::{AbortCode, Monotonic, UnixTime};
use bytes::{Buf, Bytes};
use rx_security::PacketFacts;

use super::Endpoint;
use super::finish::Notify;
use super::input::Packet;
use crate::ack::{self, Ack, Reason};
use crate::call::receive::{Arrival, ack_delay};
use crate::call::{Side, State};
use crate::event::{CallId, Event};
use crate::header::{Flags, Header};
use crate::limits::{
    BAD_PACKETS_MAX, JUMBO_BODY_BYTES, JUMBO_HEADER_BYTES, JUMBO_PACKETS_MAX, UNPROVEN_BODY_BYTES_MAX,
};
use crate::slab::Key;
use crate::standing::Standing;

/// A data packet, possibly from a jumbogram.
#[derive(Clone, Debug)]
struct Data {
    sequence: u32,
    serial: u32,
    flags: Flags,
    checksum: u16,
    body: Bytes,
}

impl Endpoint {
    pub(super) fn on_data(&mut self, now: Monotonic, _wall: UnixTime, key: Key, packet: Packet) {
        let header = packet.header;
        let mut data = Data {
            sequence: header.sequence,
            serial: header.serial,
            flags: header.flags,
            checksum: header.checksum,
            body: packet.body,
        };
        for _ in 0..JUMBO_PACKETS_MAX {
            let Ok(following) = data.split_jumbo() else {
                self.statistics.malformed += 1;
                return;
            };
            self.on_data_packet(now, key, data);
            match following {
                Some(next) => data = next,
                None => break,
            }
        }
        self.announce(now, key);
    }

    /// Processes one of several data packets, none of them a jumbogram. The caller calls
    /// [`Endpoint::announce`] and [`Endpoint::settle`] after the last one.
    pub(super) fn on_plain_data(&mut self, now: Monotonic, key: Key, packet: Packet) {
        let Packet { header, body, .. } = packet;
        let Header { sequence, serial, flags, checksum, .. } = header;
        self.on_data_packet(now, key, Data { sequence, serial, flags, checksum, body });
    }

    fn on_data_packet(&mut self, now: Monotonic, key: Key, data: Data) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if call.failure().is_some() {
            return;
        }
        call.clocks.received = now;
        if call.side == Side::Client && !call.send.is_finished() && data.sequence > 0 {
            call.send.cut_short(now); // a reply acknowledges the request
            self.wake_writer(key);
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        let (sequence, serial, flags) = (data.sequence, data.serial, data.flags);
        let mut arrival = call.receive.classify(sequence, flags);
        match arrival {
            Arrival::InOrder | Arrival::OutOfOrder => {
                if !self.store(now, key, data, arrival) {
                    return;
                }
            }
            Arrival::Duplicate => self.statistics.data_duplicates += 1,
            Arrival::BeyondWindow => self.statistics.data_beyond_window += 1,
            Arrival::Impossible => self.statistics.spurious += 1,
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        if arrival == Arrival::OutOfOrder && call.receive.is_complete() {
            arrival = Arrival::InOrder;
        }
        if arrival == Arrival::BeyondWindow && self.is_silent_about(now, key) {
            return;
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        let last_of_reply = call.side == Side::Client && call.receive.is_complete();
        let at = now + ack_delay(&self.config, last_of_reply);
        call.receive.plan_ack(arrival, flags, serial, at);
    }

    /// Decrypts and stores a packet. Returns whether it was accepted.
    fn store(&mut self, now: Monotonic, key: Key, data: Data, arrival: Arrival) -> bool {
        let Some(call) = self.calls.get_mut(key) else { return false };
        // The packet for which the reader waits is stored in any case, so that every call makes progress.
        let standing = call.standing;
        if standing == Standing::Unproven && !self.make_room_for_unproven(now, key, data.body.len()) {
            self.statistics.data_no_space += 1;
            return false;
        }
        let Some(call) = self.calls.get_mut(key) else { return false };
        let kept = self.statistics.packets_by_standing[standing.index()] as usize;
        let full = standing != Standing::Unproven && kept >= self.config.packets_share(standing);
        if full && (arrival == Arrival::OutOfOrder || call.receive.has_unread()) {
            self.statistics.data_no_space += 1;
            call.receive.acks.propose(Reason::NoSpace, data.serial);
            return false;
        }
        let Some(connection) = self.connections.all.get_mut(call.connection) else { return false };
        let sealed = connection.security.is_challenging();
        let facts = PacketFacts { call_number: call.number, channel: call.channel, sequence: data.sequence };
        let opened = if sealed {
            Ok(data.body)
        } else {
            connection.security.unprotect(facts, data.checksum, data.body)
        };
        match opened {
            Ok(body) => {
                // A packet that is not read yet must not keep the large receive buffer it arrived in.
                let body = if call.is_unread_of_anonymous() { Bytes::copy_from_slice(&body) } else { body };
                call.receive.insert(data.sequence, data.flags, body, data.checksum, sealed);
                call.clocks.progress = now;
                self.statistics.data_received += 1;
                self.statistics.keep(standing, 1);
                self.on_stored(now, key);
                true
            }
            Err(error) => {
                self.statistics.data_damaged += 1;
                call.damaged += 1;
                if call.damaged > BAD_PACKETS_MAX {
                    self.fail(now, key, error.abort_code(), Notify::Peer);
                }
                false
            }
        }
    }

    /// Whether a packet of a call whose peer has proved nothing may be stored. The oldest unproven
    /// connections are dropped to make room.
    fn make_room_for_unproven(&mut self, now: Monotonic, key: Key, bytes: usize) -> bool {
        let Some(connection) = self.calls.get(key).map(|call| call.connection) else { return false };
        let kept = |endpoint: &Endpoint| {
            endpoint.statistics.packets_by_standing[Standing::Unproven.index()] as usize
        };
        while kept(self) >= self.config.unproven_packets_max
            && let Some(oldest) = self.connections.unproven.oldest().filter(|oldest| *oldest != connection)
        {
            self.drop_unproven(now, oldest);
        }
        bytes <= UNPROVEN_BODY_BYTES_MAX && kept(self) < self.config.unproven_packets_max
    }

    fn on_stored(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let receives_much = call.receives_much();
        if call.is_bulk != receives_much {
            call.is_bulk = receives_much;
            self.bulk_calls = if receives_much { self.bulk_calls + 1 } else { self.bulk_calls - 1 };
        }
        let taken = call.receive.drop_unread() + call.receive.land();
        self.statistics.let_go(call.standing, taken);
        if taken > 0 {
            call.open_window(self.config.receive_window());
        }
        let wakes = call.reader_waits && (call.receive.is_readable() || call.receive.is_read());
        // A reader that provides receive buffers only reads packets when no buffer is left.
        let reader_comes = if call.receive.has_rooms() { call.receive.has_unread() } else { wakes };
        if receives_much && reader_comes {
            call.receive.leave_acks_to_reader(now);
        }
        if wakes {
            call.reader_waits = false;
            self.events.push_back(Event::Readable(CallId(key)));
        }
    }

    pub(super) fn on_ack(&mut self, now: Monotonic, key: Key, packet: &Packet) {
        let Ok(ack) = ack::parse(&packet.body) else {
            self.statistics.malformed += 1;
            return;
        };
        let asks = packet.header.flags.contains(Flags::REQUEST_ACK);
        if asks && self.end_orphan(now, key) {
            return;
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        if ack.reason == Reason::PingResponse {
            let connection = call.connection;
            self.on_ping_response(connection, ack.serial);
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        if asks {
            call.receive.acks.on_ping(packet.header.serial);
            call.clocks.received = now;
        }
        if call.state == State::Waiting {
            self.on_waiting_ack(now, key, packet);
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        if !call.state.is_active() {
            return;
        }
        let Some(connection) = self.connections.all.get(call.connection) else { return };
        let Some(peer) = self.peers.all.get_mut(connection.peer) else { return };
        let result = call.send.on_ack(&ack, packet.header.serial, now, &peer.rtt);
        if let Some(round_trip) = result.round_trip {
            peer.on_reached(now);
            // Other acknowledgements may have been delayed.
            if matches!(ack.reason, Reason::Requested | Reason::PingResponse | Reason::OutOfSequence) {
                peer.rtt.sample(now, round_trip);
                peer.counters.round_trips.record(round_trip);
                self.statistics.rtt(round_trip);
            }
        }
        if result.has_forgotten {
            return self.fail(now, key, AbortCode::RX_CALL_DEAD, Notify::Peer);
        }
        if result.stale {
            self.statistics.spurious += 1;
            return;
        }
        peer.on_trailer(&ack.trailer);
        call.clocks.received = now;
        if result.newly > 0 {
            call.clocks.progress = now;
        }
        self.wake_writer(key);
    }

    /// Processes an ACK for a call that no longer exists. It may answer a padded ping.
    pub(super) fn on_late_ack(&mut self, connection: Key, packet: &Packet) {
        let ack = ack::parse(&packet.body).ok().filter(|ack| ack.reason == Reason::PingResponse);
        if let Some(ack) = ack {
            self.on_ping_response(connection, ack.serial);
        }
    }

    /// Processes the answer to a ping. If the ping was padded, the path carries packets of its length.
    fn on_ping_response(&mut self, connection: Key, serial: u32) {
        let peer = self.connections.all.get(connection).and_then(|it| self.peers.all.get_mut(it.peer));
        if let Some(peer) = peer
            && peer.mtu.on_answer(connection, serial)
        {
            self.peers.short_paths.remove(peer.address.ip());
        }
    }

    /// Notifies a writer that waits for room in the send queue.
    pub(super) fn wake_writer(&mut self, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if call.writer_waits && call.send.pending_bytes() <= self.config.send_queue_limit() / 2 {
            call.writer_waits = false;
            self.events.push_back(Event::Writable(CallId(key)));
        }
    }

    /// Returns the body of an ACK for a call that no longer exists and of which all packets before `next`
    /// were received.
    pub(super) fn late_ack(&mut self, next: u32, header: &crate::Header) -> Bytes {
        let ping = header.kind == crate::PacketType::Ack;
        self.final_ack(next, if ping { Reason::PingResponse } else { Reason::Duplicate }, header.serial)
    }

    /// Returns the body of the last ACK of a call.
    pub(super) fn closing_ack(&mut self, next: u32) -> Bytes {
        self.final_ack(next, Reason::Delay, 0)
    }

    fn final_ack(&mut self, next: u32, reason: Reason, serial: u32) -> Bytes {
        let ack = Ack {
            first: next,
            previous: next.wrapping_sub(1),
            serial,
            reason,
            received: &[],
            trailer: self.trailer(),
            beyond: &[],
        };
        ack.encode(&mut self.output.arena);
        self.output.arena.split().freeze()
    }
}

impl Data {
    /// Splits off the packets that follow this one in a jumbogram.
    fn split_jumbo(&mut self) -> Result<Option<Data>, ()> {
        if !self.flags.contains(Flags::JUMBO_PACKET) {
            return Ok(None);
        }
        let fits = self.body.len() >= JUMBO_BODY_BYTES + JUMBO_HEADER_BYTES;
        if !fits || self.flags.contains(Flags::LAST_PACKET) {
            return Err(());
        }
        let mut rest = self.body.split_off(JUMBO_BODY_BYTES);
        let flags = Flags(rest.get_u8());
        let _spare = rest.get_u8();
        let checksum = rest.get_u16();
        Ok(Some(Data {
            sequence: self.sequence.wrapping_add(1),
            serial: self.serial.wrapping_add(1),
            flags,
            checksum,
            body: rest,
        }))
    }
}
