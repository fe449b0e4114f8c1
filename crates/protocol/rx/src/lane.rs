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

use std::collections::{HashMap, HashSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::{AbortCode, Caller, Monotonic};
use bytes::Bytes;
use crossbeam::queue::ArrayQueue;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rx_proto::{CallId, ConnectionId, Endpoint, Event, Path, Read, Transmit};
use waits::{Lock, LockName};

use crate::call::CallHandle;
use crate::clock;
use crate::gather::Gather;
use crate::idle::IdleTime;
use crate::lanes::Lanes;
use crate::notice::Notice;
use crate::socket::{Datagrams, LaneSocket, Receiver, usual_source};
use crate::stall::{STALL_AFTER, Stall};
use crate::statistics::{LaneCounters, LaneStatistics};
use crate::steering::lane_of;
use crate::sys::{self, Interest};
use crate::waker::Waker;

/// Maximum number of datagrams handled per acquisition of the endpoint's lock.
const HANDLE_DATAGRAMS: usize = 64;

/// Maximum number of transmits taken from the endpoint per lock acquisition.
const BATCH_TRANSMITS: usize = 16;

/// Maximum number of batches that a thread sends before it returns to its own work.
const LANE_BATCHES: usize = 4;
const WORKER_BATCHES: usize = 64;

/// Maximum number of receives from other lanes in the inbox.
const INBOX_RECEIVES: usize = 1024;

/// Packets of a call read before it is served: the first, and a second to detect longer requests.
const FIRST_PACKETS: usize = 2;

/// Minimum number of receives, or of calls to answer, that are prefetched before the first is handled.
const LOOK_AHEAD_MIN: usize = 3;

/// Maximum number of calls per turn that the lane's thread tries to answer itself.
const SHORT_MAX: usize = 64;

/// Maximum number of network notices from other lanes in the inbox.
const INBOX_NOTICES: usize = 64;

/// After activity the lane's sleeps are short for a while, so that timers that workers start (a
/// retransmission in 300 ms, say) need not wake it. Both values only save wake-ups.
const LINGER: Duration = Duration::from_millis(100);
const LINGER_SLEEP: Duration = Duration::from_millis(10);

/// Shorter sleeps do not count: something had arrived before they started.
const SLEEP_MIN: Duration = Duration::from_micros(3);

/// Longest sleep, so that a lost wake-up causes a delay and not a deadlock.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// Receiver of the calls that arrive.
pub(crate) trait Arrivals: Send + Sync {
    /// Accepts a call, or returns the code to abort it with. Returns the call evicted to make room, if any.
    /// Called under the lane's lock.
    fn take(&self, call: Arrived) -> Result<Option<Displaced>, AbortCode>;

    /// Returns the reply to a completely read request if its service has one without waiting for anything.
    /// Called by the lane's thread, without its lock.
    fn try_answer(&self, _call: &Arrived) -> Option<Bytes> {
        None
    }

    /// Prefetches for several calls that will be answered next, if there are very many clients; see
    /// [`Service::prefetch`](crate::Service::prefetch).
    fn prefetch(&self, _calls: &[Arrived]) {}

    /// Returns the load for rxdebug: waiting calls, calls that ever waited, idle workers.
    fn load(&self) -> Load;
}

/// A call, possibly of another lane, that was accepted but is refused after all.
#[derive(Debug)]
pub(crate) struct Displaced {
    pub(crate) lane: usize,
    pub(crate) call: CallId,
    pub(crate) code: AbortCode,
}

/// See [`Arrivals::load`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) waiting: usize,
    pub(crate) waited: u64,
    pub(crate) idle: usize,
}

/// A call that no worker has taken yet.
pub(crate) struct Arrived {
    pub(crate) lane: usize,
    pub(crate) call: CallId,
    pub(crate) service_id: u16,
    pub(crate) caller: Caller,
    /// Data read so far: up to two packets, in order; unused entries are empty.
    pub(crate) request: [Bytes; FIRST_PACKETS],
    /// Whether the request has been read completely.
    pub(crate) is_whole: bool,
    /// Arrival time.
    pub(crate) at: Monotonic,
}

impl Arrived {
    /// Returns the request if it has been read completely and is a single packet.
    pub(crate) fn whole_request(&self) -> Option<&[u8]> {
        let [packet, next] = &self.request;
        (self.is_whole && !packet.is_empty() && next.is_empty()).then_some(packet)
    }
}

/// Receives no calls, for endpoints that only make outgoing ones.
pub(crate) struct NoArrivals;

impl Arrivals for NoArrivals {
    fn take(&self, _call: Arrived) -> Result<Option<Displaced>, AbortCode> {
        Err(AbortCode::RX_INVALID_OPERATION)
    }

    fn load(&self) -> Load {
        Load::default()
    }
}

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

/// Buffers of the sending thread, kept for the next one.
#[derive(Default)]
struct Sending {
    batch: Vec<Transmit>,
    gather: Gather<'static>,
}

/// State under the lane's lock.
pub(crate) struct LaneState {
    /// The protocol state.
    pub(crate) endpoint: Endpoint,
    lane: usize,
    /// Threads that wait for an event of a call. Removing an entry wakes its thread.
    waiting_calls: HashMap<CallId, Arc<Condvar>>,
    /// Threads that wait for a free channel. Removing an entry wakes its thread.
    waiting_channels: HashMap<ConnectionId, Arc<Condvar>>,
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

    /// Processes the endpoint's output after it was used: events, datagrams and timers.
    pub(crate) fn flush(&self) {
        if !self.flush_some(WORKER_BATCHES) {
            // Other threads keep the endpoint busy, and this one has its own work to do.
            self.waker.wake();
        }
    }

    /// Requests a flush. The caller must then call [`Lane::flush_if_wanted`], unless another thread flushes
    /// first.
    pub(crate) fn want_flush(&self) {
        self.send_wanted.store(true, Ordering::SeqCst);
    }

    /// Flushes if a flush was requested with [`Lane::want_flush`] and no other thread has done it.
    pub(crate) fn flush_if_wanted(&self) {
        if !self.flush_wanted(WORKER_BATCHES) {
            self.waker.wake();
        }
    }

    /// Like [`Lane::flush`], but stops after this number of batches. Returns false if there is more.
    fn flush_some(&self, batches: usize) -> bool {
        self.want_flush();
        self.flush_wanted(batches)
    }

    fn flush_wanted(&self, batches: usize) -> bool {
        let mut left = batches;
        while self.send_wanted.load(Ordering::SeqCst) {
            // The holder of the lock checks `send_wanted` again after releasing it.
            let Some(mut sending) = self.sending.try_lock() else { return true };
            self.send_wanted.store(false, Ordering::SeqCst);
            while self.take_batch(&mut sending.batch) {
                self.send_and_let_go(&mut sending);
                left = left.saturating_sub(1);
                if left == 0 {
                    return false;
                }
            }
            self.send_and_let_go(&mut sending);
        }
        true
    }

    fn send_and_let_go(&self, sending: &mut Sending) {
        if !sending.batch.is_empty() {
            self.send(sending);
            // May drop the last references to large pieces, so it runs without the endpoint's lock.
            for sent in &mut sending.batch {
                sent.bodies.clear();
            }
        }
    }

    /// Returns the buffers in `batch` to the endpoint and takes the next transmits. Returns false if none
    /// will follow these.
    fn take_batch(&self, batch: &mut Vec<Transmit>) -> bool {
        let mut state = self.lock();
        batch.drain(..).for_each(|sent| state.endpoint.recycle(sent));
        let now = clock::now();
        self.take_notices(now, &mut state.endpoint);
        batch.extend(std::iter::from_fn(|| state.endpoint.poll_transmit(now)).take(BATCH_TRANSMITS));
        let is_full = batch.len() == BATCH_TRANSMITS;
        // Reading or refusing calls may produce datagrams.
        let happened = state.dispatch_events(now, &*self.arrivals);
        let has_more = is_full || happened;
        state.hand_on_short(&*self.arrivals);
        if !has_more {
            self.wake_for_timer(&state);
        }
        self.refuse_displaced(state);
        has_more
    }

    /// Reports network errors to the endpoint that sent the datagrams. The kernel delivers such notices to
    /// any lane's socket; those for other lanes are forwarded.
    fn take_notices(&self, now: Monotonic, endpoint: &mut Endpoint) {
        while let Some(notice) = self.sockets.iter().find_map(LaneSocket::notice) {
            if lane_of(notice.remote, self.lanes) == self.index {
                notice.report(now, endpoint);
            } else if let Some(siblings) = self.siblings.get().and_then(Weak::upgrade) {
                let lane = siblings.of_peer(notice.remote);
                let _ = lane.notices.push(notice);
                lane.waker.wake();
            }
        }
        while let Some(notice) = self.notices.pop() {
            notice.report(now, endpoint);
        }
    }

    /// Wakes the lane's thread if it would sleep past the endpoint's next deadline.
    fn wake_for_timer(&self, state: &LaneState) {
        let deadline = state.endpoint.poll_timeout().map_or(u64::MAX, |at| at.0.max(1));
        if deadline < self.sleeping_until.load(Ordering::SeqCst) {
            self.sleeping_until.store(deadline, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    fn send(&self, sending: &mut Sending) {
        let Sending { batch, gather: unused } = sending;
        for (index, socket) in self.sockets.iter().enumerate() {
            let mut gather: Gather<'_> = std::mem::take(unused);
            let own =
                |transmit: &&Transmit| self.sockets.len() == 1 || self.socket_of(&transmit.path) == index;
            batch.iter().filter(own).for_each(|transmit| gather.push(transmit));
            if !gather.runs().is_empty() {
                socket.send(&gather, &self.counters);
            }
            *unused = Gather::reuse(gather);
        }
    }

    /// Adds the source address to a path if several sockets serve it.
    pub(crate) fn with_source(&self, path: Path) -> Path {
        if path.local.is_some() || self.sockets.iter().filter(|socket| socket.serves(&path)).count() < 2 {
            return path;
        }
        let routed = Path { local: usual_source(path.remote), ..path };
        if self.sockets.iter().any(|socket| socket.serves(&routed)) { routed } else { path }
    }

    /// Returns the index of the socket that serves a path. If none does, returns the first, whose kernel will
    /// refuse the datagram.
    fn socket_of(&self, path: &Path) -> usize {
        self.sockets.iter().position(|socket| socket.serves(path)).unwrap_or(0)
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

    /// Aborts every server call with `code`, closes every outgoing connection, and makes every later
    /// operation fail with `code`. Replies of services that have returned are still delivered.
    pub(crate) fn refuse(&self, code: AbortCode) {
        let mut state = self.lock();
        state.refusing = Some(code);
        let now = clock::now();
        let LaneState { endpoint, serving, .. } = &mut *state;
        for call in serving.iter() {
            endpoint.abort(now, *call, code);
        }
        endpoint.close_all(now);
        state.wake_all();
        drop(state);
        self.flush();
    }

    /// Whether the reply of a service that has returned is still being delivered.
    pub(crate) fn is_delivering(&self) -> bool {
        self.lock().endpoint.replies_under_way() > 0
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

    /// Runs the lane's thread.
    pub(crate) fn run(&self) {
        let mut turn = Turn::new(self);
        while !self.stopped.load(Ordering::SeqCst) {
            // The endpoint must not panic on any input. If it does, one datagram is lost instead of the
            // server.
            if catch_unwind(AssertUnwindSafe(|| turn.run(self))).is_err() {
                self.counters.faults.increment();
                tracing::error!(lane = self.index, "a lane panicked");
                turn.clear();
            }
        }
    }

    /// Accepts datagrams from the lane that received them. Returns false if the inbox is full.
    fn hand_over(&self, datagrams: Datagrams) -> bool {
        let taken = self.inbox.push(datagrams).is_ok();
        self.waker.wake();
        taken
    }
}

impl LaneState {
    /// Fails if the lane is refusing work.
    pub(crate) fn check(&self) -> Result<(), AbortCode> {
        self.refusing.map_or(Ok(()), Err)
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
                    if let Some(condvar) = self.waiting_calls.remove(&call) {
                        condvar.notify_all();
                    }
                }
                Event::PathIsShort { remote, packet_bytes } => {
                    tracing::warn!(
                        host = %remote.ip(),
                        packet_bytes,
                        "the path to this host silently drops longer packets; sending shorter ones"
                    );
                }
                Event::ChannelFree(connection) | Event::ConnectionFailed(connection, _) => {
                    if let Some(condvar) = self.waiting_channels.remove(&connection) {
                        condvar.notify_one();
                    }
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

    /// Passes calls to the workers that the lane's thread could have answered itself.
    fn hand_on_short(&mut self, arrivals: &dyn Arrivals) {
        for arrived in std::mem::take(&mut self.short) {
            self.hand_on(arrivals, arrived);
        }
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

    fn wake_all(&mut self) {
        let calls = self.waiting_calls.drain().map(|(_, condvar)| condvar);
        let channels = self.waiting_channels.drain().map(|(_, condvar)| condvar);
        for condvar in calls.chain(channels) {
            condvar.notify_all();
        }
    }
}

/// State that the lane's thread keeps between its turns.
struct Turn {
    receiver: Receiver,
    datagrams: Vec<Datagrams>,
    /// The received datagrams that ask about the whole server.
    questions: Vec<(Path, Bytes)>,
    /// Calls with complete requests, and their replies if any; both empty between two batches.
    short: Vec<Arrived>,
    answers: Vec<Option<Bytes>>,
    interests: Vec<Interest>,
    last_active: Monotonic,
    /// Whether the socket was empty when it was read again after the last batch. The same is likely next
    /// time, so that read is skipped.
    found_empty: bool,
}

impl Turn {
    fn new(lane: &Lane) -> Turn {
        let mut interests = vec![Interest::readable(lane.waker.descriptor())];
        interests.extend(lane.sockets.iter().map(|socket| Interest::readable(socket.descriptor())));
        Turn {
            receiver: Receiver::new(),
            datagrams: Vec::new(),
            questions: Vec::new(),
            short: Vec::new(),
            answers: Vec::new(),
            interests,
            last_active: clock::now(),
            found_empty: false,
        }
    }

    /// Discards everything not handled yet.
    fn clear(&mut self) {
        self.datagrams.clear();
        self.short.clear();
        self.answers.clear();
    }

    /// Receives and handles one batch. Sleeps if there was none, or if none is likely to follow.
    fn run(&mut self, lane: &Lane) {
        self.receive(lane);
        let idle = self.datagrams.is_empty();
        if !idle && !lane.pause.is_zero() {
            std::thread::sleep(lane.pause);
        }
        self.handle_some(lane);
        let mut all_sent = lane.flush_some(LANE_BATCHES);
        while !self.datagrams.is_empty() {
            self.handle_some(lane);
            all_sent = lane.flush_some(LANE_BATCHES);
        }
        if idle && all_sent {
            self.found_empty = true;
            self.sleep(lane);
            return;
        }
        self.last_active = clock::now();
        if all_sent && self.found_empty && !self.receiver.may_have_left_some() {
            self.found_empty = self.sleep(lane) >= SLEEP_MIN;
        }
    }

    /// Receives one batch from every socket, and the datagrams that other lanes handed over.
    fn receive(&mut self, lane: &Lane) {
        for socket in &lane.sockets {
            let datagrams = &mut self.datagrams;
            socket.receive(&mut self.receiver, &lane.counters, &mut |received| {
                datagrams.extend(lane.keep_or_hand_over(received));
            });
        }
        while self.datagrams.len() < INBOX_RECEIVES
            && let Some(datagrams) = lane.inbox.pop()
        {
            self.datagrams.push(datagrams);
        }
    }

    /// Returns how many receives contain the next [`HANDLE_DATAGRAMS`].
    fn some(&self) -> usize {
        let mut left = HANDLE_DATAGRAMS;
        let has_room = |datagrams: &&Datagrams| {
            let had_room = left > 0;
            left = left.saturating_sub(datagrams.count());
            had_room
        };
        self.datagrams.iter().take_while(has_room).count()
    }

    /// Passes the time and some datagrams to the endpoint.
    fn handle_some(&mut self, lane: &Lane) {
        let some = self.some();
        let mut state = lane.lock();
        let (now, wall) = (clock::now(), clock::wall());
        if some >= LOOK_AHEAD_MIN {
            let next = self.datagrams[..some].iter();
            state.endpoint.prefetch(next.map(|datagrams| (&datagrams.path, &*datagrams.data)));
        }
        for datagrams in self.datagrams.drain(..some) {
            if rx_proto::debug::is_question(&datagrams.data) {
                self.questions.extend(datagrams.split());
            } else {
                let Datagrams { path, data, segment_bytes } = datagrams;
                state.endpoint.handle_run(now, wall, path, data, segment_bytes);
            }
        }
        state.handle_timers(now, &*lane.arrivals);
        state.dispatch_events(now, &*lane.arrivals);
        std::mem::swap(&mut state.short, &mut self.short);
        let is_crowded = state.endpoint.is_crowded();
        lane.refuse_displaced(state);
        if is_crowded && self.short.len() >= LOOK_AHEAD_MIN {
            lane.arrivals.prefetch(&self.short);
        }
        lane.try_answer(&mut self.short, &mut self.answers);
        for (path, datagram) in self.questions.drain(..) {
            lane.answer_question(path, datagram);
        }
    }

    /// Sleeps until a datagram arrives, a deadline is reached or another thread wakes the lane. Returns the
    /// duration.
    fn sleep(&mut self, lane: &Lane) -> Duration {
        let now = clock::now();
        let until = self.sleep_until(lane, now);
        lane.idle.begin(now);
        if until > now && sys::wait(&mut self.interests, Some(until.since(now))).is_err() {
            // Out of memory, most likely; do not spin.
            std::thread::sleep(LINGER_SLEEP);
        }
        let woken = clock::now();
        lane.idle.end(woken);
        lane.sleeping_until.store(0, Ordering::SeqCst);
        lane.counters.wakeups.increment();
        self.fetch_errors(lane);
        lane.waker.rest();
        woken.since(now)
    }

    /// Fetches socket errors, which would otherwise wake the lane again and again.
    fn fetch_errors(&self, lane: &Lane) {
        let (_, interests) = self.interests.split_at(self.interests.len() - lane.sockets.len());
        for (socket, interest) in lane.sockets.iter().zip(interests) {
            if interest.has_errors() {
                socket.fetch_errors(&lane.counters);
            }
        }
    }

    /// Decides how long to sleep and publishes it, so that a thread that starts an earlier timer wakes the
    /// lane.
    fn sleep_until(&self, lane: &Lane, now: Monotonic) -> Monotonic {
        let lingering = now.since(self.last_active) < LINGER;
        let limit = now + if lingering { LINGER_SLEEP } else { SLEEP_MAX };
        let state = lane.lock();
        let until = state.endpoint.poll_timeout().map_or(limit, |at| at.min(limit));
        lane.sleeping_until.store(until.0, Ordering::SeqCst);
        until
    }
}

impl Lane {
    /// Answers the calls that need no waiting and passes the others to the workers. Leaves both lists empty.
    fn try_answer(&self, calls: &mut Vec<Arrived>, answers: &mut Vec<Option<Bytes>>) {
        if calls.is_empty() {
            return;
        }
        answers.extend(calls.iter().map(|call| self.arrivals.try_answer(call)));
        let mut state = self.lock();
        let now = clock::now();
        for (answer, arrived) in answers.drain(..).zip(calls.drain(..)) {
            match answer {
                Some(reply) => state.endpoint.reply(now, arrived.call, reply),
                None => state.hand_on(&*self.arrivals, arrived),
            }
        }
        self.refuse_displaced(state);
    }

    /// Releases the lock and then refuses the evicted calls of other lanes, so that no thread holds the locks
    /// of two lanes.
    fn refuse_displaced(&self, mut state: MutexGuard<'_, LaneState>) {
        let displaced = std::mem::take(&mut state.displaced);
        drop(state);
        if displaced.is_empty() {
            return;
        }
        let Some(siblings) = self.siblings.get().and_then(Weak::upgrade) else { return };
        for Displaced { lane, call, code } in displaced {
            CallHandle::new(Arc::clone(&siblings.all()[lane]), call).abort(code);
        }
    }

    /// Answers rxdebug for all lanes, locking one at a time.
    fn answer_question(&self, path: Path, datagram: Bytes) {
        let Some(mut inquiry) = self.lock().endpoint.inquire(clock::now(), path, datagram) else { return };
        let Some(siblings) = self.siblings.get().and_then(Weak::upgrade) else { return };
        let load = self.arrivals.load();
        for lane in siblings.all() {
            let mut state = lane.lock();
            state.set_load(load);
            state.endpoint.examine(clock::now(), &mut inquiry);
        }
        self.lock().endpoint.answer(&inquiry);
    }

    /// Returns the datagrams if their sender belongs to this lane, and otherwise hands them over to the right
    /// one.
    fn keep_or_hand_over(&self, datagrams: Datagrams) -> Option<Datagrams> {
        let remote = datagrams.path.remote;
        if lane_of(remote, self.lanes) == self.index {
            return Some(datagrams);
        }
        let count = datagrams.count();
        self.counters.handed_over.add(count);
        let siblings = self.siblings.get().and_then(Weak::upgrade);
        if !siblings.is_some_and(|lanes| lanes.of_peer(remote).hand_over(datagrams)) {
            self.counters.handover_drops.add(count);
        }
        None
    }
}
