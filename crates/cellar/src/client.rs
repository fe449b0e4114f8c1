//! A plain AFS client over the wire, for the command line: it works the same against Cellar and
//! OpenAFS.

pub mod describe;
pub mod files;
pub mod location;
pub mod path;
#[cfg(test)]
mod tests;

use afs_idl::{ClientConnection, fs};
use anyhow::{Result, bail};
use base::AbortCode;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Opens connections, with the security class that the person asked for.
pub trait Network: Send + Sync {
    /// A connection to `service` at `address`; it is made when the first call begins.
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection>;
}

/// The services of a cell by the names of their interfaces: service number and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// RXAFS.
    Files,
    /// PR.
    Protection,
    /// VL.
    Locations,
    /// AFSVol.
    Volumes,
    /// Cellar's own.
    Cellar,
}

impl Interface {
    fn service_and_port(self) -> (u16, u16) {
        match self {
            Interface::Files => (1, 7000),
            Interface::Protection => (73, 7002),
            Interface::Locations => (52, 7003),
            Interface::Volumes => (4, 7005),
            Interface::Cellar => (20011, 7000),
        }
    }
}

/// A cell as a client sees it.
pub struct CellClient {
    network: Arc<dyn Network>,
    database_servers: Vec<Ipv4Addr>,
    connections: Mutex<HashMap<(Ipv4Addr, Interface), Arc<dyn ClientConnection>>>,
}

impl CellClient {
    /// A client of the cell whose database servers have these addresses.
    pub fn new(network: Arc<dyn Network>, database_servers: Vec<Ipv4Addr>) -> Result<CellClient> {
        if database_servers.is_empty() {
            bail!("the cell has no database server; name one with --server ADDRESS");
        }
        Ok(CellClient { network, database_servers, connections: Mutex::default() })
    }

    /// The connection to one server; made once and shared.
    pub fn connection(&self, address: Ipv4Addr, interface: Interface) -> Arc<dyn ClientConnection> {
        let (service, port) = interface.service_and_port();
        let mut connections = self.connections.lock();
        let make = || self.network.connect(SocketAddr::from((address, port)), service);
        connections.entry((address, interface)).or_insert_with(make).clone()
    }

    /// Makes a call to a database server: the next one is asked if one does not answer.
    pub fn database<T>(
        &self,
        interface: Interface,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        let mut last = AbortCode::RX_CALL_DEAD;
        for &address in &self.database_servers {
            match call(&*self.connection(address, interface)) {
                Err(code) if is_unreachable(code) => last = code,
                answer => return answer,
            }
        }
        Err(last)
    }

    /// The first database server: where volumes are made if nothing else is said.
    pub fn default_server(&self) -> Ipv4Addr {
        self.database_servers[0]
    }
}

/// Who goes without giving up its callbacks leaves file servers with promises to a host that does not
/// answer, and the next to change those files waits for it.
impl Drop for CellClient {
    fn drop(&mut self) {
        for ((_, interface), connection) in self.connections.lock().drain() {
            if interface == Interface::Files {
                let _ = fs::give_up_all_call_backs(&*connection, &fs::GiveUpAllCallBacksRequest);
            }
        }
    }
}

/// Whether a code says that this server cannot serve now but another might.
fn is_unreachable(code: AbortCode) -> bool {
    [AbortCode::RX_CALL_DEAD, AbortCode::RX_CALL_TIMEOUT, AbortCode::UNOQUORUM, AbortCode::UNOTSYNC]
        .contains(&code)
}
