//! The way from this cell's volume server to others.

use super::environment::Way;
use super::services::ADMIN_SERVICE;
use crate::network::local_authentication_at;
use afs_idl::ClientConnection;
use base::{AbortCode, SecurityLevel};
use rx_security::KeyRing;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use volserver::OtherServers;

/// The number of the volume service.
const VOLUME_SERVICE: u16 = 4;

/// No way to another server (ENOTCONN).
const NO_WAY: AbortCode = AbortCode(107);

/// Connections from the volume server's own port, with the cell's key.
pub struct VolumeServers {
    keys: Arc<KeyRing>,
    /// To be opened with the port.
    pub way: Way,
}

impl VolumeServers {
    /// Without a port yet.
    pub fn new(keys: Arc<KeyRing>) -> VolumeServers {
        VolumeServers { keys, way: Way::default() }
    }
}

impl VolumeServers {
    fn connect_to(&self, server: SocketAddrV4, service: u16) -> Result<Arc<dyn ClientConnection>, AbortCode> {
        let connector = self.way.get().ok_or(NO_WAY)?;
        // As OpenAFS's volume servers talk to each other: who asks is proved, the data is not enciphered.
        let security =
            local_authentication_at(&self.keys.current(), SecurityLevel::Clear).map_err(|error| {
                tracing::error!(%error, "no ticket for another volume server");
                NO_WAY
            })?;
        Ok(connector.connect(SocketAddr::V4(server), service, Some(security)))
    }
}

impl OtherServers for VolumeServers {
    fn connect(&self, server: SocketAddrV4) -> Result<Arc<dyn ClientConnection>, AbortCode> {
        self.connect_to(server, VOLUME_SERVICE)
    }

    fn connect_cellar(&self, server: SocketAddrV4) -> Option<Arc<dyn ClientConnection>> {
        self.connect_to(server, ADMIN_SERVICE).ok()
    }
}
