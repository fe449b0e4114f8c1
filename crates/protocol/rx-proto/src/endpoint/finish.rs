//! The end of calls and connections.

use std::time::Duration;

use base::{AbortCode, Monotonic};
use bytes::Bytes;
use rand::Rng;

use super::Endpoint;
use super::output::count_bytes;
use crate::call::{Call, Side, State, StateEvent};
use crate::connection::{Channel, Outcome};
use crate::cookie::COOKIE_LIFETIME;
use crate::event::{CallId, ConnectionId, Event};
use crate::header::{Header, PacketType};
use crate::limits::PEERS_MAX;
use crate::path::Path;
use crate::slab::Key;
use crate::timers::Timed;

/// Minimum interval between answers to late packets of a call that no longer exists.
const LATE_ANSWER_INTERVAL: Duration = Duration::from_millis(200);

/// Minimum interval between aborts of a connection.
const CONNECTION_ABORT_INTERVAL: Duration = Duration::from_millis(500);

/// The parties that are notified of a call's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notify {
    Peer,
    /// Only the peer, because the application itself caused the failure.
    PeerOnly,
    None,
}

impl Endpoint {
    /// Updates everything that depends on a call's state. Must be called after any change.
    pub(super) fn settle(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get(key) else { return };
        if call.state.is_active() && call.is_through() {
            self.complete(now, key);
        }
        let Some(call) = self.calls.get(key) else { return };
        if call.state.is_released() && call.is_over() {
            self.remove_call(now, key);
            return;
        }
        let acks = call.failure().is_none() && (call.owes_ack() || call.ping.is_some());
        let speaks = call.state.is_running() && call.may_send();
        let ready = acks
            || speaks && call.send.has_any() && call.send.wants_to_send(self.payload_max(call.connection));
        let Some(call) = self.calls.get_mut(key) else { return };
        if ready && !call.ready {
            call.ready = true;
            self.output.ready.push_back(key);
        }
        if !call.unarmed {
            call.unarmed = true;
            self.unarmed.push(key);
        }
    }

    /// Updates the deadlines of all settled calls, once per call.
    pub(super) fn rearm_settled(&mut self, now: Monotonic) {
        let mut unarmed = std::mem::take(&mut self.unarmed);
        unarmed.drain(..).for_each(|key| self.rearm(now, key));
        self.unarmed = unarmed;
    }

    fn rearm(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get(key) else { return };
        let is_blocked = call.send.may_be_blocked() && call.send.has_new(self.payload_max(call.connection));
        if is_blocked {
            self.count_stall(key);
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        call.unarmed = false;
        let mut deadline = call.deadline(now);
        let (connection_key, channel) = (call.connection, call.channel);
        let connection = self.connections.all.get_mut(connection_key);
        if call.state.is_running() && call.may_send() {
            let peer = connection.as_ref().and_then(|it| self.peers.all.get(it.peer));
            let resend = peer.and_then(|peer| call.send.deadline(now, &peer.rtt, is_blocked));
            deadline = crate::timers::earlier(deadline, resend);
        }
        let place = usize::from(channel);
        match connection.filter(|it| it.channels[place].call == Some(key)) {
            Some(connection) => {
                let armed = &mut connection.channels_armed[place];
                self.timers.arm(Timed::Channel(connection_key, channel), armed, deadline);
                self.put_to_rest(key, deadline);
            }
            None => self.timers.arm(Timed::Call(key), &mut call.armed, deadline),
        }
    }

    /// Counts that the peer's window holds back data of a call, once until it opens.
    #[cold]
    fn count_stall(&mut self, key: Key) {
        if let Some(call) = self.calls.get_mut(key)
            && call.send.begins_to_stall()
            && let Some(connection) = self.connections.all.get(call.connection)
            && let Some(peer) = self.peers.all.get_mut(connection.peer)
        {
            peer.counters.stalls += 1;
        }
    }

    /// Completes a call after both directions have completed.
    fn complete(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.apply(StateEvent::Completed);
        let (side, released) = (call.side, call.state.is_released());
        let learnt = call.send.congestion.learnt(now);
        let used = !call.send.is_unstarted();
        let received = call.receive.missing();
        let connection = call.connection;
        if side == Side::Server {
            call.receive.acks.cancel();
        } else {
            call.send.cut_short(now);
        }
        if !released {
            self.events.push_back(Event::Ended(CallId(key)));
        }
        self.wake_writer(key);
        self.statistics.calls_ended += 1;
        if let Some(peer) =
            self.connections.all.get(connection).and_then(|it| self.peers.all.get_mut(it.peer))
        {
            peer.on_success();
            if used {
                peer.learnt = Some(learnt);
            }
        }
        if side == Side::Server {
            self.detach(now, key, Outcome::Received(received));
        }
    }

    /// Ends a call with an error.
    pub(super) fn fail(&mut self, now: Monotonic, key: Key, code: AbortCode, notify: Notify) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let held = call.state == State::Active;
        let Some(failed) = call.state.after(StateEvent::Failed(code)) else { return };
        call.state = failed;
        self.statistics.calls_failed += 1;
        if held && notify != Notify::PeerOnly {
            self.events.push_back(Event::Failed(CallId(key), code));
        }
        call.receive.acks.cancel();
        call.ping = None;
        match notify {
            Notify::None => self.detach(now, key, Outcome::Silence),
            Notify::Peer | Notify::PeerOnly => self.send_abort_later(now, key, code),
        }
        self.settle(now, key);
    }

    /// Sends an abort now, or later to a peer that repeats a failing call.
    fn send_abort_later(&mut self, now: Monotonic, key: Key, code: AbortCode) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(connection) = self.connections.all.get_mut(call.connection) else { return };
        let peer = self.peers.all.get_mut(connection.peer).filter(|_| call.side == Side::Server);
        let delay = peer.and_then(|peer| peer.abort_delay(code, &self.config));
        let answer_after = now + delay.unwrap_or(LATE_ANSWER_INTERVAL);
        connection.channels[usize::from(call.channel)].answer_after = answer_after;
        if let Some(delay) = delay {
            call.abort_at = Some(now + delay);
            self.statistics.aborts_delayed += 1;
        }
        self.detach(now, key, Outcome::Aborted(code));
        if delay.is_none() {
            self.send_abort(key, code);
        }
    }

    /// Sends the abort of a call.
    pub(super) fn send_abort(&mut self, key: Key, code: AbortCode) {
        let Some(call) = self.calls.get(key) else { return };
        let on = call.connection;
        let Some(connection) = self.connections.all.get_mut(on) else { return };
        let header = connection.call_header(PacketType::Abort, call.channel, call.number);
        self.send_on(on, &header, abort_body(code));
    }

    /// Removes a call from its channel.
    fn detach(&mut self, now: Monotonic, key: Key, outcome: Outcome) {
        let Some(call) = self.calls.get(key) else { return };
        let (connection, channel) = (call.connection, call.channel);
        self.leave_channel(now, (connection, channel), key, outcome);
    }

    /// Removes a call from this channel of this connection.
    pub(super) fn leave_channel(
        &mut self,
        now: Monotonic,
        (connection_key, channel): (Key, u8),
        key: Key,
        outcome: Outcome,
    ) {
        let Some(connection) = self.connections.all.get_mut(connection_key) else { return };
        let channel = &mut connection.channels[usize::from(channel)];
        if channel.call != Some(key) {
            return;
        }
        channel.call = None;
        channel.outcome = outcome;
        connection.used_at = now;
        self.offer_channel(connection_key);
        self.arm_connection(connection_key);
    }

    /// Notifies a client that waits for a channel.
    pub(super) fn offer_channel(&mut self, key: Key) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        if std::mem::take(&mut connection.wants_channel) {
            self.events.push_back(Event::ChannelFree(ConnectionId(key)));
        }
    }

    /// Removes a call.
    pub(super) fn remove_call(&mut self, now: Monotonic, key: Key) {
        if let Some(call) = self.calls.get(key) {
            let received = call.receive.missing();
            self.detach(now, key, Outcome::Received(received));
        }
        let Some(mut call) = self.calls.remove(key) else { return };
        self.timers.disarm(Timed::Call(key), &mut call.armed);
        self.statistics.let_go(call.standing, call.receive.held());
        self.statistics.calls_by_standing[call.standing.index()] -= 1;
        self.bulk_calls -= usize::from(call.is_bulk);
        if let Some(unread) = call.unread {
            self.uncount_unread(unread);
        }
        self.statistics.calls_now = self.calls.len() as u64;
        self.keep_spare(call);
    }

    /// Keeps the allocations of a call for the next one.
    pub(super) fn keep_spare(&mut self, mut call: Box<Call>) {
        if call.clear() && self.spare_calls.len() < super::SPARE_MAX {
            self.spare_calls.push(call);
        }
    }

    /// Makes a connection unusable and fails its calls.
    pub(super) fn fail_connection(&mut self, now: Monotonic, key: Key, code: AbortCode) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        if connection.error.is_some() {
            return;
        }
        connection.error = Some(code);
        if connection.side == Side::Client {
            self.events.push_back(Event::ConnectionFailed(ConnectionId(key), code));
        }
        for call in connection.channels.map(|channel| channel.call).into_iter().flatten() {
            self.wake(now, call);
            self.fail(now, call, code, Notify::None);
            // A completed call that only waits to acknowledge its reply is of no further use.
            if self.calls.get(call).is_some_and(|call| call.state.is_released()) {
                self.remove_call(now, call);
            }
        }
        self.arm_connection(key);
    }

    /// Removes a connection, which must not have calls on its channels.
    pub(super) fn remove_connection(&mut self, now: Monotonic, key: Key) {
        let Some(mut connection) = self.connections.all.remove(key) else { return };
        self.timers.disarm(Timed::Connection(key), &mut connection.armed);
        for (channel, armed) in (0..).zip(&mut connection.channels_armed) {
            self.timers.disarm(Timed::Channel(key, channel), armed);
        }
        self.unindex(key, connection.key);
        self.connections.unproven.remove(key);
        self.statistics.connections_now = self.connections.all.len() as u64;
        self.statistics.connections_by_standing[connection.standing.index()] -= 1;
        *self.statistics.connections_of(connection.side) -= 1;
        if connection.verified_at.is_some_and(|at| now.since(at) < COOKIE_LIFETIME) {
            self.cookies.forget(self.random.random()); // prevents a replay of its response
        }
        if let Some(peer) = self.peers.all.get_mut(connection.peer) {
            peer.connections -= 1;
            peer.idle_since = now;
            let is_stranger = connection.side == Side::Server && !peer.is_proven();
            if peer.connections == 0 && (is_stranger || self.statistics.peers_now > PEERS_MAX) {
                self.forget_peer(connection.peer);
                return;
            }
            let at = (peer.connections == 0).then(|| now + crate::peer::PEER_LIFETIME);
            self.timers.arm(Timed::Peer(connection.peer), &mut peer.armed, at);
        }
    }

    /// Removes a peer that has no connections.
    pub(super) fn forget_peer(&mut self, key: Key) {
        let Some(mut peer) = self.peers.all.remove(key) else { return };
        if peer.mtu.is_unanswered(peer.heard_at) {
            let (remote, bytes) = (peer.address, peer.mtu.safe());
            if self.peers.short_paths.on_silence(peer.idle_since, remote.ip(), bytes) {
                self.events.push_back(Event::PathIsShort { remote, packet_bytes: bytes });
            }
        }
        self.timers.disarm(Timed::Peer(key), &mut peer.armed);
        self.peers.forgotten.add(&peer.counters);
        self.peers.index.remove(&peer.address);
        self.statistics.peers_now = self.peers.all.len() as u64;
    }

    /// Updates a connection's timer.
    pub(super) fn arm_connection(&mut self, key: Key) {
        if let Some(connection) = self.connections.all.get_mut(key) {
            let at = connection.deadline(self.config.connection_lifetime);
            self.timers.arm(Timed::Connection(key), &mut connection.armed, at);
        }
    }

    /// Sends an abort of the whole connection, unless one was sent recently.
    pub(super) fn send_connection_abort(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let Some(code) = connection.error.filter(|_| now >= connection.abort_after) else { return };
        connection.abort_after = now + CONNECTION_ABORT_INTERVAL;
        connection.abort_at = None;
        let header = connection.header(PacketType::Abort);
        self.send_on(key, &header, abort_body(code));
    }

    /// Answers a packet for a call that no longer exists and whose end the sender does not know yet.
    pub(super) fn answer_late(&mut self, now: Monotonic, key: Key, header: &Header) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let channel = &mut connection.channels[header.channel()];
        let Channel { outcome, answer_after, .. } = *channel;
        let asks = header.kind == PacketType::Data
            || header.kind == PacketType::Ack && header.flags.contains(crate::Flags::REQUEST_ACK);
        if !asks || matches!(outcome, Outcome::Silence) || now < answer_after {
            self.statistics.spurious += 1;
            return;
        }
        if matches!(outcome, Outcome::Aborted(_)) {
            channel.answer_after = now + LATE_ANSWER_INTERVAL;
        }
        let (kind, body) = match outcome {
            Outcome::Aborted(code) => (PacketType::Abort, abort_body(code)),
            Outcome::Received(next) => (PacketType::Ack, self.late_ack(next, header)),
            Outcome::Silence => return,
        };
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let answer = connection.call_header(kind, header.channel() as u8, header.call_number);
        self.send_on(key, &answer, body);
    }

    /// Queues a packet of a connection independently of the calls' queue. If the address has proved nothing,
    /// the packet is sent only if enough bytes have arrived from there.
    pub(super) fn send_on(&mut self, key: Key, header: &Header, body: Bytes) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let Some(peer) = self.peers.all.get_mut(connection.peer) else { return };
        if self.output.control.len() >= crate::limits::CONTROL_PACKETS_MAX {
            return;
        }
        let bytes = crate::header::HEADER_BYTES + body.len();
        if connection.side == Side::Server && !peer.spend(bytes) {
            self.statistics.unproven_withheld += 1;
            return;
        }
        count_bytes(connection, peer, 1, bytes);
        let path = connection.path;
        self.send_control(path, header, body);
    }

    /// Queues a packet independently of the calls' queue and of any connection.
    pub(super) fn send_control(&mut self, path: Path, header: &Header, body: Bytes) {
        if self.output.control.len() < crate::limits::CONTROL_PACKETS_MAX {
            self.statistics.sent(header.kind, crate::header::HEADER_BYTES + body.len());
            self.output.control.push_back((path, header.encode(), body));
        }
    }
}

/// Returns the body of an ABORT packet.
pub(super) fn abort_body(code: AbortCode) -> Bytes {
    Bytes::copy_from_slice(&code.0.to_be_bytes())
}
