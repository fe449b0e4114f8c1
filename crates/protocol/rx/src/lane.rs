//! A lane: one thread, its sockets, and the endpoint with the connections of its peers.
//!
//! The lane's thread receives, feeds the endpoint and wakes the threads that wait for a call. Any other
//! thread that works on a call locks the endpoint itself, and sends the resulting datagrams itself, so that
//! data is never handed over between threads.
//!
//! Datagrams must leave in the order in which the endpoint returned them, or peers take them for lost. They
//! should not be sent under the endpoint's lock, however, since sending takes most of the time. A second lock
//! therefore guards sending: its holder takes datagrams from the endpoint in batches and sends them with the
//! endpoint unlocked. A thread that finds it held sets a flag, which the holder checks after releasing it
//! ([`Lane::flush`]).
//!
//! Lock order: `sending`, then `state`, then a connection's list or the call queue.

mod arrivals;
mod sender;
mod short;
mod turn;

pub(crate) use arrivals::{Arrivals, Arrived, Displaced, Load, NoArrivals};

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::{AbortCode, Caller, Monotonic};
use bytes::Bytes;
use crossbeam::queue::ArrayQueue;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rx_proto::{CallId, ConnectionId, Endpoint, Event, Path, Read};
use waits::{Lock, LockName};

use crate::clock;
use crate::idle::IdleTime;
use crate::lanes::Lanes;
use crate::notice::Notice;
use crate::socket::{Datagrams, LaneSocket, usual_source};
use crate::stall::{STALL_AFTER, Stall};
use crate::statistics::{LaneCounters, LaneStatistics};
use crate::waker::Waker;
use arrivals::FIRST_PACKETS;
use sender::Sending;

/// Maximum number of receives from other lanes in the inbox.
const INBOX_RECEIVES: usize = 1024;

/// Maximum number of calls per turn that the lane's thread tries to answer itself.
const SHORT_MAX: usize = 64;

/// Maximum number of network notices from other lanes in the inbox.
const INBOX_NOTICES: usize = 64;

/// A lane; see the module documentation.
pub(crate) struct Lane {
    index: usize,
    /// Number of lanes of the port.
    lanes: usize,
    /// All lanes of the port; unset until [`Lane::introduce`].
    siblings: OnceLock<Weak<Lanes>>,
    sockets: Vec<LaneSocket>,
    arrivals: Arc<dyn Arrivals>,
    state: Lock<LaneState>,
    /// Held while sending; guards the memory needed for it.
    sending: Mutex<Sending>,
    /// Whether a thread wanted to send while `sending` was held.
    send_wanted: AtomicBool,
    /// Latest time until which the thread sleeps, in nanoseconds; 0 while it is awake.
    sleeping_until: AtomicU64,
    waker: Waker,
    inbox: ArrayQueue<Datagrams>,
    notices: ArrayQueue<Notice>,
    stopped: AtomicBool,
    counters: LaneCounters,
    idle: IdleTime,
    /// Pause after each received batch, only for tests of slow lanes.
    pause: Duration,
}

/// State under the lane's lock.
pub(crate) struct LaneState {
    /// The protocol state.
    pub(crate) endpoint: Endpoint,
    lane: usize,
    /// Threads that wait for an event of a call. One whose entry is removed is to be woken.
    waiting_calls: HashMap<CallId, Arc<Condvar>>,
    /// Threads that wait for a free channel. One whose entry is removed is to be woken.
    waiting_channels: HashMap<ConnectionId, Arc<Condvar>>,
    /// Threads to wake once the lock is released. A thread that is woken under the lock may be given it before it runs,
    /// and everyone else waits until then.
    woken: Vec<Arc<Condvar>>,
    /// Server calls that have arrived and are not released yet.
    serving: HashSet<CallId>,
    /// Arrived calls with complete requests, which the lane's thread may answer itself.
    short: Vec<Arrived>,
    /// Calls of other lanes to refuse after the lock is released.
    displaced: Vec<Displaced>,
    /// The code with which every operation fails, once set by [`Lane::refuse`].
    refusing: Option<AbortCode>,
}

impl Lane {
    /// Creates lane number `index` of `lanes`.
    pub(crate) fn new(
        (index, lanes): (usize, usize),
        sockets: Vec<LaneSocket>,
        endpoint: Endpoint,
        arrivals: Arc<dyn Arrivals>,
        pause: Duration,
    ) -> io::Result<Lane> {
        let state = LaneState {
            endpoint,
            lane: index,
            waiting_calls: HashMap::new(),
            waiting_channels: HashMap::new(),
            woken: Vec::new(),
            serving: HashSet::new(),
            short: Vec::new(),
            displaced: Vec::new(),
            refusing: None,
        };
        Ok(Lane {
            index,
            lanes,
            siblings: OnceLock::new(),
            sockets,
            arrivals,
            state: Lock::new(LockName::Lane, state),
            sending: Mutex::new(Sending::default()),
            send_wanted: AtomicBool::new(false),
            sleeping_until: AtomicU64::new(0),
            waker: Waker::new()?,
            inbox: ArrayQueue::new(INBOX_RECEIVES),
            notices: ArrayQueue::new(INBOX_NOTICES),
            stopped: AtomicBool::new(false),
            counters: LaneCounters::default(),
            idle: IdleTime::default(),
            pause,
        })
    }

    /// Sets the lanes of the port. Called once, before the lane's thread starts.
    pub(crate) fn introduce(&self, lanes: &Arc<Lanes>) {
        let fresh = self.siblings.set(Arc::downgrade(lanes)).is_ok();
        assert!(fresh, "a lane was registered twice");
    }

    /// Returns the sockets: one per bound address, and those that are only read.
    pub(crate) fn sockets(&self) -> &[LaneSocket] {
        &self.sockets
    }

    /// Locks the endpoint. After changing it, release the lock and call [`Lane::flush`].
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock()
    }

    /// Adds the source address to a path if several sockets serve it.
    pub(crate) fn with_source(&self, path: Path) -> Path {
        if path.local.is_some() || self.sockets.iter().filter(|socket| socket.serves(&path)).count() < 2 {
            return path;
        }
        let routed = Path { local: usual_source(path.remote), ..path };
        if self.sockets.iter().any(|socket| socket.serves(&routed)) { routed } else { path }
    }

    /// Releases the lock and waits until [`LaneState::dispatch_events`] has an event for `call`. To be called
    /// after the endpoint returned `Blocked` under the same lock acquisition.
    pub(crate) fn wait_for_call<'a>(
        &'a self,
        mut state: MutexGuard<'a, LaneState>,
        call: CallId,
        condvar: &Arc<Condvar>,
    ) {
        state.waiting_calls.insert(call, Arc::clone(condvar));
        drop(state);
        // Opens the peer's window, or sends the packets that fill the local one.
        self.flush();
        let mut state = self.lock();
        let waits = |state: &LaneState| state.refusing.is_none() && state.waiting_calls.contains_key(&call);
        while waits(&state) && !condvar.wait_for(&mut state, STALL_AFTER).timed_out() {}
        if waits(&state) {
            let _stall = Stall::begin();
            while waits(&state) {
                condvar.wait(&mut state);
            }
        }
        state.waiting_calls.remove(&call);
    }

    /// Releases the lock and waits for a free channel of one of `connections`, at most for `limit`. Only one
    /// thread may wait for any of them at a time.
    pub(crate) fn wait_for_channel<'a>(
        &'a self,
        mut state: MutexGuard<'a, LaneState>,
        connections: &[ConnectionId],
        condvar: &Arc<Condvar>,
        limit: Duration,
    ) {
        for connection in connections {
            state.waiting_channels.insert(*connection, Arc::clone(condvar));
        }
        drop(state);
        self.flush();
        let mut state = self.lock();
        let waits = connections.iter().all(|connection| state.waiting_channels.contains_key(connection));
        if state.refusing.is_none() && waits {
            condvar.wait_for(&mut state, limit);
        }
        for connection in connections {
            state.waiting_channels.remove(connection);
        }
    }

    /// Closes every outgoing connection, and makes every later operation fail with `code`, except to end a call. A served
    /// call ends with its result, and with `code` if its service waits for the client or fails.
    pub(crate) fn refuse(&self, code: AbortCode) {
        let mut state = self.lock();
        state.refusing = Some(code);
        let LaneState { endpoint, waiting_calls, waiting_channels, woken, .. } = &mut *state;
        endpoint.close_all(clock::now());
        woken.extend(waiting_calls.drain().map(|(_, condvar)| condvar));
        woken.extend(waiting_channels.drain().map(|(_, condvar)| condvar));
        self.unlock(state);
        self.flush();
    }

    /// Whether a call has not ended, or its reply is still being delivered.
    pub(crate) fn is_delivering(&self) -> bool {
        let state = self.lock();
        state.is_serving() || state.endpoint.replies_under_way() > 0
    }

    /// Aborts the calls that have not ended.
    pub(crate) fn abort_left(&self, code: AbortCode) {
        let LaneState { endpoint, serving, .. } = &mut *self.lock();
        let now = clock::now();
        for call in serving.iter() {
            endpoint.abort(now, *call, code);
        }
    }

    /// Makes the lane's thread end.
    pub(crate) fn stop(&self) {
        self.flush();
        self.stopped.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Returns the current counters.
    pub(crate) fn statistics(&self) -> LaneStatistics {
        let kernel_drops = self.sockets.iter().map(|socket| u64::from(socket.kernel_drops())).sum();
        let idle_ns = self.idle.until(clock::now());
        LaneStatistics { kernel_drops, idle_ns, ..self.counters.snapshot() }
    }
}

impl LaneState {
    /// Fails if the lane is refusing work.
    pub(crate) fn check(&self) -> Result<(), AbortCode> {
        self.refusing.map_or(Ok(()), Err)
    }

    /// Whether any server call has arrived and is not released yet.
    pub(crate) fn is_serving(&self) -> bool {
        !self.serving.is_empty()
    }

    /// Releases a call.
    pub(crate) fn release(&mut self, call: CallId) {
        self.serving.remove(&call);
        self.endpoint.release(clock::now(), call);
    }

    fn handle_timers(&mut self, now: Monotonic, arrivals: &dyn Arrivals) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.set_load(arrivals.load());
    }

    fn set_load(&mut self, load: Load) {
        self.endpoint.set_waiting_calls(load.waiting);
        self.endpoint.set_waited_calls(load.waited);
        self.endpoint.set_idle_workers(load.idle);
    }

    /// Processes the endpoint's events, and returns whether there were any. `now` is the time at which their
    /// causes arrived.
    fn dispatch_events(&mut self, now: Monotonic, arrivals: &dyn Arrivals) -> bool {
        let mut happened = false;
        while let Some(event) = self.endpoint.poll_event() {
            happened = true;
            match event {
                Event::CallArrived { call, service_id, caller, .. } => {
                    self.arrive(now, arrivals, call, service_id, caller);
                }
                Event::Readable(call)
                | Event::Writable(call)
                | Event::Ended(call)
                | Event::Failed(call, _) => {
                    self.woken.extend(self.waiting_calls.remove(&call));
                }
                Event::PathIsShort { remote, packet_bytes } => {
                    tracing::warn!(
                        host = %remote.ip(),
                        packet_bytes,
                        "the path to this host silently drops longer packets; sending shorter ones"
                    );
                }
                Event::ChannelFree(connection) | Event::ConnectionFailed(connection, _) => {
                    self.woken.extend(self.waiting_channels.remove(&connection));
                }
            }
        }
        happened
    }

    fn arrive(
        &mut self,
        at: Monotonic,
        arrivals: &dyn Arrivals,
        call: CallId,
        service_id: u16,
        caller: Caller,
    ) {
        let (request, is_whole) = self.read_first(call, at);
        let arrived = Arrived { lane: self.lane, call, service_id, caller, request, is_whole, at };
        if arrived.whole_request().is_some() && self.refusing.is_none() && self.short.len() < SHORT_MAX {
            self.short.push(arrived);
        } else {
            self.hand_on(arrivals, arrived);
        }
    }

    /// Reads the beginning of a call, enough to tell whether the request is a single packet.
    fn read_first(&mut self, call: CallId, now: Monotonic) -> ([Bytes; FIRST_PACKETS], bool) {
        let mut read = [const { Bytes::new() }; FIRST_PACKETS];
        let mut places = read.iter_mut();
        let after = self.endpoint.read_some(now, call, FIRST_PACKETS, |body| {
            if let Some(place) = places.next() {
                *place = body;
            }
        });
        (read, after == Some(Read::End))
    }

    fn hand_on(&mut self, arrivals: &dyn Arrivals, arrived: Arrived) {
        let call = arrived.call;
        match self.check().and_then(|()| arrivals.take(arrived)) {
            Ok(displaced) => {
                self.serving.insert(call);
                match displaced {
                    Some(Displaced { lane, call, code }) if lane == self.lane => {
                        self.serving.remove(&call);
                        self.refuse_call(call, code);
                    }
                    other => self.displaced.extend(other),
                }
            }
            Err(code) => self.refuse_call(call, code),
        }
    }

    fn refuse_call(&mut self, call: CallId, code: AbortCode) {
        let now = clock::now();
        self.endpoint.abort(now, call, code);
        self.endpoint.release(now, call);
    }
}
