//! Requests that are answered without a connection: DEBUG and VERSION packets.

use base::Monotonic;
use bytes::Bytes;

use super::Endpoint;
use super::input::Packet;
use crate::call::{Call, Side, State};
use crate::config::DebugAudience;
use crate::connection::{Channel, Connection, Stage};
use crate::debug::{Basics, ChannelView, ConnectionView, PeerView, Question, SecurityView};
use crate::header::{Flags, HEADER_BYTES, Header};
use crate::inquiry::{Inquiry, List, Progress};
use crate::limits::{AMPLIFICATION_MAX, VERSION_BYTES};
use crate::path::Path;
use crate::peer::Peer;
use crate::slab::Slab;

/// The position at which the last request for the n-th entry was answered; the next search continues there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    index: u32,
    place: usize,
}

impl Cursor {
    /// Returns the slot of the n-th entry for which `counts` is true, or the number of such entries.
    fn find<T>(&mut self, slab: &Slab<T>, index: u32, counts: impl Fn(&T) -> bool) -> Result<usize, u32> {
        if index < self.index {
            *self = Cursor::default();
        }
        while self.place < slab.places() {
            if slab.at(self.place).is_some_and(|(_, entry)| counts(entry)) {
                if self.index == index {
                    return Ok(self.place);
                }
                self.index += 1;
            }
            self.place += 1;
        }
        // The cursor stays at the end, so that requests that continue in other endpoints do not count the
        // entries again.
        Err(self.index)
    }

    /// Returns the slot of the n-th entry, or the number of entries.
    fn find_any<T>(&mut self, slab: &Slab<T>, index: u32) -> Result<usize, u32> {
        if index as usize >= slab.len() {
            return Err(slab.len() as u32);
        }
        // Entries may have been added in slots before the cursor.
        self.find(slab, index, |_| true).or_else(|_| Cursor::default().find(slab, index, |_| true))
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
    pub(super) fn answer_version(&mut self, now: Monotonic, packet: &Packet) {
        // Only requests of clients are answered, so that two servers cannot keep answering each other.
        if !packet.header.flags.contains(Flags::CLIENT_INITIATED) {
            return;
        }
        let Some(room) = self.answer_room(now, packet) else { return };
        let bytes = VERSION_BYTES.min(room);
        let mut body = self.config.version.as_bytes().to_vec();
        body.truncate(bytes.saturating_sub(1));
        body.resize(bytes, 0);
        self.send_answer(packet.path, packet.header, body);
    }

    /// Returns the maximum length of an answer's body, or `None` if the request is not answered.
    fn answer_room(&mut self, now: Monotonic, packet: &Packet) -> Option<usize> {
        let is_own = self.trusts(packet.path);
        let may_ask = match self.config.rxdebug {
            DebugAudience::Anyone => true,
            DebugAudience::OwnHosts => is_own,
            DebugAudience::Nobody => false,
        };
        if !may_ask || !self.inquiries.limit.take(now) {
            self.statistics.questions_refused += 1;
            return None;
        }
        let asked = HEADER_BYTES + packet.body.len();
        Some(if is_own { usize::MAX } else { AMPLIFICATION_MAX * asked - HEADER_BYTES })
    }

    /// Answers a request that concerns this endpoint alone.
    pub(super) fn answer_debug(&mut self, now: Monotonic, packet: &Packet) {
        if let Some(mut inquiry) = self.begin_inquiry(now, packet) {
            self.add_to(now, &mut inquiry);
            self.answer(&inquiry);
        }
    }

    pub(super) fn begin_inquiry(&mut self, now: Monotonic, packet: &Packet) -> Option<Inquiry> {
        let asks = packet.header.flags.contains(Flags::CLIENT_INITIATED);
        let Some(question) = Question::parse(&packet.body).filter(|_| asks) else {
            self.statistics.malformed += 1;
            return None;
        };
        let room = self.answer_room(now, packet)?;
        Some(Inquiry::new(packet.path, packet.header, question, room))
    }

    pub(super) fn send_answer(&mut self, path: Path, question: Header, body: Vec<u8>) {
        let flags = question.flags.without(Flags::CLIENT_INITIATED);
        self.send_control(path, &Header { flags, ..question }, Bytes::from(body));
    }

    pub(super) fn add_to(&mut self, now: Monotonic, inquiry: &mut Inquiry) {
        match &mut inquiry.progress {
            Progress::Basics(sum) => *sum += self.basics(),
            Progress::Counters(sum) => **sum += &self.statistics,
            Progress::Seeking(list, index) => match self.entry(now, inquiry.path, *list, *index) {
                Ok(entry) => inquiry.progress = Progress::Found(entry),
                Err(count) => *index = index.saturating_sub(count),
            },
            Progress::Found(_) | Progress::Unknown => {}
        }
    }

    /// Returns the n-th entry of a list, or the number of entries.
    fn entry(&mut self, now: Monotonic, asker: Path, list: List, index: u32) -> Result<Vec<u8>, u32> {
        let Cursors { busy, connections, peers } = &mut self.inquiries.cursors;
        let place = match list {
            List::BusyConnections => busy.find(&self.connections.all, index, is_busy)?,
            List::Connections => connections.find_any(&self.connections.all, index)?,
            List::Peers => peers.find_any(&self.peers.all, index)?,
        };
        let entry = if list == List::Peers {
            self.peers.all.at(place).map(|(_, peer)| peer_view(peer, now).encode())
        } else {
            self.connections.all.at(place).map(|(_, connection)| self.view_for(asker, connection).encode())
        };
        entry.ok_or(index)
    }

    fn basics(&self) -> Basics {
        let packets = self.config.packets_max as u64;
        Basics {
            free_packets: packets.saturating_sub(self.statistics.packets_now),
            packets,
            calls: self.statistics.calls_accepted,
            waiting: self.inquiries.waiting_calls as u64,
            waited: self.inquiries.waited_calls,
            idle_workers: self.inquiries.idle_workers as u64,
        }
    }

    /// Returns what rxdebug shows of a connection. Only trusted hosts receive the numbers that identify its
    /// packets.
    fn view_for(&self, asker: Path, connection: &Connection) -> ConnectionView {
        let view = self.view(connection);
        if self.trusts(asker) {
            return view;
        }
        let channels = view.channels.map(|channel| ChannelView { number: 0, ..channel });
        ConnectionView { epoch: 0, id: 0, serial: 0, channels, ..view }
    }

    /// Whether a request comes from this host or from one that the configuration trusts.
    fn trusts(&self, asker: Path) -> bool {
        let host = asker.remote.ip().to_canonical();
        host.is_loopback() || asker.local == Some(asker.remote.ip()) || self.config.own_hosts.contains(&host)
    }

    fn view(&self, connection: &Connection) -> ConnectionView {
        let peer = self.peers.all.get(connection.peer);
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
            let view = ChannelView { number: channel.number, ..ChannelView::default() };
            // A resting call has received the whole request and sent the whole reply.
            let is_resting = channel.call.is_some_and(|key| self.calls.resting(key).is_some());
            return if is_resting {
                ChannelView { state: 4, mode: 4, flags: 32, other: 2, ..view }
            } else {
                view
            };
        };
        let (state, mode) = state_and_mode(call);
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        ChannelView {
            number: channel.number,
            state,
            mode,
            flags: flag(call.reader_waits, 1)
                | flag(call.writer_waits, 2)
                | flag(call.state == State::Waiting, 16)
                | flag(call.receive.is_complete(), 32),
            other: flag(call.receive.held() > 0, 1)
                | flag(call.send.packets() > 0 || call.send.pending_bytes() > 0, 2),
        }
    }
}

/// Whether a call is in progress or waits for a channel (rxi_IsConnInteresting).
fn is_busy(connection: &Connection) -> bool {
    connection.wants_channel || connection.has_calls()
}

/// Returns the RX_STATE_* and RX_MODE_* of a call.
fn state_and_mode(call: &Call) -> (u8, u8) {
    let sending = match call.side {
        Side::Client => !call.send.is_ended(),
        Side::Server => !call.send.is_unstarted() || call.send.is_ended(),
    };
    match call.state {
        State::Waiting => (1, 2),
        State::Active | State::Replying if call.side == Side::Server && call.send.is_ended() => (4, 4),
        State::Active | State::Replying => (2, if sending { 1 } else { 2 }),
        State::Done | State::Lingering => (3, 4),
        State::Failed(_) | State::Aborted(_) => (2, 3),
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
