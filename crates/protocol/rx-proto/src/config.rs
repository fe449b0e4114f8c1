//! Configuration of endpoints, services and connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::WINDOW_MAX;
use crate::standing::Standing;
use rx_security::ServerSecurity;

/// Behaviour of a whole endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Text with which VERSION packets are answered; truncated to 64 bytes.
    pub version: String,
    /// Maximum number of a call's packets that are stored before the application reads them, 1 to 4096. Peers
    /// may have this many in flight towards this endpoint if few calls receive much data; see
    /// `receive_budget_packets`.
    pub receive_window_packets: u16,
    /// Total number of packets that peers may have in flight to all calls that receive much data. Each of
    /// these calls offers its share as its window, though never less than 32. Packets in flight wait in the
    /// socket's buffer: more than the endpoint handles within about ten milliseconds only cause delays or are
    /// dropped.
    pub receive_budget_packets: usize,
    /// Maximum number of a call's packets in flight, 1 to 4096, if the peer's window allows it. More than 255
    /// are used only on paths of 1 ms and more; on shorter ones they have no benefit.
    pub send_window_packets: u16,
    /// Maximum number of bytes that a call accepts from its writer beyond those in flight; at least 32,768.
    pub send_queue_bytes: usize,
    /// Datagram size, Rx header included, that most paths carry and that padded pings try first. 1472 fills
    /// an Ethernet frame over IPv4; over IPv6 this and the sizes below are reduced by 20 bytes.
    pub packet_bytes: usize,
    /// Datagram size that a path is assumed to carry until a padded ping has been answered, if less than
    /// `packet_bytes`. 1252 fills the 1280 bytes that every IPv6 path carries. Loopback carries
    /// `packet_bytes`.
    pub packet_bytes_assumed: usize,
    /// Maximum datagram size that padded pings try. Values up to `packet_bytes` have no effect.
    pub packet_bytes_max: usize,
    /// Maximum number of datagrams in one [`crate::Transmit`].
    pub transmit_packets: usize,
    /// Time of silence after which the calls of a peer fail with `RX_CALL_DEAD`. Pings are sent at intervals
    /// of a sixth of it.
    pub dead_time: Duration,
    /// Time without progress after which a call that waits for its client fails with `RX_CALL_TIMEOUT`.
    pub server_idle_time: Duration,
    /// Time after which a server connection without calls is dropped (OpenAFS: 12 minutes).
    pub connection_lifetime: Duration,
    /// Time after the start, and after [`Endpoint::succeed`](crate::Endpoint::succeed), during which a client that keeps pinging for a call whose first packet does not
    /// arrive is answered with `RX_RESTARTING`, because another process served the port before. Zero, the
    /// default, disables this. Clients ping every few seconds.
    pub predecessor_memory: Duration,
    /// Delay of an acknowledgement that the peer did not request.
    pub ack_delay: Duration,
    /// Delay of the acknowledgement of a reply's last packet, which the next call may make unnecessary.
    pub last_ack_delay: Duration,
    /// Maximum number of connections in both directions. At most half as many may have callers that are not
    /// verified. Connections that have proved nothing are counted separately, up to
    /// `unproven_connections_max`.
    pub connections_max: usize,
    /// Maximum number of connections whose clients have proved nothing, not even that their source address is
    /// genuine.
    pub unproven_connections_max: usize,
    /// Maximum number of stored packets of calls on such connections.
    pub unproven_packets_max: usize,
    /// Number of connections below which [`crate::Endpoint::prefetch`] does nothing, services do not
    /// prefetch either, and calls do not rest while their replies are in flight, because everything fits into
    /// the processor's caches.
    pub crowd_connections: usize,
    /// Maximum number of calls in both directions, released or not. Half as many more are allowed on
    /// connections whose callers are not verified; neither kind takes the other's share.
    pub calls_max: usize,
    /// Maximum number of received but unread packets of verified callers.
    pub packets_max: usize,
    /// Maximum number of received but unread packets of anonymous callers, in addition. Until its call is
    /// being read, each packet takes no more memory than its own length.
    pub anonymous_packets_max: usize,
    /// Hosts that may send DEBUG and VERSION packets.
    pub rxdebug: DebugAudience,
    /// Trusted hosts, whose DEBUG requests are answered in full. Other hosts receive answers of at most three
    /// times the length of their request, or the answer that there is no such entry if that is too short,
    /// with zeros in place of the connection numbers that would allow them to forge packets. Loopback
    /// addresses and the server's own addresses are always trusted.
    pub own_hosts: Vec<IpAddr>,
    /// Maximum number of DEBUG and VERSION packets answered per second.
    pub rxdebug_per_second: u32,
    /// Number of aborts of server calls to one peer that are sent without delay, counted since its last
    /// successful call.
    pub abort_burst: u32,
    /// Interval between further aborts to that peer.
    pub abort_interval: Duration,
}

impl EndpointConfig {
    /// Limits datagrams, both those sent and those requested from peers, to `bytes` bytes, Rx header
    /// included.
    pub fn limit_packets(&mut self, bytes: usize) {
        self.packet_bytes = self.packet_bytes.min(bytes);
        self.packet_bytes_max = bytes;
    }

    /// Returns the largest window that a call is offered.
    pub(crate) fn receive_window(&self) -> u32 {
        u32::from(self.receive_window_packets).clamp(1, WINDOW_MAX as u32)
    }

    /// Returns the maximum number of received but unread packets of calls with this level of proof.
    pub(crate) fn packets_share(&self, standing: Standing) -> usize {
        match standing {
            Standing::Unproven => self.unproven_packets_max,
            Standing::Reachable => self.anonymous_packets_max,
            Standing::Verified => self.packets_max,
        }
    }

    /// Returns the maximum number of bytes that a call accepts from its writer: at least two packets, so that
    /// a full packet and the beginning of the next always fit.
    pub(crate) fn send_queue_limit(&self) -> usize {
        self.send_queue_bytes.max(2 * crate::limits::PACKET_BYTES_MAX)
    }
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            version: String::from("Cellar"),
            receive_window_packets: WINDOW_MAX as u16,
            receive_budget_packets: 4096,
            send_window_packets: WINDOW_MAX as u16,
            send_queue_bytes: 512 * 1024,
            packet_bytes: 1472,
            packet_bytes_assumed: 1252,
            packet_bytes_max: 1472,
            transmit_packets: 44,
            dead_time: Duration::from_secs(30),
            server_idle_time: Duration::from_secs(60),
            connection_lifetime: Duration::from_secs(12 * 60),
            predecessor_memory: Duration::ZERO,
            ack_delay: Duration::from_millis(100),
            last_ack_delay: Duration::from_millis(100),
            connections_max: 100_000,
            unproven_connections_max: 2048,
            unproven_packets_max: 4096,
            crowd_connections: 500,
            calls_max: 50_000,
            packets_max: 400_000,
            anonymous_packets_max: 25_000,
            rxdebug: DebugAudience::Anyone,
            own_hosts: Vec::new(),
            rxdebug_per_second: 2000,
            abort_burst: 10,
            abort_interval: Duration::from_secs(3),
        }
    }
}

/// Hosts that may send DEBUG and VERSION packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugAudience {
    /// Every host.
    #[default]
    Anyone,
    /// Only [`EndpointConfig::own_hosts`].
    OwnHosts,
    /// No host.
    Nobody,
}

/// Returns the maximum number of calls with this level of proof.
pub(crate) fn calls_share(max: usize, standing: Standing) -> usize {
    if standing == Standing::Verified { max } else { (max / 2).max(1) }
}

/// A service that the endpoint provides.
#[derive(Clone)]
pub struct ServiceConfig {
    /// Service id in packet headers.
    pub id: u16,
    /// Name for logs and statistics.
    pub name: String,
    /// Security classes that callers may use. A packet that names another one is answered with
    /// `RX_INVALID_OPERATION`.
    pub security: Vec<Arc<dyn ServerSecurity>>,
}

impl ServiceConfig {
    /// Returns the security class with this number.
    pub(crate) fn class(&self, index: u8) -> Option<&Arc<dyn ServerSecurity>> {
        self.security.iter().find(|class| class.index() == index)
    }
}

impl std::fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceConfig")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Behaviour of one client connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// Replacement for [`EndpointConfig::dead_time`].
    pub dead_time: Option<Duration>,
    /// Time without data from the server, even if it answers pings, after which a call fails with
    /// `RX_CALL_TIMEOUT`. `None` disables the limit.
    pub idle_time: Option<Duration>,
    /// Maximum duration of a call, after which it fails in the same way. `None` disables the limit.
    pub call_time_max: Option<Duration>,
}
