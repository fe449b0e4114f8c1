//! Decoding of the answers of rxdebug's protocol (doc/txt/rx-debug.txt), which [`crate::debug`] encodes and
//! OpenAFS's servers and clients send.

use crate::limits::CHANNELS;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Kinds of request, as numbers on the wire (RX_DEBUGI_*).
pub mod kind {
    /// Requests [`super::Basics`].
    pub const BASICS: u32 = 1;
    /// Requests the n-th active connection.
    pub const BUSY_CONNECTION: u32 = 2;
    /// Requests the n-th [`super::Connection`].
    pub const CONNECTION: u32 = 3;
    /// Requests the [`super::counters`].
    pub const COUNTERS: u32 = 4;
    /// Requests the n-th [`super::Peer`].
    pub const PEER: u32 = 5;
}

/// Marks an entry after the last one.
const NONE_SUCH: u32 = 0xffff_ffff;

/// Names of the counters in their order on the wire (struct rx_statistics). Those that end in `_us` are times
/// of two words, seconds and microseconds.
pub const COUNTERS: [&str; 64] = [
    "packet_requests",
    "no_packets_receiving",
    "no_packets_sending",
    "no_packets_special",
    "socket_greedy",
    "bogus_packets",
    "bogus_host",
    "reads_without_packet",
    "reads_without_buffers",
    "selects",
    "send_selects",
    "read_data",
    "read_ack",
    "read_busy",
    "read_abort",
    "read_ackall",
    "read_challenge",
    "read_response",
    "read_debug",
    "read_params",
    "read_type_10",
    "read_type_11",
    "read_type_12",
    "read_version",
    "data_packets_read",
    "ack_packets_read",
    "duplicate_packets_read",
    "spurious_packets_read",
    "sent_data",
    "sent_ack",
    "sent_busy",
    "sent_abort",
    "sent_ackall",
    "sent_challenge",
    "sent_response",
    "sent_debug",
    "sent_params",
    "sent_type_10",
    "sent_type_11",
    "sent_type_12",
    "sent_version",
    "ack_packets_sent",
    "ping_packets_sent",
    "abort_packets_sent",
    "busy_packets_sent",
    "data_packets_sent",
    "data_packets_resent",
    "data_packets_pushed",
    "acked_packets_ignored",
    "round_trip_total_us",
    "round_trip_min_us",
    "round_trip_max_us",
    "round_trips",
    "server_connections",
    "client_connections",
    "peers",
    "calls",
    "free_calls",
    "send_failures",
    "fatal_errors",
    "ignored_while_dallying",
    "receive_buffer_failures",
    "send_buffer_failures",
    "busies",
];

/// Returns the names and values of the counters that an answer contains.
pub fn counters(body: &[u8]) -> Vec<(&'static str, u64)> {
    let mut fields = Fields(body);
    let value = |name: &'static str| {
        let value = if name.ends_with("_us") { fields.clock_us() } else { fields.word().map(u64::from) };
        Some((name, value?))
    };
    COUNTERS.into_iter().map_while(value).collect()
}

/// Basic figures of an endpoint (struct rx_debugStats).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basics {
    /// Number of free packets.
    pub free_packets: u32,
    /// Number of calls executed since the start.
    pub calls: u32,
    /// Whether calls are waiting for packets.
    pub is_waiting_for_packets: bool,
    /// Version of the answers' layouts, a letter.
    pub version: u8,
    /// Number of calls waiting for a thread.
    pub waiting: u32,
    /// Number of threads waiting for calls.
    pub idle_threads: u32,
    /// Total number of calls that have waited for a thread.
    pub waited: u32,
    /// Total number of packets.
    pub packets: u32,
}

impl Basics {
    /// Decodes an answer. Returns `None` if it is too short.
    pub fn parse(body: &[u8]) -> Option<Basics> {
        let mut fields = Fields(body);
        let free_packets = fields.word()?;
        fields.word()?; // packet reclaims
        let calls = fields.word()?;
        let [waiting_for_packets, _files, version, _spare] = fields.bytes()?;
        Some(Basics {
            free_packets,
            calls,
            is_waiting_for_packets: waiting_for_packets != 0,
            version,
            waiting: fields.word()?,
            idle_threads: fields.word()?,
            waited: fields.word()?,
            packets: fields.word()?,
        })
    }
}

/// One channel of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// Number of the channel's last call.
    pub call_number: u32,
    /// State of the channel, RX_STATE_*: 0 not initialised, 1 precall, 2 active, 3 dally, 4 hold, 5 reset.
    pub state: u8,
    /// Mode of the channel, RX_MODE_*: 1 sending, 2 receiving, 3 error, 4 eof.
    pub mode: u8,
    /// Flags of the call, RX_CALL_*.
    pub flags: u8,
    /// Queued packets: 1 to read, 2 to send.
    pub other: u8,
}

/// A connection (struct rx_debugConn).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Address of the peer.
    pub peer: SocketAddrV4,
    /// Connection id.
    pub id: u32,
    /// Epoch.
    pub epoch: u32,
    /// Number of packets sent on the connection.
    pub serial: u32,
    /// Channels of the connection.
    pub channels: [Channel; CHANNELS],
    /// Error that ended the connection, or 0.
    pub error: i32,
    /// Flags of the connection, RX_CONN_*.
    pub flags: u8,
    /// Whether the answering side is the server of the connection.
    pub is_server: bool,
    /// Security class.
    pub security_index: u8,
    /// Protection level of rxkad.
    pub security_level: u8,
    /// Numbers of data packets received and sent through the security class.
    pub packets: [u32; 2],
    /// Numbers of bytes received and sent through the security class.
    pub bytes: [u32; 2],
    /// Expiry time of the ticket, in seconds since 1970; 0 without a ticket.
    pub expires: u32,
    /// Packet length, Rx header included.
    pub packet_bytes: u32,
}

impl Connection {
    /// Decodes an answer. Returns `Some(None)` after the last entry and `None` if the answer is too short.
    pub fn parse(body: &[u8]) -> Option<Option<Connection>> {
        let mut fields = Fields(body);
        let address = Ipv4Addr::from(fields.bytes::<4>()?);
        let id = fields.word()?;
        if id == NONE_SUCH {
            return Some(None);
        }
        let serial = fields.word()?;
        let mut channels = [Channel::default(); CHANNELS];
        for channel in &mut channels {
            channel.call_number = fields.word()?;
        }
        let error = fields.word()? as i32;
        let port = fields.half()?;
        let [flags, role, security_index, ..] = fields.bytes::<6>()?;
        for set in [
            (|channel, byte| channel.state = byte) as fn(&mut Channel, u8),
            |channel, byte| channel.mode = byte,
            |channel, byte| channel.flags = byte,
            |channel, byte| channel.other = byte,
        ] {
            let bytes = fields.bytes::<CHANNELS>()?;
            channels.iter_mut().zip(bytes).for_each(|(channel, byte)| set(channel, byte));
        }
        let [_kind, security_level, ..] = fields.bytes::<12>()?;
        let _flags = fields.word()?;
        let expires = fields.word()?;
        let packets = [fields.word()?, fields.word()?];
        let bytes = [fields.word()?, fields.word()?];
        fields.bytes::<40>()?;
        Some(Some(Connection {
            peer: SocketAddrV4::new(address, port),
            id,
            epoch: fields.word()?,
            serial,
            channels,
            error,
            flags,
            is_server: role != 0,
            security_index,
            security_level,
            packets,
            bytes,
            expires,
            packet_bytes: fields.word()?,
        }))
    }
}

/// A peer (struct rx_debugPeer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the peer.
    pub address: SocketAddrV4,
    /// Time of the last packet from the peer: seconds since 1970 from OpenAFS, 0 from Cellar.
    pub idle_when: u32,
    /// Number of connections to the peer.
    pub connections: u16,
    /// Smoothed round-trip time.
    pub round_trip_us: u32,
    /// Mean deviation of the round-trip time.
    pub round_trip_deviation_us: u32,
    /// Retransmission timeout.
    pub timeout_us: u64,
    /// Number of data packets sent.
    pub sent: u32,
    /// Number of data packets retransmitted.
    pub resent: u32,
    /// Current packet length, Rx header included.
    pub packet_bytes: u16,
    /// Longest packet that the peer accepts.
    pub packet_bytes_max: u16,
    /// Congestion window.
    pub window_packets: u16,
    /// Packets per datagram.
    pub jumbo_packets: u16,
    /// Number of bytes sent.
    pub bytes_sent: u64,
    /// Number of bytes received.
    pub bytes_received: u64,
}

impl Peer {
    /// Decodes an answer. Returns `Some(None)` after the last entry and `None` if the answer is too short.
    pub fn parse(body: &[u8]) -> Option<Option<Peer>> {
        let mut fields = Fields(body);
        let address = fields.word()?;
        if address == NONE_SUCH {
            return Some(None);
        }
        let port = fields.half()?;
        let _interface_bytes = fields.half()?;
        let idle_when = fields.word()?;
        let connections = fields.half()?;
        fields.bytes::<10>()?; // burst size, burst, burst wait
        let (eighths, quarters) = (fields.word()?, fields.word()?);
        let timeout_us = fields.clock_us()?;
        let (sent, resent) = (fields.word()?, fields.word()?);
        fields.bytes::<12>()?; // skews, rate flag
        let [
            _natural,
            packet_bytes_max,
            _most,
            _interface,
            packet_bytes,
            window_packets,
            jumbo_packets,
            _sequence,
        ] = fields.halves()?;
        Some(Some(Peer {
            address: SocketAddrV4::new(Ipv4Addr::from(address), port),
            idle_when,
            connections,
            round_trip_us: eighths.saturating_mul(125),
            round_trip_deviation_us: quarters.saturating_mul(250),
            timeout_us,
            sent,
            resent,
            packet_bytes,
            packet_bytes_max,
            window_packets,
            jumbo_packets,
            bytes_sent: u64::from_be_bytes(fields.bytes()?),
            bytes_received: u64::from_be_bytes(fields.bytes()?),
        }))
    }
}

/// A reader of consecutive big-endian fields.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn word(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn half(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn halves<const N: usize>(&mut self) -> Option<[u16; N]> {
        let mut halves = [0; N];
        for half in &mut halves {
            *half = self.half()?;
        }
        Some(halves)
    }

    /// Reads seconds and microseconds.
    fn clock_us(&mut self) -> Option<u64> {
        Some(u64::from(self.word()?) * 1_000_000 + u64::from(self.word()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debug::{self, ChannelView, ConnectionView, PeerView, SecurityView};
    use crate::statistics::Statistics;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn decoded_answers_equal_the_encoded() {
        let basics =
            debug::Basics { free_packets: 1, packets: 2, calls: 3, waiting: 4, waited: 5, idle_workers: 6 };
        let read = Basics::parse(&basics.encode()).unwrap();
        assert_eq!((read.free_packets, read.packets, read.calls), (1, 2, 3));
        assert_eq!((read.waiting, read.waited, read.idle_threads, read.version), (4, 5, 6, b'S'));
        let channel = ChannelView { number: 9, state: 2, mode: 1, flags: 3, other: 1 };
        let security = SecurityView {
            index: 2,
            level: 1,
            packets_sent: 7,
            bytes_received: 8,
            ..SecurityView::default()
        };
        let connection = ConnectionView {
            remote: "10.1.2.3:7001".parse().unwrap(),
            epoch: 11,
            id: 12,
            serial: 13,
            channels: [channel; CHANNELS],
            error: -3,
            flags: 5,
            server: true,
            security,
            packet_bytes: 1444,
        };
        let read = Connection::parse(&connection.encode()).unwrap().unwrap();
        assert_eq!((read.peer, read.id, read.epoch), ("10.1.2.3:7001".parse().unwrap(), 12, 11));
        assert_eq!((read.serial, read.error, read.is_server, read.packet_bytes), (13, -3, true, 1444));
        assert_eq!(read.channels[3], Channel { call_number: 9, state: 2, mode: 1, flags: 3, other: 1 });
        assert_eq!((read.security_level, read.packets, read.bytes), (1, [0, 7], [8, 0]));
        assert_eq!(Connection::parse(&ConnectionView::none()), Some(None));
    }

    #[test]
    fn decoded_peers_and_counters_equal_the_encoded() {
        let peer = PeerView {
            remote: "10.1.2.3:7001".parse().unwrap(),
            idle_seconds: 0,
            connections: 2,
            rtt: Duration::from_millis(20),
            rtt_variation: Duration::from_millis(5),
            timeout: Duration::from_millis(1220),
            sent: 100,
            resent: 3,
            packet_bytes: 1444,
            packet_bytes_max: 9000,
            window: 32,
            bytes_sent: 1 << 33,
            bytes_received: 9,
        };
        let read = Peer::parse(&peer.encode()).unwrap().unwrap();
        assert_eq!(
            (read.round_trip_us, read.round_trip_deviation_us, read.timeout_us),
            (20_000, 5_000, 1_220_000)
        );
        assert_eq!((read.sent, read.resent, read.window_packets), (100, 3, 32));
        assert_eq!((read.packet_bytes, read.packet_bytes_max), (1444, 9000));
        assert_eq!((read.bytes_sent, read.bytes_received, read.connections), (1 << 33, 9, 2));
        assert_eq!(Peer::parse(&PeerView::none()), Some(None));
        let mut statistics =
            Statistics { data_resent: 4, rtt_samples: 6, calls_refused: 9, ..Statistics::default() };
        statistics.rtt_total = Duration::from_micros(1_000_002);
        statistics.packets_received[1] = 7;
        let read = counters(&debug::encode_counters(&statistics));
        let of = |name| read.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(
            (of("data_packets_resent"), of("round_trips"), of("round_trip_total_us")),
            (4, 6, 1_000_002)
        );
        assert_eq!((of("read_ack"), of("busies")), (7, 9));
        assert_eq!(read.len(), COUNTERS.len());
    }

    proptest! {
        #[test]
        fn survives_anything(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (Basics::parse(&body), Connection::parse(&body), Peer::parse(&body));
            prop_assert!(counters(&body).len() <= COUNTERS.len());
        }
    }
}
