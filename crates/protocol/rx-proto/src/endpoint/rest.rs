//! Resting of server calls whose short replies are in flight: see [`crate::call::rest`].

use base::Monotonic;

use super::Endpoint;
use crate::call::{Call, NewCall, Side, State};
use crate::congestion::{Congestion, Learnt};
use crate::connection::Outcome;
use crate::limits::WINDOW_MAX;
use crate::slab::Key;

impl Endpoint {
    /// Stores a call on its channel in compact form until this time, if nothing but the acknowledgement is
    /// outstanding. With few clients all calls fit into the caches, and this would have no benefit.
    pub(super) fn put_to_rest(&mut self, key: Key, until: Option<Monotonic>) {
        if !self.is_crowded() {
            return;
        }
        let (Some(until), Some(call)) = (until, self.calls.get(key)) else { return };
        let Some(rest) = call.rest(until) else { return };
        if let Some(call) = self.calls.put_to_rest(key, rest) {
            self.keep_spare(call);
        }
    }

    /// Restores a resting call. Must be called before any event of the call, except its end by the next call.
    pub(super) fn wake(&mut self, now: Monotonic, key: Key) {
        let Some(rest) = self.calls.resting(key) else { return };
        let Some(connection) = self.connections.all.get(rest.connection) else { return };
        let parts = NewCall {
            connection: rest.connection,
            side: Side::Server,
            channel: rest.channel,
            number: rest.number,
            state: State::Active,
            send_window: rest.sent.window,
            send_window_max: u32::from(self.config.send_window_packets).clamp(1, WINDOW_MAX as u32),
            receive_window: self.config.receive_window(),
            congestion: Congestion::new(Some(Learnt { at: now, ..rest.sent.learnt }), now),
            limits: connection.limits,
            standing: rest.standing,
        };
        let mut call = Call::reusing(self.spare_calls.pop(), parts, now);
        call.resume(rest);
        self.calls.put_to_work(key, call);
    }

    /// Ends a resting call, because the client's next call acknowledges the reply. Returns false if the call
    /// is not resting.
    pub(super) fn end_rest(&mut self, now: Monotonic, key: Key) -> bool {
        let Some(rest) = self.calls.resting(key) else { return false };
        let (connection, channel, learnt) = (rest.connection, rest.channel, rest.sent.learnt);
        let outcome = Outcome::Received(rest.request_last.wrapping_add(1));
        self.statistics.calls_by_standing[rest.standing.index()] -= 1;
        self.calls.discard_resting(key);
        self.statistics.calls_ended += 1;
        self.statistics.calls_now = self.calls.len() as u64;
        if let Some(peer) =
            self.connections.all.get(connection).and_then(|it| self.peers.all.get_mut(it.peer))
        {
            peer.on_success();
            peer.learnt = Some(Learnt { at: now, ..learnt });
        }
        self.leave_channel(now, (connection, channel), key, outcome);
        true
    }
}

#[cfg(test)]
mod tests;
