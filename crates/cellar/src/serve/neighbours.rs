//! Other file servers, asked before a registration takes their addresses.

use crate::config::announcing::machine_addresses;
use crate::network::AfsNetwork;
use afs_idl::fs;
use base::HostUuid;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A file server that does not answer within this time is gone.
const PATIENCE: Duration = Duration::from_secs(3);
const FILE_SERVICE: u16 = 1;
const FILE_PORT: u16 = 7000;

/// See the module's description.
pub struct FileServers {
    /// The UUID of this process's file server, if it has one.
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

/// When the file server at an address started, in seconds since 1970; `None` if none answers.
pub fn started(address: Ipv4Addr) -> Option<u32> {
    let network = AfsNetwork::start(None).ok()?;
    let connection = network.connect_within(SocketAddr::from((address, FILE_PORT)), FILE_SERVICE, PATIENCE);
    let reply = fs::get_statistics(&*connection, &fs::GetStatisticsRequest).ok()?;
    Some(reply.statistics.start_time)
}
