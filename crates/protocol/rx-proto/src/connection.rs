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

/// The key by which a packet's connection is found: its ids and the peer's address. A verified client that moves
/// to another address is recognised by the ids alone if its epoch is unique by itself (its high bit is set,
/// rxi_FindConnection).
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

    /// Returns the key without the address, if the epoch allows that.
    pub(crate) fn anywhere(self) -> Option<ConnectionKey> {
        (self.epoch & EPOCH_ANY_ADDRESS != 0).then_some(ConnectionKey { remote: None, ..self })
    }
}

/// The bit of an epoch that marks it as random and unique without an address.
pub(crate) const EPOCH_ANY_ADDRESS: u32 = 0x8000_0000;

/// Time for which a failed server connection continues to refuse packets.
const FAILED_LIFETIME: std::time::Duration = std::time::Duration::from_secs(30);

/// Number of recently sent packets whose serial a peer may echo to prove its address.
const ECHOES_MAX: u32 = 64;

/// A connection to or from a peer, with its channels and its security state.
pub(crate) struct Connection {
    pub(crate) side: Side,
    pub(crate) key: ConnectionKey,
    /// Handle that services use to identify the connection.
    handle: base::Connection,
    pub(crate) facts: ConnectionFacts,
    pub(crate) path: Path,
    pub(crate) peer: Key,
    pub(crate) channels: [Channel; CHANNELS],
    pub(crate) security: Security,
    pub(crate) error: Option<AbortCode>,
    pub(crate) used_at: Monotonic,
    /// Client: whether a challenge has been answered.
    pub(crate) has_responded: bool,
    /// Client: whether a call is waiting for a channel.
    pub(crate) wants_channel: bool,
    pub(crate) limits: TimeLimits,
    pub(crate) armed: Armed,
    /// Deadlines of the calls on the channels.
    pub(crate) channels_armed: [Armed; CHANNELS],
    pub(crate) counters: ConnectionCounters,
    serial: u32,
    /// Serial of the first packet sent on the connection.
    first_serial: u32,
    /// Level of proof of the peer, under which the connection is counted.
    pub(crate) standing: Standing,
    /// Time before which the peer is not asked for a proof again.
    pub(crate) ask_after: Monotonic,
    /// Time at which the security class proved the caller.
    pub(crate) verified_at: Option<Monotonic>,
    /// Time before which no further abort of the connection is sent.
    pub(crate) abort_after: Monotonic,
    /// Time at which a delayed abort of the connection is sent.
    pub(crate) abort_at: Option<Monotonic>,
}

/// Traffic counters for rxdebug.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    pub(crate) packets_received: u32,
    pub(crate) packets_sent: u32,
    pub(crate) bytes_received: u32,
    pub(crate) bytes_sent: u32,
}

/// One of the four channels, each of which carries one call at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Channel {
    /// Number of the current or last call, or 0 before the first.
    pub(crate) number: u32,
    /// The current call.
    pub(crate) call: Option<Key>,
    /// Outcome of call `number` after its removal.
    pub(crate) outcome: Outcome,
    /// Time before which late packets are not answered again.
    pub(crate) answer_after: Monotonic,
}

/// The answer to late packets of an ended call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Outcome {
    /// No answer.
    #[default]
    Silence,
    /// All packets before this one have been received.
    Received(u32),
    Aborted(AbortCode),
}

/// The security state of a connection.
pub(crate) struct Security {
    /// Protection of packets; `None` for the null class, and before the handshake has completed.
    protection: Option<Box<dyn PacketProtection>>,
    pub(crate) stage: Stage,
}

/// Progress of the handshake.
pub(crate) enum Stage {
    /// Server: the client has to answer the challenge.
    Challenging(Challenging),
    /// Server: the caller is verified.
    Verified(Proof),
    /// Client side; the handshake is `None` if the class has none.
    Client(Option<Box<dyn ClientHandshake>>),
}

/// A challenge that awaits its response.
pub(crate) struct Challenging {
    pub(crate) handshake: Box<dyn ServerHandshake>,
    pub(crate) is_sent: bool,
    /// Whether a response has arrived.
    pub(crate) is_answered: bool,
}

/// The result of a handshake.
pub(crate) struct Proof {
    pub(crate) identity: Identity,
    pub(crate) level: SecurityLevel,
    pub(crate) expires: Option<UnixTime>,
    /// Lease of the key with which the proof was made.
    pub(crate) lease: Option<KeyLease>,
    /// Whether the peer has answered a challenge, which also proves its address.
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

    /// Creates the state after a completed handshake.
    pub(crate) fn verified(index: u8, verified: Verified, challenged: bool) -> Security {
        let Verified { protection, identity, level, expires, lease, .. } = verified;
        let null = index == rx_security::null::NULL_INDEX;
        Security {
            protection: (!null).then_some(protection),
            stage: Stage::Verified(Proof { identity, level, expires, lease, challenged }),
        }
    }

    /// Whether received packets have to be stored encrypted until the client has answered.
    pub(crate) fn is_challenging(&self) -> bool {
        matches!(self.stage, Stage::Challenging(_))
    }

    /// Whether both ends share a key that authenticates their packets.
    pub(crate) fn has_key(&self) -> bool {
        self.protection.is_some()
    }

    pub(crate) fn overhead(&self) -> Overhead {
        self.protection.as_ref().map_or(Overhead::NONE, |it| it.overhead())
    }

    /// Whether payloads are sent unchanged.
    pub(crate) fn is_plain(&self) -> bool {
        self.overhead() == Overhead::NONE
    }

    /// Computes the checksums of consecutive packets whose payloads are sent unchanged.
    pub(crate) fn checksums(&mut self, first: PacketFacts, checksums: &mut [u16]) {
        if let Some(protection) = &mut self.protection {
            protection.checksums(first, checksums);
        }
    }

    /// Protects several payloads, or leaves them unchanged if there is no protection.
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

/// Parameters of a new connection.
pub(crate) struct NewConnection {
    pub(crate) side: Side,
    pub(crate) facts: ConnectionFacts,
    pub(crate) path: Path,
    pub(crate) peer: Key,
    pub(crate) security: Security,
    pub(crate) limits: TimeLimits,
    /// Serial of the first packet. It is unpredictable, so that only a host that receives this side's packets
    /// can echo it.
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

    /// Prefetches each part that a call on this channel needs: see [`crate::Endpoint::prefetch`].
    pub(crate) fn look(&self, channel: usize) -> u64 {
        let Channel { number, answer_after, .. } = self.channels[channel];
        let security = matches!(self.security.stage, Stage::Verified(_)) ^ self.security.protection.is_some();
        let times = self.used_at.0 ^ look(self.abort_at) ^ self.limits.dead.as_secs() ^ answer_after.0;
        let armed = self.armed.look() ^ self.channels_armed[channel].look();
        let numbers = number ^ self.serial ^ self.facts.connection_id ^ self.counters.packets_received;
        let place = u64::from(self.path.remote.port()) ^ self.peer.number();
        u64::from(numbers) ^ u64::from(security) ^ times ^ armed ^ place
    }

    /// Returns the serial for the next packet; never 0, which means "none" in ACKs.
    pub(crate) fn next_serial(&mut self) -> u32 {
        let serial = self.serial;
        self.serial = if serial == u32::MAX { 1 } else { serial + 1 };
        serial
    }

    /// Whether one of the last packets sent on the connection had this serial. Only a host that received them
    /// can know it.
    pub(crate) fn has_sent_lately(&self, serial: u32) -> bool {
        let sent = self.serial.wrapping_sub(self.first_serial);
        (1..=sent.min(ECHOES_MAX)).contains(&self.serial.wrapping_sub(serial))
    }

    /// Returns the serial of the next packet, for rxdebug.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    /// Returns the header of a packet that concerns the connection, with the next serial.
    pub(crate) fn header(&mut self, kind: PacketType) -> Header {
        let serial = self.next_serial();
        Header { serial, ..self.template(kind) }
    }

    /// Returns the fields that the headers of a call's packets have in common.
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

    /// Returns the header of a packet of a call, with the next serial.
    pub(crate) fn call_header(&mut self, kind: PacketType, channel: u8, number: u32) -> Header {
        let header = self.header(kind);
        Header { cid: header.cid | u32::from(channel), call_number: number, ..header }
    }

    /// Whether any channel has a call.
    pub(crate) fn has_calls(&self) -> bool {
        self.channels.iter().any(|channel| channel.call.is_some())
    }

    /// Returns the call numbers for a response: those of the current or last calls.
    pub(crate) fn call_numbers(&self) -> [u32; CHANNELS] {
        self.channels.map(|channel| channel.number)
    }

    /// Returns the caller's identity and addresses for services.
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

    /// Returns the send window with which a call begins, if the peer's last call had room for `last` packets.
    /// Without a security class, a server offers no more than `UNREAD_WINDOW` packets before it reads.
    pub(crate) fn first_window(&self, last: u32) -> u32 {
        let is_anonymous = self.facts.security_index == rx_security::null::NULL_INDEX;
        if is_anonymous && self.side == Side::Client { last.min(UNREAD_WINDOW) } else { last }
    }

    /// Whether calls are served only after the peer's address is proved, because the security class has not
    /// proved it.
    pub(crate) fn needs_reach(&self) -> bool {
        self.side == Side::Server
            && !matches!(&self.security.stage, Stage::Verified(proof) if proof.challenged)
    }

    /// Returns the next time at which the connection has to be checked.
    pub(crate) fn deadline(&self, lifetime: std::time::Duration) -> Option<Monotonic> {
        earlier(self.abort_at, self.expiry(lifetime))
    }

    /// Returns the time at which the connection is removed if it is not used.
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
