//! What an endpoint can be told about how to behave.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::WINDOW_MAX;
use crate::standing::Standing;
use rx_security::ServerSecurity;

/// Behaviour of a whole endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// What VERSION packets are answered with; cut at 64 bytes.
    pub version: String,
    /// Packets of one call that are kept before the application reads them, 1 to 4096. Peers may
    /// have as many under way to us, if they are few; see `receive_budget_packets`.
    pub receive_window_packets: u16,
    /// Packets that peers may have under way to all calls that receive much: each is offered its share as its
    /// window, though never less than 32. What is under way waits in the socket's buffer: more of it than is
    /// handled within some ten milliseconds only makes everybody wait, or is dropped.
    pub receive_budget_packets: usize,
    /// Packets of one call under way, 1 to 4096, if the peer's window allows it. More than 255 are on paths of 1 ms
    /// and more only: on shorter ones they gain nothing.
    pub send_window_packets: u16,
    /// Bytes that a call takes from its writer beyond what is under way; at least 32,768 are.
    pub send_queue_bytes: usize,
    /// Datagram size, Rx header included, that most paths carry and that padded pings try first. 1472 fills an
    /// Ethernet frame over IPv4; over IPv6 20 bytes are taken off, here and below.
    pub packet_bytes: usize,
    /// Datagram size that a path is assumed to carry before a padded ping was answered, if that is less than
    /// `packet_bytes`. 1252 fills the 1280 bytes that every IPv6 path has. Loopback carries `packet_bytes`.
    pub packet_bytes_assumed: usize,
    /// Datagram size that padded pings try to reach; not more than `packet_bytes` means no more than that.
    pub packet_bytes_max: usize,
    /// Datagrams in one [`crate::Transmit`] at most.
    pub transmit_packets: usize,
    /// Silence of a peer after which its calls fail with `RX_CALL_DEAD`. Pings are sent at a sixth
    /// of it.
    pub dead_time: Duration,
    /// Time without progress after which a call that waits for its client fails with
    /// `RX_CALL_TIMEOUT`.
    pub server_idle_time: Duration,
    /// A server connection without calls for this long is dropped (OpenAFS: 12 minutes).
    pub connection_lifetime: Duration,
    /// For this long after the start, a client that keeps pinging for a call whose first packet does not arrive is
    /// sent `RX_RESTARTING`: another process served the port before. Zero, the default, never does. Clients ping
    /// every few seconds.
    pub predecessor_memory: Duration,
    /// Delay of an acknowledgement that nobody asked for.
    pub ack_delay: Duration,
    /// Delay of the acknowledgement of a reply's last packet: the next call may make it superfluous.
    pub last_ack_delay: Duration,
    /// Connections, of both directions. Of those whose callers are not verified half as many are kept; of those that
    /// have proved nothing only `unproven_connections_max`, in addition.
    pub connections_max: usize,
    /// Connections of clients that have proved nothing: not even that their address is theirs.
    pub unproven_connections_max: usize,
    /// Packets kept of their calls.
    pub unproven_packets_max: usize,
    /// With fewer connections [`crate::Endpoint::look_ahead`] does nothing, services are not asked to, and calls do not rest
    /// while their replies are under way: all is in the processor's caches.
    pub crowd_connections: usize,
    /// Calls, of both directions, released or not. Half as many are kept in addition on connections whose callers are
    /// not verified: neither kind takes the other's room.
    pub calls_max: usize,
    /// Packets received and not yet read, of verified callers.
    pub packets_max: usize,
    /// The same of anonymous callers, in addition. Each holds on to no more memory than its own length until its call is
    /// being read.
    pub anonymous_packets_max: usize,
    /// Who may ask with DEBUG and VERSION packets.
    pub rxdebug: DebugAudience,
    /// Hosts whose DEBUG questions are answered in full. Others get three times the length of their question at most, are
    /// answered that there is no such entry where that is too little, and see zeros in place of the numbers of connections,
    /// with which packets can be forged. Loopback addresses and the server's own count as own hosts.
    pub own_hosts: Vec<IpAddr>,
    /// DEBUG and VERSION packets answered in a second.
    pub rxdebug_per_second: u32,
    /// Aborts of server calls to one peer that go out at once, counted since its last success.
    pub abort_burst: u32,
    /// Time between further aborts to that peer.
    pub abort_interval: Duration,
}

impl EndpointConfig {
    /// Sends, and asks for, no datagrams of more than `bytes`, Rx header included.
    pub fn limit_packets(&mut self, bytes: usize) {
        self.packet_bytes = self.packet_bytes.min(bytes);
        self.packet_bytes_max = bytes;
    }

    /// The largest window that a call is offered.
    pub(crate) fn receive_window(&self) -> u32 {
        u32::from(self.receive_window_packets).clamp(1, WINDOW_MAX as u32)
    }

    /// Packets received and not yet read that are kept of calls whose callers have proved this much.
    pub(crate) fn packets_share(&self, standing: Standing) -> usize {
        match standing {
            Standing::Unproven => self.unproven_packets_max,
            Standing::Reachable => self.anonymous_packets_max,
            Standing::Verified => self.packets_max,
        }
    }

    /// Bytes that a call may keep from its writer: room for two packets at least, so that a full
    /// packet and the beginning of the next always find place.
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

/// Who may ask with DEBUG and VERSION packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugAudience {
    /// Every host.
    #[default]
    Anyone,
    /// [`EndpointConfig::own_hosts`].
    OwnHosts,
    /// No host.
    Nobody,
}

/// How many calls of this standing are kept.
pub(crate) fn calls_share(max: usize, standing: Standing) -> usize {
    if standing == Standing::Verified { max } else { (max / 2).max(1) }
}

/// A service that the endpoint answers for.
#[derive(Clone)]
pub struct ServiceConfig {
    /// The number in packet headers.
    pub id: u16,
    /// For people.
    pub name: String,
    /// The security classes that callers may use. A packet that names another one is answered with
    /// `RX_INVALID_OPERATION`.
    pub security: Vec<Arc<dyn ServerSecurity>>,
}

impl ServiceConfig {
    /// The security class with this number.
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
    /// Instead of [`EndpointConfig::dead_time`].
    pub dead_time: Option<Duration>,
    /// Time without a byte from the server, though it answers pings, after which a call fails with
    /// `RX_CALL_TIMEOUT`. `None` waits for ever.
    pub idle_time: Option<Duration>,
    /// Longest duration of a call, likewise.
    pub call_time_max: Option<Duration>,
}
