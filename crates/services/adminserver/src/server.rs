//! The service and its parts, and the calls about the server itself.

use crate::checks::Checks;
use crate::snapshots::{Keeper, SnapshotHost};
use crate::transport::TransportSource;
use crate::{Cluster, DirectoryUsage, JobKeeper};
use afs_idl::cellar::{GetServerInfoReply, GetServerInfoRequest, PartitionInfo};
use base::{AbortCode, Access, Caller, LocalAuthority, PartitionId, UnixTime};
use observe::Observed;
use std::sync::{Arc, OnceLock};
use volume::Volumes;

/// Dependencies of an [`AdminServer`].
pub struct AdminServerParts {
    /// The server's volumes.
    pub volumes: Arc<Volumes>,
    /// Decides which callers are superusers.
    pub authority: Arc<dyn LocalAuthority>,
    /// Returns the current time.
    pub clock: Arc<dyn Fn() -> UnixTime + Send + Sync>,
    /// Knows the contents of directories.
    pub usage: Arc<dyn DirectoryUsage>,
    /// Operations that snapshots need.
    pub snapshots: Arc<dyn SnapshotHost>,
    /// The server's figures.
    pub observed: Arc<dyn Observed>,
    /// Name and version of the program, like `Cellar 0.1.0`.
    pub version: String,
}

/// The service; pass it to [`afs_idl::cellar::dispatch`] to serve a call.
pub struct AdminServer {
    pub(crate) parts: AdminServerParts,
    pub(crate) checks: Checks,
    started: UnixTime,
    pub(crate) keeper: Keeper,
    pub(crate) transport: OnceLock<TransportSource>,
    pub(crate) jobs: OnceLock<Box<dyn JobKeeper>>,
    pub(crate) cluster: OnceLock<Box<dyn Cluster>>,
}

afs_idl::cellar::impl_server!(AdminServer);

impl AdminServer {
    /// Creates a service whose start time is now.
    pub fn new(parts: AdminServerParts) -> AdminServer {
        let started = (parts.clock)();
        AdminServer {
            parts,
            checks: Checks::default(),
            started,
            keeper: Keeper::default(),
            transport: OnceLock::new(),
            jobs: OnceLock::new(),
            cluster: OnceLock::new(),
        }
    }

    /// Allows `what` to superusers only, and records it in the audit log.
    ///
    /// # Errors
    /// UAEACCES for other callers.
    pub(crate) fn administer(&self, caller: &Caller, what: &str) -> Result<(), AbortCode> {
        let allowed = self.parts.authority.is_superuser(caller);
        tracing::info!(target: "audit", what, allowed, identity = %caller.identity, peer = %caller.peer);
        if allowed { Ok(()) } else { Err(AbortCode::UAEACCES) }
    }

    /// Rejects unauthenticated callers. These may only request the server's name and version, and what the
    /// file service shows them of a directory. All other calls cost more than the request, or reveal
    /// internals of the cell.
    ///
    /// # Errors
    /// UAEACCES.
    pub(crate) fn check_verified(&self, caller: &Caller) -> Result<(), AbortCode> {
        let allowed = Access::Authenticated.allows(caller, &*self.parts.authority);
        if allowed { Ok(()) } else { Err(AbortCode::UAEACCES) }
    }

    /// GetServerInfo (opcode 1). Unauthenticated callers get no partitions, since each one's free
    /// space costs a system call.
    pub(crate) fn get_server_info(
        &self,
        caller: &Caller,
        _: GetServerInfoRequest,
    ) -> Result<GetServerInfoReply, AbortCode> {
        let known =
            self.check_verified(caller).map_or_else(|_| Vec::new(), |()| self.parts.volumes.partitions());
        let partitions = known.into_iter().map(|id| self.partition_info(id));
        Ok(GetServerInfoReply {
            version: self.parts.version.as_str().into(),
            started: self.started.0,
            now: (self.parts.clock)().0,
            partitions: partitions.collect(),
        })
    }

    fn partition_info(&self, id: PartitionId) -> PartitionInfo {
        let space = self.parts.volumes.space(id).ok();
        let kib = |of: fn(volume::Space) -> u64| space.map_or(0, of);
        PartitionInfo {
            id: id.index(),
            total_kib: kib(|space| space.total_kib),
            free_kib: kib(|space| space.free_kib),
        }
    }
}
