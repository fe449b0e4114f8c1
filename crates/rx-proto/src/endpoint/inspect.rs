//! Questions that are answered without a connection: DEBUG and VERSION packets.

use base::Monotonic;
use bytes::Bytes;

use super::Endpoint;
use super::input::Packet;
use crate::call::{Call, Phase, Side};
use crate::connection::{Channel, Connection, Stage};
use crate::debug::{self, Basics, ChannelView, ConnectionView, PeerView, Question, SecurityView};
use crate::header::{Flags, Header};
use crate::limits::VERSION_BYTES;
use crate::peer::Peer;
use crate::slab::Slab;

/// Where the last question about the n-th of something was answered: the next one goes on there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    index: u32,
    place: usize,
}

impl Cursor {
    /// The n-th entry of a slab that `counts`.
    fn find<'a, T>(&mut self, slab: &'a Slab<T>, index: u32, counts: impl Fn(&T) -> bool) -> Option<&'a T> {
        if index < self.index {
            *self = Cursor::default();
        }
        while self.place < slab.places() {
            if let Some((_, entry)) = slab.at(self.place).filter(|(_, entry)| counts(entry)) {
                if self.index == index {
                    return Some(entry);
                }
                self.index += 1;
            }
            self.place += 1;
        }
        *self = Cursor::default();
        None
    }
}

/// The cursors of the three lists.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursors {
    busy: Cursor,
    connections: Cursor,
    peers: Cursor,
}

impl Endpoint {
    pub(super) fn answer_version(&mut self, packet: &Packet) {
        let mut body = self.config.version.as_bytes().to_vec();
        body.truncate(VERSION_BYTES - 1);
        body.resize(VERSION_BYTES, 0);
        self.answer_question(packet, body);
    }

    pub(super) fn answer_debug(&mut self, now: Monotonic, packet: &Packet) {
        let Some(question) = Question::parse(&packet.body) else {
            self.statistics.malformed += 1;
            return;
        };
        let body = match question {
            Question::Basics => self.basics().encode(),
            Question::BusyConnection(index) => self.connection_answer(index, true),
            Question::Connection(index) => self.connection_answer(index, false),
            Question::Counters => debug::encode_counters(&self.statistics),
            Question::Peer(index) => self.peer_answer(now, index),
            Question::Unknown => debug::encode_unknown(),
        };
        self.answer_question(packet, body);
    }

    /// Only what a client asks is answered: two servers must not keep answering each other.
    fn answer_question(&mut self, packet: &Packet, body: Vec<u8>) {
        if packet.header.flags.contains(Flags::CLIENT_INITIATED) {
            let flags = packet.header.flags.without(Flags::CLIENT_INITIATED);
            self.send_control(packet.path, &Header { flags, ..packet.header }, Bytes::from(body));
        }
    }

    fn basics(&self) -> Basics {
        let packets = self.config.packets_max as u64;
        Basics {
            free_packets: packets.saturating_sub(self.statistics.packets_now),
            packets,
            calls: self.statistics.calls_accepted,
            waiting: self.waiting_calls as u64,
            waited: self.waited_calls,
            idle_workers: self.idle_workers as u64,
        }
    }

    fn connection_answer(&mut self, index: u32, busy: bool) -> Vec<u8> {
        let cursor = if busy { &mut self.cursors.busy } else { &mut self.cursors.connections };
        let found = cursor.find(&self.connections, index, |it| !busy || is_busy(it)).is_some();
        let place = cursor.place;
        if !found {
            return ConnectionView::none();
        }
        let connection = self.connections.at(place).map(|(_, connection)| connection);
        connection.map_or_else(ConnectionView::none, |connection| self.view(connection).encode())
    }

    fn view(&self, connection: &Connection) -> ConnectionView {
        let peer = self.peers.get(connection.peer);
        ConnectionView {
            remote: peer.map_or(connection.path.remote, |peer| peer.address),
            epoch: connection.facts.epoch,
            id: connection.facts.connection_id,
            serial: connection.serial(),
            channels: connection.channels.map(|channel| self.channel_view(&channel)),
            error: connection.error.map_or(0, |code| code.0),
            flags: u8::from(connection.wants_channel),
            server: connection.side == Side::Server,
            security: security_view(connection),
            packet_bytes: peer.map_or(0, |peer| peer.mtu.packet_bytes()),
        }
    }

    fn channel_view(&self, channel: &Channel) -> ChannelView {
        let Some(call) = channel.call.and_then(|key| self.calls.get(key)) else {
            return ChannelView { number: channel.number, ..ChannelView::default() };
        };
        let (state, mode) = state_and_mode(call);
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        ChannelView {
            number: channel.number,
            state,
            mode,
            flags: flag(call.reader_waits, 1)
                | flag(call.writer_waits, 2)
                | flag(call.phase == Phase::Waiting, 16)
                | flag(call.receive.is_complete(), 32),
            other: flag(call.receive.held() > 0, 1)
                | flag(call.send.packets() > 0 || call.send.pending_bytes() > 0, 2),
        }
    }

    fn peer_answer(&mut self, now: Monotonic, index: u32) -> Vec<u8> {
        let found = self.cursors.peers.find(&self.peers, index, |_| true);
        found.map_or_else(PeerView::none, |peer| peer_view(peer, now).encode())
    }
}

/// rxi_IsConnInteresting: a call is under way, or waits for a channel.
fn is_busy(connection: &Connection) -> bool {
    connection.wants_channel || connection.has_calls()
}

/// RX_STATE_* and RX_MODE_*.
fn state_and_mode(call: &Call) -> (u8, u8) {
    let sending = match call.side {
        Side::Client => !call.send.is_ended(),
        Side::Server => !call.send.is_unstarted() || call.send.is_ended(),
    };
    match call.phase {
        Phase::Waiting => (1, 2),
        Phase::Active if call.side == Side::Server && call.send.is_ended() => (4, 4),
        Phase::Active => (2, if sending { 1 } else { 2 }),
        Phase::Done => (3, 4),
        Phase::Failed(_) => (2, 3),
    }
}

fn security_view(connection: &Connection) -> SecurityView {
    let (level, authenticated, expires) = match &connection.security.stage {
        Stage::Verified(proof) => (proof.level as u8, proof.challenged, proof.expires.map_or(0, |end| end.0)),
        Stage::Challenging(_) | Stage::Client(_) => (0, false, 0),
    };
    let counters = &connection.counters;
    SecurityView {
        index: connection.facts.security_index,
        level,
        authenticated,
        expires,
        packets_received: counters.packets_received,
        packets_sent: counters.packets_sent,
        bytes_received: counters.bytes_received,
        bytes_sent: counters.bytes_sent,
    }
}

fn peer_view(peer: &Peer, now: Monotonic) -> PeerView {
    PeerView {
        remote: peer.address,
        idle_seconds: if peer.connections > 0 { 0 } else { now.since(peer.idle_since).as_secs() as u32 },
        connections: peer.connections,
        rtt: peer.rtt.smoothed().unwrap_or_default(),
        rtt_variation: peer.rtt.variation(),
        timeout: peer.rtt.timeout(0),
        sent: peer.counters.sent,
        resent: peer.counters.resent,
        packet_bytes: peer.mtu.packet_bytes(),
        packet_bytes_max: peer.mtu.ceiling(),
        window: peer.learnt.map_or(0, |learnt| learnt.window),
        bytes_sent: peer.counters.bytes_sent,
        bytes_received: peer.counters.bytes_received,
    }
}
