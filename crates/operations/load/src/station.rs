//! AFS clients: each a UDP port with the callback service that file servers expect.

use afs_format::keyfile::{KeyType, parse_extended};
use afs_idl::{ClientConnection, Forgetful, cb};
use anyhow::{Context, Result};
use base::{AbortCode, CallContext, HostUuid, SecurityLevel};
use rx::{Server, ServerCall, ServerConfig, ServerStatistics, Service, ServiceConfig, ServiceEntry};
use rx_security::{
    ClientSecurity, KeySet, LOCAL_TICKET_END_MAX, Null, RxkadClient, ServerSecurity, ServiceKey,
    forge_local_ticket,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Service id of RXAFS and, on clients, of RXAFSCB.
pub const FILE_SERVICE: u16 = 1;

/// One client. It has no cache, so a callback break only has to be answered.
pub struct Station {
    server: Server,
}

impl Station {
    /// Starts a client on a free port.
    pub fn start() -> Result<Station> {
        let config = ServerConfig {
            name: "bench".into(),
            lanes: 1,
            workers_min: 1,
            workers_max: 4,
            ..ServerConfig::default()
        };
        let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
        let entry = ServiceEntry {
            config: ServiceConfig { id: FILE_SERVICE, name: "callbacks".into(), security },
            service: Arc::new(Callbacks(Forgetful::new(HostUuid(rand::random())))),
        };
        let server = Server::start(&config, vec![entry]).context("cannot open a UDP port")?;
        Ok(Station { server })
    }

    /// Returns the statistics of the client's port.
    pub fn statistics(&self) -> ServerStatistics {
        self.server.statistics()
    }

    /// Returns a connection to a service from the client's port.
    pub fn connect(
        &self,
        address: SocketAddr,
        service: u16,
        security: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.server.connect(address, service, security)
    }
}

/// Returns rxkad at level crypt, with a ticket made with the cell's key.
pub fn encrypted(key_file: &Path) -> Result<Arc<dyn ClientSecurity>> {
    let bytes = std::fs::read(key_file).with_context(|| key_file.display().to_string())?;
    let mut keys = KeySet::new();
    for key in parse_extended(&bytes)?.iter().filter(|key| key.key_type == KeyType::RxkadKerberos5) {
        keys.insert(key.kvno, ServiceKey::new(key.subtype as i32, key.secret.expose())?);
    }
    let ticket = forge_local_ticket(&keys, rand::random(), rand::random(), LOCAL_TICKET_END_MAX)?;
    Ok(Arc::new(RxkadClient::from_ticket(ticket, SecurityLevel::Encrypted)?))
}

/// The callback service.
struct Callbacks(Forgetful);

impl Service for Callbacks {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        cb::dispatch(&self.0, &CallContext::new(&caller), call)
    }
}
