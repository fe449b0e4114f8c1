//! Processing of ICMP notices from hosts and routers about packets that did not arrive.
//!
//! With such notices, a caller learns immediately that the called program has exited, without waiting for the
//! dead time. But any host can send one, and OpenAFS accepts every notice that names a peer's address and
//! port (`rxi_ProcessNetError`, `rxi_CheckPeerDead`). Here a notice counts only if it quotes the header of a
//! recently sent packet, whose random connection id and serial are known only to hosts that receive this
//! endpoint's packets.
//!
//! Even then the notice does not prove that the peer is unreachable: the peer may be about to start, or
//! another path to it may work. The calls of the connection send a ping, and end with `RX_CALL_DEAD` only if
//! nothing arrives from the peer for about a round trip. As in OpenAFS, only calls started by this endpoint
//! can end this way, never those of clients.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::{AbortCode, Monotonic};

use super::Endpoint;
use crate::call::{Call, Doubt, Ping, Side};
use crate::connection::{Connection, ConnectionKey};
use crate::header::{self, Flags, Header};
use crate::slab::Key;

/// Maximum age of a quoted packet, in packets sent on its connection.
const SERIALS_BACK: u32 = 4096;

/// Time allowed for the peer's answer if its round-trip time is not known.
const GRACE: Duration = Duration::from_millis(500);

/// Limit on the time allowed: the dead time divided by this.
const GRACE_SHARE: u32 = 8;

impl Endpoint {
    /// Returns the connection and the header of the packet to `remote` that begins with `quote`, if it was
    /// sent recently.
    pub(super) fn find_sent(&self, remote: SocketAddr, quote: &[u8]) -> Option<(Key, Header)> {
        let (header, _) = header::parse(quote).ok()?;
        let client_sent = header.flags.contains(Flags::CLIENT_INITIATED);
        let side = if client_sent { Side::Client } else { Side::Server };
        let key = *self.connections.index.get(&ConnectionKey::new(header.epoch, header.cid, side, remote))?;
        let connection = self.connections.all.get(key)?;
        let age = connection.serial().wrapping_sub(header.serial);
        let lately = (1..=SERIALS_BACK).contains(&age);
        (lately && connection.path.remote == remote).then_some((key, header))
    }

    /// Processes a notice that a packet to `remote`, which begins with `quote`, did not arrive.
    pub(super) fn on_unreachable(&mut self, now: Monotonic, remote: SocketAddr, quote: &[u8]) {
        let Some(key) = self.find_client_call(remote, quote) else {
            self.statistics.unreachable_ignored += 1;
            return;
        };
        self.statistics.unreachable += 1;
        let Some(connection) = self.connections.all.get(key) else { return };
        for call in connection.channels.map(|channel| channel.call).into_iter().flatten() {
            self.doubt(now, call);
        }
    }

    /// Fails the client connections whose packets are sent from an address that this host has lost. OpenAFS's
    /// and Cellar's servers send replies to the address with which a connection began, so that no other
    /// address can take it over. The code says nothing about the peer, which may well answer.
    pub(super) fn on_source_gone(&mut self, now: Monotonic, local: IpAddr) {
        for key in self.connections.all.keys() {
            let uses = |it: &Connection| it.side == Side::Client && it.path.local == Some(local);
            if self.connections.all.get(key).is_some_and(uses) {
                self.fail_connection(now, key, AbortCode::RX_RESTARTING);
            }
        }
    }

    /// Returns the connection of the client call to which the quoted packet belongs, if the call is still
    /// running.
    fn find_client_call(&self, remote: SocketAddr, quote: &[u8]) -> Option<Key> {
        let (key, header) = self.find_sent(remote, quote)?;
        let connection = self.connections.all.get(key).filter(|it| it.side == Side::Client)?;
        let call = self.calls.get(connection.channels[header.channel()].call?)?;
        (call.state.is_running() && call.number == header.call_number).then_some(key)
    }

    fn doubt(&mut self, now: Monotonic, key: Key) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let Some(connection) = self.connections.all.get(call.connection) else { return };
        let Some(peer) = self.peers.all.get(connection.peer) else { return };
        let doubted = call.doubt.is_some_and(|doubt| peer.heard_at <= doubt.since);
        if doubted || !call.state.is_running() || call.send.sequences() == 0 {
            return;
        }
        let usual = if peer.rtt.smoothed().is_some() { peer.rtt.timeout(0) } else { GRACE };
        let grace = usual.min(call.limits.dead / GRACE_SHARE);
        call.doubt = Some(Doubt { since: now, until: now + grace });
        call.ping.get_or_insert(Ping::Plain);
        self.settle(now, key);
    }

    /// Whether the peer of a call has not answered in time after a notice. Each notice is confirmed once.
    pub(super) fn is_doubt_confirmed(&mut self, now: Monotonic, key: Key) -> bool {
        let Some(call) = self.calls.get_mut(key) else { return false };
        let Some(doubt) = call.doubt.take_if(|doubt| doubt.until <= now) else { return false };
        let Call { connection, .. } = *call;
        let peer = self.connections.all.get(connection).and_then(|it| self.peers.all.get(it.peer));
        peer.is_some_and(|peer| peer.heard_at <= doubt.since)
    }
}
