//! The proofs that peers have to provide before their calls are served.
//!
//! A connection whose security class challenges is verified by the response. For others the peer's address
//! has to be proved: it must echo the unpredictable serial of a ping (OpenAFS's file servers require the
//! same, see `rx_SetCheckReach`). Until then the call's packets are stored but not acknowledged, so the
//! client repeats its request, and each repetition is answered with a challenge or a ping. No timer causes
//! packets to be sent.

use base::{AbortCode, Monotonic, UnixTime};
use bytes::Bytes;
use rx_security::{Attempt, ConnectionFacts, PacketFacts, SecurityError, ServerSecurity, Verified};
use std::time::Duration;

use super::Endpoint;
use super::accept::NewServer;
use super::finish::{Notify, abort_body};
use super::input::Packet;
use crate::ack;
use crate::call::{Ping, Side, State, StateEvent};
use crate::config::calls_share;
use crate::connection::{Security, Stage};
use crate::cookie::COOKIE_LIFETIME;
use crate::event::{CallId, ConnectionId, Event};
use crate::header::PacketType;
use crate::limits::{CHANNELS, PROOF_INTERVAL};
use crate::slab::Key;
use crate::standing::Standing;

/// Minimum interval between answers to invalid responses on a connection.
const BAD_RESPONSE_INTERVAL: Duration = Duration::from_secs(1);

impl Endpoint {
    /// Announces a call whose packets have arrived to the application, or asks its peer for a proof.
    pub(super) fn announce(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key).filter(|call| call.state == State::Waiting) else { return };
        let connection_key = call.connection;
        let Some(connection) = self.connections.all.get_mut(connection_key) else { return };
        if connection.needs_reach() {
            if connection.security.is_challenging() {
                self.challenge(now, connection_key);
                return;
            }
            if !self.peers.all.get(connection.peer).is_some_and(|peer| peer.is_reached(now)) {
                if now >= connection.ask_after {
                    connection.ask_after = now + PROOF_INTERVAL;
                    call.ping = Some(Ping::Plain);
                }
                return;
            }
            if connection.standing == Standing::Unproven {
                if self.raise(now, connection_key, Standing::Reachable) {
                    self.announce_all(now, connection_key);
                }
                return;
            }
        }
        call.apply(StateEvent::Announced);
        call.open_window(self.config.receive_window());
        self.events.push_back(Event::CallArrived {
            call: CallId(key),
            connection: ConnectionId(connection_key),
            service_id: connection.facts.service_id,
            caller: connection.caller(),
            standing: connection.standing,
            path: connection.path,
        });
    }

    /// Sends a challenge, unless one was sent recently.
    pub(super) fn challenge(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let Stage::Challenging(challenging) = &mut connection.security.stage else { return };
        if now < connection.ask_after {
            return;
        }
        challenging.is_sent = true;
        connection.ask_after = now + PROOF_INTERVAL;
        let body = Bytes::from(challenging.handshake.challenge());
        let header = connection.header(PacketType::Challenge);
        self.send_on(key, &header, body);
    }

    /// Processes an ACK for a call that awaits its peer's proof.
    pub(super) fn on_waiting_ack(&mut self, now: Monotonic, key: Key, packet: &Packet) {
        let Some(call) = self.calls.get(key) else { return };
        let connection_key = call.connection;
        let Some(connection) = self.connections.all.get(connection_key) else { return };
        let is_own = connection.path.remote == packet.path.remote;
        let echoed = ack::parse(&packet.body).is_ok_and(|ack| connection.has_sent_lately(ack.serial));
        if is_own && echoed {
            self.prove_reachable(now, connection_key);
        } else {
            self.announce(now, key);
        }
    }

    /// Records that the peer's address has echoed a number sent to it.
    fn prove_reachable(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get(key) else { return };
        if let Some(peer) = self.peers.all.get_mut(connection.peer) {
            peer.on_reached(now);
        }
        if self.raise(now, key, Standing::Reachable) {
            self.announce_all(now, key);
        }
    }

    fn announce_all(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get(key) else { return };
        for call in connection.channels.map(|channel| channel.call).into_iter().flatten() {
            self.announce(now, call);
            self.settle(now, call);
        }
    }

    /// Processes a client's response to a challenge.
    pub(super) fn on_response(&mut self, now: Monotonic, wall: UnixTime, key: Key, body: &[u8]) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let Stage::Challenging(challenging) = &mut connection.security.stage else { return };
        if !challenging.is_sent {
            return; // predates this connection; the client will repeat its call
        }
        let is_first = !std::mem::replace(&mut challenging.is_answered, true);
        if !is_first && !self.late_responses.take(now) {
            return;
        }
        let outcome = challenging.handshake.verify(body, wall);
        let (facts, remote) = (connection.facts, connection.path.remote);
        let service = self.services.get(&facts.service_id);
        if let Some(class) = service.and_then(|it| it.class(facts.security_index)) {
            let outcome = outcome.as_ref();
            class.observe(&Attempt { connection: facts, peer: remote, now: wall, outcome });
        }
        match outcome {
            Ok(verified) => {
                let numbers = verified.call_numbers;
                let index = connection.facts.security_index;
                connection.security = Security::verified(index, verified, true);
                let Some(connection) = self.connections.all.get_mut(key) else { return };
                if let Some(peer) = self.peers.all.get_mut(connection.peer) {
                    peer.on_reached(now);
                }
                if self.raise(now, key, Standing::Verified) {
                    self.open_waiting(now, key, numbers.unwrap_or_default());
                }
            }
            Err(error) => {
                self.statistics.handshakes_failed += 1;
                self.refuse_response(now, key, error.abort_code());
            }
        }
    }

    /// Answers an invalid response. The connection stays, because the response may be forged and the client's
    /// own may still arrive.
    fn refuse_response(&mut self, now: Monotonic, key: Key, code: AbortCode) {
        let Some(connection) = self.connections.all.get_mut(key).filter(|it| now >= it.abort_after) else {
            return;
        };
        connection.abort_after = now + BAD_RESPONSE_INTERVAL;
        let header = connection.header(PacketType::Abort);
        self.send_on(key, &header, abort_body(code));
    }

    /// Decrypts the stored packets of a verified caller and announces its calls. `numbers` are the current
    /// call numbers according to the client; calls with lower numbers are replays.
    fn open_waiting(&mut self, now: Monotonic, key: Key, numbers: [u32; CHANNELS]) {
        let key = self.settle_address(now, key);
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        for (channel, number) in connection.channels.iter_mut().zip(numbers) {
            if channel.call.is_none() && number > channel.number {
                channel.number = number - 1;
            }
        }
        for (channel, number) in connection.channels.into_iter().zip(numbers) {
            let Some(call) = channel.call else { continue };
            if channel.number < number {
                self.fail(now, call, AbortCode::RX_CALL_DEAD, Notify::None);
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
        let Some(connection) = self.connections.all.get_mut(call.connection) else { return };
        let (call_number, channel) = (call.number, call.channel);
        let security = &mut connection.security;
        let dropped = call.receive.unseal(|sequence, checksum, body| {
            security.unprotect(PacketFacts { call_number, channel, sequence }, checksum, body).ok()
        });
        call.damaged += dropped as u32;
        self.statistics.data_damaged += dropped as u64;
        self.statistics.let_go(call.standing, dropped);
    }

    /// Processes a packet that belongs to no connection but may prove an evicted one: see [`crate::cookie`].
    /// Returns the connection created again, without calls; the client will repeat its request.
    pub(super) fn accept_proof(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        packet: &Packet,
        class: &dyn ServerSecurity,
        facts: ConnectionFacts,
    ) -> Option<Key> {
        let forgot = self.connections.unproven_dropped_at.is_some_and(|at| now.since(at) < COOKIE_LIFETIME);
        if !forgot {
            return None;
        }
        match packet.header.kind {
            PacketType::Ack if !class.needs_challenge() => self.accept_echo(now, wall, packet, class, facts),
            PacketType::Response if class.needs_challenge() && self.late_responses.take(now) => {
                let verified = self.verify_late(now, wall, packet, class, facts)?;
                let numbers = verified.call_numbers.unwrap_or_default();
                let security = Security::verified(facts.security_index, verified, true);
                let key = self.add_proven(now, packet, facts, security, Standing::Verified)?;
                self.open_waiting(now, key, numbers);
                Some(key)
            }
            _ => None,
        }
    }

    fn accept_echo(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        packet: &Packet,
        class: &dyn ServerSecurity,
        facts: ConnectionFacts,
    ) -> Option<Key> {
        let serial = ack::parse(&packet.body).ok()?.serial;
        let mut cookies = self.cookies.valid(now, packet.path.remote, &facts).into_iter();
        let cookie = cookies.find(|cookie| cookie.has_serial(serial))?;
        let security = self.server_security(wall, facts, false, class.accept(facts, cookie.nonce))?;
        self.add_proven(now, packet, facts, security, Standing::Reachable)
    }

    fn verify_late(
        &mut self,
        now: Monotonic,
        wall: UnixTime,
        packet: &Packet,
        class: &dyn ServerSecurity,
        facts: ConnectionFacts,
    ) -> Option<Verified> {
        for cookie in self.cookies.valid(now, packet.path.remote, &facts) {
            let outcome = class.accept(facts, cookie.nonce).verify(&packet.body, wall);
            // The nonce may belong to the previous time slot.
            if matches!(outcome, Err(SecurityError::OutOfSequence { .. })) {
                continue;
            }
            let peer = packet.path.remote;
            class.observe(&Attempt { connection: facts, peer, now: wall, outcome: outcome.as_ref() });
            match outcome {
                Ok(verified) => return Some(verified),
                Err(_) => break,
            }
        }
        self.statistics.handshakes_failed += 1;
        None
    }

    fn add_proven(
        &mut self,
        now: Monotonic,
        packet: &Packet,
        facts: ConnectionFacts,
        security: Security,
        standing: Standing,
    ) -> Option<Key> {
        if !self.make_room(now, standing) {
            return None;
        }
        let serial = self.cookies.make(now, packet.path.remote, &facts).serial;
        let key = self
            .add_server_connection(now, NewServer { facts, path: packet.path, security, serial, standing });
        let connection = self.connections.all.get_mut(key)?;
        connection.verified_at = (standing == Standing::Verified).then_some(now);
        if let Some(peer) = self.peers.all.get_mut(connection.peer) {
            peer.on_reached(now);
        }
        Some(key)
    }

    /// Raises a connection's level of proof. Returns false if the limit for the new level is reached and the
    /// connection was dropped.
    fn raise(&mut self, now: Monotonic, key: Key, to: Standing) -> bool {
        let Some(connection) = self.connections.all.get(key) else { return false };
        let from = connection.standing;
        if from >= to {
            return true;
        }
        let has_room = self.make_room(now, to);
        if !has_room {
            self.drop_unproven(now, key);
        }
        let Some(connection) = self.connections.all.get_mut(key).filter(|_| has_room) else { return false };
        connection.standing = to;
        connection.verified_at = (to == Standing::Verified).then_some(now);
        let channels = connection.channels;
        let counts = &mut self.statistics.connections_by_standing;
        counts[from.index()] -= 1;
        counts[to.index()] += 1;
        self.connections.unproven.remove(key);
        for call in channels.into_iter().filter_map(|channel| channel.call) {
            self.raise_call(now, call, to);
        }
        true
    }

    fn raise_call(&mut self, now: Monotonic, key: Key, to: Standing) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let from = std::mem::replace(&mut call.standing, to);
        let held = call.receive.held();
        self.statistics.let_go(from, held);
        self.statistics.keep(to, held);
        let counts = &mut self.statistics.calls_by_standing;
        counts[from.index()] -= 1;
        counts[to.index()] += 1;
        if counts[to.index()] as usize > calls_share(self.config.calls_max, to) {
            self.turn_away(now, key);
        }
    }

    /// Refuses a call whose peer has just proved itself but for which there is no room, so that the client
    /// retries it.
    fn turn_away(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get(key) else { return };
        let (connection_key, channel, number) = (call.connection, call.channel, call.number);
        self.statistics.calls_refused += 1;
        self.fail(now, key, AbortCode::RX_CALL_DEAD, Notify::None);
        let Some(connection) = self.connections.all.get_mut(connection_key) else { return };
        // A retry of the call must count as a new call.
        connection.channels[usize::from(channel)].number = number.saturating_sub(1);
        let header = connection.call_header(PacketType::Busy, channel, number);
        self.send_on(connection_key, &header, Bytes::new());
    }

    /// Drops a connection on which no call has been announced, and its calls, without notifying either side.
    pub(super) fn drop_unproven(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get(key) else { return };
        debug_assert!(connection.side == Side::Server, "the user's own connections are not dropped");
        for call in connection.channels.into_iter().filter_map(|channel| channel.call) {
            self.fail(now, call, AbortCode::RX_CALL_DEAD, Notify::None);
        }
        self.statistics.unproven_dropped += 1;
        self.connections.unproven_dropped_at = Some(now);
        self.remove_connection(now, key);
    }

    /// Ends a call that has waited too long for its peer's proof.
    pub(super) fn waiting_call_time(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get(key).filter(|call| call.lateness(now).is_some()) else { return };
        let connection_key = call.connection;
        let connection = self.connections.all.get(connection_key);
        if connection.is_some_and(|it| it.standing == Standing::Unproven) {
            self.drop_unproven(now, connection_key);
        } else {
            self.fail(now, key, AbortCode::RX_CALL_DEAD, Notify::None);
        }
    }
}
