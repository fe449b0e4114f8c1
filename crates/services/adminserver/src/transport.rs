//! State of the file server's port.

use crate::AdminServer;
use afs_idl::cellar::{GetTransportReply, GetTransportRequest};
use base::{AbortCode, Caller};

/// Returns the counters of the port.
pub type TransportSource = Box<dyn Fn() -> GetTransportReply + Send + Sync>;

impl AdminServer {
    /// Sets the source of the counters; to be called once, when the port is open.
    pub fn set_transport(&self, source: TransportSource) {
        // There is only one port; a second source is ignored.
        let _ = self.transport.set(source);
    }

    /// GetTransport (opcode 2).
    pub(crate) fn get_transport(
        &self,
        caller: &Caller,
        _: GetTransportRequest,
    ) -> Result<GetTransportReply, AbortCode> {
        self.check_verified(caller)?;
        self.transport.get().map(|ask| ask()).ok_or(AbortCode::VBUSY)
    }
}
