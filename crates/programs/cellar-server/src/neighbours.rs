//! Queries other file servers before a registration takes their addresses.

use afs_idl::fs;
use base::HostUuid;
use cell_client::network::AfsNetwork;
use cellar_config::announcing::machine_addresses;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Time limit after which a file server counts as gone.
const PATIENCE: Duration = Duration::from_secs(3);
const FILE_SERVICE: u16 = 1;
const FILE_PORT: u16 = 7000;

/// Finds out which file servers are running.
pub struct FileServers {
    /// UUID of this process's file server, if it has one.
    pub own: Option<HostUuid>,
}

impl vlserver::Neighbours for FileServers {
    fn started(&self, address: Ipv4Addr, holder: Option<HostUuid>) -> Option<u32> {
        let is_own = address.is_loopback() || machine_addresses().is_ok_and(|own| own.contains(&address));
        if is_own && holder.is_none_or(|holder| self.own != Some(holder)) {
            return None;
        }
        started(address)
    }
}

/// Returns when the file server at an address started, in seconds since 1970; `None` if there is no answer.
pub fn started(address: Ipv4Addr) -> Option<u32> {
    let network = AfsNetwork::start(None).ok()?;
    let connection = network.connect_within(SocketAddr::from((address, FILE_PORT)), FILE_SERVICE, PATIENCE);
    let reply = fs::get_statistics(&*connection, &fs::GetStatisticsRequest).ok()?;
    Some(reply.statistics.start_time)
}
