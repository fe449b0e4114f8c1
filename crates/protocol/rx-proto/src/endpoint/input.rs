//! Processing of received datagrams: finds the connection and the call to which a packet belongs.

use base::{AbortCode, Monotonic, UnixTime};
use bytes::{Buf, Bytes};

use super::Endpoint;
use super::finish::{Notify, abort_body};
use crate::call::Side;
use crate::connection::ConnectionKey;
use crate::header::{self, Flags, HEADER_BYTES, Header, PacketType};
use crate::path::Path;
use crate::slab::Key;

/// A received packet.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) path: Path,
    pub(super) header: Header,
    pub(super) body: Bytes,
}

impl Endpoint {
    /// Processes a datagram.
    pub(super) fn input(&mut self, now: Monotonic, wall: UnixTime, path: Path, datagram: Bytes) {
        if let Some(packet) = self.take_in(path, datagram) {
            self.sort(now, wall, packet);
        }
    }

    /// Dispatches a packet by its type.
    pub(super) fn sort(&mut self, now: Monotonic, wall: UnixTime, packet: Packet) {
        match packet.header.kind {
            PacketType::Version => self.answer_version(now, &packet),
            PacketType::Debug => self.answer_debug(now, &packet),
            _ => self.connection_input(now, wall, packet),
        }
    }

    /// Counts a datagram and parses its header.
    pub(super) fn take_in(&mut self, path: Path, mut datagram: Bytes) -> Option<Packet> {
        self.statistics.bytes_received += datagram.len() as u64;
        let Ok((header, _)) = header::parse(&datagram) else {
            self.statistics.malformed += 1;
            return None;
        };
        self.statistics.received(header.kind);
        datagram.advance(HEADER_BYTES);
        Some(Packet { path, header, body: datagram })
    }

    fn connection_input(&mut self, now: Monotonic, wall: UnixTime, packet: Packet) {
        let Some(key) = self.find_connection(now, wall, &packet) else { return };
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        // A forged packet may name a security class other than the connection's.
        if connection.facts.security_index != packet.header.security_index {
            self.statistics.spurious += 1;
            return;
        }
        connection.used_at = now;
        let is_own = connection.path.remote == packet.path.remote;
        if is_own {
            connection.path = packet.path;
        }
        // Only a host that has received this endpoint's packets knows the ids of its client connections.
        let proves_address = is_own && connection.side == Side::Client;
        let length = (HEADER_BYTES + packet.body.len()) as u32;
        connection.counters.packets_received = connection.counters.packets_received.wrapping_add(1);
        connection.counters.bytes_received = connection.counters.bytes_received.wrapping_add(length);
        let (peer, failed) = (connection.peer, connection.error.is_some());
        if let Some(peer) = self.peers.all.get_mut(peer) {
            peer.counters.received += 1;
            peer.counters.bytes_received += u64::from(length);
            peer.heard_at = now;
            if proves_address {
                peer.on_reached(now);
            } else if is_own {
                peer.on_bytes(length);
            }
        }
        match packet.header.call_number {
            _ if failed && packet.header.kind == PacketType::Abort => {}
            _ if failed => self.send_connection_abort(now, key),
            0 => self.connection_packet(now, wall, key, &packet),
            _ => self.call_packet(now, wall, key, packet),
        }
    }

    /// Returns the packet's connection. Creates a connection for the first packet of a new client.
    fn find_connection(&mut self, now: Monotonic, wall: UnixTime, packet: &Packet) -> Option<Key> {
        let Packet { header, path, .. } = packet;
        let (side, key) = key_of(header, path);
        if let Some(found) = self.connections.index.get(&key) {
            return Some(*found);
        }
        if side == Side::Client {
            self.statistics.spurious += 1;
            return None;
        }
        self.accept_connection(now, wall, packet)
    }

    /// Answers a packet that belongs to no connection with an abort.
    pub(super) fn refuse(&mut self, packet: &Packet, code: AbortCode) {
        let theirs = &packet.header;
        if theirs.kind == PacketType::Abort {
            return;
        }
        let client_sent = theirs.flags.contains(Flags::CLIENT_INITIATED);
        let header = Header {
            sequence: 0,
            serial: 0,
            kind: PacketType::Abort,
            flags: Flags::default().with_if(!client_sent, Flags::CLIENT_INITIATED),
            user_status: 0,
            checksum: 0,
            ..*theirs
        };
        self.send_control(packet.path, &header, abort_body(code));
    }

    fn connection_packet(&mut self, now: Monotonic, wall: UnixTime, key: Key, packet: &Packet) {
        let Some(connection) = self.connections.all.get(key) else { return };
        match (packet.header.kind, connection.side) {
            (PacketType::Abort, side) => {
                let code = abort_code(&packet.body);
                self.note_heard(now, key);
                self.fail_connection(now, key, code);
                if side == Side::Server {
                    self.remove_connection(now, key);
                }
            }
            (PacketType::Challenge, Side::Client) => self.on_challenge(now, key, &packet.body),
            (PacketType::Response, Side::Server) => self.on_response(now, wall, key, &packet.body),
            _ => self.statistics.spurious += 1,
        }
    }

    /// Notes for all calls of a connection that its peer was heard.
    pub(super) fn note_heard(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get(key) else { return };
        for call in connection.channels.map(|channel| channel.call).into_iter().flatten() {
            self.wake(now, call);
            if let Some(call) = self.calls.get_mut(call) {
                call.clocks.received = now;
            }
        }
    }

    fn call_packet(&mut self, now: Monotonic, wall: UnixTime, key: Key, packet: Packet) {
        let Some(connection) = self.connections.all.get(key) else { return };
        let (channel, side) = (connection.channels[packet.header.channel()], connection.side);
        let number = packet.header.call_number;
        let is_late = number < channel.number || number == channel.number && channel.call.is_none();
        if is_late && packet.header.kind == PacketType::Ack {
            self.on_late_ack(key, &packet);
        }
        if number == channel.number {
            match channel.call {
                Some(call) => self.deliver(now, wall, call, packet),
                None => self.answer_late(now, key, &packet.header),
            }
            return;
        }
        if side == Side::Client || number < channel.number {
            self.statistics.spurious += 1;
            return;
        }
        if let Some(call) = self.accept_call(now, wall, key, &packet) {
            self.deliver(now, wall, call, packet);
        }
    }

    /// Passes a packet to its call.
    fn deliver(&mut self, now: Monotonic, wall: UnixTime, key: Key, packet: Packet) {
        self.wake(now, key);
        let Some(call) = self.calls.get_mut(key) else { return };
        match packet.header.kind {
            PacketType::Data => self.on_data(now, wall, key, packet),
            PacketType::Ack => self.on_ack(now, key, &packet),
            PacketType::Abort => {
                call.clocks.received = now;
                self.fail(now, key, abort_code(&packet.body), Notify::None);
            }
            // A BUSY only shows that the server is alive.
            PacketType::Busy => call.clocks.received = now,
            PacketType::AckAll => {
                call.clocks.received = now;
                call.send.on_all_received(now);
                self.wake_writer(key);
            }
            _ => self.statistics.spurious += 1,
        }
        self.settle(now, key);
    }
}

/// Returns the local side and the key of a packet's connection.
pub(super) fn key_of(header: &Header, path: &Path) -> (Side, ConnectionKey) {
    let client_sent = header.flags.contains(Flags::CLIENT_INITIATED);
    let side = if client_sent { Side::Server } else { Side::Client };
    (side, ConnectionKey::new(header.epoch, header.cid, side, path.remote))
}

/// Returns the code of an ABORT packet. 0 would not be an error, so it is replaced.
fn abort_code(body: &[u8]) -> AbortCode {
    let code = body.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
    if code == 0 { AbortCode::RX_PROTOCOL_ERROR } else { AbortCode(code) }
}
