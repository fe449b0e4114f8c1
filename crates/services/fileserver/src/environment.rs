//! The external dependencies of the file service, as traits that the program implements.

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
    /// Returns an unauthenticated connection from this server's own port to the callback service (RXAFSCB,
    /// service 1) at `peer`. Calls on it fail when the peer has been silent for `patience`.
    fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection>;

    /// Whether an address is one of this server's own. Messages are sent to such a client address only if a
    /// client has called from it.
    fn is_own(&self, _ip: IpAddr) -> bool {
        false
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time for measurements and expiry.
    fn monotonic(&self) -> Monotonic;

    /// Returns the time since 1970.
    fn wall(&self) -> Duration;

    /// Returns the seconds since 1970, as used in AFS.
    fn unix(&self) -> UnixTime {
        UnixTime(self.wall().as_secs() as u32)
    }
}

/// Reports that calls wait for: that another call has finished contacting their common host. A simulator
/// provides its own, to decide when a waiting call continues.
pub trait Reports: Send + Sync {
    /// Returns the number of reports so far.
    fn count(&self) -> u64;

    /// Waits until there are more than `seen` reports. Returns false if `limit` passes before.
    fn wait(&self, seen: u64, limit: Duration) -> bool;

    /// Adds a report and wakes all waiting calls.
    fn report(&self);
}

/// Locations of volumes, for the old call that asks a file server for them (RXAFS_GetVolumeInfo).
pub trait VolumeLocator: Send + Sync {
    /// Returns the location of the volume with this name or number.
    fn locate(&self, name: &[u8]) -> Result<VolumeInfo, AbortCode>;
}

/// Transport counters that extended statistics report (rx_stats of OpenAFS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportFigures {
    /// Packets received, of all types.
    pub packets_read: u64,
    /// DATA packets received, without duplicates.
    pub data_packets_read: u64,
    /// ACK packets received.
    pub ack_packets_read: u64,
    /// Duplicate DATA packets received.
    pub duplicate_packets_read: u64,
    /// Packets received that belong to no call.
    pub spurious_packets_read: u64,
    /// Malformed or truncated packets received.
    pub bogus_packets_read: u64,
    /// Packets sent, of all types.
    pub packets_sent: u64,
    /// DATA packets sent for the first time.
    pub data_packets_sent: u64,
    /// DATA packets retransmitted.
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
    /// Current connections from clients.
    pub server_connections: u64,
    /// Current connections to clients.
    pub client_connections: u64,
    /// Currently known peers.
    pub peers: u64,
    /// Calls in progress.
    pub calls: u64,
    /// Calls refused because the server was too busy.
    pub calls_turned_away: u64,
}

/// The external dependencies of the file service.
#[derive(Clone)]
pub struct Environment {
    /// The volumes to serve.
    pub volumes: Arc<Volumes>,
    /// Identities and groups of callers.
    pub membership: Arc<dyn Membership>,
    /// Connections to clients.
    pub network: Arc<dyn CallbackNetwork>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Locations of other volumes, if this process has them.
    pub locator: Option<Arc<dyn VolumeLocator>>,
    /// Returns the current transport counters.
    pub transport: Arc<dyn Fn() -> TransportFigures + Send + Sync>,
    /// Returns the current resident size of the process in KiB.
    pub process_kib: Arc<dyn Fn() -> u64 + Send + Sync>,
}
