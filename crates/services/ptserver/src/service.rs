//! The service, and what its procedures have in common.

use crate::wire::abort_code;
use base::{AbortCode, Caller, LocalAuthority, UnixTime};
use ptdb::{Actor, Protection, ProtectionError};
use std::sync::Arc;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// The protection service.
pub struct PtService {
    pub(crate) protection: Arc<Protection>,
    pub(crate) authority: Arc<dyn LocalAuthority>,
    clock: Clock,
}

afs_idl::pr::impl_server!(PtService);

impl PtService {
    /// Serves `protection`; `authority` knows the superusers and the cell's realms.
    pub fn new(protection: Arc<Protection>, authority: Arc<dyn LocalAuthority>, clock: Clock) -> PtService {
        PtService { protection, authority, clock }
    }

    /// Runs a query with the caller's rights.
    pub(crate) fn ask<T>(
        &self,
        caller: &Caller,
        ask: impl FnOnce(&Protection, &Actor) -> Result<T, ProtectionError>,
    ) -> Result<T, AbortCode> {
        let actor = self.protection.identify(caller, &*self.authority);
        actor.and_then(|actor| ask(&self.protection, &actor)).map_err(|error| abort_code(&error))
    }

    /// Runs a change with the caller's rights, and records it in the audit log.
    pub(crate) fn change<T>(
        &self,
        caller: &Caller,
        what: &'static str,
        id: i32,
        make: impl FnOnce(&Protection, &Actor, UnixTime) -> Result<T, ProtectionError>,
    ) -> Result<T, AbortCode> {
        let outcome = self.ask(caller, |protection, actor| make(protection, actor, (self.clock)()));
        let code = outcome.as_ref().err().map_or(0, |code| code.0);
        tracing::info!(target: "audit", what, id, code, identity = %caller.identity, peer = %caller.peer);
        outcome
    }
}
