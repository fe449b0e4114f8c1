//! New connections and calls from clients, and the proof of who they are.

use base::{AbortCode, Monotonic, UnixTime};
use bytes::Bytes;
use rand::Rng;
use rx_security::{ConnectionFacts, PacketFacts, ServerHandshake};
use std::sync::Arc;
use std::time::Duration;

use super::Endpoint;
use super::finish::Tell;
use super::input::Packet;
use crate::call::{Call, NewCall, Phase, Side, TimeLimits};
use crate::congestion::Congestion;
use crate::connection::{Channel, Connection, NewConnection, Outcome, Security, Stage};
use crate::event::{CallId, ConnectionId, Event};
use crate::header::PacketType;
use crate::limits::{ACKS_MAX, CHALLENGE_INTERVAL, CHALLENGES_MAX, CHANNEL_MASK, WINDOW_MAX};
use crate::slab::Key;

/// Packets kept for a caller who has not proven who he is.
const UNVERIFIED_WINDOW: u32 = 16;

/// A client whose proof was wrong is told so after this time (rxi_ReceiveResponsePacket).
const BAD_RESPONSE_DELAY: Duration = Duration::from_secs(1);

/// Connections that are looked at to make room for a new one.
const EVICTION_SAMPLE: usize = 16;

impl Endpoint {
    /// Makes a connection for a packet that belongs to none.
    pub(super) fn accept_connection(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        packet: &Packet,
    ) -> Option<Key> {
        let header = &packet.header;
        let service = self.services.get(&header.service_id);
        let class = service.and_then(|it| it.security.iter().find(|it| it.index() == header.security_index));
        let Some(class) = class.map(Arc::clone) else {
            self.refuse(packet, AbortCode::RX_INVALID_OPERATION);
            return None;
        };
        // Anything but the beginning of a call is from before we began: be silent, it confuses
        // clients to hear of it (rxi_ReceiveServerCall).
        let begins = header.kind == PacketType::Data
            && header.call_number != 0
            && (1..=ACKS_MAX as u32).contains(&header.sequence);
        if !begins || !self.make_room(now) {
            self.statistics.spurious += 1;
            return None;
        }
        let facts = ConnectionFacts {
            epoch: header.epoch,
            connection_id: header.cid & !CHANNEL_MASK,
            service_id: header.service_id,
            security_index: header.security_index,
        };
        let handshake = class.accept(facts, self.random.random());
        let security = self.server_security(wall, facts, class.needs_challenge(), handshake)?;
        let limits =
            TimeLimits { dead: self.config.dead_time, idle: Some(self.config.server_idle_time), total: None };
        Some(self.add_connection(now, Side::Server, facts, packet.path, security, limits))
    }

    fn server_security(
        &mut self,
        wall: UnixTime,
        facts: ConnectionFacts,
        challenge: bool,
        mut handshake: Box<dyn ServerHandshake>,
    ) -> Option<Security> {
        if challenge {
            return Some(Security::challenging(handshake));
        }
        let verified = handshake.verify(&[], wall);
        self.statistics.handshakes_failed += u64::from(verified.is_err());
        verified.ok().map(|verified| Security::verified(facts.security_index, verified, false))
    }

    /// Stores a connection and finds or makes its peer.
    pub(super) fn add_connection(
        &mut self,
        now: Monotonic,
        side: Side,
        facts: ConnectionFacts,
        path: crate::Path,
        security: Security,
        limits: TimeLimits,
    ) -> Key {
        let peer = self.peer_at(now, path.remote);
        let serial = self.random.random_range(1..1 << 24);
        let parts = NewConnection { side, facts, path, peer, security, limits, serial };
        let connection = Connection::new(parts, now);
        let index_key = connection.key;
        let key = self.connections.insert_with(|_| connection);
        self.index.insert(index_key, key);
        self.statistics.connections_now = self.connections.len() as u64;
        *self.statistics.connections_of(side) += 1;
        self.arm_connection(key);
        key
    }

    fn peer_at(&mut self, now: Monotonic, remote: std::net::SocketAddr) -> Key {
        let config = &self.config;
        let peers = &mut self.peers;
        let key = *self
            .peer_index
            .entry(remote)
            .or_insert_with(|| peers.insert_with(|_| crate::peer::Peer::new(remote, config, now)));
        if let Some(peer) = self.peers.get_mut(key) {
            peer.connections += 1;
            peer.counters.connections += 1;
        }
        self.statistics.peers_now = self.peers.len() as u64;
        key
    }

    /// Whether one more connection may be stored. At the limit an idle one has to go: the one idle
    /// for longest among a few picked at random.
    pub(super) fn make_room(&mut self, now: Monotonic) -> bool {
        if self.connections.len() < self.config.connections_max {
            return true;
        }
        let places = self.connections.places();
        let mut oldest: Option<(Monotonic, Key)> = None;
        for _ in 0..EVICTION_SAMPLE.min(places) {
            let place = self.random.random_range(0..places);
            let Some((key, connection)) = self.connections.at(place) else { continue };
            let idle = connection.side == Side::Server && !connection.has_calls();
            if idle && oldest.is_none_or(|(at, _)| connection.used_at < at) {
                oldest = Some((connection.used_at, key));
            }
        }
        if let Some((_, key)) = oldest {
            self.remove_connection(now, key);
        } else {
            self.statistics.connections_refused += 1;
        }
        oldest.is_some()
    }

    /// Makes a call for a packet with a new call number.
    pub(super) fn accept_call(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        key: Key,
        packet: &Packet,
    ) -> Option<Key> {
        let header = &packet.header;
        if header.kind != PacketType::Data || header.sequence == 0 || header.sequence > ACKS_MAX as u32 {
            self.statistics.spurious += 1;
            return None;
        }
        if self.is_expired(key, wall) {
            self.fail_connection(now, key, AbortCode::RXKADEXPIRED);
            self.send_connection_abort(now, key);
            return None;
        }
        self.supersede(now, key, header.channel());
        if self.waiting_calls > self.config.waiting_calls_max {
            self.statistics.calls_refused += 1;
            self.refuse(packet, self.config.busy_code);
            return None;
        }
        if self.calls.len() >= self.config.calls_max {
            self.statistics.calls_refused += 1;
            self.send_busy(key, packet);
            return None;
        }
        self.statistics.calls_accepted += 1;
        Some(self.add_call(now, key, header.channel(), header.call_number))
    }

    fn is_expired(&self, key: Key, wall: UnixTime) -> bool {
        let connection = self.connections.get(key);
        let Some(Stage::Verified(proof)) = connection.map(|it| &it.security.stage) else { return false };
        proof.expires.is_some_and(|end| wall >= end)
    }

    fn send_busy(&mut self, key: Key, packet: &Packet) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let theirs = &packet.header;
        let header = connection.call_header(PacketType::Busy, theirs.channel() as u8, theirs.call_number);
        self.send_on(key, &header, Bytes::new());
    }

    /// A new call on a channel ends the old one: either it was the old reply's acknowledgement, or
    /// the client has given the old call up.
    fn supersede(&mut self, now: Monotonic, key: Key, channel: usize) {
        let Some(old) = self.connections.get(key).and_then(|it| it.channels[channel].call) else { return };
        if self.end_rest(now, old) {
            return;
        }
        let Some(call) = self.calls.get_mut(old) else { return };
        if call.send.is_all_cut() && call.receive.is_complete() {
            call.send.on_all_received(now);
            self.settle(now, old);
        } else {
            self.fail(now, old, AbortCode::RX_CALL_DEAD, Tell::Nobody);
        }
    }

    /// Stores a call on a channel of a connection.
    pub(super) fn add_call(&mut self, now: Monotonic, key: Key, channel: usize, number: u32) -> Key {
        let send_window = u32::from(self.config.send_window_packets).clamp(1, WINDOW_MAX as u32);
        let connection = self.connections.get_mut(key).expect("the caller has looked it up");
        let peer = self.peers.get(connection.peer);
        let waiting = connection.side == Side::Server;
        let unverified = connection.security.is_challenging();
        let window = u32::from(self.config.receive_window_packets).clamp(1, WINDOW_MAX as u32);
        let parts = NewCall {
            connection: key,
            side: connection.side,
            channel: channel as u8,
            number,
            phase: if waiting { Phase::Waiting } else { Phase::Active },
            send_window: peer.map_or(1, crate::peer::Peer::window),
            send_window_max: send_window,
            receive_window: if unverified { window.min(UNVERIFIED_WINDOW) } else { window },
            congestion: Congestion::new(peer.and_then(|peer| peer.learnt), now),
            limits: connection.limits,
        };
        let call = self.calls.insert(Call::reusing(self.spare_calls.pop(), parts, now));
        connection.channels[channel] =
            Channel { number, call: Some(call), outcome: Outcome::Silence, answer_after: Monotonic(0) };
        connection.used_at = now;
        self.statistics.calls_now = self.calls.len() as u64;
        call
    }

    /// Packets of a call have come: it is told to the user, or its caller is asked who he is.
    pub(super) fn announce(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key).filter(|call| call.phase == Phase::Waiting) else { return };
        let connection_key = call.connection;
        let Some(connection) = self.connections.get(connection_key) else { return };
        if connection.security.is_challenging() {
            self.start_challenge(now, connection_key);
            return;
        }
        call.phase = Phase::Active;
        call.receive.set_window(u32::from(self.config.receive_window_packets).clamp(1, WINDOW_MAX as u32));
        self.events.push_back(Event::CallArrived {
            call: CallId(key),
            connection: ConnectionId(connection_key),
            service_id: connection.facts.service_id,
            caller: connection.caller(),
            path: connection.path,
        });
    }

    fn start_challenge(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Stage::Challenging(challenging) = &mut connection.security.stage else { return };
        if challenging.again_at.is_none() {
            challenging.sent = 0;
            self.challenge(now, key);
        }
    }

    /// Sends a challenge, or gives up if nobody answers, or if nobody calls any more.
    pub(super) fn challenge(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let calls = connection.has_calls();
        let Stage::Challenging(challenging) = &mut connection.security.stage else { return };
        challenging.again_at = None;
        if !calls {
            return;
        }
        if challenging.sent >= CHALLENGES_MAX {
            self.drop_waiting(now, key);
            return;
        }
        challenging.sent += 1;
        challenging.again_at = Some(now + CHALLENGE_INTERVAL);
        let body = Bytes::from(challenging.handshake.challenge());
        let header = connection.header(PacketType::Challenge);
        self.send_on(key, &header, body);
        self.arm_connection(key);
    }

    fn drop_waiting(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.get(key) else { return };
        for call in connection.channels.map(|channel| channel.call).into_iter().flatten() {
            self.fail(now, call, AbortCode::RX_CALL_DEAD, Tell::Peer);
        }
    }

    /// A client answers a challenge.
    pub(super) fn on_response(&mut self, now: Monotonic, wall: UnixTime, key: Key, body: &[u8]) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Stage::Challenging(challenging) = &mut connection.security.stage else { return };
        if challenging.sent == 0 {
            return; // from before we began; the client will send its call again
        }
        match challenging.handshake.verify(body, wall) {
            Ok(verified) => {
                let numbers = verified.call_numbers;
                let index = connection.facts.security_index;
                connection.security = Security::verified(index, verified, true);
                if let Some(peer) = self.peers.get_mut(connection.peer) {
                    peer.on_reached(now);
                }
                self.open_waiting(now, key, numbers.unwrap_or_default());
            }
            Err(error) => {
                self.statistics.handshakes_failed += 1;
                connection.abort_after = now + BAD_RESPONSE_DELAY;
                connection.abort_at = Some(connection.abort_after);
                self.fail_connection(now, key, error.abort_code());
            }
        }
    }

    /// The caller is known: what he has sent is opened. `numbers` are the client's own word on which
    /// calls are current; older ones are replays.
    fn open_waiting(&mut self, now: Monotonic, key: Key, numbers: [u32; crate::limits::CHANNELS]) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        for (channel, number) in connection.channels.iter_mut().zip(numbers) {
            if channel.call.is_none() && number > channel.number {
                channel.number = number - 1;
            }
        }
        for (channel, number) in connection.channels.into_iter().zip(numbers) {
            let Some(call) = channel.call else { continue };
            if channel.number < number {
                self.fail(now, call, AbortCode::RX_CALL_DEAD, Tell::Nobody);
            } else {
                self.unseal(call);
                self.announce(now, call);
                self.settle(now, call);
            }
        }
        self.arm_connection(key);
    }

    fn unseal(&mut self, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(connection) = self.connections.get_mut(call.connection) else { return };
        let (call_number, channel) = (call.number, call.channel);
        let security = &mut connection.security;
        let dropped = call.receive.unseal(|sequence, checksum, body| {
            security.unprotect(PacketFacts { call_number, channel, sequence }, checksum, body).ok()
        });
        call.damaged += dropped as u32;
        self.statistics.data_damaged += dropped as u64;
        self.statistics.packets_now -= dropped as u64;
    }
}
