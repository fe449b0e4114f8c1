//! What the service is made of, and the calls about the server itself.

use crate::checks::Checks;
use crate::snapshots::{Keeper, SnapshotHost};
use crate::transport::TransportSource;
use crate::{DirectoryUsage, JobKeeper};
use afs_idl::cellar::{GetServerInfoReply, PartitionInfo};
use base::{AbortCode, Access, Caller, LocalAuthority, PartitionId, UnixTime};
use observe::Observed;
use std::sync::{Arc, OnceLock};
use volume::Volumes;

/// What an [`AdminServer`] is made of.
pub struct AdminServerParts {
    /// The server's volumes.
    pub volumes: Arc<Volumes>,
    /// Who is trusted.
    pub authority: Arc<dyn LocalAuthority>,
    /// The time of day.
    pub clock: Arc<dyn Fn() -> UnixTime + Send + Sync>,
    /// Who knows what directories hold.
    pub usage: Arc<dyn DirectoryUsage>,
    /// What snapshots need.
    pub snapshots: Arc<dyn SnapshotHost>,
    /// What the server counts.
    pub observed: Arc<dyn Observed>,
    /// What the program calls itself, like `Cellar 0.1.0`.
    pub version: String,
}

/// The service; [`afs_idl::cellar::dispatch`] serves a call with it.
pub struct AdminServer {
    pub(crate) parts: AdminServerParts,
    pub(crate) checks: Checks,
    started: UnixTime,
    pub(crate) keeper: Keeper,
    pub(crate) transport: OnceLock<TransportSource>,
    pub(crate) jobs: OnceLock<Box<dyn JobKeeper>>,
}

impl AdminServer {
    /// A service that started now.
    pub fn new(parts: AdminServerParts) -> AdminServer {
        let started = (parts.clock)();
        AdminServer {
            parts,
            checks: Checks::default(),
            started,
            keeper: Keeper::default(),
            transport: OnceLock::new(),
            jobs: OnceLock::new(),
        }
    }

    /// Lets a superuser do `what`, and notes it for the audit.
    ///
    /// # Errors
    /// UAEACCES for anybody else.
    pub(crate) fn administer(&self, caller: &Caller, what: &str) -> Result<(), AbortCode> {
        let allowed = self.parts.authority.is_superuser(caller);
        tracing::info!(target: "audit", what, allowed, identity = %caller.identity, peer = %caller.peer);
        if allowed { Ok(()) } else { Err(AbortCode::UAEACCES) }
    }

    /// Refuses callers that have not authenticated. They may ask what server this is, and for what the file service
    /// shows them of a directory; everything else costs more than the question, or is the cell's own business.
    ///
    /// # Errors
    /// UAEACCES.
    pub(crate) fn check_verified(&self, caller: &Caller) -> Result<(), AbortCode> {
        let allowed = Access::Authenticated.allows(caller, &*self.parts.authority);
        if allowed { Ok(()) } else { Err(AbortCode::UAEACCES) }
    }

    /// GetServerInfo (1). Anonymous callers get no partitions: their room is asked of the system for each.
    pub(crate) fn server_info(&self, caller: &Caller) -> GetServerInfoReply {
        let known =
            self.check_verified(caller).map_or_else(|_| Vec::new(), |()| self.parts.volumes.partitions());
        let partitions = known.into_iter().map(|id| self.partition_info(id));
        GetServerInfoReply {
            version: self.parts.version.as_str().into(),
            started: self.started.0,
            now: (self.parts.clock)().0,
            partitions: partitions.collect(),
        }
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
