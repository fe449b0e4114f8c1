//! The server: what it works with, who may use it, and what it does from time to time.

use crate::apart;
use crate::codes;
use crate::forwarding::OtherServers;
use crate::splitting;
use crate::transactions::{Expired, IDLE_SECONDS_MAX, Transactions, Use};
use crate::transfers::Transfers;
use afs_idl::cellar::TransferInfo;
use base::{AbortCode, Access, Caller, Identity, PartitionId, UnixTime, VolumeId};
use std::sync::Arc;
use tracing::{info, warn};
use volume::{Volume, Volumes};

/// Mark of a volume that is to be destroyed unless its transaction ends well (DESTROY_ME).
pub(crate) const DESTROY_ME: u8 = 0xd3;

/// Who may change volumes.
pub trait Administrators: Send + Sync {
    /// Whether the caller is in UserList or holds the cell's key.
    fn is_administrator(&self, caller: &Caller) -> bool;
}

/// The file server, as far as it must learn what happens to volumes.
pub trait FileService: Send + Sync {
    /// The volume was deleted, or was offline and may have changed: promises about it are void.
    fn volume_changed(&self, volume: VolumeId);

    /// `volume` goes to another server: clients are to look it up from now on, also when it is here no more.
    fn volume_moved(&self, volume: VolumeId);
}

/// What a [`VolumeServer`] is made of.
pub struct VolumeServerParts {
    /// The volumes.
    pub volumes: Arc<Volumes>,
    /// Who may change them.
    pub administrators: Arc<dyn Administrators>,
    /// Who must hear of changes.
    pub file_service: Arc<dyn FileService>,
    /// Tells the time.
    pub clock: Arc<dyn Fn() -> UnixTime + Send + Sync>,
}

/// The volume service; `afs_idl::vol::dispatch` serves a call with it. Call
/// [`delete_unfinished`](VolumeServer::delete_unfinished) once before serving, and
/// [`expire_transactions`](VolumeServer::expire_transactions) every half minute.
pub struct VolumeServer {
    parts: VolumeServerParts,
    transactions: Transactions,
    other_servers: Option<Arc<dyn OtherServers>>,
    transfers: Transfers,
    idle_seconds_max: u32,
    queries: Access,
}

impl VolumeServer {
    /// A server without transactions.
    pub fn new(parts: VolumeServerParts) -> VolumeServer {
        let transactions = Transactions::new(Arc::clone(&parts.clock), Arc::clone(&parts.file_service));
        VolumeServer {
            parts,
            transactions,
            other_servers: None,
            transfers: Transfers::default(),
            idle_seconds_max: IDLE_SECONDS_MAX,
            queries: Access::Anyone,
        }
    }

    /// The same server, with these callers allowed to list volumes, partitions and transactions (`-restricted_query`).
    #[must_use]
    pub fn with_queries(self, queries: Access) -> VolumeServer {
        VolumeServer { queries, ..self }
    }

    /// The same server, which ends transactions that nobody has used for longer than these seconds. Clients pause
    /// between two calls, as long as they wait for a location server that does not answer.
    #[must_use]
    pub fn with_idle_seconds_max(self, idle_seconds_max: u32) -> VolumeServer {
        VolumeServer { idle_seconds_max, ..self }
    }

    /// The same server with a way to others, which Forward and ForwardMultiple need.
    #[must_use]
    pub fn with_other_servers(self, others: Arc<dyn OtherServers>) -> VolumeServer {
        VolumeServer { other_servers: Some(others), ..self }
    }

    pub(crate) fn other_servers(&self) -> Option<&dyn OtherServers> {
        self.other_servers.as_deref()
    }

    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// What is and was sent within its transactions, as ListTransfers tells.
    pub fn sent(&self) -> Vec<TransferInfo> {
        self.transfers.list()
    }

    /// Deletes volumes that were left over when the program ended within the transactions that were
    /// making them; lets those that are whole take the place of one on another partition that was deleted
    /// just before. Returns how many were deleted.
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

    /// Ends transactions that nobody has used for [`IDLE_SECONDS_MAX`] or what was
    /// [set](VolumeServer::with_idle_seconds_max), and deletes the volumes that they were making. Returns how many were ended.
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
            warn!(%error, "what came of former transfers is kept for longer than it should be");
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

    /// Does something while nobody can open a transaction on the volume.
    ///
    /// # Errors
    /// VOLSERVOLBUSY if there is a transaction, VOLSERNO_MEMORY if there are too many; what `work` answers.
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

    /// Refuses callers that are not administrators, and writes down what the others do.
    pub(crate) fn administer(&self, caller: &Caller, what: &str) -> Result<(), AbortCode> {
        let allowed = self.parts.administrators.is_administrator(caller);
        info!(target: "audit", what, allowed, identity = %caller.identity, peer = %caller.peer);
        if allowed { Ok(()) } else { Err(AbortCode::VOLSERBAD_ACCESS) }
    }

    /// The same as [`administer`](VolumeServer::administer) for calls that are too many to be written down.
    pub(crate) fn administer_quietly(&self, caller: &Caller, what: &str) -> Result<(), AbortCode> {
        if self.parts.administrators.is_administrator(caller) {
            Ok(())
        } else {
            self.administer(caller, what)
        }
    }

    /// The transaction of this number and its volume, for one call of an administrator.
    pub(crate) fn change(
        &self,
        caller: &Caller,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(Use<'_>, Arc<Volume>), AbortCode> {
        self.administer(caller, procedure)?;
        self.look(transaction, procedure)
    }

    /// The same as [`change`](VolumeServer::change) for calls that are too many to be written down.
    pub(crate) fn change_quietly(
        &self,
        caller: &Caller,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(Use<'_>, Arc<Volume>), AbortCode> {
        self.administer_quietly(caller, procedure)?;
        self.look(transaction, procedure)
    }

    /// Refuses callers that may not query volumes.
    pub(crate) fn check_query(&self, caller: &Caller) -> Result<(), AbortCode> {
        let allowed = match self.queries {
            Access::Anyone => true,
            Access::Authenticated => matches!(caller.identity, Identity::Known(_)),
            Access::Administrators => self.parts.administrators.is_administrator(caller),
        };
        if allowed { Ok(()) } else { Err(AbortCode::VOLSERBAD_ACCESS) }
    }

    /// The flags and the volume of the transaction of this number, for a call that changes nothing. Only administrators,
    /// who alone open transactions, keep one alive by that; otherwise anyone who guesses a number could keep a volume
    /// locked.
    pub(crate) fn query(
        &self,
        caller: &Caller,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(i32, Arc<Volume>), AbortCode> {
        self.check_query(caller)?;
        if !self.parts.administrators.is_administrator(caller) {
            return self.transactions.observe(transaction).ok_or(codes::ENOENT);
        }
        let (used, volume) = self.look(transaction, procedure)?;
        Ok((used.flags(), volume))
    }

    /// The transaction of this number and its volume, for one call.
    pub(crate) fn look(
        &self,
        transaction: i32,
        procedure: &'static str,
    ) -> Result<(Use<'_>, Arc<Volume>), AbortCode> {
        let used = self.transactions.enter(transaction, procedure).ok_or(codes::ENOENT)?;
        let volume = used.volume().ok_or(codes::ENOENT)?;
        Ok((used, volume))
    }

    /// The partition of this number, if it is one of this server's.
    pub(crate) fn partition(&self, index: i32) -> Result<PartitionId, AbortCode> {
        let partition = u32::try_from(index).ok().and_then(PartitionId::from_index);
        let ours = partition.filter(|partition| self.volumes().partitions().contains(partition));
        ours.ok_or(AbortCode::VOLSERILLEGAL_PARTITION)
    }
}

/// Whether the volume is to be destroyed unless its transaction ends well.
pub(crate) fn is_doomed(volume: &Volume) -> bool {
    volume.header().destroy_me == DESTROY_ME
}
