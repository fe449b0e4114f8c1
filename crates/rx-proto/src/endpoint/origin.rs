//! The addresses from which packets of a connection are accepted.
//!
//! OpenAFS finds a connection whose epoch has its high bit set for packets from any address, so that any host
//! that knows the connection's numbers can end or change it. Here a connection belongs to one address. A
//! packet from another address is accepted only if the peer alone can have created it: if it is new data that
//! decrypts with the connection's key. The address then counts as the peer's as well, for hosts with several;
//! packets are still sent to the first one, as in OpenAFS. Other hosts cannot take over the numbers of a
//! connection either: the same numbers from another address denote another connection.

use rx_security::PacketFacts;

use super::Endpoint;
use super::input::Packet;
use crate::call::Side;
use crate::call::receive::Arrival;
use crate::connection::ConnectionKey;
use crate::header::{Flags, Header, PacketType};
use crate::limits::JUMBO_BODY_BYTES;
use crate::slab::Key;

impl Endpoint {
    /// Allows packets from the peer's other addresses to find a connection with a key.
    pub(super) fn index_anywhere(&mut self, key: Key) {
        let Some(connection) = self.connections.get(key).filter(|it| it.security.has_key()) else { return };
        if let Some(anywhere) = connection.key.anywhere() {
            self.index.entry(anywhere).or_insert(key);
        }
    }

    /// Removes a connection from the index.
    pub(super) fn unindex(&mut self, key: Key, index_key: ConnectionKey) {
        self.index.remove(&index_key);
        if let Some(anywhere) = index_key.anywhere()
            && self.index.get(&anywhere) == Some(&key)
        {
            self.index.remove(&anywhere);
        }
    }

    /// Returns the connection of a packet that comes from another address than the connection's.
    pub(super) fn find_elsewhere(&mut self, index_key: ConnectionKey, packet: &Packet) -> Option<Key> {
        let key = *self.index.get(&index_key.anywhere()?)?;
        let remote = packet.path.remote;
        // A host that overheard the data may have sent it first, so packets that end a connection are
        // accepted only from its own address.
        let goes_on = matches!(packet.header.kind, PacketType::Data | PacketType::Ack | PacketType::AckAll);
        let is_known = goes_on && self.connections.get(key).is_some_and(|it| it.alternate == Some(remote));
        if is_known || self.is_new_data(key, &packet.header) && self.unseals(key, packet) {
            self.connections.get_mut(key)?.alternate = Some(remote);
            return Some(key);
        }
        None
    }

    /// Whether the packet contains data that has not arrived before; a replayed packet proves nothing.
    fn is_new_data(&mut self, key: Key, header: &Header) -> bool {
        let is_data = header.kind == PacketType::Data && !header.flags.contains(Flags::JUMBO_PACKET);
        let Some(connection) = self.connections.get(key).filter(|it| is_data && it.error.is_none()) else {
            return false;
        };
        let channel = connection.channels[header.channel()];
        if channel.number != header.call_number {
            return connection.side == Side::Server && header.call_number > channel.number;
        }
        let call = channel.call.and_then(|call| self.calls.get_mut(call));
        let arrival = call.map(|call| call.receive.classify(header.sequence, header.flags));
        matches!(arrival, Some(Arrival::InOrder | Arrival::OutOfOrder))
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
        let connection = self.connections.get_mut(key).filter(|it| it.security.has_key());
        connection.is_some_and(|it| it.security.unprotect(facts, header.checksum, body).is_ok())
    }
}
