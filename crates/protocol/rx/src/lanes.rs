//! All lanes of one port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use base::AbortCode;
use parking_lot::Mutex;
use rx_proto::{Endpoint, EndpointConfig, PeerCounters, PeerReport, ServiceConfig};

use crate::inherited::{Inherited, KeptSocket};
use crate::lane::{Arrivals, Lane};
use crate::socket::{LaneSocket, SocketOptions, bind_lanes};
use crate::statistics::LaneStatistics;
use crate::{clock, steering, sys};

/// Maximum number of lanes of one port.
pub(crate) const LANES_MAX: usize = 64;

/// Polling interval of [`Lanes::deliver`].
const DELIVERY_LOOK: Duration = Duration::from_millis(2);

/// Configuration of the lanes.
pub(crate) struct LanesConfig<'a> {
    pub(crate) name: &'a str,
    pub(crate) addresses: &'a [IpAddr],
    pub(crate) port: u16,
    pub(crate) lanes: usize,
    pub(crate) socket: &'a SocketOptions,
    pub(crate) endpoint: &'a EndpointConfig,
    pub(crate) services: &'a [ServiceConfig],
    /// Sockets of a previous process, preferred to new ones.
    pub(crate) inherited: &'a Inherited,
}

/// The lanes and their threads.
pub(crate) struct Lanes {
    lanes: Vec<Arc<Lane>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Lanes {
    /// Binds the sockets. Nothing is received until [`Lanes::start`].
    pub(crate) fn bind(config: &LanesConfig<'_>, arrivals: &Arc<dyn Arrivals>) -> io::Result<Arc<Lanes>> {
        let sockets = bind_all(config)?;
        let count = sockets.len();
        let mut lanes = Vec::with_capacity(count);
        for (index, sockets) in sockets.into_iter().enumerate() {
            let endpoint = new_endpoint(config)?;
            let (place, pause) = ((index, count), config.socket.receive_pause);
            lanes.push(Arc::new(Lane::new(place, sockets, endpoint, Arc::clone(arrivals), pause)?));
        }
        let lanes = Arc::new(Lanes { lanes, threads: Mutex::new(Vec::new()) });
        lanes.lanes.iter().for_each(|lane| lane.introduce(&lanes));
        Ok(lanes)
    }

    /// Starts the lanes' threads.
    pub(crate) fn start(&self, name: &str) -> io::Result<()> {
        for (index, lane) in self.lanes.iter().enumerate() {
            let lane = Arc::clone(lane);
            let thread = Builder::new().name(format!("{name}-lane{index}")).spawn(move || lane.run())?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Returns the lane that owns all connections with `peer`.
    pub(crate) fn of_peer(&self, peer: SocketAddr) -> &Arc<Lane> {
        &self.lanes[steering::lane_of(peer, self.lanes.len())]
    }

    /// Returns all lanes in the order of their numbers.
    pub(crate) fn all(&self) -> &[Arc<Lane>] {
        &self.lanes
    }

    /// Returns the bound addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.lanes[0].sockets().iter().filter(|socket| !socket.is_spare()).map(LaneSocket::local).collect()
    }

    /// Duplicates all sockets for another process.
    pub(crate) fn to_keep(&self) -> io::Result<Vec<KeptSocket>> {
        let sockets = self.lanes.iter().flat_map(|lane| lane.sockets());
        let keep = |socket: &LaneSocket| {
            let kept = socket.to_keep()?;
            Some(kept.map(|(place, descriptor)| KeptSocket::new(socket.local(), place, descriptor)))
        };
        sockets.filter_map(keep).collect()
    }

    /// Stops accepting new calls.
    pub(crate) fn hold_new_calls(&self) {
        self.lanes.iter().for_each(|lane| lane.lock().endpoint.hold_new_calls());
    }

    /// Stops accepting new calls at one local address.
    pub(crate) fn hold_new_calls_at(&self, local: IpAddr) {
        self.lanes.iter().for_each(|lane| lane.lock().endpoint.hold_new_calls_at(local));
    }

    /// Accepts new calls at a local address that another host has had.
    pub(crate) fn succeed(&self, local: IpAddr) {
        self.lanes.iter().for_each(|lane| lane.lock().endpoint.succeed(clock::now(), local));
    }

    /// Returns the number of clients' calls at a local address that have not ended.
    pub(crate) fn calls_at(&self, local: IpAddr) -> usize {
        self.lanes.iter().map(|lane| lane.lock().endpoint.calls_at(local)).sum()
    }

    /// Whether any call of a client is held by a service, or on the way to one.
    pub(crate) fn is_serving(&self) -> bool {
        self.lanes.iter().any(|lane| lane.lock().is_serving())
    }

    /// Returns the socket counters, one entry per lane.
    pub(crate) fn statistics(&self) -> Vec<LaneStatistics> {
        self.lanes.iter().map(|lane| lane.statistics()).collect()
    }

    /// Returns the endpoint counters, one entry per lane.
    pub(crate) fn endpoint_statistics(&self) -> Vec<rx_proto::Statistics> {
        self.lanes.iter().map(|lane| lane.lock().endpoint.statistics().clone()).collect()
    }

    /// Returns the remembered peers of all lanes, and the sums of the forgotten ones.
    pub(crate) fn peers(&self) -> (Vec<PeerReport>, PeerCounters) {
        let (mut all, mut forgotten) = (Vec::new(), PeerCounters::default());
        for lane in &self.lanes {
            let (peers, gone) = lane.lock().endpoint.peers();
            all.extend(peers);
            forgotten.add(&gone);
        }
        (all, forgotten)
    }

    /// See [`Lane::refuse`].
    pub(crate) fn refuse(&self, code: AbortCode) {
        self.lanes.iter().for_each(|lane| lane.refuse(code));
    }

    /// Aborts the calls that have not ended.
    pub(crate) fn abort_left(&self, code: AbortCode) {
        self.lanes.iter().for_each(|lane| lane.abort_left(code));
    }

    /// Waits until all calls have ended and their replies have been acknowledged, at most for `limit`.
    pub(crate) fn deliver(&self, limit: Duration) {
        let end = clock::now() + limit;
        let running = !self.threads.lock().is_empty();
        while running && clock::now() < end && self.lanes.iter().any(|lane| lane.is_delivering()) {
            std::thread::sleep(DELIVERY_LOOK);
        }
    }

    /// Ends the threads after sending everything that is ready.
    pub(crate) fn stop(&self) {
        self.lanes.iter().for_each(|lane| lane.stop());
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The thread itself catches and counts panics.
            let _ = thread.join();
        }
    }
}

/// Returns one list of sockets per lane, each with a socket per address, all on one port.
fn bind_all(config: &LanesConfig<'_>) -> io::Result<Vec<Vec<LaneSocket>>> {
    let count = config.lanes.clamp(1, LANES_MAX);
    let mut lanes: Vec<Vec<LaneSocket>> = (0..count).map(|_| Vec::new()).collect();
    let mut port = config.port;
    for address in config.addresses {
        let address = SocketAddr::new(*address, port);
        let shares = bind_lanes(address, count, config.socket, config.inherited.take(address))?;
        port = shares[0][0].local().port();
        for (lane, sockets) in lanes.iter_mut().zip(shares) {
            lane.extend(sockets);
        }
    }
    if lanes[0].is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{}: no address to bind", config.name),
        ));
    }
    Ok(lanes)
}

fn new_endpoint(config: &LanesConfig<'_>) -> io::Result<Endpoint> {
    let mut endpoint = Endpoint::new(config.endpoint.clone(), sys::random_seed()?, clock::now());
    config.services.iter().for_each(|service| endpoint.add_service(service.clone()));
    Ok(endpoint)
}
