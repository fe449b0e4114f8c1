//! State that the threads of a world share with it: the time, requests to the network, and the record.

use crate::record::Record;
use crate::stream::Line;
use base::{AbortCode, Monotonic};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rx_proto::CallId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A call that a host makes.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) number: u64,
    pub(crate) from: usize,
    pub(crate) to: SocketAddr,
    pub(crate) service: u16,
    pub(crate) patience: Option<Duration>,
    pub(crate) request: Bytes,
}

/// The end of a call that a host has served.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) host: usize,
    /// Number of crashes of the host before the call.
    pub(crate) incarnation: u32,
    pub(crate) call: CallId,
    pub(crate) caller: SocketAddr,
    /// The first bytes of the request.
    pub(crate) head: Vec<u8>,
    pub(crate) result: Result<Bytes, AbortCode>,
}

struct State {
    now: Monotonic,
    random: SmallRng,
    calls: u64,
    outgoing: Vec<Outgoing>,
    results: BTreeMap<u64, Result<Bytes, AbortCode>>,
    replies: Vec<Reply>,
    /// Servers that should crash soon.
    crashes: Vec<usize>,
}

/// The shared state. Its locks are never held while a thread waits.
pub(crate) struct Hub {
    state: Mutex<State>,
    record: Mutex<Record>,
}

impl Hub {
    pub(crate) fn new(seed: u64) -> Hub {
        let state = State {
            now: Monotonic(1),
            random: SmallRng::seed_from_u64(seed),
            calls: 0,
            outgoing: Vec::new(),
            results: BTreeMap::new(),
            replies: Vec::new(),
            crashes: Vec::new(),
        };
        Hub { state: Mutex::new(state), record: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Monotonic {
        self.state.lock().now
    }

    pub(crate) fn set_now(&self, now: Monotonic) {
        self.state.lock().now = now;
    }

    /// Returns a time that is up to `most` away.
    pub(crate) fn soon(&self, most: Duration) -> Monotonic {
        let mut state = self.state.lock();
        let delay = state.random.random_range(0..=most.as_nanos() as u64);
        state.now + Duration::from_nanos(delay)
    }

    /// Returns true with this probability.
    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.state.lock().random.random_bool(probability)
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock()
    }

    /// Begins a call; returns its number.
    pub(crate) fn call(&self, line: &Line, request: Bytes) -> u64 {
        let mut state = self.state.lock();
        state.calls += 1;
        let number = state.calls;
        let Line { from, to, service, patience, .. } = *line;
        state.outgoing.push(Outgoing { number, from, to, service, patience, request });
        number
    }

    /// Takes the calls begun since the last time.
    pub(crate) fn begun(&self) -> Vec<Outgoing> {
        std::mem::take(&mut self.state.lock().outgoing)
    }

    /// Ends a call that was begun.
    pub(crate) fn end(&self, number: u64, result: Result<Bytes, AbortCode>) {
        self.state.lock().results.insert(number, result);
    }

    /// Whether a call has ended.
    pub(crate) fn has_ended(&self, number: u64) -> bool {
        self.state.lock().results.contains_key(&number)
    }

    /// Takes the result of a call that has ended.
    pub(crate) fn result(&self, number: u64) -> Option<Result<Bytes, AbortCode>> {
        self.state.lock().results.remove(&number)
    }

    /// Ends a call that a host has served.
    pub(crate) fn reply(&self, reply: Reply) {
        self.state.lock().replies.push(reply);
    }

    /// Takes the ends of served calls since the last time.
    pub(crate) fn replies(&self) -> Vec<Reply> {
        std::mem::take(&mut self.state.lock().replies)
    }

    /// Suggests that a server crash soon.
    pub(crate) fn ask_for_crash(&self, server: usize) {
        self.state.lock().crashes.push(server);
    }

    /// Takes the suggestions since the last time.
    pub(crate) fn crashes(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.lock().crashes)
    }
}
