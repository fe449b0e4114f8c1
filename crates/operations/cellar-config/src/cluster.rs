//! A node of a cluster: several servers that serve the partitions in one bucket as one file server.

use crate::encryption::KeySource;
use crate::partitions::{BucketSettings, PartitionSettings, Place, SharedLeases};
use base::{BucketAddressError, PartitionId};
use cluster_proto::{NODE_NAME_MAX, NodeName, PartitionName};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

/// Name of the folder of the cell's databases, below the cluster's.
const DATABASES: &str = "databases";

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
    /// Where the cell's databases are, if they are in the bucket; the caches and sizes of partitions do not apply to them.
    pub databases: Option<Box<BucketSettings>>,
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

    /// Returns the settings of a partition of the cluster that the configuration need not list.
    ///
    /// # Errors
    /// If the name of its place would be too long.
    pub fn partition_settings(
        &self,
        id: PartitionId,
        key: Option<KeySource>,
    ) -> Result<PartitionSettings, BucketAddressError> {
        let place = Place::Bucket(Box::new(partition_in(&self.bucket, id)?));
        Ok(PartitionSettings { id, place, key })
    }

    /// Returns the place of the cell's databases in the bucket, if they are there: they have an owner, as a partition has.
    pub fn databases_place(&self) -> Option<&PartitionName> {
        Some(&self.databases.as_ref()?.leases.as_ref()?.partition)
    }

    /// Returns where other nodes call this one.
    pub fn socket_address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.port)
    }
}

/// Returns the source of the key of all these partitions, also if none is encrypted; `None` if they differ. A partition that is added
/// to the cluster gets it.
pub fn common_key(partitions: &[PartitionSettings]) -> Option<Option<&KeySource>> {
    let mut keys = partitions.iter().map(|partition| partition.key.as_ref());
    let first = keys.next()?;
    keys.all(|key| key == first).then_some(first)
}

/// Returns the place of a partition of the cluster in this folder of a bucket.
fn partition_name(folder: &str, id: PartitionId) -> PartitionName {
    name_below(folder, &id.letters())
}

/// Returns the name of something with an owner in this folder of a bucket.
fn name_below(folder: &str, name: &str) -> PartitionName {
    let name = match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    };
    name.parse().expect("a place in a bucket that was checked")
}

/// Returns the settings of a partition: its place below the cluster's, and a cache of its own.
pub(crate) fn partition_in(
    cluster: &BucketSettings,
    id: PartitionId,
) -> Result<BucketSettings, BucketAddressError> {
    let letters = id.letters();
    let cache = cluster.cache.as_ref().map(|cache| cache.join(&letters));
    Ok(BucketSettings { cache, ..bucket_below(cluster, &letters)? })
}

/// Returns the settings of the databases: their place below the cluster's. They are small, and kept in memory.
pub(crate) fn databases_in(cluster: &BucketSettings) -> Result<BucketSettings, BucketAddressError> {
    Ok(BucketSettings { cache: None, size_bytes: None, ..bucket_below(cluster, DATABASES)? })
}

fn bucket_below(cluster: &BucketSettings, name: &str) -> Result<BucketSettings, BucketAddressError> {
    let address = cluster.address.below(name)?;
    let partition = name_below(cluster.address.prefix(), name);
    let leases = Some(SharedLeases { address: cluster.address.clone(), partition });
    Ok(BucketSettings { address, leases, ..cluster.clone() })
}

/// Whether an address is one of this machine: calls can leave from it.
pub fn is_of_this_machine(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
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
    fn calls_leave_from_own_addresses_only() {
        assert!(is_of_this_machine(Ipv4Addr::LOCALHOST));
        assert!(!is_of_this_machine(Ipv4Addr::new(192, 0, 2, 77)));
    }

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
