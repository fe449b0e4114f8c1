//! Which addresses packets of a connection may come from.
//!
//! OpenAFS finds a connection whose epoch has its high bit set by its numbers alone. Anyone who knows them can then change
//! or end the connection from any address. Here a connection belongs to one address, and the same numbers from another
//! address are another connection. A checksum does not replace the address: at the levels clear and auth an observer can
//! put other data behind the header of a packet that it has seen, and acknowledgements have no checksum at all.
//!
//! A verified client that sends from another address is challenged there. With the response its connection moves to that
//! address, and its calls continue.

use base::{AbortCode, Monotonic};
use rx_security::PacketFacts;

use super::Endpoint;
use super::input::{Packet, key_of};
use crate::Path;
use crate::connection::{Connection, ConnectionKey, Stage};
use crate::header::{Flags, Header, PacketType};
use crate::limits::JUMBO_BODY_BYTES;
use crate::slab::Key;

impl Endpoint {
    /// Whether a packet may come from a verified client that has moved: another connection has its numbers.
    pub(super) fn may_have_moved(&self, header: &Header, path: &Path) -> bool {
        let goes_on = matches!(header.kind, PacketType::Data | PacketType::Ack) && header.call_number != 0;
        let (_, index_key) = key_of(header, path);
        goes_on && index_key.anywhere().is_some_and(|anywhere| self.connections.index.contains_key(&anywhere))
    }

    /// Records a verified connection of a client. If the client has had it at another address, that connection moves to
    /// the new address, with its calls, and takes the place of the new one. Returns the connection to go on with.
    pub(super) fn settle_address(&mut self, now: Monotonic, new: Key) -> Key {
        let anywhere =
            self.connections.all.get(new).filter(|it| it.security.has_key()).and_then(|it| it.key.anywhere());
        let Some(anywhere) = anywhere else { return new };
        let old = *self.connections.index.entry(anywhere).or_insert(new);
        match self.connections.all.get_pair_mut(old, new) {
            Some((left, proven)) if is_same_caller(left, proven) => {
                std::mem::swap(&mut left.key, &mut proven.key);
                std::mem::swap(&mut left.path, &mut proven.path);
                std::mem::swap(&mut left.peer, &mut proven.peer);
                std::mem::swap(&mut left.security, &mut proven.security);
                std::mem::swap(&mut left.verified_at, &mut proven.verified_at);
                let (now_at, left_at) = (left.key, proven.key);
                self.connections.index.insert(now_at, old);
                self.connections.index.insert(left_at, new);
                self.fail_connection(now, new, AbortCode::RX_CALL_DEAD);
                self.remove_connection(now, new);
                old
            }
            _ => new,
        }
    }

    /// Removes a connection from the index.
    pub(super) fn unindex(&mut self, key: Key, index_key: ConnectionKey) {
        self.connections.index.remove(&index_key);
        if let Some(anywhere) = index_key.anywhere()
            && self.connections.index.get(&anywhere) == Some(&key)
        {
            self.connections.index.remove(&anywhere);
        }
    }

    /// Whether the packet, or the first packet of a jumbogram, decrypts with the key of the connection.
    /// Returns false if the connection has no key.
    pub(super) fn unseals(&mut self, key: Key, packet: &Packet) -> bool {
        let header = &packet.header;
        let (channel, call_number) = (header.channel() as u8, header.call_number);
        let mut body = packet.body.clone();
        if header.flags.contains(Flags::JUMBO_PACKET) {
            body.truncate(JUMBO_BODY_BYTES);
        }
        let facts = PacketFacts { call_number, channel, sequence: header.sequence };
        let connection = self.connections.all.get_mut(key).filter(|it| it.security.has_key());
        connection.is_some_and(|it| it.security.unprotect(facts, header.checksum, body).is_ok())
    }
}

/// Whether both connections have the same numbers and the same authenticated caller.
fn is_same_caller(one: &Connection, other: &Connection) -> bool {
    one.facts == other.facts
        && one.error.is_none()
        && match (&one.security.stage, &other.security.stage) {
            (Stage::Verified(one), Stage::Verified(other)) => one.identity == other.identity,
            _ => false,
        }
}
