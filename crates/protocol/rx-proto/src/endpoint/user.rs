//! Operations of the application on calls and connections.

use base::{AbortCode, Monotonic, RecvBuffer};
use bytes::Bytes;
use rand::Rng;
use rx_security::{ClientSecurity, ConnectionFacts};
use std::sync::Arc;

use super::Endpoint;
use super::finish::Notify;
use crate::call::receive::ack_delay;
use crate::call::{Call, OwedAck, Side, State, StateEvent, TimeLimits};
use crate::config::ConnectOptions;
use crate::connection::{Channel, ConnectionKey, NewConnection, Security, Stage};
use crate::event::{Filled, Read, Write};
use crate::header::PacketType;
use crate::limits::{CHANNELS, PROOF_INTERVAL};
use crate::path::Path;
use crate::slab::Key;
use crate::standing::Standing;

impl Endpoint {
    pub(super) fn read_call(&mut self, now: Monotonic, key: Key) -> Read {
        let mut found = None;
        let after = self.read_packets(now, key, 1, |body| found = Some(body));
        found.map_or(after.unwrap_or(Read::Blocked), Read::Data)
    }

    pub(super) fn read_packets(
        &mut self,
        now: Monotonic,
        key: Key,
        packets_max: usize,
        mut data: impl FnMut(Bytes),
    ) -> Option<Read> {
        let Some(call) = self.calls.get_mut(key) else { return Some(Read::Failed(AbortCode::RX_CALL_DEAD)) };
        if let Some(code) = call.failure() {
            return Some(Read::Failed(code));
        }
        let (held, mut left) = (call.receive.held(), packets_max);
        while left > 0
            && let Some(body) = call.receive.pop()
        {
            if !body.is_empty() {
                left -= 1;
                data(body);
            }
        }
        let taken = held - call.receive.held();
        self.statistics.let_go(call.standing, taken);
        let after = match left {
            0 => None,
            _ if call.receive.is_read() => Some(Read::End),
            _ => {
                call.reader_waits = true;
                Some(Read::Blocked)
            }
        };
        if taken > 0 || after == Some(Read::End) {
            self.after_read(now, key);
        }
        after
    }

    pub(super) fn post_receive_buffer(&mut self, now: Monotonic, key: Key, room: RecvBuffer) {
        let Some(call) = self.calls.get_mut(key).filter(|call| call.failure().is_none()) else { return };
        call.receive.post_buffer(room);
        let take_filled = call.receive.land();
        self.statistics.let_go(call.standing, take_filled);
        if take_filled > 0 {
            self.after_read(now, key);
        }
    }

    pub(super) fn take_room(&mut self, now: Monotonic, key: Key) -> Filled {
        let Some(call) = self.calls.get_mut(key) else { return Filled::Failed(AbortCode::RX_CALL_DEAD) };
        if let Some(code) = call.failure() {
            return Filled::Failed(code);
        }
        let Some(room) = call.receive.take_room() else {
            call.reader_waits = true;
            return Filled::Blocked;
        };
        call.clocks.progress = now;
        Filled::RecvBuffer(room)
    }

    fn after_read(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.clocks.progress = now;
        call.open_window(self.config.receive_window());
        let last_of_reply = call.side == Side::Client && call.receive.is_complete();
        call.receive.plan_window_ack(now + ack_delay(&self.config, last_of_reply));
        self.settle(now, key);
    }

    pub(super) fn write_call(&mut self, now: Monotonic, key: Key, data: &mut Bytes) -> Write {
        let Some(call) = self.calls.get_mut(key) else { return Write::Failed(AbortCode::RX_CALL_DEAD) };
        if let Some(code) = call.failure() {
            return Write::Failed(code);
        }
        if call.side == Side::Server {
            self.statistics.let_go(call.standing, call.receive.discard());
        } else if call.send.is_ended() && call.state.is_active() && !call.send.is_muted() {
            return Write::Failed(AbortCode::RX_INVALID_OPERATION);
        }
        let accepted = call.send.push(data, self.config.send_queue_limit());
        if accepted == 0 && !data.is_empty() {
            call.writer_waits = true;
            return Write::Blocked;
        }
        call.clocks.progress = now;
        self.settle(now, key);
        Write::Accepted(accepted)
    }

    pub(super) fn end_call(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if !call.state.is_active() {
            return;
        }
        call.send.end();
        call.clocks.progress = now;
        if call.side == Side::Server {
            self.statistics.let_go(call.standing, call.receive.discard());
        }
        self.settle(now, key);
    }

    pub(super) fn reply_call(&mut self, now: Monotonic, key: Key, mut reply: Bytes) {
        let limit = self.config.send_queue_limit();
        let may_send = |call: &Call| call.side == Side::Server && call.state == State::Active;
        if let Some(call) = self.calls.get_mut(key).filter(|call| may_send(call)) {
            call.send.push(&mut reply, limit);
            if reply.is_empty() {
                self.statistics.let_go(call.standing, call.receive.discard());
                call.send.end();
                call.clocks.progress = now;
                call.apply(StateEvent::Released);
                let is_large = call.send.large_bytes().is_some();
                self.settle(now, key);
                if is_large {
                    self.count_unread(key);
                }
                return;
            }
        }
        self.abort_call(now, key, AbortCode::RX_PROTOCOL_ERROR);
        self.release_call(now, key);
    }

    pub(super) fn abort_call(&mut self, now: Monotonic, key: Key, code: AbortCode) {
        self.fail(now, key, code, Notify::PeerOnly);
    }

    pub(super) fn release_call(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key).filter(|call| !call.state.is_released()) else {
            return;
        };
        call.apply(StateEvent::Released);
        let finishing = call.side == Side::Server && call.send.is_ended();
        let is_large = finishing && call.send.large_bytes().is_some();
        if call.state.is_running() && !finishing {
            self.fail(now, key, AbortCode::RX_USER_ABORT, Notify::Peer);
            return;
        }
        self.statistics.let_go(call.standing, call.receive.discard());
        let connection = call.connection;
        if call.state.is_done() && call.side == Side::Client {
            call.receive.plan_window_ack(now + self.config.last_ack_delay);
            self.offer_channel(connection);
        }
        self.settle(now, key);
        if is_large {
            self.count_unread(key);
        }
    }

    pub(super) fn new_connection(
        &mut self,
        now: Monotonic,
        path: Path,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
        options: ConnectOptions,
    ) -> Result<Key, AbortCode> {
        if !self.make_room(now, Standing::Verified) {
            return Err(AbortCode::RX_RESTARTING);
        }
        let facts = ConnectionFacts {
            epoch: self.epoch,
            connection_id: self.free_connection_id(path),
            service_id,
            security_index: security.as_ref().map_or(rx_security::null::NULL_INDEX, |it| it.index()),
        };
        let handshake = match security {
            Some(class) => Some(class.start(facts).map_err(|error| error.abort_code())?),
            None => None,
        };
        let security = Security::client(facts.security_index, handshake);
        let limits = TimeLimits {
            dead: options.dead_time.unwrap_or(self.config.dead_time),
            idle: options.idle_time,
            total: options.call_time_max,
        };
        let peer = self.peer_at(now, path.remote);
        let serial = self.random.random_range(1..1 << 31);
        let parts = NewConnection {
            side: Side::Client,
            facts,
            path,
            peer,
            security,
            limits,
            serial,
            standing: Standing::Verified,
        };
        Ok(self.add_connection(now, parts))
    }

    /// Returns a connection id that is not in use.
    fn free_connection_id(&mut self, path: Path) -> u32 {
        loop {
            let id = self.connections.ids.next();
            let key = ConnectionKey::new(self.epoch, id, Side::Client, path.remote);
            if !self.connections.index.contains_key(&key) {
                return id;
            }
        }
    }

    pub(super) fn new_call(&mut self, now: Monotonic, key: Key) -> Option<Key> {
        let connection = self.connections.all.get(key)?;
        if connection.side == Side::Server || connection.error.is_some() {
            return None;
        }
        if !self.has_room_for_call(Standing::Verified) {
            return None;
        }
        let Some(channel) = self.free_channel(key) else {
            self.connections.all.get_mut(key)?.wants_channel = true;
            return None;
        };
        let owed = self.clear_channel(now, key, channel);
        let number = self.connections.all.get(key)?.channels[channel].number + 1;
        self.statistics.calls_opened += 1;
        let call_key = self.add_call(now, key, channel, number);
        if let Some(call) = self.calls.get_mut(call_key) {
            call.owed = owed;
        }
        self.settle(now, call_key);
        Some(call_key)
    }

    /// Returns a channel without a call, or with a completed one that only waits to acknowledge its reply,
    /// which the new call does instead.
    fn free_channel(&self, key: Key) -> Option<usize> {
        let connection = self.connections.all.get(key)?;
        let lingers = |channel: &Channel| {
            let call = channel.call.and_then(|call| self.calls.get(call));
            call.is_none_or(|call| call.state == State::Lingering)
        };
        let usable = |channel: &Channel| channel.number < u32::MAX && lingers(channel);
        // The first usable channel is the one used last, whose state is still in the peer's caches.
        (0..CHANNELS).find(|&channel| usable(&connection.channels[channel]))
    }

    /// Removes a completed call from its channel. Returns its deferred acknowledgement to the server.
    fn clear_channel(&mut self, now: Monotonic, key: Key, channel: usize) -> Option<OwedAck> {
        let old = self.connections.all.get(key)?.channels[channel].call?;
        let owed = self.calls.get(old).and_then(|call| owed_ack(call, now));
        self.remove_call(now, old);
        owed
    }

    pub(super) fn close_connection(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get(key).filter(|it| it.side == Side::Client) else {
            return;
        };
        for call in connection.channels.map(|channel| channel.call).into_iter().flatten() {
            self.acknowledge_last(now, key, call);
            self.fail(now, call, AbortCode::RX_USER_ABORT, Notify::Peer);
            if self.calls.get(call).is_some_and(|call| call.state.is_released()) {
                self.remove_call(now, call);
            }
        }
        self.remove_connection(now, key);
    }

    /// Sends the acknowledgement of a reply that would have waited for the next call.
    fn acknowledge_last(&mut self, now: Monotonic, connection: Key, key: Key) {
        let Some(call) = self.calls.get(key) else { return };
        let channel = call.channel;
        let owed = owed_ack(call, now).filter(|_| call.state.is_done()).or(call.owed);
        if let Some(owed) = owed {
            self.send_owed_ack(connection, channel, owed);
        }
    }

    /// Sends the deferred final acknowledgement of a call that has left its channel.
    pub(super) fn send_owed_ack(&mut self, key: Key, channel: u8, owed: OwedAck) {
        let body = self.closing_ack(owed.missing);
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let header = connection.call_header(PacketType::Ack, channel, owed.number);
        self.send_on(key, &header, body);
    }

    /// Processes a challenge of the server.
    pub(super) fn on_challenge(&mut self, now: Monotonic, key: Key, body: &[u8]) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        // Without a call in progress, the challenge does not come from the server.
        if !connection.has_calls() {
            return;
        }
        if now < connection.ask_after {
            return;
        }
        let numbers = connection.call_numbers();
        let Stage::Client(handshake) = &mut connection.security.stage else { return };
        let Some(handshake) = handshake else { return };
        match handshake.respond(body, numbers) {
            Ok(response) => {
                connection.has_responded = true;
                connection.ask_after = now + PROOF_INTERVAL;
                let header = connection.header(PacketType::Response);
                self.send_on(key, &header, Bytes::from(response));
            }
            // A forged challenge has no effect once a valid one has been answered.
            Err(_) if connection.has_responded => self.statistics.spurious += 1,
            Err(error) => {
                self.statistics.handshakes_failed += 1;
                self.note_heard(now, key);
                self.fail_connection(now, key, error.abort_code());
                self.send_connection_abort(now, key);
            }
        }
    }
}

/// Returns the acknowledgement that a completed call still has to send to its server.
fn owed_ack(call: &Call, now: Monotonic) -> Option<OwedAck> {
    let at = if call.receive.acks.is_due() { Some(now) } else { call.receive.acks.deadline() };
    at.map(|at| OwedAck { number: call.number, missing: call.receive.missing(), at })
}
