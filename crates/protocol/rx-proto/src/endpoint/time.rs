//! Processing of expired deadlines.

use base::{AbortCode, Monotonic};

use super::Endpoint;
use super::finish::Notify;
use crate::call::send::Timeout;
use crate::call::{Late, Ping, Side, State};
use crate::event::Event;
use crate::header::HEADER_BYTES;
use crate::limits::PACKET_BYTES_MIN;
use crate::slab::Key;
use crate::timers::Timed;

/// Number of consecutive timeouts after which long packets are suspected of not arriving.
const BLACK_HOLE_TIMEOUTS: u32 = 3;

/// Number of consecutive timeouts after which this is certain, if the peer answers shorter packets.
const DROPPED_TIMEOUTS: u32 = 5;

impl Endpoint {
    pub(super) fn run_timers(&mut self, now: Monotonic) {
        // All entries that are due are taken first, so that those that become due during processing wait for
        // the next run.
        let mut due = std::mem::take(&mut self.due);
        due.extend(std::iter::from_fn(|| self.timers.pop_due(now)));
        for what in due.drain(..) {
            match what {
                Timed::Call(key) => self.detached_call_time(now, key),
                Timed::Channel(key, channel) => self.channel_time(now, key, channel),
                Timed::Connection(key) => self.connection_time(now, key),
                Timed::Peer(key) => self.peer_time(now, key),
            }
        }
        self.due = due;
    }

    fn detached_call_time(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        call.armed.fired();
        self.call_time(now, key);
    }

    fn channel_time(&mut self, now: Monotonic, key: Key, channel: u8) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        let armed = &mut connection.channels_armed[usize::from(channel)];
        armed.fired();
        let Some(call) = connection.channels[usize::from(channel)].call else { return };
        let deadline = self.calls.resting(call).map(|rest| rest.deadline);
        if deadline.is_some_and(|at| at > now) {
            self.timers.arm(Timed::Channel(key, channel), armed, deadline);
            return;
        }
        self.wake(now, call);
        self.call_time(now, call);
    }

    fn call_time(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        match call.state {
            State::Failed(code) | State::Aborted(code) => {
                if call.abort_at.is_some_and(|at| at <= now) {
                    call.abort_at = None;
                    self.send_abort(key, code);
                }
            }
            State::Done | State::Lingering => call.receive.acks.on_time(now),
            State::Waiting => self.waiting_call_time(now, key),
            State::Active | State::Replying => self.running_call_time(now, key),
        }
        self.settle(now, key);
    }

    fn running_call_time(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        match call.lateness(now) {
            Some(Late::Dead) => return self.fail(now, key, AbortCode::RX_CALL_DEAD, Notify::Peer),
            Some(Late::TimedOut) => return self.fail(now, key, AbortCode::RX_CALL_TIMEOUT, Notify::Peer),
            None => {}
        }
        if self.is_doubt_confirmed(now, key) {
            return self.fail(now, key, AbortCode::RX_CALL_DEAD, Notify::Peer);
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        call.receive.acks.on_time(now);
        if let Some(owed) = call.owed.take_if(|owed| owed.at <= now) {
            let (connection, channel) = (call.connection, call.channel);
            self.send_owed_ack(connection, channel, owed);
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        if now >= call.ping_at() {
            call.ping = Some(Ping::Plain);
        }
        if call.may_send() {
            self.resend(now, key);
        }
    }

    fn resend(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(connection) = self.connections.all.get(call.connection) else { return };
        let Some(peer) = self.peers.all.get_mut(connection.peer) else { return };
        match call.send.on_time(now, &peer.rtt) {
            Timeout::Nothing | Timeout::Resend if call.send.backoff() == 0 => {}
            Timeout::Nothing => {}
            Timeout::Ping => call.ping = Some(Ping::Plain),
            Timeout::Resend => {
                self.statistics.timeouts += 1;
                peer.learnt = Some(call.send.congestion.learnt(now));
                if call.send.backoff() >= BLACK_HOLE_TIMEOUTS {
                    peer.mtu.on_black_hole(now);
                    call.ping = Some(Ping::Plain);
                }
                self.end_if_dropped(now, key);
            }
        }
    }

    /// Ends a call whose packets are too long for the path, because they cannot be split again. The caller
    /// retries with shorter ones.
    fn end_if_dropped(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some((body_bytes, sent_at)) = call.send.stuck(DROPPED_TIMEOUTS) else { return };
        let bytes = HEADER_BYTES + body_bytes;
        let is_dropped = call.send.backoff() >= DROPPED_TIMEOUTS && call.clocks.received > sent_at;
        if !is_dropped || bytes <= PACKET_BYTES_MIN {
            return;
        }
        let code = if call.side == Side::Server { AbortCode::VBUSY } else { AbortCode::RX_CALL_DEAD };
        let Some(connection) = self.connections.all.get(call.connection) else { return };
        let peer_key = connection.peer;
        if let Some(peer) = self.peers.all.get_mut(peer_key) {
            peer.mtu.on_dropped(now, bytes);
        }
        self.note_short_path(now, peer_key);
        self.fail(now, key, code, Notify::Peer);
    }

    /// Remembers that a path was found to be short, and reports it to the application.
    pub(super) fn note_short_path(&mut self, now: Monotonic, peer: Key) {
        let Some(peer) = self.peers.all.get_mut(peer) else { return };
        let Some(packet_bytes) = peer.mtu.take_news() else { return };
        let remote = peer.address;
        if self.peers.short_paths.insert(now, remote.ip(), packet_bytes) {
            self.events.push_back(Event::PathIsShort { remote, packet_bytes });
        }
    }

    fn connection_time(&mut self, now: Monotonic, key: Key) {
        let Some(connection) = self.connections.all.get_mut(key) else { return };
        connection.armed.fired();
        let expiry = connection.expiry(self.config.connection_lifetime);
        let abort = connection.abort_at.is_some_and(|at| at <= now);
        if expiry.is_some_and(|at| at <= now) {
            self.remove_connection(now, key);
            return;
        }
        if abort {
            self.send_connection_abort(now, key);
        }
        self.arm_connection(key);
    }

    fn peer_time(&mut self, now: Monotonic, key: Key) {
        let Some(peer) = self.peers.all.get_mut(key) else { return };
        peer.armed.fired();
        if peer.connections > 0 {
            return;
        }
        let end = peer.idle_since + crate::peer::PEER_LIFETIME;
        if end <= now {
            self.forget_peer(key);
        } else {
            self.timers.arm(Timed::Peer(key), &mut peer.armed, Some(end));
        }
    }
}
