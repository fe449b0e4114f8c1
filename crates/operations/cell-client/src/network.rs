//! Network access for the command line: a port of its own, which also answers the calls that file servers
//! make to their clients.

mod identity;
mod renewing;

use crate::Network;
use afs_idl::{ClientConnection, Forgetful, cb};
use anyhow::{Context, Result};
use base::{AbortCode, CallContext, HostUuid, SecurityLevel, UnixTime};
pub use identity::{CellIdentity, check_keys};
use parking_lot::Mutex;
pub use renewing::{RENEWAL, Renewing};
use rx::{ConnectOptions, EndpointConfig, Path, Server, ServerCall, ServerConfig, Service, ServiceEntry};
use rx_proto::ServiceConfig;
use rx_security::{ClientSecurity, KeyRing, KeySet, Null};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// VL, PR and VOTE: services for which there may be another server.
const DATABASE_SERVICES: [u16; 3] = [52, 73, crate::vote::SERVICE];

/// Limits of calls to these services. A user's call to a server that stays busy waits indefinitely, because
/// an abandoned change may have been made nevertheless.
const DATABASE_PATIENCE: ConnectOptions =
    ConnectOptions { dead_time: Some(Duration::from_secs(6)), idle_time: None, call_time_max: None };

/// Time that a server waits for another one that is reachable but does not answer; its own clients wait
/// meanwhile.
const BUSY_TIME: Duration = Duration::from_secs(30);

/// The callback service.
struct Callbacks(Forgetful);

impl Service for Callbacks {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        cb::dispatch(&self.0, &CallContext::new(&caller), call)
    }
}

/// A network endpoint of the command line.
pub struct AfsNetwork {
    server: Server,
    security: Option<Arc<dyn ClientSecurity>>,
    database_patience: ConnectOptions,
    own_databases: bool,
    /// Addresses that the machine has lost since the start.
    lost: Mutex<Vec<Ipv4Addr>>,
}

impl AfsNetwork {
    /// Opens a free port; calls are anonymous if `security` is `None`.
    pub fn start(security: Option<Arc<dyn ClientSecurity>>) -> Result<AfsNetwork> {
        AfsNetwork::start_with(security, EndpointConfig::default().packet_bytes_max)
    }

    /// Opens a free port with this maximum datagram size.
    pub fn start_with(
        security: Option<Arc<dyn ClientSecurity>>,
        packet_bytes_max: usize,
    ) -> Result<AfsNetwork> {
        let mut config = ServerConfig {
            name: "client".into(),
            lanes: 1,
            workers_min: 1,
            workers_max: 4,
            ..ServerConfig::default()
        };
        config.endpoint.limit_packets(packet_bytes_max);
        let service = Arc::new(Callbacks(Forgetful::new(HostUuid(*uuid::Uuid::new_v4().as_bytes()))));
        let security_classes: Vec<Arc<dyn rx_security::ServerSecurity>> = vec![Arc::new(Null)];
        let entry = ServiceConfig { id: 1, name: "callbacks".into(), security: security_classes };
        let server = Server::start(&config, vec![ServiceEntry { config: entry, service }])
            .context("cannot open a UDP port")?;
        Ok(AfsNetwork {
            server,
            security,
            database_patience: DATABASE_PATIENCE,
            own_databases: false,
            lost: Mutex::default(),
        })
    }

    /// Gives up calls to a database server that does not answer in time. For a server, which makes only
    /// queries and changes that can safely be repeated.
    #[must_use]
    pub fn impatient(mut self) -> AfsNetwork {
        self.database_patience.idle_time = Some(BUSY_TIME);
        self
    }

    /// Reaches the databases even after the machine has lost the address in its configuration. For a server
    /// that has the cell's only databases and is bound to every address.
    #[must_use]
    pub fn with_own_databases(mut self) -> AfsNetwork {
        self.own_databases = true;
        self
    }

    /// Returns a connection to a service with a time limit for each call.
    pub fn connect_within(
        &self,
        address: SocketAddr,
        service: u16,
        patience: Duration,
    ) -> Arc<dyn ClientConnection> {
        let options = ConnectOptions {
            dead_time: Some(patience),
            idle_time: Some(patience),
            call_time_max: Some(patience),
        };
        self.server.connector().connect_with(Path::to(address), service, self.security.clone(), options)
    }

    /// Returns the current address of a service that is configured at `address`.
    fn current(&self, address: SocketAddr) -> SocketAddr {
        let is_lost = |ip: IpAddr| self.lost.lock().iter().any(|lost| IpAddr::V4(*lost) == ip);
        if self.own_databases && is_lost(address.ip()) {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
        }
        address
    }
}

impl Network for AfsNetwork {
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection> {
        let address = self.current(address);
        let options = if DATABASE_SERVICES.contains(&service) {
            self.database_patience
        } else {
            ConnectOptions::default()
        };
        let (connector, security) = (self.server.connector(), self.security.clone());
        let connect = move || connector.connect_with(Path::to(address), service, security.clone(), options);
        Arc::new(Renewing::new(Box::new(connect), RENEWAL))
    }

    fn on_addresses_changed(&self, lost: &[Ipv4Addr], own: &[Ipv4Addr]) {
        let mut all = self.lost.lock();
        all.extend_from_slice(lost);
        all.sort_unstable();
        all.dedup();
        all.retain(|address| !own.contains(address));
        drop(all);
        let connector = self.server.connector();
        for address in lost {
            connector.forget_source(IpAddr::V4(*address));
        }
    }
}

/// Returns the identity of `-localauth`: tickets that a holder of the cell's key makes for itself.
///
/// # Errors
/// If the keys make no valid ticket.
pub fn local_authentication(keys: &KeySet) -> Result<Arc<dyn ClientSecurity>> {
    local_authentication_at(keys, SecurityLevel::Encrypted)
}

/// Returns the identity of `-localauth` with another security level.
///
/// # Errors
/// If the keys make no valid ticket.
pub fn local_authentication_at(keys: &KeySet, level: SecurityLevel) -> Result<Arc<dyn ClientSecurity>> {
    Ok(Arc::new(CellIdentity::new(Arc::new(KeyRing::new(keys.clone())), level)?))
}

/// Returns the time of day.
pub fn now() -> UnixTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    UnixTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}
