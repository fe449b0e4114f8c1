//! The transition from one process to the next behind a port whose sockets stay open, or behind an address that another
//! machine had.
//!
//! The old process stops accepting calls: it drops packets that would begin one without an answer, so that
//! clients repeat them to the new process. The new process does not know the calls that the old one was
//! serving. A client whose request the old process has acknowledged does not repeat it, and would ping until
//! it gives up. It is sent an abort with `RX_RESTARTING` instead, after which cache managers restart the
//! operation.
//!
//! Before a host leaves an address to another one, it does the same for that address alone, and lets the calls there
//! end: a client whose change was made would otherwise repeat it.

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{AbortCode, Monotonic};

use super::Endpoint;
use super::finish::Notify;
use super::input::Packet;
use crate::call::{Call, Side};
use crate::hash::SeededState;
use crate::header::{Flags, Header, PacketType};
use crate::path::Path;
use crate::slab::Key;

/// Time within which a client retransmits the first packet of a call if it still has it.
const ORPHAN_AGE: Duration = Duration::from_secs(3);

/// Maximum number of unknown calls remembered. A call whose slot is overwritten ends with the client's dead
/// time instead.
const SUSPECTS_MAX: usize = 1024;

/// Unknown calls for which clients have pinged: either calls of the old process, or calls whose first packet
/// was lost and will be retransmitted.
pub(super) struct Suspects {
    hasher: SeededState,
    /// The calls, at the index given by their hash. Empty until the first one is recorded.
    places: Vec<Option<Suspect>>,
}

#[derive(Clone, Copy)]
struct Suspect {
    call: SuspectId,
    /// Time at which the first ping arrived.
    since: Monotonic,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
struct SuspectId {
    remote: SocketAddr,
    epoch: u32,
    cid: u32,
    call_number: u32,
}

impl Suspects {
    pub(super) fn new(hasher: SeededState) -> Suspects {
        Suspects { hasher, places: Vec::new() }
    }

    /// Records a ping for an unknown call. Returns whether the call is an orphan: whether an earlier ping is
    /// so old that the client would have retransmitted the first packet if it still had it.
    fn is_orphan(&mut self, now: Monotonic, remote: SocketAddr, header: &Header) -> bool {
        let Header { epoch, cid, call_number, .. } = *header;
        let call = SuspectId { remote, epoch, cid, call_number };
        if self.places.is_empty() {
            self.places.resize(SUSPECTS_MAX, None);
        }
        let place = &mut self.places[self.hasher.hash_one(call) as usize % SUSPECTS_MAX];
        let known = place.filter(|known| known.call == call);
        let since = known.map_or(now, |known| known.since);
        let is_orphan = now.since(since) >= ORPHAN_AGE;
        *place = (!is_orphan).then_some(Suspect { call, since });
        is_orphan
    }
}

/// Where no new calls are accepted.
#[derive(Default)]
pub(super) struct Holding {
    everywhere: bool,
    /// The local addresses that another host is to have.
    at: Vec<IpAddr>,
}

impl Holding {
    /// Whether a packet of this path must not begin a call.
    pub(super) fn covers(&self, path: &Path) -> bool {
        self.everywhere || path.local.is_some_and(|local| self.at.contains(&local))
    }
}

impl Endpoint {
    /// Begins to answer at the address `local` for another process, which had it until now: its calls are ended as those of a
    /// process before this one ([`EndpointConfig::predecessor_memory`](crate::EndpointConfig::predecessor_memory)). Accepts
    /// new calls there, whether or not they were [held](Self::hold_new_calls_at).
    pub fn succeed(&mut self, now: Monotonic, local: IpAddr) {
        self.succeeded = now;
        self.holding.at.retain(|held| *held != local);
    }

    /// Stops accepting new connections of clients and new calls. Calls in progress continue.
    pub fn hold_new_calls(&mut self) {
        self.holding.everywhere = true;
    }

    /// Stops accepting new connections of clients and new calls at the address `local`, until [`succeed`](Self::succeed) is
    /// called. Calls in progress continue. Meant for few addresses: each new call is compared with all of them.
    pub fn hold_new_calls_at(&mut self, local: IpAddr) {
        if !self.holding.at.contains(&local) {
            self.holding.at.push(local);
        }
    }

    /// Returns the number of clients' calls at the address `local` that have not ended. A call ends when the client has
    /// acknowledged the reply and the application has released it.
    pub fn calls_at(&self, local: IpAddr) -> usize {
        let is_there = |connection: &Key| {
            let connection = self.connections.all.get(*connection);
            connection.is_some_and(|it| it.side == Side::Server && it.path.local == Some(local))
        };
        self.calls.connections().filter(is_there).count()
    }

    /// Drops a packet that would begin a call, if new calls are held, and returns whether it did. The packet
    /// still acknowledges the reply of a completed call on the same channel.
    pub(super) fn is_held(&mut self, now: Monotonic, key: Key, packet: &Packet) -> bool {
        if !self.holding.covers(&packet.path) {
            return false;
        }
        let channel = packet.header.channel();
        let old = self.connections.all.get(key).and_then(|it| it.channels[channel].call);
        let is_through = |call: &Call| call.send.is_all_cut() && call.receive.is_complete();
        if old.and_then(|old| self.calls.get(old)).is_some_and(is_through) {
            self.supersede(now, key, channel);
        }
        self.statistics.calls_held += 1;
        true
    }

    /// Answers a ping for an unknown call if the old process was its server. A first ping is not answered: it
    /// may have overtaken the call's first packet, or that packet was lost and will be retransmitted.
    pub(super) fn end_unknown(&mut self, now: Monotonic, packet: &Packet) {
        let asks = packet.header.kind == PacketType::Ack && packet.header.flags.contains(Flags::REQUEST_ACK);
        let is_suspect = asks && packet.header.call_number != 0 && self.had_predecessor(now);
        if is_suspect && self.suspects.is_orphan(now, packet.path.remote, &packet.header) {
            self.statistics.calls_orphaned += 1;
            self.refuse(packet, AbortCode::RX_RESTARTING);
        }
    }

    /// Whether the call probably belongs to the old process, because its first packet has not arrived.
    fn is_orphan(&self, now: Monotonic, call: &Call) -> bool {
        call.side == Side::Server && call.receive.missing() == 1 && self.had_predecessor(now)
    }

    /// Whether a packet beyond the window must not be acknowledged: Linux gives up a call if it receives such
    /// an ACK before any packet of the call is acknowledged.
    pub(super) fn is_silent_about(&self, now: Monotonic, key: Key) -> bool {
        self.calls.get(key).is_some_and(|call| call.receive.highest() == 0 && self.is_orphan(now, call))
    }

    /// Ends a call for which the client pings although it had time to retransmit the first packet. Returns
    /// whether the call was ended.
    pub(super) fn end_orphan(&mut self, now: Monotonic, key: Key) -> bool {
        let is_over = |call: &Call| now.since(call.clocks.started) >= ORPHAN_AGE && self.is_orphan(now, call);
        let ends = self.calls.get(key).is_some_and(is_over);
        if ends {
            self.statistics.calls_orphaned += 1;
            self.fail(now, key, AbortCode::RX_RESTARTING, Notify::Peer);
        }
        ends
    }

    fn had_predecessor(&self, now: Monotonic) -> bool {
        now.since(self.succeeded) < self.config.predecessor_memory
    }
}
