//! A node of a cluster: several servers that serve the partitions in one bucket as one file server.

use crate::partitions::BucketSettings;
use base::PartitionId;
use cluster_proto::{NODE_NAME_MAX, NodeName, PartitionName};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Settings of a node. Its partitions are in [`Settings::partitions`](crate::Settings::partitions), each in a folder of the
/// cluster's with the partition's letters as its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The cluster's place in the bucket, and how it is reached. The cache is the folder above those of the partitions.
    pub bucket: BucketSettings,
    /// The node's name, unique in the cluster.
    pub node: NodeName,
    /// The address at which other nodes call this one.
    pub address: Ipv4Addr,
    /// The UDP port of the cluster's service.
    pub port: u16,
}

impl ClusterSettings {
    /// Returns the folder of the bucket in which the leases are: the beginning of their names.
    pub fn folder(&self) -> &str {
        self.bucket.address.prefix()
    }

    /// Returns the place of a partition in the bucket.
    pub fn partition(&self, id: PartitionId) -> PartitionName {
        partition_name(self.folder(), id)
    }

    /// Returns where other nodes call this one.
    pub fn socket_address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.port)
    }
}

/// Returns the place of a partition of the cluster in this folder of a bucket.
pub(crate) fn partition_name(folder: &str, id: PartitionId) -> PartitionName {
    let letters = id.letters();
    let name = match folder {
        "" => letters,
        folder => format!("{folder}/{letters}"),
    };
    name.parse().expect("a place in a bucket that was checked")
}

/// Returns the name of this machine as that of a node: in lower case, with `-` for all that a node's name cannot
/// have.
pub fn host_node_name() -> NodeName {
    node_name_of(&rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase())
}

fn node_name_of(host: &str) -> NodeName {
    let is_valid =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ".-_".contains(letter);
    let valid = |letter| if is_valid(letter) { letter } else { '-' };
    let name: String = host.chars().map(valid).take(NODE_NAME_MAX).collect();
    name.parse().unwrap_or_else(|_| "node".parse().expect("a valid name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_name_gives_a_node() {
        let long = "n".repeat(300);
        for (host, name) in [
            ("afs1.example.org", "afs1.example.org"),
            ("größe 1/2", "gr--e-1-2"),
            ("", "node"),
            ("..", "node"),
            (&long, &long[..NODE_NAME_MAX]),
        ] {
            assert_eq!(node_name_of(host).as_str(), name);
        }
        assert!(!host_node_name().as_str().is_empty());
    }
}
