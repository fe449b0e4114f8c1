//! Constants of the protocol, and limits on what an endpoint stores.

use std::time::Duration;

/// Maximum number of concurrent calls on a connection (RX_MAXCALLS).
pub const CHANNELS: usize = 4;

/// Mask of the bits of a connection id that hold the channel (RX_CHANNELMASK).
pub const CHANNEL_MASK: u32 = 3;

/// Number of received packets beyond which a call counts as receiving much data.
pub const BULK_PACKETS: u32 = 16;

/// Minimum window that a call is offered when the receive budget is shared: as much as OpenAFS offers
/// (rx_maxReceiveWindow).
pub const SHARED_WINDOW_MIN: usize = 32;

/// Maximum number of packets that one ACK can report individually (RX_MAXACKS). Other implementations have no
/// larger windows.
pub const ACKS_MAX: usize = 255;

/// Maximum window, for long paths: 5.8 MB, which is 200 Mbit/s over 230 ms. Peers with smaller maximum
/// windows use only their own maximum.
pub const WINDOW_MAX: usize = 4096;

/// Minimum datagram size, header included, to which a peer can reduce this endpoint's packets
/// (RX_MIN_PACKET_SIZE: an IP packet of 576 bytes).
pub const PACKET_BYTES_MIN: usize = 548;

/// Maximum datagram size, header included, that peers accept (RX_MAX_PACKET_SIZE).
pub const PACKET_BYTES_MAX: usize = 16384;

/// Body length of all packets of a jumbogram but the last (RX_JUMBOBUFFERSIZE).
pub const JUMBO_BODY_BYTES: usize = 1412;

/// Length of the small header between the packets of a jumbogram (RX_JUMBOHEADERSIZE).
pub const JUMBO_HEADER_BYTES: usize = 4;

/// Maximum number of packets processed in one jumbogram; a longer one cannot fit into a datagram.
pub const JUMBO_PACKETS_MAX: usize = 46;

/// Maximum sum of datagram lengths in one [`crate::Transmit`].
pub const TRANSMIT_BYTES_MAX: usize = 65_000;

/// Maximum number of datagrams in one [`crate::Transmit`] (`UDP_MAX_SEGMENTS`).
pub const TRANSMIT_PACKETS_MAX: usize = 64;

/// Number of damaged packets after which a call is given up; fewer are dropped like lost ones.
pub const BAD_PACKETS_MAX: u32 = 64;

/// Minimum time between two challenges, or two reachability pings, on a connection. Each answers a packet of
/// the client, which repeats its request until it is answered.
pub const PROOF_INTERVAL: Duration = Duration::from_millis(100);

/// Time of silence after which a connection that has proved nothing is dropped.
pub const UNPROVEN_LIFETIME: Duration = Duration::from_secs(30);

/// Maximum number of remembered peers. Beyond it, a peer is forgotten with its last connection.
pub const PEERS_MAX: u64 = 65_536;

/// Maximum number of connections per host (an IPv4 address or an IPv6 network of 64 bits) that have proved
/// nothing.
pub const UNPROVEN_PER_HOST_MAX: usize = 256;

/// The same limit while half of the total for all hosts is in use.
pub const UNPROVEN_PER_HOST_CROWDED: usize = 8;

/// Maximum number of stored packets of a call whose peer has to prove something first.
pub const UNPROVEN_WINDOW: u32 = 16;

/// Maximum length of the body of such a packet. Longer packets are dropped and are retransmitted after the
/// proof.
pub const UNPROVEN_BODY_BYTES_MAX: usize = 2048;

/// Window of an anonymous caller's call before any of its data is read: as much as OpenAFS offers
/// (rx_maxReceiveWindow). It grows as data is read, so that calls waiting for a worker hold little memory.
pub const UNREAD_WINDOW: u32 = SHARED_WINDOW_MIN as u32;

/// Maximum number of bytes sent per byte received from an address that has proved nothing (RFC 9000, section
/// 8.1).
pub const AMPLIFICATION_MAX: usize = 3;

/// Time for which a peer counts as reachable after a proof (RX_CHECKREACH_TTL).
pub const REACH_LIFETIME: Duration = Duration::from_secs(60);

/// Length of the answer to a VERSION packet, in bytes.
pub const VERSION_BYTES: usize = 65;

/// Maximum number of small datagrams (aborts, answers to debug requests) in the queue; further ones are
/// dropped.
pub const CONTROL_PACKETS_MAX: usize = 4096;

/// Maximum number of bytes of large replies that one address (with its port) has not acknowledged, by
/// [`Standing`](crate::Standing). A new call of it is answered with BUSY while it has as many.
pub const UNREAD_ADDRESS_BYTES_MAX: [u64; 3] = [32 << 20, 32 << 20, 256 << 20];

/// The same for all anonymous callers of an endpoint together.
pub const UNREAD_ANONYMOUS_BYTES_MAX: u64 = 256 << 20;
