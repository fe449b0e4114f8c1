//! Queries other file servers before a registration takes their addresses.

use afs_idl::fs;
use base::HostUuid;
use cell_client::network::AfsNetwork;
use cellar_config::announcing::machine_addresses;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Time limit after which a file server counts as gone.
const PATIENCE: Duration = Duration::from_secs(3);
const FILE_SERVICE: u16 = 1;
const FILE_PORT: u16 = 7000;
/// Possible increase of a server's count of statistics calls from one call to the next: other programs call
/// between them.
const CALLS_BETWEEN: RangeInclusive<i32> = 1..=1000;

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

    fn is_same(&self, one: Ipv4Addr, other: Ipv4Addr) -> bool {
        one == other || share_a_count(one, other).unwrap_or(false)
    }
}

/// Returns whether the servers at two addresses count calls of their statistics together; `None` if one does
/// not answer. Each reply carries the number of these calls (`numPerfCalls`). With two servers, the second
/// call at `one` counts only the first, but must be later than two at `other`.
fn share_a_count(one: Ipv4Addr, other: Ipv4Addr) -> Option<bool> {
    let counts = [one, other, other, one].map(statistics_calls);
    let counts: Vec<i32> = counts.into_iter().collect::<Option<_>>()?;
    Some(are_consecutive(&counts))
}

fn are_consecutive(counts: &[i32]) -> bool {
    counts.windows(2).all(|pair| CALLS_BETWEEN.contains(&pair[1].wrapping_sub(pair[0])))
}

/// Returns how often the file server at an address was asked for its statistics (GetXStats, first word of
/// struct afs_PerfStats).
fn statistics_calls(address: Ipv4Addr) -> Option<i32> {
    let network = AfsNetwork::start(None).ok()?;
    let connection = network.connect_within(SocketAddr::from((address, FILE_PORT)), FILE_SERVICE, PATIENCE);
    let collection = fs::statistics_collection::PERFORMANCE;
    let request = fs::GetXStatsRequest { client_version: 0, collection };
    fs::get_x_stats(&*connection, &request).ok()?.data.first().copied()
}

/// Returns when the file server at an address started, in seconds since 1970; `None` if there is no answer.
pub fn started(address: Ipv4Addr) -> Option<u32> {
    let network = AfsNetwork::start(None).ok()?;
    let connection = network.connect_within(SocketAddr::from((address, FILE_PORT)), FILE_SERVICE, PATIENCE);
    let reply = fs::get_statistics(&*connection, &fs::GetStatisticsRequest).ok()?;
    Some(reply.statistics.start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_counts_all_calls_and_two_servers_count_their_own() {
        for (counts, expected) in [
            ([1, 2, 3, 4], true),
            ([7, 9, 12, 20], true),
            ([i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1], true),
            // Two servers: equal counts, the second one ahead by one, the second one far ahead or behind.
            ([1, 1, 2, 2], false),
            ([1, 2, 3, 2], false),
            ([1, 500, 501, 2], false),
            ([500, 1, 2, 501], false),
        ] {
            assert_eq!(are_consecutive(&counts), expected, "{counts:?}");
        }
    }
}
