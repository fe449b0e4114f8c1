//! What the file service needs from this process.

use crate::cluster::Peers;
use afs_idl::{ClientCall, ClientConnection};
use base::{AbortCode, Monotonic};
use cellar_config::announcing::machine_addresses;
use fileserver::{CallbackNetwork, Clock, TransportFigures};
use parking_lot::{Mutex, RwLock};
use rx::{ConnectOptions, Connector, Path, ServerStatistics};
use rx_proto::PacketType;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Service ID of the callback service.
const CALLBACK_SERVICE: u16 = 1;

/// How many times its patience with silence a client may take for an answer while it answers pings. A client that holds
/// a message back delays the change of another one, and occupies a worker.
const ANSWER_PATIENCES: u32 = 5;

/// Access to other hosts from one of this process's ports. The port opens after its services are created, so
/// the connector is set later. A connector keeps the port alive, and the port its services: it must be
/// removed for them to be dropped.
#[derive(Default)]
pub struct Way {
    /// Guards the connector; nothing waits under it.
    connector: RwLock<Option<Connector>>,
}

impl Way {
    /// Sets the connector when the port opens.
    pub fn open(&self, connector: Connector) {
        *self.connector.write() = Some(connector);
    }

    /// Removes the connector when the port closes.
    pub fn close(&self) {
        *self.connector.write() = None;
    }

    /// Returns the connector while the port is open.
    pub fn get(&self) -> Option<Connector> {
        self.connector.read().clone()
    }
}

/// Connections to clients from the file server's own port.
#[derive(Default)]
pub struct Callbacks {
    /// Opened before the port serves its first caller.
    pub way: Way,
    /// The ways through other nodes, in a cluster.
    pub(crate) peers: OnceLock<Arc<Peers>>,
    own: OwnAddresses,
}

/// A connection from a closed port.
pub(crate) struct Closed(pub(crate) SocketAddr);

impl ClientConnection for Closed {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        Err(AbortCode::RX_RESTARTING)
    }

    fn peer(&self) -> SocketAddr {
        self.0
    }
}

impl Callbacks {
    fn direct(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        let Some(connector) = self.way.get() else { return Arc::new(Closed(peer)) };
        let (dead_time, call_time_max) = (Some(patience), Some(patience * ANSWER_PATIENCES));
        let options = ConnectOptions { dead_time, call_time_max, ..ConnectOptions::default() };
        // Clients know the server by its service addresses, if it has any.
        let local = self.peers.get().and_then(|peers| peers.source()).map(IpAddr::V4);
        connector.connect_with(Path { local, ..Path::to(peer) }, CALLBACK_SERVICE, None, options)
    }
}

#[cfg(feature = "bucket")]
impl clusterserver::Clients for Callbacks {
    fn connection(&self, client: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        self.direct(client, patience)
    }
}

impl CallbackNetwork for Callbacks {
    fn connection(&self, peer: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection> {
        let direct = self.direct(peer, patience);
        match self.peers.get() {
            Some(peers) => peers.connection(peer, patience, direct),
            None => direct,
        }
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        self.own.contains(ip, Instant::now())
    }
}

/// The machine's addresses, read again when older than [`OWN_LIFETIME`], because they may change at run time.
#[derive(Default)]
struct OwnAddresses {
    /// Guards the addresses and the time they were read; nothing waits under it.
    read: Mutex<Option<(Instant, Vec<Ipv4Addr>)>>,
}

/// Time for which the machine's addresses are cached.
const OWN_LIFETIME: Duration = Duration::from_secs(60);

impl OwnAddresses {
    fn contains(&self, ip: IpAddr, now: Instant) -> bool {
        let mut read = self.read.lock();
        if read.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) > OWN_LIFETIME) {
            let addresses = machine_addresses();
            let addresses =
                addresses.inspect_err(|error| tracing::warn!(%error, "cannot list the machine's addresses"));
            *read = Some((now, addresses.unwrap_or_default()));
        }
        read.as_ref().is_some_and(|(_, own)| own.iter().any(|own| IpAddr::V4(*own) == ip))
    }
}

/// The system's clocks.
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Monotonic {
        rx::now()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Converts a server's lane counters to the figures in extended statistics.
pub fn transport_figures(statistics: &ServerStatistics) -> TransportFigures {
    let mut figures =
        TransportFigures { calls_turned_away: statistics.calls.refused_busy, ..TransportFigures::default() };
    for endpoint in &statistics.endpoints {
        let received = |kind: PacketType| endpoint.packets_received[kind.index()];
        let sent = |kind: PacketType| endpoint.packets_sent[kind.index()];
        figures.packets_read += endpoint.packets_received.iter().sum::<u64>();
        figures.data_packets_read += endpoint.data_received;
        figures.ack_packets_read += received(PacketType::Ack);
        figures.duplicate_packets_read += endpoint.data_duplicates;
        figures.spurious_packets_read += endpoint.spurious;
        figures.bogus_packets_read += endpoint.malformed;
        figures.packets_sent += endpoint.packets_sent.iter().sum::<u64>();
        figures.data_packets_sent += endpoint.data_sent;
        figures.data_packets_resent += endpoint.data_resent;
        figures.ack_packets_sent += sent(PacketType::Ack);
        figures.ping_packets_sent += endpoint.pings_sent;
        figures.abort_packets_sent += sent(PacketType::Abort);
        figures.busy_packets_sent += sent(PacketType::Busy);
        figures.round_trip_total += endpoint.rtt_total;
        figures.round_trip_max = figures.round_trip_max.max(endpoint.rtt_max);
        if let Some(least) = endpoint.rtt_min {
            let first = figures.round_trips == 0;
            figures.round_trip_min = if first { least } else { figures.round_trip_min.min(least) };
        }
        figures.round_trips += endpoint.rtt_samples;
        figures.server_connections += endpoint.server_connections_now;
        figures.client_connections += endpoint.client_connections_now;
        figures.peers += endpoint.peers_now;
        figures.calls += endpoint.calls_now;
    }
    figures
}

/// Returns the resident size of this process in KiB.
pub fn process_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::cb;
    use rx::{Client, ClientConfig, Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry};
    use rx_security::{Null, ServerSecurity};
    use std::sync::mpsc::{Receiver, channel};

    /// A callback service that answers no call while its channel is open.
    struct Holding(Mutex<Receiver<()>>);

    impl Service for Holding {
        fn serve(&self, _: &mut ServerCall) -> Result<(), AbortCode> {
            _ = self.0.lock().recv();
            Err(AbortCode::UAEIO)
        }
    }

    #[test]
    fn a_client_that_only_answers_pings_is_given_up() {
        let (held, end) = channel::<()>();
        let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
        let config = ServiceConfig { id: CALLBACK_SERVICE, name: "callbacks".into(), security };
        let entry = ServiceEntry { config, service: Arc::new(Holding(Mutex::new(end))) };
        let port = ServerConfig { addresses: addresses.clone(), ..ServerConfig::default() };
        let client = Server::start(&port, vec![entry]).unwrap();
        let own = Client::start(&ClientConfig { addresses, ..ClientConfig::default() }).unwrap();
        let callbacks = Callbacks::default();
        callbacks.way.open(own.connector());
        let patience = Duration::from_secs(3);
        let call = || {
            let connection = CallbackNetwork::connection(&callbacks, client.addresses()[0], patience);
            cb::probe(&*connection, &cb::ProbeRequest).map(drop)
        };
        // On a busy machine, pings may go unanswered for longer than the patience.
        let answer = (0..5).map(|_| call()).find(|answer| *answer != Err(AbortCode::RX_CALL_DEAD));
        assert_eq!(answer, Some(Err(AbortCode::RX_CALL_TIMEOUT)));
        drop(held);
    }
}
