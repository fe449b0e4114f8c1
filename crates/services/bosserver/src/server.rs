//! The service; its procedures are in the modules for what they are about.

use crate::overseer::Overseer;
use base::{AbortCode, Caller};
use std::sync::Arc;
use tracing::info;

/// The service; pass it to [`afs_idl::bozo::dispatch`] to serve a call.
pub struct BosServer {
    pub(crate) overseer: Arc<dyn Overseer>,
}

afs_idl::bozo::impl_server!(BosServer);

impl BosServer {
    /// Creates a service for `overseer`.
    pub fn new(overseer: Arc<dyn Overseer>) -> BosServer {
        BosServer { overseer }
    }

    /// Returns the overseer if the caller is an administrator, and records `what` in the audit log.
    pub(crate) fn administer(&self, caller: &Caller, what: &str) -> Result<&dyn Overseer, AbortCode> {
        let allowed = self.overseer.is_administrator(caller);
        info!(target: "audit", what, allowed, identity = %caller.identity, peer = %caller.peer);
        if allowed { Ok(&*self.overseer) } else { Err(AbortCode::BZACCESS) }
    }
}
