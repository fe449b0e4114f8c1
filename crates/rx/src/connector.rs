//! Calling others: connections from a port of ours to a service.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afs_idl::{CallStream, ClientCall, ClientConnection};
use base::{AbortCode, Room};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rx_proto::{CallId, ConnectOptions, ConnectionId, Path};
use rx_security::ClientSecurity;

use crate::call::CallHandle;
use crate::clock;
use crate::lane::{Lane, LaneState};
use crate::lanes::Lanes;

/// Rx connections that stand behind one [`Connection`], and so, times four, calls at a time.
const PARALLEL_CONNECTIONS_MAX: usize = 8;

/// How often who waits for a channel asks again unbidden.
const CHANNEL_RETRY: Duration = Duration::from_secs(1);

/// Bytes of a reply that are skipped if its reader did not want them.
const SKIPPED_BYTES_MAX: usize = 64 * 1024;

/// Makes connections that use a server's or a client's port. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    lanes: Arc<Lanes>,
}

impl Connector {
    pub(crate) fn new(lanes: Arc<Lanes>) -> Connector {
        Connector { lanes }
    }

    /// A connection to a service; `None` is the null security class. Nothing is sent before the
    /// first call. Of several addresses that are bound, calls leave from the one on the way to the peer.
    pub fn connect(
        &self,
        peer: SocketAddr,
        service_id: u16,
        security: Option<Arc<dyn ClientSecurity>>,
    ) -> Arc<dyn ClientConnection> {
        self.connect_with(Path::to(peer), service_id, security, ConnectOptions::default())
    }

    /// The same, from a certain address of this host and with other limits on time.
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

    /// The machine has lost an address: what was to be answered there fails with `RX_CALL_DEAD`, and later calls
    /// leave from another address.
    pub fn forget_source(&self, local: IpAddr) {
        for lane in self.lanes.all() {
            lane.lock().endpoint.handle_source_gone(clock::now(), local);
            lane.flush();
        }
    }
}

/// A connection of a client: as many Rx connections to one service as its calls need.
struct Connection {
    shared: Arc<Shared>,
}

/// What a connection shares with its calls: it is closed after the last of them.
struct Shared {
    lane: Arc<Lane>,
    path: Path,
    service_id: u16,
    security: Option<Arc<dyn ClientSecurity>>,
    options: ConnectOptions,
    /// The Rx connections. Held by who begins a call, also while he waits for a channel: the others
    /// stand in line for the lock.
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
    /// Takes a channel, of a new Rx connection if need be; waits if there may be no more of them.
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
        // The way to the peer may have changed since the last one.
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

/// A call to somebody. Fields are dropped in this order: the call is released first.
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

    fn fill(&mut self, rooms: &mut VecDeque<Room>) -> Result<Room, AbortCode> {
        self.handle.fill(rooms)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.handle.write(data)
    }
}

impl ClientCall for OutgoingCall {
    fn end_request(&mut self) -> Result<(), AbortCode> {
        self.handle.end()
    }

    /// Waits for the reply's end. A little that the reader left over is skipped, as newer servers
    /// may say more; a call with more than that is aborted.
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
