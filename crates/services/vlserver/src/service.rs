//! The service, and what its procedures have in common.

use crate::conflicts::Neighbours;
use crate::statistics::Statistics;
use crate::wire::abort_code;
use afs_idl::vl;
use base::{AbortCode, Access, Caller, LocalAuthority, UnixTime};
use std::sync::Arc;
use vldb::{LocationError, Locations};

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// Settings of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Callers that may list entries and read statistics (`-restricted_query`). Single entries and addresses,
    /// which cache managers need, are available to everyone.
    pub queries: Access,
}

/// The volume location service.
pub struct VlService {
    pub(crate) locations: Arc<Locations>,
    authority: Arc<dyn LocalAuthority>,
    settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) statistics: Statistics,
    pub(crate) neighbours: Option<Arc<dyn Neighbours>>,
}

vl::impl_server!(VlService);

impl VlService {
    /// Serves `locations`; `authority` decides which callers may change them.
    pub fn new(
        locations: Arc<Locations>,
        authority: Arc<dyn LocalAuthority>,
        settings: Settings,
        clock: Clock,
    ) -> VlService {
        let statistics = Statistics::new(clock());
        VlService { locations, authority, settings, clock, statistics, neighbours: None }
    }

    /// Makes the service probe the cell's file servers before a registration takes addresses from one of
    /// them.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: Arc<dyn Neighbours>) -> VlService {
        self.neighbours = Some(neighbours);
        self
    }

    /// Handles a call that is open to everyone.
    pub(crate) fn ask<T>(
        &self,
        opcode: u32,
        ask: impl FnOnce(&Locations) -> Result<T, LocationError>,
    ) -> Result<T, AbortCode> {
        self.statistics.count(opcode, || ask(&self.locations).map_err(|error| abort_code(&error)))
    }

    /// Handles a call that lists entries, which may be restricted.
    pub(crate) fn list<T>(
        &self,
        caller: &Caller,
        opcode: u32,
        ask: impl FnOnce(&Locations) -> Result<T, LocationError>,
    ) -> Result<T, AbortCode> {
        self.statistics.count(opcode, || {
            self.check_query(caller)?;
            ask(&self.locations).map_err(|error| abort_code(&error))
        })
    }

    /// Handles a call that changes something: for superusers only, and recorded in the audit log.
    pub(crate) fn change<T>(
        &self,
        caller: &Caller,
        opcode: u32,
        make: impl FnOnce(&Locations) -> Result<T, LocationError>,
    ) -> Result<T, AbortCode> {
        let outcome = self.statistics.count(opcode, || {
            self.check_superuser(caller)?;
            make(&self.locations).map_err(|error| abort_code(&error))
        });
        let what = vl::procedure_name(opcode);
        let code = outcome.as_ref().err().map_or(0, |code| code.0);
        tracing::info!(target: "audit", what, code, identity = %caller.identity, peer = %caller.peer);
        outcome
    }

    pub(crate) fn check_superuser(&self, caller: &Caller) -> Result<(), AbortCode> {
        if self.authority.is_superuser(caller) { Ok(()) } else { Err(AbortCode::VL_PERM) }
    }

    /// Rejects callers that may not list entries.
    pub(crate) fn check_query(&self, caller: &Caller) -> Result<(), AbortCode> {
        let allowed = self.settings.queries.allows(caller, &*self.authority);
        if allowed { Ok(()) } else { Err(AbortCode::VL_PERM) }
    }
}
