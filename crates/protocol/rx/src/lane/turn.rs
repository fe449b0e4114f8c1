//! The lane's thread: receives, feeds the endpoint, and sleeps.

use super::{Arrived, INBOX_RECEIVES, Lane};
use crate::clock;
use crate::socket::{Datagrams, Receiver};
use crate::steering::lane_of;
use crate::sys::{self, Interest};
use base::Monotonic;
use bytes::Bytes;
use rx_proto::Path;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of datagrams handled per acquisition of the endpoint's lock.
const HANDLE_DATAGRAMS: usize = 64;

/// Maximum number of batches that the lane's thread sends before it receives again.
const LANE_BATCHES: usize = 4;

/// Minimum number of receives, or of calls to answer, that are prefetched before the first is handled.
const LOOK_AHEAD_MIN: usize = 3;

/// After activity the lane's sleeps are short for a while, so that timers that workers start (a
/// retransmission in 300 ms, say) need not wake it. Both values only save wake-ups.
const LINGER: Duration = Duration::from_millis(100);
const LINGER_SLEEP: Duration = Duration::from_millis(10);

/// Shorter sleeps do not count: something had arrived before they started.
const SLEEP_MIN: Duration = Duration::from_micros(3);

/// Longest sleep, so that a lost wake-up causes a delay and not a deadlock.
const SLEEP_MAX: Duration = Duration::from_secs(10);

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
        lane.unlock(state);
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
