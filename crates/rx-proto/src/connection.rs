//! A connection: four channels, a security class, and a peer.

use std::net::SocketAddr;

use base::{AbortCode, Caller, Identity, Monotonic, SecurityLevel, UnixTime};
use bytes::Bytes;
use rx_security::{
    ClientHandshake, ConnectionFacts, KeyLease, Overhead, PacketFacts, PacketProtection, Protected,
    SecurityError, ServerHandshake, Verified,
};

use crate::call::{Side, TimeLimits};
use crate::header::{Flags, Header, PacketType};
use crate::limits::{CHANNEL_MASK, CHANNELS, UNPROVEN_LIFETIME, UNREAD_WINDOW};
use crate::path::Path;
use crate::slab::Key;
use crate::standing::Standing;
use crate::timers::{Armed, earlier, look};

/// What a packet's connection is found by: its numbers and the peer's address. Connections that have a key of their own, and
/// whose epoch is unique without an address (its high bit is set, rxi_FindConnection), are found without the address, too:
/// hosts have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionKey {
    epoch: u32,
    id: u32,
    server: bool,
    remote: Option<SocketAddr>,
}

impl ConnectionKey {
    pub(crate) fn new(epoch: u32, cid: u32, side: Side, remote: SocketAddr) -> ConnectionKey {
        ConnectionKey { epoch, id: cid & !CHANNEL_MASK, server: side == Side::Server, remote: Some(remote) }
    }

    /// The key without the address, if the epoch allows that.
    pub(crate) fn anywhere(self) -> Option<ConnectionKey> {
        (self.epoch & EPOCH_ANY_ADDRESS != 0).then_some(ConnectionKey { remote: None, ..self })
    }
}

/// The bit of an epoch that says "random, and unique without an address".
pub(crate) const EPOCH_ANY_ADDRESS: u32 = 0x8000_0000;

/// A failed server connection goes on refusing packets for this long.
const FAILED_LIFETIME: std::time::Duration = std::time::Duration::from_secs(30);

/// Packets sent last that a peer may quote to prove its address.
const ECHOES_MAX: u32 = 64;

/// See the module's description.
pub(crate) struct Connection {
    pub(crate) side: Side,
    pub(crate) key: ConnectionKey,
    /// What services know it by.
    handle: base::Connection,
    pub(crate) facts: ConnectionFacts,
    pub(crate) path: Path,
    /// Another address of the peer, which has sent what only the peer can make.
    pub(crate) alternate: Option<SocketAddr>,
    pub(crate) peer: Key,
    pub(crate) channels: [Channel; CHANNELS],
    pub(crate) security: Security,
    pub(crate) error: Option<AbortCode>,
    pub(crate) used_at: Monotonic,
    /// Client: a challenge was answered.
    pub(crate) has_responded: bool,
    /// Client: a call found no channel.
    pub(crate) wants_channel: bool,
    pub(crate) limits: TimeLimits,
    pub(crate) armed: Armed,
    /// The deadlines of the calls on the channels.
    pub(crate) channels_armed: [Armed; CHANNELS],
    pub(crate) counters: ConnectionCounters,
    serial: u32,
    /// The serial number of its first packet.
    first_serial: u32,
    /// How much its peer has proved; what it counts as.
    pub(crate) standing: Standing,
    /// Not before then is its peer asked for a proof again.
    pub(crate) ask_after: Monotonic,
    /// When the security class proved its caller.
    pub(crate) verified_at: Option<Monotonic>,
    /// Not before then is another abort of the connection sent.
    pub(crate) abort_after: Monotonic,
    /// An abort of the connection that is held back.
    pub(crate) abort_at: Option<Monotonic>,
}

/// For rxdebug.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    pub(crate) packets_received: u32,
    pub(crate) packets_sent: u32,
    pub(crate) bytes_received: u32,
    pub(crate) bytes_sent: u32,
}

/// One of the four places for calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Channel {
    /// The number of the present or last call, 0 if there has been none.
    pub(crate) number: u32,
    /// The call that has it.
    pub(crate) call: Option<Key>,
    /// What became of call `number`, once it is gone.
    pub(crate) outcome: Outcome,
    /// Not before then is a late packet answered again.
    pub(crate) answer_after: Monotonic,
}

/// What late packets of an ended call are answered with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Outcome {
    /// Nothing.
    #[default]
    Silence,
    /// All packets before this one have been received.
    Received(u32),
    Aborted(AbortCode),
}

/// The security class's part of a connection.
pub(crate) struct Security {
    /// `None` is no protection at all (null class), or not known yet.
    protection: Option<Box<dyn PacketProtection>>,
    pub(crate) stage: Stage,
}

/// How far the handshake is.
pub(crate) enum Stage {
    /// Server: the client has to answer.
    Challenging(Challenging),
    /// Server: the caller is known.
    Verified(Proof),
    /// Client.
    Client(Option<Box<dyn ClientHandshake>>),
}

/// A challenge that waits for its response.
pub(crate) struct Challenging {
    pub(crate) handshake: Box<dyn ServerHandshake>,
    pub(crate) is_sent: bool,
    /// A response has come.
    pub(crate) is_answered: bool,
}

/// What a handshake proved.
pub(crate) struct Proof {
    pub(crate) identity: Identity,
    pub(crate) level: SecurityLevel,
    pub(crate) expires: Option<UnixTime>,
    /// Of the key that the proof was made with.
    pub(crate) lease: Option<KeyLease>,
    /// The peer has answered a challenge, so its address is its own.
    pub(crate) challenged: bool,
}

impl Security {
    pub(crate) fn client(index: u8, handshake: Option<Box<dyn ClientHandshake>>) -> Security {
        let protection =
            handshake.as_ref().filter(|_| index != rx_security::null::NULL_INDEX).map(|it| it.protection());
        Security { protection, stage: Stage::Client(handshake) }
    }

    pub(crate) fn challenging(handshake: Box<dyn ServerHandshake>) -> Security {
        let challenging = Challenging { handshake, is_sent: false, is_answered: false };
        Security { protection: None, stage: Stage::Challenging(challenging) }
    }

    /// Takes over what a handshake led to.
    pub(crate) fn verified(index: u8, verified: Verified, challenged: bool) -> Security {
        let Verified { protection, identity, level, expires, lease, .. } = verified;
        let null = index == rx_security::null::NULL_INDEX;
        Security {
            protection: (!null).then_some(protection),
            stage: Stage::Verified(Proof { identity, level, expires, lease, challenged }),
        }
    }

    /// Whether packets have to be kept as they are until the client has answered.
    pub(crate) fn is_challenging(&self) -> bool {
        matches!(self.stage, Stage::Challenging(_))
    }

    /// Whether both ends have a key by which packets are known to be theirs.
    pub(crate) fn has_key(&self) -> bool {
        self.protection.is_some()
    }

    pub(crate) fn overhead(&self) -> Overhead {
        self.protection.as_ref().map_or(Overhead::NONE, |it| it.overhead())
    }

    /// Whether payloads are passed on as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.overhead() == Overhead::NONE
    }

    /// The checksums of consecutive packets whose payloads are passed on as they are.
    pub(crate) fn checksums(&mut self, first: PacketFacts, checksums: &mut [u16]) {
        if let Some(protection) = &mut self.protection {
            protection.checksums(first, checksums);
        }
    }

    /// Protects several payloads; leaves them alone if there is no protection.
    pub(crate) fn protect_all(
        &mut self,
        packets: &[(PacketFacts, &[Bytes])],
    ) -> Result<Vec<Protected>, SecurityError> {
        match &mut self.protection {
            Some(protection) => protection.protect_all(packets),
            None => Ok(packets.iter().map(|(_, payload)| unprotected(payload)).collect()),
        }
    }

    pub(crate) fn unprotect(
        &mut self,
        facts: PacketFacts,
        checksum: u16,
        body: Bytes,
    ) -> Result<Bytes, SecurityError> {
        match &mut self.protection {
            Some(protection) => protection.unprotect(facts, checksum, body),
            None => Ok(body),
        }
    }
}

/// What a new connection is made of.
pub(crate) struct NewConnection {
    pub(crate) side: Side,
    pub(crate) facts: ConnectionFacts,
    pub(crate) path: Path,
    pub(crate) peer: Key,
    pub(crate) security: Security,
    pub(crate) limits: TimeLimits,
    /// The first packet's serial. Unpredictable, so that only who sees our packets can echo it.
    pub(crate) serial: u32,
    pub(crate) standing: Standing,
}

impl Connection {
    pub(crate) fn new(parts: NewConnection, now: Monotonic) -> Connection {
        let NewConnection { side, facts, path, peer, security, limits, serial, standing } = parts;
        Connection {
            side,
            key: ConnectionKey::new(facts.epoch, facts.connection_id, side, path.remote),
            handle: base::Connection::new(),
            facts,
            path,
            alternate: None,
            peer,
            channels: [Channel::default(); CHANNELS],
            security,
            error: None,
            used_at: now,
            has_responded: false,
            wants_channel: false,
            limits,
            armed: Armed::default(),
            channels_armed: Default::default(),
            counters: ConnectionCounters::default(),
            serial,
            first_serial: serial,
            standing,
            ask_after: Monotonic(0),
            verified_at: None,
            abort_after: Monotonic(0),
            abort_at: None,
        }
    }

    /// Reads a little of each part that a call on this channel needs: see [`crate::Endpoint::look_ahead`].
    pub(crate) fn look(&self, channel: usize) -> u64 {
        let Channel { number, answer_after, .. } = self.channels[channel];
        let security = matches!(self.security.stage, Stage::Verified(_)) ^ self.security.protection.is_some();
        let times = self.used_at.0 ^ look(self.abort_at) ^ self.limits.dead.as_secs() ^ answer_after.0;
        let armed = self.armed.look() ^ self.channels_armed[channel].look();
        let numbers = number ^ self.serial ^ self.facts.connection_id ^ self.counters.packets_received;
        let place = u64::from(self.path.remote.port()) ^ self.peer.number();
        u64::from(numbers) ^ u64::from(security) ^ times ^ armed ^ place
    }

    /// The serial number for the next packet; never 0, which means "none" in ACKs.
    pub(crate) fn next_serial(&mut self) -> u32 {
        let serial = self.serial;
        self.serial = if serial == u32::MAX { 1 } else { serial + 1 };
        serial
    }

    /// Whether one of the last packets sent on it had this serial number. Nobody can guess it who has not seen them.
    pub(crate) fn has_sent_lately(&self, serial: u32) -> bool {
        let sent = self.serial.wrapping_sub(self.first_serial);
        (1..=sent.min(ECHOES_MAX)).contains(&self.serial.wrapping_sub(serial))
    }

    /// The number of the next packet, for rxdebug.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    /// The header of a packet about the connection, with the next serial number.
    pub(crate) fn header(&mut self, kind: PacketType) -> Header {
        let serial = self.next_serial();
        Header { serial, ..self.template(kind) }
    }

    /// What headers of packets of a call have in common.
    pub(crate) fn call_template(&self, kind: PacketType, channel: u8, number: u32) -> Header {
        let header = self.template(kind);
        Header { cid: header.cid | u32::from(channel), call_number: number, ..header }
    }

    fn template(&self, kind: PacketType) -> Header {
        Header {
            epoch: self.facts.epoch,
            cid: self.facts.connection_id,
            call_number: 0,
            sequence: 0,
            serial: 0,
            kind,
            flags: Flags::default().with_if(self.side == Side::Client, Flags::CLIENT_INITIATED),
            user_status: 0,
            security_index: self.facts.security_index,
            checksum: 0,
            service_id: self.facts.service_id,
        }
    }

    /// The header of a packet of a call, with the next serial number.
    pub(crate) fn call_header(&mut self, kind: PacketType, channel: u8, number: u32) -> Header {
        let header = self.header(kind);
        Header { cid: header.cid | u32::from(channel), call_number: number, ..header }
    }

    /// Whether any channel has a call.
    pub(crate) fn has_calls(&self) -> bool {
        self.channels.iter().any(|channel| channel.call.is_some())
    }

    /// The call numbers that go into a response: the present or last ones.
    pub(crate) fn call_numbers(&self) -> [u32; CHANNELS] {
        self.channels.map(|channel| channel.number)
    }

    /// The facts about the caller for services.
    pub(crate) fn caller(&self) -> Caller {
        let (identity, level) = match &self.security.stage {
            Stage::Verified(proof) => (proof.identity.clone(), proof.level),
            _ => (Identity::Anonymous, SecurityLevel::Clear),
        };
        let unspecified = match self.path.remote {
            SocketAddr::V4(_) => std::net::IpAddr::from([0; 4]),
            SocketAddr::V6(_) => std::net::IpAddr::from([0; 16]),
        };
        Caller {
            identity,
            level,
            peer: self.path.remote,
            local: self.path.local.unwrap_or(unspecified),
            connection: self.handle.clone(),
        }
    }

    /// The window that a call begins with, where the peer's last call had room for `last` packets: without a security
    /// class a server offers no more than this before it reads.
    pub(crate) fn first_window(&self, last: u32) -> u32 {
        let is_anonymous = self.facts.security_index == rx_security::null::NULL_INDEX;
        if is_anonymous && self.side == Side::Client { last.min(UNREAD_WINDOW) } else { last }
    }

    /// Whether its calls are served only while its peer's address is proved: its security class has proved nothing.
    pub(crate) fn needs_reach(&self) -> bool {
        self.side == Side::Server
            && !matches!(&self.security.stage, Stage::Verified(proof) if proof.challenged)
    }

    /// When to look at the connection again.
    pub(crate) fn deadline(&self, lifetime: std::time::Duration) -> Option<Monotonic> {
        earlier(self.abort_at, self.expiry(lifetime))
    }

    /// When to forget the connection if nothing happens on it.
    pub(crate) fn expiry(&self, lifetime: std::time::Duration) -> Option<Monotonic> {
        let lifetime = match self.standing {
            _ if self.error.is_some() => lifetime.min(FAILED_LIFETIME),
            Standing::Unproven => lifetime.min(UNPROVEN_LIFETIME),
            Standing::Reachable | Standing::Verified => lifetime,
        };
        (self.side == Side::Server && !self.has_calls()).then(|| self.used_at + lifetime)
    }
}

fn unprotected(payload: &[Bytes]) -> Protected {
    Protected { checksum: 0, pieces: payload.to_vec() }
}

#[cfg(test)]
mod tests;
