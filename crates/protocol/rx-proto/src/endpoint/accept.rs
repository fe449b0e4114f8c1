//! Creation of connections and calls for clients.

use base::{AbortCode, Monotonic, UnixTime};
use bytes::Bytes;
use rand::Rng;
use rx_security::{ConnectionFacts, KeyLease, ServerHandshake};
use std::net::SocketAddr;
use std::sync::Arc;

use super::Endpoint;
use super::finish::Notify;
use super::input::Packet;
use crate::Path;
use crate::call::{Call, NewCall, Side, State, TimeLimits};
use crate::config::calls_share;
use crate::congestion::Congestion;
use crate::connection::{Channel, Connection, NewConnection, Outcome, Security, Stage};
use crate::header::PacketType;
use crate::limits::{ACKS_MAX, CHANNEL_MASK, UNPROVEN_WINDOW, WINDOW_MAX};
use crate::slab::Key;
use crate::standing::Standing;
use crate::unproven::Host;

/// Number of random slots examined for a connection to evict.
const EVICTION_SAMPLE: usize = 64;

/// Parameters of a new connection of a client.
pub(super) struct NewServer {
    pub(super) facts: ConnectionFacts,
    pub(super) path: Path,
    pub(super) security: Security,
    pub(super) serial: u32,
    pub(super) standing: Standing,
}

impl Endpoint {
    /// Creates a connection for a packet that belongs to none.
    pub(super) fn accept_connection(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        packet: &Packet,
    ) -> Option<Key> {
        if self.holding.covers(&packet.path) {
            self.statistics.calls_held += 1;
            return None;
        }
        let header = &packet.header;
        let service = self.services.get(&header.service_id);
        let Some(class) = service.and_then(|it| it.class(header.security_index)).map(Arc::clone) else {
            self.refuse(packet, AbortCode::RX_INVALID_OPERATION);
            return None;
        };
        let facts = ConnectionFacts {
            epoch: header.epoch,
            connection_id: header.cid & !CHANNEL_MASK,
            service_id: header.service_id,
            security_index: header.security_index,
        };
        // A packet that does not begin a call either belongs to a connection from before this endpoint's
        // start, or proves an evicted connection. In the first case no answer is sent, because it would
        // confuse clients (rxi_ReceiveServerCall).
        let begins = header.kind == PacketType::Data
            && header.call_number != 0
            && (1..=ACKS_MAX as u32).contains(&header.sequence);
        let may_begin = begins || class.needs_challenge() && self.may_have_moved(header, &packet.path);
        if !may_begin {
            let proven = self.accept_proof(now, wall, packet, &*class, facts);
            if proven.is_none() {
                self.statistics.spurious += 1;
                self.end_unknown(now, packet);
            }
            return proven;
        }
        let cookie = self.cookies.make(now, packet.path.remote, &facts);
        let handshake = class.accept(facts, cookie.nonce);
        let security = self.server_security(wall, facts, class.needs_challenge(), handshake)?;
        let standing = self.standing_of_new(now, packet.path.remote);
        let new = NewServer { facts, path: packet.path, security, serial: cookie.serial, standing };
        Some(self.add_server_connection(now, new))
    }

    /// Returns the level of proof of a new connection from this address, after making room for it.
    fn standing_of_new(&mut self, now: Monotonic, remote: SocketAddr) -> Standing {
        let peer = self.peers.index.get(&remote).and_then(|key| self.peers.all.get(*key));
        let is_reached = peer.is_some_and(|peer| peer.is_reached(now));
        if is_reached && self.make_room(now, Standing::Reachable) {
            return Standing::Reachable;
        }
        while let Some(victim) = self.connections.unproven.victim(Host::of(remote.ip())) {
            self.drop_unproven(now, victim);
        }
        Standing::Unproven
    }

    /// Stores a connection of a client, for which room has been made.
    pub(super) fn add_server_connection(&mut self, now: Monotonic, new: NewServer) -> Key {
        let NewServer { facts, path, security, serial, standing } = new;
        let limits =
            TimeLimits { dead: self.config.dead_time, idle: Some(self.config.server_idle_time), total: None };
        let peer = self.peer_at(now, path.remote);
        let parts =
            NewConnection { side: Side::Server, facts, path, peer, security, limits, serial, standing };
        let key = self.add_connection(now, parts);
        if standing == Standing::Unproven {
            self.connections.unproven.insert(key, Host::of(path.remote.ip()));
        }
        key
    }

    pub(super) fn server_security(
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

    /// Stores a connection.
    pub(super) fn add_connection(&mut self, now: Monotonic, parts: NewConnection) -> Key {
        let connection = Connection::new(parts, now);
        let (index_key, side, standing) = (connection.key, connection.side, connection.standing);
        let key = self.connections.all.insert_with(|_| connection);
        self.connections.index.insert(index_key, key);
        self.statistics.connections_now = self.connections.all.len() as u64;
        self.statistics.connections_by_standing[standing.index()] += 1;
        *self.statistics.connections_of(side) += 1;
        self.arm_connection(key);
        key
    }

    /// Finds or creates the peer of a new connection.
    pub(super) fn peer_at(&mut self, now: Monotonic, remote: SocketAddr) -> Key {
        let config = &self.config;
        let (peers, short_paths) = (&mut self.peers.all, &self.peers.short_paths);
        let key = *self.peers.index.entry(remote).or_insert_with(|| {
            let short = short_paths.get(remote.ip());
            peers.insert_with(|_| crate::peer::Peer::new(remote, config, short, now))
        });
        if let Some(peer) = self.peers.all.get_mut(key) {
            peer.connections += 1;
            peer.counters.connections += 1;
        }
        self.statistics.peers_now = self.peers.all.len() as u64;
        key
    }

    /// Whether one more connection with this level of proof may be stored. At the limit an idle one is
    /// evicted. Unverified connections never take the share of verified ones.
    pub(super) fn make_room(&mut self, now: Monotonic, standing: Standing) -> bool {
        let max = self.config.connections_max as u64;
        let [_, reachable, verified] = self.statistics.connections_by_standing;
        let is_full = reachable + verified >= max;
        let has_room = match standing {
            Standing::Unproven => true,
            Standing::Reachable => {
                !is_full && reachable < max / 2 || self.evict_idle(now, Standing::Reachable)
            }
            Standing::Verified => !is_full || self.evict_idle(now, Standing::Verified) || verified < max,
        };
        self.statistics.connections_refused += u64::from(!has_room);
        has_room
    }

    /// Evicts an idle connection of a client with at most this level of proof. Of a few picked at random it
    /// takes the one with the least proof, and of these the one idle for longest. Unproven connections have a
    /// limit of their own and are not evicted here. Returns whether one was evicted.
    fn evict_idle(&mut self, now: Monotonic, most: Standing) -> bool {
        let places = self.connections.all.places();
        let mut first: Option<(Standing, Monotonic, Key)> = None;
        for _ in 0..EVICTION_SAMPLE.min(places) {
            let place = self.random.random_range(0..places);
            let Some((key, connection)) = self.connections.all.at(place) else { continue };
            let is_idle = connection.side == Side::Server && !connection.has_calls();
            let is_candidate = is_idle && (Standing::Reachable..=most).contains(&connection.standing);
            let candidate = (connection.standing, connection.used_at, key);
            if is_candidate && first.is_none_or(|first| candidate < first) {
                first = Some(candidate);
            }
        }
        if let Some((.., key)) = first {
            self.remove_connection(now, key);
        }
        first.is_some()
    }

    /// Creates a call for a packet with a new call number.
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
            self.challenge(now, key);
            self.end_unknown(now, packet);
            return None;
        }
        if self.is_held(now, key, packet) {
            return None;
        }
        if let Some(code) = self.lapse(key, wall) {
            self.fail_connection(now, key, code);
            self.send_connection_abort(now, key);
            return None;
        }
        if self.would_interrupt(key, packet) && !self.unseals(key, packet) {
            self.statistics.spurious += 1;
            return None;
        }
        self.supersede(now, key, header.channel());
        let standing = self.connections.all.get(key)?.standing;
        if !self.has_room_for_call(standing) || self.reads_too_little(key, standing) {
            self.statistics.calls_refused += 1;
            self.send_call_packet(key, packet, PacketType::Busy, Bytes::new());
            return None;
        }
        self.statistics.calls_accepted += 1;
        Some(self.add_call(now, key, header.channel(), header.call_number))
    }

    /// Whether one more call on connections with this level of proof may be stored. Unproven connections are
    /// few, so their calls need no other limit.
    pub(super) fn has_room_for_call(&self, standing: Standing) -> bool {
        let present = self.statistics.calls_by_standing[standing.index()] as usize;
        standing == Standing::Unproven || present < calls_share(self.config.calls_max, standing)
    }

    /// Returns why the proof of a connection's caller is no longer valid, or `None` if it is valid.
    fn lapse(&self, key: Key, wall: UnixTime) -> Option<AbortCode> {
        let Stage::Verified(proof) = &self.connections.all.get(key)?.security.stage else { return None };
        if proof.lease.as_ref().is_some_and(KeyLease::is_revoked) {
            return Some(AbortCode::RXKADUNKNOWNKEY);
        }
        proof.expires.is_some_and(|end| wall >= end).then_some(AbortCode::RXKADEXPIRED)
    }

    /// Sends a packet that concerns the call of `packet`, whether or not the call exists.
    fn send_call_packet(&mut self, key: Key, packet: &Packet, kind: PacketType, body: Bytes) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let theirs = &packet.header;
        let header = connection.call_header(kind, theirs.channel() as u8, theirs.call_number);
        self.send_on(key, &header, body);
    }

    /// Whether a new call would end one that is still in progress, on a connection whose packets are
    /// authenticated.
    fn would_interrupt(&self, key: Key, packet: &Packet) -> bool {
        let Some(connection) = self.connections.all.get(key).filter(|it| it.security.has_key()) else {
            return false;
        };
        let old = connection.channels[packet.header.channel()].call.and_then(|call| self.calls.get(call));
        old.is_some_and(|call| !(call.send.is_all_cut() && call.receive.is_complete()))
    }

    /// Ends the old call on a channel when a new one begins: the new call either acknowledges the old reply
    /// or shows that the client has given the old call up.
    pub(super) fn supersede(&mut self, now: Monotonic, key: Key, channel: usize) {
        let Some(old) = self.connections.all.get(key).and_then(|it| it.channels[channel].call) else {
            return;
        };
        if self.end_rest(now, old) {
            return;
        }
        let Some(call) = self.calls.get_mut(old) else { return };
        if call.send.is_all_cut() && call.receive.is_complete() {
            call.send.on_all_received(now);
            self.settle(now, old);
        } else {
            self.fail(now, old, AbortCode::RX_CALL_DEAD, Notify::None);
        }
    }

    /// Stores a new call on a channel of a connection.
    pub(super) fn add_call(&mut self, now: Monotonic, key: Key, channel: usize, number: u32) -> Key {
        let send_window = u32::from(self.config.send_window_packets).clamp(1, WINDOW_MAX as u32);
        let connection = self.connections.all.get_mut(key).expect("the caller has looked it up");
        let peer = self.peers.all.get(connection.peer);
        let waiting = connection.side == Side::Server;
        let (standing, needs_proof) = (connection.standing, connection.needs_reach());
        let window = self.config.receive_window();
        let parts = NewCall {
            connection: key,
            side: connection.side,
            channel: channel as u8,
            number,
            state: if waiting { State::Waiting } else { State::Active },
            send_window: peer.map_or(1, |peer| connection.first_window(peer.window())),
            send_window_max: send_window,
            receive_window: if needs_proof {
                window.min(UNPROVEN_WINDOW)
            } else {
                standing.window(window, 0)
            },
            congestion: Congestion::new(peer.and_then(|peer| peer.learnt), now),
            limits: connection.limits,
            standing,
        };
        let call = self.calls.insert(Call::reusing(self.spare_calls.pop(), parts, now));
        connection.channels[channel] =
            Channel { number, call: Some(call), outcome: Outcome::Silence, answer_after: Monotonic(0) };
        connection.used_at = now;
        self.statistics.calls_now = self.calls.len() as u64;
        self.statistics.calls_by_standing[standing.index()] += 1;
        call
    }
}
