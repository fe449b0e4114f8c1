//! Partitions shared by several servers, each of which has some of them open.

use base::{PartitionId, VolumeId};
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The servers that share all partitions with this one and pass calls on to each other: to clients they are one server.
pub trait OtherOwners: Send + Sync {
    /// Returns all partitions, whichever server has them.
    fn partitions(&self) -> Vec<PartitionId>;

    /// Whether a partition may get volumes; it may not while it is being removed. `None` if that is not known now.
    fn takes_volumes(&self, _: PartitionId) -> Option<bool> {
        Some(true)
    }

    /// Returns the numbers for the transactions on a partition; `None` if it is not this server's. Every server sees
    /// from a number which partition it belongs to.
    fn transaction_numbers(&self, partition: PartitionId) -> Option<RangeInclusive<i32>>;

    /// Returns the prefix of `partition` in the bucket that contains `beside`; `None` if it is not in that bucket.
    fn prefix_beside(&self, partition: PartitionId, beside: PartitionId) -> Option<String>;

    /// Returns an address at which calls of Cellar's own service that concern one of the partitions are accepted, whichever
    /// server has it.
    fn address(&self) -> Option<SocketAddrV4>;

    /// Whether another server has a volume with this id; `None` if that is not known after `wait`, because one does not
    /// answer, or a partition has no owner. It is asked again meanwhile.
    fn has(&self, volume: VolumeId, wait: Duration) -> Option<bool>;

    /// A volume was deleted here. A parked one with the same id at another server takes its place.
    fn volume_deleted(&self, volume: VolumeId);
}
