//! Connections from this cell's volume server to others.

use super::destinations::Destinations;
use super::environment::Way;
use super::services::ADMIN_SERVICE;
use afs_idl::ClientConnection;
use base::AbortCode;
use cell_client::network::{CellIdentity, RENEWAL, Renewing};
use rx_security::ClientSecurity;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use volserver::OtherServers;

/// Service ID of the volume service.
const VOLUME_SERVICE: u16 = 4;

/// ENOTCONN: the port is closed.
const NO_WAY: AbortCode = AbortCode(107);

/// Connections from the volume server's own port, with the cell's key.
pub struct VolumeServers {
    identity: Arc<dyn ClientSecurity>,
    destinations: Destinations,
    /// Opened with the port.
    pub way: Way,
}

impl VolumeServers {
    /// Creates it without a port.
    pub fn new(identity: CellIdentity, destinations: Destinations) -> VolumeServers {
        VolumeServers { identity: Arc::new(identity), destinations, way: Way::default() }
    }

    fn connect_to(&self, server: SocketAddrV4, service: u16) -> Result<Arc<dyn ClientConnection>, AbortCode> {
        let (connector, identity) = (self.way.get().ok_or(NO_WAY)?, self.identity.clone());
        let connect = move || connector.connect(SocketAddr::V4(server), service, Some(identity.clone()));
        Ok(Arc::new(Renewing::new(Box::new(connect), RENEWAL)))
    }
}

impl OtherServers for VolumeServers {
    fn check(&self, server: SocketAddrV4) -> Result<(), AbortCode> {
        self.destinations.check(server)
    }

    fn connect(&self, server: SocketAddrV4) -> Result<Arc<dyn ClientConnection>, AbortCode> {
        self.connect_to(server, VOLUME_SERVICE)
    }

    fn connect_cellar(&self, server: SocketAddrV4) -> Option<Arc<dyn ClientConnection>> {
        self.connect_to(server, ADMIN_SERVICE).ok()
    }
}
