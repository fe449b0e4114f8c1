//! The services besides the file service whose calls go to the owner of a partition, at any node.

use super::databases::call_kind;
use super::{Calls, Databases};
use crate::threads::thread;
use adminserver::AdminServer;
use afs_idl::{CallStream, cellar, vol};
use base::{AbortCode, CallContext, PartitionId, VolumeId};
use cluster_proto::{CallKind, PartitionName, Repeat, transaction_numbers};
use clusterserver::{Services, kind_of_administration};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use volserver::{OtherOwners, VolumeServer};

/// Maximum number of reported deletions that wait. For more, parked volumes take their places half a minute later.
const DELETIONS_MAX: usize = 1024;

/// How often the owners of other partitions are asked for borrowed objects that are of no use here.
const LOANS_INTERVAL: Duration = Duration::from_secs(10);

/// Number of these intervals after which they are also asked for some that are.
const OTHER_LOANS: u32 = 30;

/// The services of this process, as other nodes use them.
#[derive(Default)]
pub(super) struct Others {
    /// The cell's databases, if they are in the bucket.
    databases: Option<Arc<Databases>>,
    pub(super) admin_server: OnceLock<Weak<AdminServer>>,
    volume_server: OnceLock<Weak<VolumeServer>>,
    /// Volumes that other nodes have deleted. Whatever waits for that is done by a thread, which may ask other nodes.
    deletions: OnceLock<SyncSender<VolumeId>>,
}

impl Others {
    /// The cell's databases, if they are in the bucket, are served at once, the other services once they are set.
    pub(super) fn new(databases: Option<&Arc<Databases>>) -> Others {
        Others { databases: databases.cloned(), ..Others::default() }
    }

    /// Begins to serve calls of the volume server. The thread ends with this value.
    pub(super) fn set_volume_server(&self, server: Weak<VolumeServer>) {
        let (deletions, deleted) = sync_channel(DELETIONS_MAX);
        let loans = server.clone();
        if self.volume_server.set(server.clone()).is_ok() && self.deletions.set(deletions).is_ok() {
            _ = thread("deletions", move || follow(&deleted, &server));
            _ = thread("loans", move || end_loans(&loans));
        }
    }

    fn volume_server(&self) -> Result<Arc<VolumeServer>, AbortCode> {
        self.volume_server.get().and_then(Weak::upgrade).ok_or(AbortCode::RXGEN_OPCODE)
    }
}

fn follow(deleted: &Receiver<VolumeId>, server: &Weak<VolumeServer>) {
    for volume in deleted {
        let Some(server) = server.upgrade() else { return };
        server.deleted_elsewhere(volume);
    }
}

fn end_loans(server: &Weak<VolumeServer>) {
    let mut after = BTreeMap::new();
    for count in (1..=OTHER_LOANS).cycle() {
        std::thread::sleep(LOANS_INTERVAL);
        let Some(server) = server.upgrade() else { return };
        server.end_loans((count == OTHER_LOANS).then_some(&mut after));
    }
}

impl Services for Others {
    fn kind(&self, service: u16, opcode: u32) -> Option<(CallKind, Repeat)> {
        kind_of_administration(service, opcode).or_else(|| call_kind(service, opcode))
    }

    fn serve(
        &self,
        (service, opcode): (u16, u32),
        place: &PartitionName,
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        match service {
            vol::SERVICE_ID => vol::dispatch(&*self.volume_server()?, call, stream),
            cellar::SERVICE_ID if super::is_transfer(opcode) => {
                cellar::dispatch(&*self.volume_server()?, call, stream)
            }
            cellar::SERVICE_ID => {
                let server =
                    self.admin_server.get().and_then(Weak::upgrade).ok_or(AbortCode::RXGEN_OPCODE)?;
                cellar::dispatch(&*server, call, stream)
            }
            _ => {
                let databases = self.databases.as_ref().filter(|databases| databases.is_at(place));
                databases.ok_or(AbortCode::RXGEN_OPCODE)?.here(service, call, stream)
            }
        }
    }

    fn volume_deleted(&self, volume: VolumeId) {
        if let Some(deletions) = self.deletions.get() {
            _ = deletions.try_send(volume);
        }
    }
}

impl OtherOwners for Calls {
    fn partitions(&self) -> Vec<PartitionId> {
        self.node().partition_ids()
    }

    fn takes_volumes(&self, partition: PartitionId) -> Option<bool> {
        self.node().takes_volumes(partition)
    }

    fn transaction_numbers(&self, partition: PartitionId) -> Option<RangeInclusive<i32>> {
        self.node().epoch(partition).map(|epoch| transaction_numbers(partition, epoch))
    }

    fn prefix_beside(&self, partition: PartitionId, beside: PartitionId) -> Option<String> {
        self.node().prefix_beside(partition, beside)
    }

    fn address(&self) -> Option<SocketAddrV4> {
        Some(self.node().volume_service())
    }

    fn has(&self, volume: VolumeId, wait: Duration) -> Option<bool> {
        self.front().is_elsewhere(volume, wait)
    }

    fn volume_deleted(&self, volume: VolumeId) {
        self.front().volume_deleted(volume);
    }
}
