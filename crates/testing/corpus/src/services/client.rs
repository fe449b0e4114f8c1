//! The callback service of the file service's clients, which accepts everything.

use afs_idl::{ClientConnection, Forgetful, MemoryConnection, cb};
use base::{AbortCode, CallContext, HostUuid};
use fileserver::CallbackNetwork;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The network with all clients.
pub(super) struct Network;

impl CallbackNetwork for Network {
    fn connection(&self, peer: SocketAddr, _patience: Duration) -> Arc<dyn ClientConnection> {
        Arc::new(MemoryConnection::new(peer, 1444, move |stream| {
            let IpAddr::V4(address) = peer.ip() else { return Err(AbortCode::RX_CALL_DEAD) };
            let client = Forgetful {
                uuid: HostUuid([address.octets()[3]; 16]),
                addresses: vec![[192, 168, 7, 7].into()],
                capabilities: vec![1],
            };
            cb::dispatch(&client, &CallContext::new(&crate::idl::anonymous()), stream)
        }))
    }
}
