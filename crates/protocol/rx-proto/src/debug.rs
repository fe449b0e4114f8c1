//! Encoding of answers to rxdebug, in the layouts of doc/txt/rx-debug.txt, version 'S' (OpenAFS 1.6 and
//! later).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::limits::CHANNELS;
use crate::statistics::Statistics;

/// Version of these layouts (RX_DEBUGI_VERSION).
pub const DEBUG_VERSION: u8 = b'S';

/// Marks an entry after the last one.
const NONE_SUCH: u32 = 0xffff_ffff;

/// Error for an unknown kind of request (RX_DEBUGI_BADTYPE).
const BAD_TYPE: i32 = -8;

/// The kind of a request (RX_DEBUGI_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Basic figures.
    Basics,
    /// The n-th active connection.
    BusyConnection(u32),
    /// The n-th connection.
    Connection(u32),
    /// Counters.
    Counters,
    /// The n-th peer.
    Peer(u32),
    /// An unknown kind.
    Unknown,
}

impl Question {
    /// Decodes the body of a DEBUG packet. Returns `None` if it is too short.
    pub fn parse(body: &[u8]) -> Option<Question> {
        let kind = u32::from_be_bytes(*body.first_chunk()?);
        let index = u32::from_be_bytes(*body.get(4..)?.first_chunk()?);
        Some(match kind {
            1 => Question::Basics,
            2 => Question::BusyConnection(index),
            3 => Question::Connection(index),
            4 => Question::Counters,
            5 => Question::Peer(index),
            _ => Question::Unknown,
        })
    }
}

/// Whether a datagram is a DEBUG packet.
pub fn is_question(datagram: &[u8]) -> bool {
    crate::header::parse(datagram).is_ok_and(|(header, _)| header.kind == crate::PacketType::Debug)
}

/// Basic figures (struct rx_debugStats).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Basics {
    pub(crate) free_packets: u64,
    pub(crate) packets: u64,
    pub(crate) calls: u64,
    pub(crate) waiting: u64,
    pub(crate) waited: u64,
    pub(crate) idle_workers: u64,
}

impl std::ops::AddAssign for Basics {
    fn add_assign(&mut self, other: Basics) {
        self.free_packets += other.free_packets;
        self.packets += other.packets;
        self.calls += other.calls;
        // Every endpoint holds these figures for all workers of its server, so they are not added up.
        self.waiting = self.waiting.max(other.waiting);
        self.waited = self.waited.max(other.waited);
        self.idle_workers = self.idle_workers.max(other.idle_workers);
    }
}

impl Basics {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Fields::default();
        out.count(self.free_packets);
        out.u32(0); // packet reclaims
        out.count(self.calls);
        out.bytes(&[0, 1, DEBUG_VERSION, 0]); // waiting for packets, files in use, version
        out.counts(&[self.waiting, self.idle_workers, self.waited, self.packets]);
        out.zeros(24);
        out.0
    }
}

/// The state of a channel as rxdebug shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChannelView {
    pub(crate) number: u32,
    /// State of the channel, RX_STATE_*.
    pub(crate) state: u8,
    /// Mode of the channel, RX_MODE_*.
    pub(crate) mode: u8,
    /// Flags of the call, RX_CALL_*, as far as they fit into a byte.
    pub(crate) flags: u8,
    /// Queued packets: 1 to read, 2 to send.
    pub(crate) other: u8,
}

/// A connection (struct rx_debugConn).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionView {
    pub(crate) remote: SocketAddr,
    pub(crate) epoch: u32,
    pub(crate) id: u32,
    pub(crate) serial: u32,
    pub(crate) channels: [ChannelView; CHANNELS],
    pub(crate) error: i32,
    pub(crate) flags: u8,
    pub(crate) server: bool,
    pub(crate) security: SecurityView,
    pub(crate) packet_bytes: usize,
}

/// The security state of a connection (struct rx_securityObjectStats).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SecurityView {
    pub(crate) index: u8,
    pub(crate) level: u8,
    pub(crate) authenticated: bool,
    pub(crate) expires: u32,
    pub(crate) packets_received: u32,
    pub(crate) packets_sent: u32,
    pub(crate) bytes_received: u32,
    pub(crate) bytes_sent: u32,
}

impl ConnectionView {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Fields::default();
        out.bytes(&ipv4(self.remote));
        out.u32(self.id);
        out.u32(self.serial);
        self.channels.iter().for_each(|channel| out.u32(channel.number));
        out.u32(self.error as u32);
        out.u16(self.remote.port());
        out.bytes(&[self.flags, u8::from(self.server), self.security.index, 0, 0, 0]);
        out.bytes(&self.channels.map(|channel| channel.state));
        out.bytes(&self.channels.map(|channel| channel.mode));
        out.bytes(&self.channels.map(|channel| channel.flags));
        out.bytes(&self.channels.map(|channel| channel.other));
        self.security.encode(&mut out);
        out.u32(self.epoch);
        out.u32(self.packet_bytes as u32);
        out.zeros(36);
        out.0
    }

    /// Returns the answer to a request for an entry after the last connection.
    pub(crate) fn none() -> Vec<u8> {
        let mut out = Fields::default();
        out.zeros(4);
        out.u32(NONE_SUCH);
        out.zeros(168);
        out.0
    }
}

impl SecurityView {
    fn encode(self, out: &mut Fields) {
        // RX_SECTYPE_NULL, RX_SECTYPE_KAD, or unknown. Flag 1 means "no state yet", flag 2 "authenticated".
        let kind = match self.index {
            0 => 1,
            2 => 3,
            _ => 0,
        };
        out.bytes(&[kind, self.level]);
        out.zeros(10);
        out.u32(if self.authenticated { 2 } else { 0 });
        let counts =
            [self.expires, self.packets_received, self.packets_sent, self.bytes_received, self.bytes_sent];
        for value in counts {
            out.u32(value);
        }
        out.zeros(40);
    }
}

/// A peer (struct rx_debugPeer).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerView {
    pub(crate) remote: SocketAddr,
    pub(crate) idle_seconds: u32,
    pub(crate) connections: usize,
    pub(crate) rtt: Duration,
    pub(crate) rtt_variation: Duration,
    pub(crate) timeout: Duration,
    pub(crate) sent: u64,
    pub(crate) resent: u64,
    pub(crate) packet_bytes: usize,
    pub(crate) packet_bytes_max: usize,
    pub(crate) window: u32,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
}

impl PeerView {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Fields::default();
        let length = self.packet_bytes as u16;
        out.bytes(&ipv4(self.remote));
        out.u16(self.remote.port());
        out.u16(length);
        out.u32(self.idle_seconds);
        out.u16(self.connections.min(0x7fff) as u16);
        out.zeros(10); // burst size, burst, burst wait
        out.u32(self.rtt.as_millis() as u32 * 8); // in eighths of milliseconds
        out.u32(self.rtt_variation.as_millis() as u32 * 4); // in quarters
        out.clock(self.timeout);
        out.count(self.sent);
        out.count(self.resent);
        out.zeros(12); // skew in and out, rate flag
        let maximum = self.packet_bytes_max as u16;
        // Natural and maximum packet length, packets per datagram (twice), current packet length, window,
        // packets per datagram, sequence number.
        let fields = [length, maximum, 1, 1, length, self.window as u16, 1, 0];
        for value in fields {
            out.u16(value);
        }
        out.bytes(&self.bytes_sent.to_be_bytes());
        out.bytes(&self.bytes_received.to_be_bytes());
        out.zeros(40);
        out.0
    }

    /// Returns the answer to a request for an entry after the last peer.
    pub(crate) fn none() -> Vec<u8> {
        let mut out = Fields::default();
        out.u32(NONE_SUCH);
        out.zeros(128);
        out.0
    }
}

/// Encodes the counters (struct rx_statistics).
pub(crate) fn encode_counters(counters: &Statistics) -> Vec<u8> {
    let mut out = Fields::default();
    let kinds = |table: &[u64; crate::statistics::PACKET_TYPES], kind: crate::PacketType| table[kind.index()];
    let (received, sent) = (&counters.packets_received, &counters.packets_sent);
    out.count(received.iter().sum::<u64>() + sent.iter().sum::<u64>());
    out.count(counters.data_no_space);
    out.zeros(12); // failures to allocate for sending and specials, greedy
    out.count(counters.malformed);
    out.zeros(8); // bogus host, reads without packet
    out.count(counters.data_no_space);
    out.zeros(8); // selects
    out.counts(received);
    out.count(counters.data_received);
    out.count(kinds(received, crate::PacketType::Ack));
    out.count(counters.data_duplicates);
    out.count(counters.spurious);
    out.counts(sent);
    out.count(kinds(sent, crate::PacketType::Ack));
    out.count(counters.pings_sent);
    out.count(kinds(sent, crate::PacketType::Abort));
    out.count(kinds(sent, crate::PacketType::Busy));
    out.count(counters.data_sent);
    out.count(counters.data_resent);
    out.count(counters.data_resent_early);
    out.u32(0); // ignored because acknowledged
    out.clock(counters.rtt_total);
    out.clock(counters.rtt_min.unwrap_or_default());
    out.clock(counters.rtt_max);
    out.count(counters.rtt_samples);
    out.count(counters.server_connections_now);
    out.count(counters.client_connections_now);
    out.count(counters.peers_now);
    out.count(counters.calls_now);
    out.zeros(8); // free calls, failures to send
    out.count(counters.handshakes_failed);
    out.zeros(12); // ignored in dally, failures to allocate buffers
    out.count(counters.calls_refused);
    out.zeros(16);
    out.0
}

/// Returns the beginning of the answers to requests for entries after the last connection or peer. Clients
/// read no further.
pub(crate) fn encode_no_entry() -> Vec<u8> {
    [0xff; 8].to_vec()
}

/// Returns the answer to an unknown kind of request.
pub(crate) fn encode_unknown() -> Vec<u8> {
    BAD_TYPE.to_be_bytes().to_vec()
}

/// Returns the IPv4 address, or zeros for IPv6, which these layouts cannot represent.
fn ipv4(address: SocketAddr) -> [u8; 4] {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => [0; 4],
    }
}

/// An encoder of consecutive big-endian fields.
#[derive(Debug, Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends the low 32 bits of a counter.
    fn count(&mut self, value: u64) {
        self.u32(value as u32);
    }

    fn counts(&mut self, values: &[u64]) {
        for value in values {
            self.count(*value);
        }
    }

    fn clock(&mut self, span: Duration) {
        self.u32(span.as_secs() as u32);
        self.u32(span.subsec_micros());
    }

    fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_those_of_the_structs() {
        assert_eq!(Basics::default().encode().len(), 56);
        assert_eq!(Basics::default().encode()[14], b'S');
        assert_eq!(encode_counters(&Statistics::default()).len(), 4 * (11 + 13 + 4 + 13 + 8 + 6 + 12 + 4));
        assert_eq!(ConnectionView::none().len(), 176);
        assert_eq!(PeerView::none().len(), 132);
        let remote = "10.1.2.3:7001".parse().unwrap();
        let connection = ConnectionView {
            remote,
            epoch: 1,
            id: 2,
            serial: 3,
            channels: [ChannelView::default(); CHANNELS],
            error: -1,
            flags: 0,
            server: true,
            security: SecurityView::default(),
            packet_bytes: 1472,
        };
        let bytes = connection.encode();
        assert_eq!(bytes.len(), 176);
        assert_eq!(&bytes[..8], &[10, 1, 2, 3, 0, 0, 0, 2]);
        assert_eq!(&bytes[132..140], &[0, 0, 0, 1, 0, 0, 5, 0xc0]);
        let peer = PeerView {
            remote,
            idle_seconds: 0,
            connections: 1,
            rtt: Duration::from_millis(20),
            rtt_variation: Duration::from_millis(5),
            timeout: Duration::from_millis(220),
            sent: 1,
            resent: 0,
            packet_bytes: 1472,
            packet_bytes_max: 1472,
            window: 10,
            bytes_sent: 1,
            bytes_received: 2,
        };
        let bytes = peer.encode();
        assert_eq!(bytes.len(), 132);
        assert_eq!(&bytes[24..32], &[0, 0, 0, 160, 0, 0, 0, 20]);
    }

    proptest! {
        #[test]
        fn survives_anything(body in proptest::collection::vec(any::<u8>(), 0..20)) {
            prop_assert_eq!(Question::parse(&body).is_some(), body.len() >= 8);
        }
    }
}
