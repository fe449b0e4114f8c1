//! A program that only makes outgoing calls.

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

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Short name for threads and messages.
    pub name: String,
    /// Local addresses, one for each address family.
    pub addresses: Vec<IpAddr>,
    /// Local port; 0 selects a free one.
    pub port: u16,
    /// Number of threads and sockets that share the port, 1 to 64. All calls to one peer use the same lane.
    pub lanes: usize,
    /// Socket buffers and offloads.
    pub socket: SocketOptions,
    /// Protocol configuration.
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

/// A port for outgoing calls. Dropping it closes its connections.
pub struct Client {
    lanes: Arc<Lanes>,
}

impl Client {
    /// Binds the port.
    ///
    /// # Errors
    /// Errors of the system calls.
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

    /// Returns a connection to a service; `security` of `None` is the null security class. Nothing is sent
    /// before the first call.
    pub fn connect(
        &self,
        peer: SocketAddr,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.connector().connect(peer, service_id, security)
    }

    /// Returns a connector, which makes connections without access to the client, or with options.
    pub fn connector(&self) -> Connector {
        Connector::new(Arc::clone(&self.lanes))
    }

    /// Returns the bound addresses with the port.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.lanes.addresses()
    }

    /// Returns the socket counters, one entry per lane.
    pub fn statistics(&self) -> Vec<LaneStatistics> {
        self.lanes.statistics()
    }

    /// Returns the endpoint counters, one entry per lane.
    pub fn endpoint_statistics(&self) -> Vec<rx_proto::Statistics> {
        self.lanes.endpoint_statistics()
    }

    /// Ends all calls with `RX_CALL_DEAD`, and stops the threads.
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
