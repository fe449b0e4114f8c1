//! Numbers that the protocol fixes, and bounds on what an endpoint keeps.

use std::time::Duration;

/// Calls that can run on one connection at a time (RX_MAXCALLS).
pub const CHANNELS: usize = 4;

/// The low bits of a connection id that name the channel (RX_CHANNELMASK).
pub const CHANNEL_MASK: u32 = 3;

/// Packets received after which a call counts as one that receives much.
pub const BULK_PACKETS: u32 = 16;

/// The smallest window that a call is offered because of others that receive: as much as OpenAFS offers any
/// (rx_maxReceiveWindow).
pub const SHARED_WINDOW_MIN: usize = 32;

/// Packets that one ACK can speak of one by one (RX_MAXACKS). Others have no larger windows.
pub const ACKS_MAX: usize = 255;

/// The largest window, for long paths: 5.8 MB, which is 200 Mbit/s over 230 ms. Peers that have no such windows take
/// as much of it as they have.
pub const WINDOW_MAX: usize = 4096;

/// The smallest datagram size, header included, that a peer can push us down to
/// (RX_MIN_PACKET_SIZE: an IP packet of 576 bytes).
pub const PACKET_BYTES_MIN: usize = 548;

/// The largest datagram size, header included, that peers understand (RX_MAX_PACKET_SIZE).
pub const PACKET_BYTES_MAX: usize = 16384;

/// Body bytes of all packets but the last of a jumbogram (RX_JUMBOBUFFERSIZE).
pub const JUMBO_BODY_BYTES: usize = 1412;

/// Bytes of the small header between the packets of a jumbogram (RX_JUMBOHEADERSIZE).
pub const JUMBO_HEADER_BYTES: usize = 4;

/// Packets of one jumbogram that are looked at; a longer one cannot fit into a datagram.
pub const JUMBO_PACKETS_MAX: usize = 46;

/// The largest sum of datagram lengths in one [`crate::Transmit`].
pub const TRANSMIT_BYTES_MAX: usize = 65_000;

/// The most datagrams in one [`crate::Transmit`] (`UDP_MAX_SEGMENTS`).
pub const TRANSMIT_PACKETS_MAX: usize = 64;

/// Damaged packets after which a call is given up; until then they are dropped like lost ones.
pub const BAD_PACKETS_MAX: u32 = 64;

/// Shortest time between two challenges, or two reachability pings, on one connection. Each answers a packet of the
/// client, which repeats its request until it is heard.
pub const PROOF_INTERVAL: Duration = Duration::from_millis(100);

/// A connection that has proved nothing is dropped after this time of silence.
pub const UNPROVEN_LIFETIME: Duration = Duration::from_secs(30);

/// Peers that are remembered. With more of them a peer is forgotten with its last connection.
pub const PEERS_MAX: u64 = 65_536;

/// Connections that have proved nothing, of one host (an IPv4 address or an IPv6 network of 64 bits).
pub const UNPROVEN_PER_HOST_MAX: usize = 256;

/// The same while half of the room of all hosts is taken.
pub const UNPROVEN_PER_HOST_CROWDED: usize = 8;

/// Packets kept of a call whose peer has to prove something first.
pub const UNPROVEN_WINDOW: u32 = 16;

/// Bytes of such a packet. Longer ones are dropped, and are sent again after the proof.
pub const UNPROVEN_BODY_BYTES_MAX: usize = 2048;

/// The window of an anonymous caller's call of which nothing has been read yet: as much as OpenAFS offers any
/// (rx_maxReceiveWindow). It grows by what is read, so that calls that wait for a worker hold little.
pub const UNREAD_WINDOW: u32 = SHARED_WINDOW_MIN as u32;

/// Bytes sent per byte received, while an address has proved nothing (RFC 9000, section 8.1).
pub const AMPLIFICATION_MAX: usize = 3;

/// How long a peer counts as reachable after it proved it (RX_CHECKREACH_TTL).
pub const REACH_LIFETIME: Duration = Duration::from_secs(60);

/// Bytes of the answer to a VERSION packet.
pub const VERSION_BYTES: usize = 65;

/// Small datagrams (aborts, answers to debug requests) that may wait to be sent; more are dropped.
pub const CONTROL_PACKETS_MAX: usize = 4096;
