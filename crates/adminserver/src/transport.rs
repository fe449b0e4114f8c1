//! How the file server's port does.

use crate::AdminServer;
use afs_idl::cellar::GetTransportReply;
use base::AbortCode;

/// Asks the port for its counters.
pub type TransportSource = Box<dyn Fn() -> GetTransportReply + Send + Sync>;

impl AdminServer {
    /// Says whom to ask; to be called once, when the port is open.
    pub fn set_transport(&self, source: TransportSource) {
        // A second port would be somebody else's: the first stays.
        let _ = self.transport.set(source);
    }

    /// GetTransport (2).
    pub(crate) fn transport_call(&self) -> Result<GetTransportReply, AbortCode> {
        self.transport.get().map(|ask| ask()).ok_or(AbortCode::VBUSY)
    }
}
