//! The change from one process to the next behind a port whose sockets stay open.
//!
//! The process that leaves stops accepting calls: packets that would begin one are dropped without an answer, so that
//! clients repeat them to its successor. The process that comes knows none of the calls that its predecessor was
//! serving. A client whose request the predecessor has acknowledged does not repeat it, and would ping until it gives
//! up. It is sent an abort with `RX_RESTARTING` instead, after which cache managers begin the operation again.

use std::time::Duration;

use base::{AbortCode, Monotonic};

use super::Endpoint;
use super::finish::Tell;
use super::input::Packet;
use crate::call::{Call, Side};
use crate::header::{Flags, PacketType};
use crate::slab::Key;

/// Time in which a client sends the first packet of a call again if it still has it.
const ORPHAN_AGE: Duration = Duration::from_secs(3);

impl Endpoint {
    /// Accepts no new connections of clients and no new calls from now on. Calls under way go on.
    pub fn hold_new_calls(&mut self) {
        self.holds_new_calls = true;
    }

    /// Drops a packet that would begin a call, if calls are held. A call on the channel of one that is through still
    /// acknowledges the reply of that one.
    pub(super) fn is_held(&mut self, now: Monotonic, key: Key, channel: usize) -> bool {
        if !self.holds_new_calls {
            return false;
        }
        let old = self.connections.get(key).and_then(|it| it.channels[channel].call);
        let is_through = |call: &Call| call.send.is_all_cut() && call.receive.is_complete();
        if old.and_then(|old| self.calls.get(old)).is_some_and(is_through) {
            self.supersede(now, key, channel);
        }
        self.statistics.calls_held += 1;
        true
    }

    /// Answers a ping about an unknown call: its server was the predecessor.
    pub(super) fn end_unknown(&mut self, now: Monotonic, packet: &Packet) {
        let asks = packet.header.kind == PacketType::Ack && packet.header.flags.contains(Flags::REQUEST_ACK);
        if asks && packet.header.call_number != 0 && self.had_predecessor(now) {
            self.statistics.calls_orphaned += 1;
            self.refuse(packet, AbortCode::RX_RESTARTING);
        }
    }

    /// Whether the call is probably the predecessor's: its first packet has not come.
    fn is_orphan(&self, now: Monotonic, call: &Call) -> bool {
        call.side == Side::Server && call.receive.missing() == 1 && self.had_predecessor(now)
    }

    /// Whether a packet beyond the window must not be acknowledged: Linux gives up a call if it is told so before any
    /// packet of the call is acknowledged.
    pub(super) fn is_silent_about(&self, now: Monotonic, key: Key) -> bool {
        self.calls.get(key).is_some_and(|call| call.receive.highest() == 0 && self.is_orphan(now, call))
    }

    /// Ends a call for which its client pings though it had time to send the first packet again. Returns whether it did.
    pub(super) fn end_orphan(&mut self, now: Monotonic, key: Key) -> bool {
        let is_over = |call: &Call| now.since(call.clocks.started) >= ORPHAN_AGE && self.is_orphan(now, call);
        let ends = self.calls.get(key).is_some_and(is_over);
        if ends {
            self.statistics.calls_orphaned += 1;
            self.fail(now, key, AbortCode::RX_RESTARTING, Tell::Peer);
        }
        ends
    }

    fn had_predecessor(&self, now: Monotonic) -> bool {
        now.since(self.started) < self.config.predecessor_memory
    }
}
