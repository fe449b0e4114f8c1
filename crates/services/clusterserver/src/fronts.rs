//! The way to clients that have called this owner through a front.
//!
//! Clients accept messages from every address of their file server, and all nodes are one server. But a client behind
//! a translator of addresses can only be reached from an address that it has called. So a message takes the way
//! back through the front that the client has used last, and is sent directly if that node does not answer.

use crate::counters::{Tally, count};
use crate::environment::{Nodes, Ownership};
use crate::links::Links;
use crate::wire;
use afs_idl::cluster;
use afs_idl::{CallStream, ClientCall, ClientConnection};
use base::{AbortCode, Monotonic};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long the front of a client is remembered after its last call.
const KEPT: Duration = Duration::from_secs(6 * 3600);

/// A client that does not answer through its front may have called the owner itself if it has not used the front for this
/// time.
const RECENT: Duration = Duration::from_secs(60);

/// Maximum number of clients. Beyond it all are forgotten: messages are sent directly then.
const CLIENTS_MAX: usize = 65_536;

/// Maximum size of a message or an answer.
const MESSAGE_BYTES_MAX: usize = cluster::CLIENT_CALL_MAX;

/// The fronts that clients have used.
pub struct Fronts {
    links: Links,
    ownership: Arc<dyn Ownership>,
    now: fn() -> Monotonic,
    /// The address of each client's front, and when it was used; nothing waits under the lock.
    used: Mutex<HashMap<SocketAddr, (SocketAddr, Monotonic)>>,
    pub(crate) tally: Tally,
}

impl Fronts {
    /// Creates an empty table.
    pub fn new(nodes: Arc<dyn Nodes>, ownership: Arc<dyn Ownership>, now: fn() -> Monotonic) -> Arc<Fronts> {
        let (links, used) = (Links::new(nodes), Mutex::default());
        Arc::new(Fronts { links, ownership, now, used, tally: Tally::default() })
    }

    /// Records that a client has called through the front at this address.
    pub(crate) fn met(&self, client: SocketAddr, front: SocketAddr) {
        let now = (self.now)();
        let mut used = self.used.lock();
        if used.len() >= CLIENTS_MAX && !used.contains_key(&client) {
            used.retain(|_, (_, at)| now.since(*at) < KEPT);
            if used.len() >= CLIENTS_MAX {
                used.clear();
            }
        }
        used.insert(client, (front, now));
    }

    /// Forgets that a client has used a front, which does not answer.
    fn forget(&self, client: SocketAddr, front: SocketAddr) {
        let mut used = self.used.lock();
        if used.get(&client).is_some_and(|(last, _)| *last == front) {
            used.remove(&client);
        }
    }

    /// Returns a connection to the callback service of a client: `direct`, or one through its front, or else through the
    /// node at `other` if one is given. Calls on it fail when the client has been silent for `patience`.
    pub fn connection(
        self: &Arc<Self>,
        client: SocketAddr,
        patience: Duration,
        (direct, other): (Arc<dyn ClientConnection>, Option<SocketAddr>),
    ) -> Arc<dyn ClientConnection> {
        let used = self.used.lock().get(&client).copied();
        let is_recent = used.is_some_and(|(_, at)| (self.now)().since(at) < RECENT);
        let Some(front) = used.map(|(front, _)| front).or(other) else { return direct };
        let way = ThroughFront { fronts: Arc::clone(self), front, is_recent, client, patience, direct };
        Arc::new(Through(Arc::new(way)))
    }
}

/// A connection to a client through its front.
struct Through(Arc<ThroughFront>);

struct ThroughFront {
    fronts: Arc<Fronts>,
    front: SocketAddr,
    /// Whether the client has used the front of late.
    is_recent: bool,
    client: SocketAddr,
    patience: Duration,
    direct: Arc<dyn ClientConnection>,
}

impl ThroughFront {
    fn call(&self, request: Vec<u8>) -> Result<Vec<u8>, AbortCode> {
        count(&self.fronts.tally.sent_through);
        let message = cluster::CallClientRequest {
            owner: wire::node(&self.fronts.ownership.node()),
            address: wire::ip(self.client.ip()),
            port: self.client.port().into(),
            patience_ms: u32::try_from(self.patience.as_millis()).unwrap_or(u32::MAX),
            request,
        };
        let (code, has_failed) = match cluster::call_client(&*self.fronts.links.to(self.front), &message) {
            Ok(reply) if reply.code == 0 => return Ok(reply.reply),
            Ok(reply) if self.is_recent || AbortCode(reply.code) != AbortCode::RX_CALL_DEAD => {
                return Err(AbortCode(reply.code));
            }
            Ok(reply) => (AbortCode(reply.code), false),
            Err(code) => (code, true),
        };
        tracing::info!(front = %self.front, client = %self.client, %code, "a client is not reached through its front, and \
            called directly");
        count(&self.fronts.tally.sent_directly);
        self.fronts.forget(self.client, self.front);
        match converse(&*self.direct, message.request) {
            // The client may be reachable only through the front, which failed.
            Err(AbortCode::RX_CALL_DEAD) if has_failed => Err(AbortCode::RX_RESTARTING),
            answer => answer,
        }
    }
}

/// Makes a call whose request and reply are short.
pub(crate) fn converse(connection: &dyn ClientConnection, request: Vec<u8>) -> Result<Vec<u8>, AbortCode> {
    let mut call = connection.begin()?;
    call.write(request.into())?;
    call.end_request()?;
    let mut reply = Vec::new();
    loop {
        let piece = call.read_chunk(MESSAGE_BYTES_MAX)?;
        if piece.is_empty() {
            break;
        }
        if reply.len() + piece.len() > MESSAGE_BYTES_MAX {
            return Err(AbortCode::RXGEN_CC_UNMARSHAL);
        }
        reply.extend_from_slice(&piece);
    }
    call.finish()?;
    Ok(reply)
}

impl ClientConnection for Through {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        Ok(Box::new(ThroughCall { way: Arc::clone(&self.0), request: Vec::new(), reply: Bytes::new() }))
    }

    fn peer(&self) -> SocketAddr {
        self.0.client
    }
}

struct ThroughCall {
    way: Arc<ThroughFront>,
    request: Vec<u8>,
    reply: Bytes,
}

impl CallStream for ThroughCall {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        Ok(self.reply.split_to(max.min(self.reply.len())))
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        if self.request.len() + data.len() > MESSAGE_BYTES_MAX {
            return Err(AbortCode::RXGEN_CC_MARSHAL);
        }
        self.request.extend_from_slice(&data);
        Ok(())
    }
}

impl ClientCall for ThroughCall {
    fn end_request(&mut self) -> Result<(), AbortCode> {
        self.reply = self.way.call(std::mem::take(&mut self.request))?.into();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), AbortCode> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{LeaseError, Own};
    use afs_idl::{Forgetful, MemoryConnection, cb};
    use base::{CallContext, Caller, Connection, HostUuid, Identity, SecurityLevel};
    use cluster_proto::{CallKind, Incarnation, NodeName, NodeRecord, PartitionName, Refusal, Route};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static NOW: AtomicU64 = AtomicU64::new(0);

    fn now() -> Monotonic {
        Monotonic(NOW.load(Relaxed))
    }

    struct Alone;

    impl Ownership for Alone {
        fn node(&self) -> (NodeName, Incarnation) {
            ("a".parse().unwrap(), Incarnation { nonce: 1, count: 1 })
        }

        fn partitions(&self) -> Vec<PartitionName> {
            Vec::new()
        }

        fn own(&self, _: &PartitionName) -> Option<Own> {
            None
        }

        fn route(&self, _: &PartitionName, _: CallKind, _: Duration) -> Route {
            Route::Refuse(Refusal::NoPartition)
        }

        fn hold_limit(&self) -> Duration {
            Duration::ZERO
        }

        fn lease(&self, _: &NodeName) -> Result<Option<NodeRecord>, LeaseError> {
            Err(LeaseError)
        }
    }

    /// A front that calls clients with this outcome, or cannot call them.
    #[derive(Clone, Copy)]
    struct Front(Result<AbortCode, AbortCode>);

    /// A front whose clients do not answer.
    const ALONE: Front = Front(Ok(AbortCode::RX_CALL_DEAD));

    impl cluster::Server for Front {
        fn call_client(
            &self,
            _: &CallContext<'_>,
            _: cluster::CallClientRequest,
        ) -> Result<cluster::CallClientReply, AbortCode> {
            self.0.map(|code| cluster::CallClientReply { code: code.0, reply: Vec::new() })
        }
    }

    fn address(number: u8) -> SocketAddr {
        ([192, 0, 2, number], 7001).into()
    }

    fn connection(
        serve: impl Fn(&CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode> + Send + Sync + 'static,
    ) -> Arc<dyn ClientConnection> {
        Arc::new(MemoryConnection::new(address(9), 100, move |stream| {
            let (identity, level, local) = (Identity::Anonymous, SecurityLevel::Clear, address(9).ip());
            let caller = Caller { identity, level, peer: address(8), local, connection: Connection::new() };
            serve(&CallContext::new(&caller), stream)
        }))
    }

    impl Nodes for Front {
        fn connect(&self, _: SocketAddr) -> Arc<dyn ClientConnection> {
            let front = *self;
            connection(move |call, stream| cluster::dispatch(&front, call, stream))
        }
    }

    #[test]
    fn a_client_that_has_left_its_front_is_called_directly() {
        let fronts = Fronts::new(Arc::new(ALONE), Arc::new(Alone), now);
        let probe = |client| {
            let direct =
                connection(|call, stream| cb::dispatch(&Forgetful::new(HostUuid([1; 16])), call, stream));
            let connection = fronts.connection(client, Duration::from_secs(1), (direct, None));
            cb::probe(&*connection, &cb::ProbeRequest).map(drop)
        };
        assert_eq!(probe(address(1)), Ok(()), "it has no front");
        fronts.met(address(1), address(7));
        assert_eq!(probe(address(1)), Err(AbortCode::RX_CALL_DEAD), "the front has just heard of it");
        NOW.store(61_000_000_000, Relaxed);
        assert_eq!(probe(address(1)), Ok(()), "it may have called here since");
        let counters = fronts.tally.counters();
        assert_eq!((counters.sent_through, counters.sent_directly), (2, 1));
        assert_eq!(probe(address(1)), Ok(()));
        assert_eq!(fronts.tally.counters().sent_through, 2, "the front is forgotten");
    }

    /// The outcomes of a call through a front and of one to the client itself, and what is known then.
    #[test]
    fn only_a_silent_client_is_reported_as_silent() {
        let (dead, cut_off, refused) =
            (AbortCode::RX_CALL_DEAD, AbortCode::RX_RESTARTING, AbortCode::RX_INVALID_OPERATION);
        let table = [
            (Ok(dead), Ok(()), Err(dead), "the client has just used the front"),
            (Ok(refused), Ok(()), Err(refused), "the client's answer"),
            (Err(dead), Ok(()), Ok(()), "the front is gone"),
            (Err(dead), Err(dead), Err(cut_off), "the client may be reachable through the front only"),
            (Err(cut_off), Err(dead), Err(cut_off), "the front could not call"),
            (Err(dead), Err(refused), Err(refused), "the client's answer to this node"),
        ];
        for (front, client, expected, why) in table {
            let fronts = Fronts::new(Arc::new(Front(front)), Arc::new(Alone), || Monotonic(0));
            fronts.met(address(1), address(7));
            let direct = connection(move |call, stream| {
                client?;
                cb::dispatch(&Forgetful::new(HostUuid([1; 16])), call, stream)
            });
            let connection = fronts.connection(address(1), Duration::from_secs(1), (direct, None));
            assert_eq!(cb::probe(&*connection, &cb::ProbeRequest).map(drop), expected, "{why}");
        }
    }
}
