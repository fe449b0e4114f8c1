//! The server: its parts, access control and periodic tasks.

use crate::apart;
use crate::codes;
use crate::forwarding::OtherServers;
use crate::sharing::OtherOwners;
use crate::splitting;
use crate::transactions::{Expired, IDLE_SECONDS_MAX, Transactions, Use};
use crate::transfers::Transfers;
use afs_idl::cellar::TransferInfo;
use base::{AbortCode, Access, CallContext, Caller, Identity, PartitionId, UnixTime, VolumeId};
use std::sync::Arc;
use tracing::{info, warn};
use volume::{Volume, Volumes};

/// Marks a volume that is to be destroyed unless its transaction completes (DESTROY_ME).
pub(crate) const DESTROY_ME: u8 = 0xd3;

/// Determines who may change volumes.
pub trait Administrators: Send + Sync {
    /// Returns whether the caller is in UserList or holds the cell's key.
    fn is_administrator(&self, caller: &Caller) -> bool;
}

/// The file server, which is notified of changes to volumes.
pub trait FileService: Send + Sync {
    /// The volume was deleted, or was offline and may have changed: its callback promises are void.
    fn volume_changed(&self, volume: VolumeId);

    /// `volume` moves to another server: clients must look it up from now on, even when it is no longer here.
    fn volume_moved(&self, volume: VolumeId);
}

/// The parts of a [`VolumeServer`].
pub struct VolumeServerParts {
    /// The volumes.
    pub volumes: Arc<Volumes>,
    /// Determines who may change volumes.
    pub administrators: Arc<dyn Administrators>,
    /// Notified of changes.
    pub file_service: Arc<dyn FileService>,
    /// Returns the current time.
    pub clock: Arc<dyn Fn() -> UnixTime + Send + Sync>,
}

/// The volume service; `afs_idl::vol::dispatch` serves a call with it. Call
/// [`delete_unfinished`](VolumeServer::delete_unfinished) once before serving, and
/// [`expire_transactions`](VolumeServer::expire_transactions) every half minute.
pub struct VolumeServer {
    parts: VolumeServerParts,
    transactions: Transactions,
    other_servers: Option<Arc<dyn OtherServers>>,
    other_owners: Option<Arc<dyn OtherOwners>>,
    transfers: Transfers,
    idle_seconds_max: u32,
    queries: Access,
}

afs_idl::vol::impl_server!(VolumeServer);
afs_idl::cellar::impl_server!(VolumeServer: transfers);

impl VolumeServer {
    /// Creates a server without transactions.
    pub fn new(parts: VolumeServerParts) -> VolumeServer {
        let transactions = Transactions::new(Arc::clone(&parts.clock), Arc::clone(&parts.file_service));
        VolumeServer {
            parts,
            transactions,
            other_servers: None,
            other_owners: None,
            transfers: Transfers::default(),
            idle_seconds_max: IDLE_SECONDS_MAX,
            queries: Access::Anyone,
        }
    }

    /// Restricts who may list volumes, partitions and transactions (`-restricted_query`).
    #[must_use]
    pub fn with_queries(self, queries: Access) -> VolumeServer {
        VolumeServer { queries, ..self }
    }

    /// Sets the time after which unused transactions are ended. Clients pause between calls for as long as a
    /// location server does not respond.
    #[must_use]
    pub fn with_idle_seconds_max(self, idle_seconds_max: u32) -> VolumeServer {
        VolumeServer { idle_seconds_max, ..self }
    }

    /// Provides the connections to other servers that Forward and ForwardMultiple need.
    #[must_use]
    pub fn with_other_servers(self, others: Arc<dyn OtherServers>) -> VolumeServer {
        VolumeServer { other_servers: Some(others), ..self }
    }

    /// Provides the servers with which this one shares its partitions.
    #[must_use]
    pub fn with_other_owners(self, others: Arc<dyn OtherOwners>) -> VolumeServer {
        VolumeServer { other_owners: Some(others), ..self }
    }

    pub(crate) fn other_owners(&self) -> Option<&dyn OtherOwners> {
        self.other_owners.as_deref()
    }

    pub(crate) fn other_servers(&self) -> Option<&dyn OtherServers> {
        self.other_servers.as_deref()
    }

    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Returns running and recent transfers, as for ListTransfers.
    pub fn sent(&self) -> Vec<TransferInfo> {
        self.transfers.list()
    }

    /// Deletes incomplete volumes that were being created in a transaction when the program ended. Completed
    /// parked volumes take over their id if the volume on the other partition had just been deleted. Returns
    /// how many were deleted.
    pub fn delete_unfinished(&self) -> usize {
        let volumes = self.volumes().marked().into_iter();
        let being_made = self.transactions.volumes();
        let place = |volume: &Volume| (volume.header().number(), volume.partition());
        let doomed = volumes.filter(|volume| is_doomed(volume) && !being_made.contains(&place(volume)));
        let deleted = doomed.filter(|volume| self.delete(volume)).count();
        apart::succeed_all(self);
        splitting::go_on(self, 0);
        deleted
    }

    /// Returns the incomplete volumes on a partition that was just opened: those that the last owner's transactions were
    /// making. Pass them to [`delete_left_over`](VolumeServer::delete_left_over) once the partition accepts changes.
    pub fn left_over(&self, partition: PartitionId) -> Vec<Arc<Volume>> {
        let marked = self.volumes().marked().into_iter();
        marked.filter(|volume| volume.partition() == partition && is_doomed(volume)).collect()
    }

    /// Deletes volumes whose transactions were lost with the last owner of their partition.
    pub fn delete_left_over(&self, volumes: &[Arc<Volume>]) {
        let being_made = self.transactions.volumes();
        let is_free = |volume: &&Arc<Volume>| {
            is_doomed(volume) && !being_made.contains(&(volume.header().number(), volume.partition()))
        };
        for volume in volumes.iter().filter(is_free) {
            self.delete(volume);
        }
        apart::succeed_all(self);
    }

    /// Ends the transactions on a partition that is no longer this server's. The next owner knows nothing of them.
    pub fn partition_lost(&self, partition: PartitionId) {
        let count = self.transactions.lose(partition);
        if count > 0 {
            warn!(%partition, count, "transactions end, because the partition is no longer this server's");
        }
    }

    /// Another server with which this one shares its partitions has deleted a volume: a parked one takes its place.
    pub fn deleted_elsewhere(&self, volume: VolumeId) {
        apart::succeed(self, volume);
    }

    /// Ends transactions that have been unused for [`IDLE_SECONDS_MAX`] or the [configured
    /// time](VolumeServer::with_idle_seconds_max), and deletes the volumes that they were creating. Returns
    /// how many were ended.
    pub fn expire_transactions(&self) -> usize {
        let expired = self.transactions.expire(self.idle_seconds_max);
        for Expired { volume, used } in &expired {
            warn!(transaction = used.id(), volume = %used.volume_id(), "a transaction has timed out");
            if volume.as_ref().is_some_and(|volume| is_doomed(volume) && self.delete(volume)) {
                used.set_deleted();
            }
        }
        let count = expired.len();
        drop(expired);
        apart::succeed_all(self);
        splitting::go_on(self, splitting::STEP_NAMES);
        if let Err(error) = self.volumes().expire_received(self.now()) {
            warn!(%error, "received data of former transfers is kept too long");
        }
        count
    }

    fn delete(&self, volume: &Volume) -> bool {
        let outcome = self.volumes().delete(volume.id());
        let id = volume.header().number();
        info!(volume = %id, partition = %volume.partition(), ?outcome, "an unfinished volume is deleted");
        self.file_service().volume_changed(id);
        outcome.is_ok()
    }

    /// Runs `work` while no transaction can be opened on the volume.
    ///
    /// # Errors
    /// VOLSERVOLBUSY if there is a transaction, VOLSERNO_MEMORY if there are too many; the error of `work`.
    pub fn exclusively(
        &self,
        volume: VolumeId,
        partition: PartitionId,
        procedure: &'static str,
        work: impl FnOnce() -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode> {
        let used = crate::creating::begin(self, volume, partition, 0, procedure)?;
        let result = work();
        used.end();
        result
    }

    pub(crate) fn volumes(&self) -> &Volumes {
        &self.parts.volumes
    }

    pub(crate) fn file_service(&self) -> &dyn FileService {
        &*self.parts.file_service
    }

    pub(crate) fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    pub(crate) fn clock(&self) -> &volume::Clock {
        &self.parts.clock
    }

    pub(crate) fn now(&self) -> UnixTime {
        (self.parts.clock)()
    }

    /// Rejects callers that are not administrators. Audits the decision.
    pub(crate) fn administer(&self, caller: &Caller, what: &str) -> Result<(), AbortCode> {
        let allowed = self.parts.administrators.is_administrator(caller);
        info!(target: "audit", what, allowed, identity = %caller.identity, peer = %caller.peer);
        if allowed { Ok(()) } else { Err(AbortCode::VOLSERBAD_ACCESS) }
    }

    /// Like [`administer`](VolumeServer::administer), but audits only rejections, for very frequent calls.
    pub(crate) fn administer_quietly(&self, caller: &Caller, what: &str) -> Result<(), AbortCode> {
        if self.parts.administrators.is_administrator(caller) {
            Ok(())
        } else {
            self.administer(caller, what)
        }
    }

    /// Enters the transaction with this number for one call of an administrator, and returns its volume.
    pub(crate) fn change(
        &self,
        caller: &CallContext<'_>,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(Use<'_>, Arc<Volume>), AbortCode> {
        self.administer(caller, procedure)?;
        self.look(caller, transaction, procedure)
    }

    /// Like [`change`](VolumeServer::change), but audits only rejections, for very frequent calls.
    pub(crate) fn change_quietly(
        &self,
        caller: &CallContext<'_>,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(Use<'_>, Arc<Volume>), AbortCode> {
        self.administer_quietly(caller, procedure)?;
        self.look(caller, transaction, procedure)
    }

    /// Rejects callers that may not query volumes.
    pub(crate) fn check_query(&self, caller: &Caller) -> Result<(), AbortCode> {
        let allowed = match self.queries {
            Access::Anyone => true,
            Access::Authenticated => matches!(caller.identity, Identity::Known(_)),
            Access::Administrators => self.parts.administrators.is_administrator(caller),
        };
        if allowed { Ok(()) } else { Err(AbortCode::VOLSERBAD_ACCESS) }
    }

    /// Returns the flags and the volume of the transaction with this number, for a call that changes nothing.
    /// Only administrators, who alone open transactions, keep one alive this way; otherwise anyone who
    /// guesses a number could keep a volume locked.
    pub(crate) fn query(
        &self,
        caller: &CallContext<'_>,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(i32, Arc<Volume>), AbortCode> {
        self.check_query(caller)?;
        if !self.parts.administrators.is_administrator(caller) {
            let (flags, volume) = self.transactions.observe(transaction).ok_or(codes::ENOENT)?;
            note_volume(caller, volume.id());
            return Ok((flags, volume));
        }
        let (used, volume) = self.look(caller, transaction, procedure)?;
        Ok((used.flags(), volume))
    }

    /// Enters the transaction with this number for one call, and returns its volume.
    pub(crate) fn look(
        &self,
        caller: &CallContext<'_>,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(Use<'_>, Arc<Volume>), AbortCode> {
        let used = self.transactions.enter(transaction, procedure).ok_or(codes::ENOENT)?;
        note_volume(caller, used.volume_id());
        let volume = used.volume().ok_or(codes::ENOENT)?;
        Ok((used, volume))
    }

    /// Returns the partition with this index, if this server has it.
    pub(crate) fn partition(&self, index: i32) -> Result<PartitionId, AbortCode> {
        let partition = u32::try_from(index).ok().and_then(PartitionId::from_index);
        let ours = partition.filter(|partition| self.volumes().partitions().contains(partition));
        ours.ok_or(AbortCode::VOLSERILLEGAL_PARTITION)
    }
}

/// Records that the call uses this volume.
pub(crate) fn note_volume(call: &CallContext<'_>, id: VolumeId) {
    call.note_volume(id);
    waits::set_volume(id.0);
}

/// Returns whether the volume is to be destroyed unless its transaction completes.
pub(crate) fn is_doomed(volume: &Volume) -> bool {
    volume.header().destroy_me == DESTROY_ME
}
