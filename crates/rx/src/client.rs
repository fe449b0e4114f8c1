//! A program that only calls others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use afs_idl::ClientConnection;
use base::AbortCode;
use rx_proto::EndpointConfig;
use rx_security::ClientSecurity;

use crate::connector::Connector;
use crate::inherited::Inherited;
use crate::lane::{Arrivals, NoArrivals};
use crate::lanes::{Lanes, LanesConfig};
use crate::socket::SocketOptions;
use crate::statistics::LaneStatistics;

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// For thread names and messages; short.
    pub name: String,
    /// Addresses to call from: one for each address family.
    pub addresses: Vec<IpAddr>,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Threads and sockets that share the port, 1 to 64; all calls to one peer go through one.
    pub lanes: usize,
    /// Socket buffers and offloads.
    pub socket: SocketOptions,
    /// Protocol behaviour.
    pub endpoint: EndpointConfig,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            name: String::from("rx-client"),
            addresses: vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
            port: 0,
            lanes: 1,
            socket: SocketOptions::default(),
            endpoint: EndpointConfig::default(),
        }
    }
}

/// A port to call others from. Dropped, it ends its connections.
pub struct Client {
    lanes: Arc<Lanes>,
}

impl Client {
    /// Binds the port.
    ///
    /// # Errors
    /// What the system said.
    pub fn start(config: &ClientConfig) -> io::Result<Client> {
        let arrivals: Arc<dyn Arrivals> = Arc::new(NoArrivals);
        let lanes = LanesConfig {
            name: &config.name,
            addresses: &config.addresses,
            port: config.port,
            lanes: config.lanes,
            socket: &config.socket,
            endpoint: &config.endpoint,
            services: &[],
            inherited: &Inherited::default(),
        };
        let client = Client { lanes: Lanes::bind(&lanes, &arrivals)? };
        client.lanes.start(&config.name)?;
        Ok(client)
    }

    /// A connection to a service; `None` is the null security class. Nothing is sent before the
    /// first call.
    pub fn connect(
        &self,
        peer: SocketAddr,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.connector().connect(peer, service_id, security)
    }

    /// For making connections elsewhere than where the client is at hand, or with options.
    pub fn connector(&self) -> Connector {
        Connector::new(Arc::clone(&self.lanes))
    }

    /// The addresses that are bound, with the port.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.lanes.addresses()
    }

    /// What has been counted, one entry per lane.
    pub fn statistics(&self) -> Vec<LaneStatistics> {
        self.lanes.statistics()
    }

    /// What the endpoints counted, one entry per lane.
    pub fn endpoint_statistics(&self) -> Vec<rx_proto::Statistics> {
        self.lanes.endpoint_statistics()
    }

    /// Ends all calls with `RX_CALL_DEAD`, and the threads.
    pub fn stop(&self) {
        self.lanes.refuse(AbortCode::RX_CALL_DEAD);
        self.lanes.stop();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop();
    }
}
