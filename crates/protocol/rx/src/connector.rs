//! Outgoing calls: connections from a local port to a service.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afs_idl::{CallStream, ClientCall, ClientConnection};
use base::{AbortCode, Monotonic, RecvBuffer};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rx_proto::{CallId, ConnectOptions, ConnectionId, Path};
use rx_security::ClientSecurity;

use crate::call::CallHandle;
use crate::clock;
use crate::lane::{Lane, LaneState};
use crate::lanes::Lanes;

/// Maximum number of Rx connections behind one [`Connection`], each of which carries four calls at a time.
const PARALLEL_CONNECTIONS_MAX: usize = 8;

/// How often a thread that waits for a channel retries without being woken.
const CHANNEL_RETRY: Duration = Duration::from_secs(1);

/// Maximum number of unread bytes of a reply that are skipped.
const SKIPPED_BYTES_MAX: usize = 64 * 1024;

/// Makes connections from the port of a server or client. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    lanes: Arc<Lanes>,
}

impl Connector {
    pub(crate) fn new(lanes: Arc<Lanes>) -> Connector {
        Connector { lanes }
    }

    /// Returns a connection to a service; `security` of `None` is the null security class. Nothing is sent
    /// before the first call. If several addresses are bound, calls leave from the one that the route to the
    /// peer uses.
    pub fn connect(
        &self,
        peer: SocketAddr,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.connect_with(Path::to(peer), service_id, security, ConnectOptions::default())
    }

    /// Returns a connection like [`Connector::connect`], with a given local address and other timeouts.
    pub fn connect_with(
        &self,
        path: Path,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
        options: ConnectOptions,
    ) -> Arc<dyn ClientConnection> {
        let lane = Arc::clone(self.lanes.of_peer(path.remote));
        let shared = Shared {
            lane,
            path,
            service_id,
            security,
            options,
            open: Mutex::new(Vec::new()),
            channel_free: Arc::new(Condvar::new()),
        };
        Arc::new(Connection { shared: Arc::new(shared) })
    }

    /// Reports that this host has lost an address. Outgoing calls from it fail with `RX_RESTARTING`, and later
    /// calls leave from another address.
    pub fn forget_source(&self, local: IpAddr) {
        for lane in self.lanes.all() {
            lane.lock().endpoint.handle_source_gone(clock::now(), local);
            lane.flush();
        }
    }
}

/// A client's connection: as many Rx connections to one service as its concurrent calls need.
struct Connection {
    shared: Arc<Shared>,
}

/// State shared between a connection and its calls. The Rx connections are closed after the last of them.
struct Shared {
    lane: Arc<Lane>,
    path: Path,
    service_id: u16,
    security: Option<Arc<dyn ClientSecurity>>,
    options: ConnectOptions,
    /// The Rx connections. The lock is held while a call is opened, including the wait for a channel, so that
    /// other callers queue for the lock.
    open: Mutex<Vec<ConnectionId>>,
    channel_free: Arc<Condvar>,
}

impl ClientConnection for Connection {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        let call = self.shared.open_call()?;
        let handle = CallHandle::new(Arc::clone(&self.shared.lane), call);
        Ok(Box::new(OutgoingCall { handle, _connection: Arc::clone(&self.shared) }))
    }

    fn peer(&self) -> SocketAddr {
        self.shared.path.remote
    }
}

impl Shared {
    /// Takes a channel, on a new Rx connection if necessary. Waits if all allowed connections are busy.
    fn open_call(&self) -> Result<CallId, AbortCode> {
        let mut open = self.open.lock();
        loop {
            let mut state = self.lane.lock();
            state.check()?;
            if let Some(call) = self.try_open(&mut state, &mut open)? {
                return Ok(call);
            }
            self.wait(state, &open);
        }
    }

    fn try_open(
        &self,
        state: &mut LaneState,
        open: &mut Vec<ConnectionId>,
    ) -> Result<Option<CallId>, AbortCode> {
        let (now, endpoint) = (clock::now(), &mut state.endpoint);
        if let Some(call) = open.iter().find_map(|connection| endpoint.open_call(now, *connection)) {
            return Ok(Some(call));
        }
        open.retain(|connection| {
            let failed = endpoint.connection_error(*connection).is_some();
            if failed {
                endpoint.close(now, *connection);
            }
            !failed
        });
        if open.len() >= PARALLEL_CONNECTIONS_MAX {
            return Ok(None);
        }
        let (security, options) = (self.security.clone(), self.options);
        // The route to the peer may have changed since the last connection.
        let path = self.lane.with_source(self.path);
        let connection = endpoint.connect(now, path, self.service_id, security, options)?;
        open.push(connection);
        Ok(endpoint.open_call(now, connection))
    }

    fn wait(&self, state: MutexGuard<'_, LaneState>, open: &[ConnectionId]) {
        self.lane.wait_for_channel(state, open, &self.channel_free, CHANNEL_RETRY);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        let now = clock::now();
        self.open.get_mut().drain(..).for_each(|connection| state.endpoint.close(now, connection));
        drop(state);
        self.lane.flush();
    }
}

/// An outgoing call. The field order matters: the call is released before its connection.
struct OutgoingCall {
    handle: CallHandle,
    _connection: Arc<Shared>,
}

impl CallStream for OutgoingCall {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.handle.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.handle.read_chunk(max)
    }

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        self.handle.fill(rooms)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.handle.write(data)
    }
}

impl ClientCall for OutgoingCall {
    fn flush(&mut self) -> Result<(), AbortCode> {
        self.handle.flush()
    }

    fn end_request(&mut self) -> Result<(), AbortCode> {
        self.handle.end()
    }

    fn heard_at(&self) -> Option<Monotonic> {
        self.handle.heard_at()
    }

    /// Waits for the end of the reply. A few unread bytes are skipped, since newer servers may append fields;
    /// with more than that the call is aborted.
    fn finish(mut self: Box<Self>) -> Result<(), AbortCode> {
        let mut skipped = 0;
        while skipped <= SKIPPED_BYTES_MAX {
            match self.handle.read_chunk(SKIPPED_BYTES_MAX)?.len() {
                0 => return Ok(()),
                bytes => skipped += bytes,
            }
        }
        self.handle.abort(AbortCode::RXGEN_CC_UNMARSHAL);
        Err(AbortCode::RXGEN_CC_UNMARSHAL)
    }
}
