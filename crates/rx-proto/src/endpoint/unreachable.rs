//! What hosts and routers say about packets that did not arrive (ICMP).
//!
//! Whoever calls a program that has exited hears at once that nobody listens, and need not wait for
//! the dead time. But anybody can send such a notice, and OpenAFS believes every one that names a
//! peer's address and port (`rxi_ProcessNetError`, `rxi_CheckPeerDead`). Here a notice counts only
//! if it quotes the header of a packet sent lately: its random connection id and serial number are
//! known to nobody who does not see our packets.
//!
//! Even then it is a doubt and no proof: the peer may be about to start, or a second way to it may
//! work. The calls of that connection ask the peer with a ping, and end with `RX_CALL_DEAD` only if
//! nothing at all is heard from it for about a round trip. As in OpenAFS only calls made from here
//! can end like this, never those of clients.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{AbortCode, Monotonic};

use super::Endpoint;
use crate::call::{Call, Doubt, Ping, Side};
use crate::connection::{Connection, ConnectionKey};
use crate::header::{self, Flags, Header};
use crate::slab::Key;

/// A quoted packet is one of so many last ones of its connection.
const SERIALS_BACK: u32 = 4096;

/// How long a doubted peer may take to answer if its round trip time is not known.
const GRACE: Duration = Duration::from_millis(500);

/// It never takes more than this part of the dead time.
const GRACE_SHARE: u32 = 8;

impl Endpoint {
    /// The connection and the header of the packet to `remote` that begins with `quote`, if it was
    /// sent lately.
    pub(super) fn find_sent(&self, remote: SocketAddr, quote: &[u8]) -> Option<(Key, Header)> {
        let (header, _) = header::parse(quote).ok()?;
        let client_sent = header.flags.contains(Flags::CLIENT_INITIATED);
        let side = if client_sent { Side::Client } else { Side::Server };
        let key = *self.index.get(&ConnectionKey::new(header.epoch, header.cid, side, remote))?;
        let connection = self.connections.get(key)?;
        let age = connection.serial().wrapping_sub(header.serial);
        let lately = (1..=SERIALS_BACK).contains(&age);
        (lately && connection.path.remote == remote).then_some((key, header))
    }

    /// A packet to `remote` that begins with `quote` is said not to have arrived.
    pub(super) fn on_unreachable(&mut self, now: Monotonic, remote: SocketAddr, quote: &[u8]) {
        let Some(key) = self.find_client_call(remote, quote) else {
            self.statistics.unreachable_ignored += 1;
            return;
        };
        self.statistics.unreachable += 1;
        let Some(connection) = self.connections.get(key) else { return };
        for call in connection.channels.map(|channel| channel.call).into_iter().flatten() {
            self.doubt(now, call);
        }
    }

    /// Fails the client connections whose packets leave from an address that this host has lost. OpenAFS's servers and
    /// Cellar's answer to the address that a connection began with, so that no other address can take it over.
    pub(super) fn on_source_gone(&mut self, now: Monotonic, local: IpAddr) {
        for key in self.connections.keys() {
            let uses = |it: &Connection| it.side == Side::Client && it.path.local == Some(local);
            if self.connections.get(key).is_some_and(uses) {
                self.fail_connection(now, key, AbortCode::RX_CALL_DEAD);
            }
        }
    }

    /// The connection of the client call that the quoted packet belongs to, if that still runs.
    fn find_client_call(&self, remote: SocketAddr, quote: &[u8]) -> Option<Key> {
        let (key, header) = self.find_sent(remote, quote)?;
        let connection = self.connections.get(key).filter(|it| it.side == Side::Client)?;
        let call = self.calls.get(connection.channels[header.channel()].call?)?;
        (call.is_running() && call.number == header.call_number).then_some(key)
    }

    fn doubt(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(connection) = self.connections.get(call.connection) else { return };
        let Some(peer) = self.peers.get(connection.peer) else { return };
        let doubted = call.doubt.is_some_and(|doubt| peer.heard_at <= doubt.since);
        if doubted || !call.is_running() || call.send.sequences() == 0 {
            return;
        }
        let usual = if peer.rtt.smoothed().is_some() { peer.rtt.timeout(0) } else { GRACE };
        let grace = usual.min(call.limits.dead / GRACE_SHARE);
        call.doubt = Some(Doubt { since: now, until: now + grace });
        call.ping.get_or_insert(Ping::Plain);
        self.settle(now, key);
    }

    /// Whether a call's peer was doubted and has had its time to answer. A doubt is told once.
    pub(super) fn is_doubt_confirmed(&mut self, now: Monotonic, key: Key) -> bool {
        let Some(call) = self.calls.get_mut(key) else { return false };
        let Some(doubt) = call.doubt.take_if(|doubt| doubt.until <= now) else { return false };
        let Call { connection, .. } = *call;
        let peer = self.connections.get(connection).and_then(|it| self.peers.get(it.peer));
        peer.is_some_and(|peer| peer.heard_at <= doubt.since)
    }
}
