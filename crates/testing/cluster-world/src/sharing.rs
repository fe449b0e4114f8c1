//! The volume server of a node, which shares its partitions with the others.

use crate::{Administration, HOLD, partition};
use afs_idl::ClientConnection;
use base::{AbortCode, PartitionId, UnixTime, VolumeId};
use cluster_proto::transaction_numbers;
use clusterserver::{Front, Ownership};
use fileserver::FileServer;
use std::net::{SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;
use volserver::{FileService, OtherOwners, OtherServers, VolumeServer, VolumeServerParts};
use volume::Volumes;

/// Connects to the volume server at an address as the cell.
pub type ToVolumes = dyn Fn(SocketAddr) -> Arc<dyn ClientConnection> + Send + Sync;

/// What a volume server knows of the other nodes.
pub struct Sharing {
    way: Box<ToVolumes>,
    pause: fn(Duration),
    ownership: Arc<dyn Ownership>,
    front: Weak<Front>,
}

struct Changes(Arc<FileServer>);

impl FileService for Changes {
    fn volume_changed(&self, volume: VolumeId) {
        self.0.volume_changed(volume);
    }

    fn volume_moved(&self, volume: VolumeId) {
        self.0.volume_moved(volume);
    }
}

impl Sharing {
    /// Creates what the volume server of a node with this front needs. `pause` sleeps.
    pub fn new(
        (way, pause): (Box<ToVolumes>, fn(Duration)),
        ownership: Arc<dyn Ownership>,
        front: &Arc<Front>,
    ) -> Arc<Sharing> {
        Arc::new(Sharing { way, pause, ownership, front: Arc::downgrade(front) })
    }

    pub(crate) fn volume_server(
        self: &Arc<Self>,
        volumes: &Arc<Volumes>,
        server: &Arc<FileServer>,
    ) -> VolumeServer {
        let parts = VolumeServerParts {
            volumes: volumes.clone(),
            administrators: Arc::new(Administration),
            file_service: Arc::new(Changes(server.clone())),
            clock: Arc::new(|| UnixTime(1_600_000_100)),
        };
        VolumeServer::new(parts).with_other_owners(self.clone()).with_other_servers(self.clone())
    }

    fn front(&self) -> Arc<Front> {
        self.front.upgrade().expect("the front lives as long as its node")
    }
}

impl OtherOwners for Sharing {
    fn partitions(&self) -> Vec<PartitionId> {
        [0, 1].into_iter().filter_map(PartitionId::from_index).collect()
    }

    fn transaction_numbers(&self, id: PartitionId) -> Option<RangeInclusive<i32>> {
        let own = self.ownership.own(&partition(id.index() as usize))?;
        Some(transaction_numbers(id, own.epoch))
    }

    fn prefix_beside(&self, _: PartitionId, _: PartitionId) -> Option<String> {
        None
    }

    fn address(&self) -> Option<SocketAddrV4> {
        None
    }

    fn has(&self, volume: VolumeId, wait: Duration) -> Option<bool> {
        self.front().is_elsewhere(volume, wait.min(HOLD))
    }

    fn volume_deleted(&self, volume: VolumeId) {
        self.front().volume_deleted(volume);
    }
}

impl OtherServers for Sharing {
    fn check(&self, _: SocketAddrV4) -> Result<(), AbortCode> {
        Ok(())
    }

    fn connect(&self, server: SocketAddrV4) -> Result<Arc<dyn ClientConnection>, AbortCode> {
        Ok((self.way)(SocketAddr::V4(server)))
    }

    fn connect_cellar(&self, _: SocketAddrV4) -> Option<Arc<dyn ClientConnection>> {
        None
    }

    fn pause(&self, time: Duration) {
        (self.pause)(time);
    }
}
