//! What the file service needs from outside, as traits that the program implements.

use crate::subject::Membership;
use afs_idl::ClientConnection;
use afs_idl::fs::VolumeInfo;
use base::{AbortCode, Monotonic, UnixTime};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use volume::Volumes;

/// Connections to clients' callback services.
pub trait CallbackNetwork: Send + Sync {
    /// A connection, without security, from this server's own port to the callback service (RXAFSCB,
    /// service 1) at `peer`. Calls on it fail when the peer has been silent for `patience`.
    fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection>;

    /// Whether an address is this server's own, so that no message for a client goes there unless it called from there.
    fn is_own(&self, _ip: IpAddr) -> bool {
        false
    }
}

/// Time.
pub trait Clock: Send + Sync {
    /// For measuring and expiry.
    fn monotonic(&self) -> Monotonic;

    /// Since 1970.
    fn wall(&self) -> Duration;

    /// Seconds since 1970 as AFS carries them.
    fn unix(&self) -> UnixTime {
        UnixTime(self.wall().as_secs() as u32)
    }
}

/// Where volumes are, for the old call that asks a file server for it (RXAFS_GetVolumeInfo).
pub trait VolumeLocator: Send + Sync {
    /// The location of the volume with this name or number.
    fn locate(&self, name: &[u8]) -> Result<VolumeInfo, AbortCode>;
}

/// Numbers of the transport that extended statistics show (rx_stats of OpenAFS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportFigures {
    /// Packets read, of all kinds.
    pub packets_read: u64,
    /// DATA packets read, without duplicates.
    pub data_packets_read: u64,
    /// ACK packets read.
    pub ack_packets_read: u64,
    /// DATA packets that had been read before.
    pub duplicate_packets_read: u64,
    /// Packets that fit nothing.
    pub spurious_packets_read: u64,
    /// Packets that were too short or malformed.
    pub bogus_packets_read: u64,
    /// Packets sent, of all kinds.
    pub packets_sent: u64,
    /// DATA packets sent for the first time.
    pub data_packets_sent: u64,
    /// DATA packets sent again.
    pub data_packets_resent: u64,
    /// ACK packets sent.
    pub ack_packets_sent: u64,
    /// Pings sent.
    pub ping_packets_sent: u64,
    /// ABORT packets sent.
    pub abort_packets_sent: u64,
    /// BUSY packets sent.
    pub busy_packets_sent: u64,
    /// Sum of measured round trip times.
    pub round_trip_total: Duration,
    /// Shortest round trip.
    pub round_trip_min: Duration,
    /// Longest round trip.
    pub round_trip_max: Duration,
    /// Round trips measured.
    pub round_trips: u64,
    /// Connections of clients now.
    pub server_connections: u64,
    /// Connections to clients now.
    pub client_connections: u64,
    /// Peers known now.
    pub peers: u64,
    /// Calls under way now.
    pub calls: u64,
    /// Calls turned away because the server was too busy.
    pub calls_turned_away: u64,
}

/// Everything that the file service uses.
#[derive(Clone)]
pub struct Environment {
    /// The volumes to serve.
    pub volumes: Arc<Volumes>,
    /// Who callers are.
    pub membership: Arc<dyn Membership>,
    /// The way to clients.
    pub network: Arc<dyn CallbackNetwork>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where other volumes are, if this process can know it.
    pub locator: Option<Arc<dyn VolumeLocator>>,
    /// Numbers of the transport now.
    pub transport: Arc<dyn Fn() -> TransportFigures + Send + Sync>,
    /// Resident size of the process in KiB now.
    pub process_kib: Arc<dyn Fn() -> u64 + Send + Sync>,
}
