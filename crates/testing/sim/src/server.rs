//! The server half of a host's application.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use base::{AbortCode, Caller, Identity, Monotonic, RecvBuffer};
use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use rx_proto::{CallId, Endpoint, Filled, Read, Write};

use crate::hijackers::is_attacker;
use crate::pattern::{self, Manner, REQUEST_BYTES, Request};

/// Abort code of refused calls.
pub const REFUSAL: AbortCode = AbortCode::VNOVNODE;

/// Half of the replies up to this length are passed to the endpoint whole, as by servers that have them in
/// memory.
const WHOLE_REPLY_BYTES: usize = 3000;

/// Maximum number of receive buffers of a call, and their lengths: shorter and longer than a packet.
const ROOMS_MAX: usize = 3;
const ROOM_BYTES_MAX: usize = 9000;

/// Calls being served, and results of those that were.
#[derive(Debug, Default)]
pub struct Server {
    calls: HashMap<CallId, ServerCall>,
    /// Counts of each request's calls.
    pub served: BTreeMap<u64, Served>,
    /// Number of mismatches in received data.
    pub wrong: usize,
}

/// Counts of the calls with one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Calls whose request arrived.
    pub begun: u32,
    /// Calls whose request was read to the end without an error.
    pub complete: u32,
    /// Calls whose reply was acknowledged.
    pub ended: u32,
    /// Calls by anonymous callers.
    pub anonymous: u32,
    /// Calls from attackers' addresses.
    pub hijacked: u32,
}

#[derive(Debug)]
struct ServerCall {
    head: Vec<u8>,
    request: Option<Request>,
    received: usize,
    wrong: bool,
    /// Number of buffers that the endpoint holds.
    lent: usize,
    stage: Stage,
    caller: Caller,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Pausing,
    Thinking,
    Replying { written: usize },
    Over,
}

impl Server {
    /// Adds a call that has arrived.
    pub fn arrived(&mut self, call: CallId, caller: Caller) {
        let fresh = ServerCall {
            head: Vec::new(),
            request: None,
            received: 0,
            wrong: false,
            lent: 0,
            stage: Stage::Reading,
            caller,
        };
        self.calls.insert(call, fresh);
    }

    /// Whether this server is serving the call.
    pub fn has(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// Returns the number of calls being served.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no calls are being served.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Records that the reply was acknowledged.
    pub fn ended(&mut self, call: CallId) {
        if let Some(request) = self.calls.get(&call).and_then(|it| it.request) {
            self.served.entry(request.seed).or_default().ended += 1;
        }
    }

    /// Continues a call as far as possible. If it pauses, returns the time to continue.
    pub fn run(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        call: CallId,
        random: &mut SmallRng,
        woken: bool,
    ) -> Option<Monotonic> {
        loop {
            let state = self.calls.get_mut(&call)?;
            let step = match state.stage {
                Stage::Reading if state.posts_buffers() => self.land(now, endpoint, call, random),
                Stage::Reading => self.read(now, endpoint, call, random),
                Stage::Pausing if woken => {
                    state.stage = Stage::Reading;
                    Step::Again
                }
                Stage::Thinking if woken => self.decide(now, endpoint, call),
                Stage::Pausing | Stage::Thinking => Step::Wait,
                Stage::Replying { written } => self.reply(now, endpoint, call, random, written),
                Stage::Over => {
                    endpoint.release(now, call);
                    self.calls.remove(&call);
                    return None;
                }
            };
            match step {
                Step::Again => {}
                Step::Wait => return None,
                Step::Sleep(at) => return Some(at),
            }
        }
    }

    fn read(&mut self, now: Monotonic, endpoint: &mut Endpoint, call: CallId, random: &mut SmallRng) -> Step {
        let Some(state) = self.calls.get_mut(&call) else { return Step::Wait };
        match endpoint.read(now, call) {
            Read::Blocked => return Step::Wait,
            Read::Failed(_) => state.stage = Stage::Over,
            Read::Data(bytes) => {
                self.take(call, &bytes);
                return self.after_data(now, endpoint, call, random);
            }
            Read::End => {
                self.complete(call);
                return self.think(now, call);
            }
        }
        Step::Again
    }

    fn land(&mut self, now: Monotonic, endpoint: &mut Endpoint, call: CallId, random: &mut SmallRng) -> Step {
        let Some(state) = self.calls.get_mut(&call) else { return Step::Wait };
        while state.lent == 0 || state.lent < ROOMS_MAX && random.random_bool(0.5) {
            let before = random.random_range(0..20);
            let length = random.random_range(0..ROOM_BYTES_MAX);
            endpoint.post_buffer(
                now,
                call,
                RecvBuffer::new(vec![0; before + length + 7], before..before + length),
            );
            state.lent += 1;
        }
        match endpoint.take_filled(now, call) {
            Filled::Blocked => return Step::Wait,
            Filled::Failed(_) => state.stage = Stage::Over,
            Filled::RecvBuffer(room) => {
                state.lent -= 1;
                self.take(call, room.filled());
                if room.left() > 0 {
                    self.complete(call);
                    return self.think(now, call);
                }
                return self.after_data(now, endpoint, call, random);
            }
        }
        Step::Again
    }

    fn take(&mut self, call: CallId, bytes: &[u8]) {
        let Some(state) = self.calls.get_mut(&call) else { return };
        let missing = REQUEST_BYTES.saturating_sub(state.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(missing);
        state.head.extend_from_slice(head);
        if state.request.is_none() && state.head.len() == REQUEST_BYTES {
            state.request = Request::decode(&state.head);
            if let Some(request) = state.request {
                let served = self.served.entry(request.seed).or_default();
                served.begun += 1;
                served.anonymous += u32::from(state.caller.identity == Identity::Anonymous);
                served.hijacked += u32::from(is_attacker(state.caller.peer));
            }
        }
        let Some(request) = state.request else { return };
        if !pattern::matches(request.seed, state.received, rest) {
            state.wrong = true;
            self.wrong += 1;
        }
        state.received += rest.len();
    }

    fn after_data(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        call: CallId,
        random: &mut SmallRng,
    ) -> Step {
        let Some(state) = self.calls.get_mut(&call) else { return Step::Wait };
        match state.request.map(|request| request.manner) {
            Some(Manner::RefuseEarly) => {
                endpoint.abort(now, call, REFUSAL);
                state.stage = Stage::Over;
                Step::Again
            }
            Some(Manner::ReplyEarly) => self.think(now, call),
            Some(Manner::Slow | Manner::Lend) if random.random_bool(0.2) => {
                state.stage = Stage::Pausing;
                Step::Sleep(now + Duration::from_millis(random.random_range(1..300)))
            }
            _ => Step::Again,
        }
    }

    /// Checks and counts a request that has been read completely.
    fn complete(&mut self, call: CallId) {
        let Some(state) = self.calls.get_mut(&call) else { return };
        let Some(request) = state.request else { return };
        if state.received == request.length && !state.wrong {
            self.served.entry(request.seed).or_default().complete += 1;
        } else {
            self.wrong += 1;
        }
    }

    fn think(&mut self, now: Monotonic, call: CallId) -> Step {
        let Some(state) = self.calls.get_mut(&call) else { return Step::Wait };
        state.stage = Stage::Thinking;
        let think_ms = state.request.map_or(0, |request| request.think_ms);
        Step::Sleep(now + Duration::from_millis(u64::from(think_ms)))
    }

    fn decide(&mut self, now: Monotonic, endpoint: &mut Endpoint, call: CallId) -> Step {
        let Some(state) = self.calls.get_mut(&call) else { return Step::Wait };
        state.stage = Stage::Replying { written: 0 };
        if state.request.is_none_or(|request| request.manner == Manner::Refuse) {
            endpoint.abort(now, call, REFUSAL);
            state.stage = Stage::Over;
        }
        Step::Again
    }

    fn reply(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        call: CallId,
        random: &mut SmallRng,
        written: usize,
    ) -> Step {
        let Some(state) = self.calls.get_mut(&call) else { return Step::Wait };
        let Some(request) = state.request else { return Step::Wait };
        if written == 0 && request.reply_length <= WHOLE_REPLY_BYTES && request.seed % 2 == 0 {
            endpoint.reply(now, call, pattern::stretch(request.reply_seed(), 0, request.reply_length));
            state.stage = Stage::Over;
            return Step::Again;
        }
        let left = request.reply_length - written;
        if left == 0 {
            endpoint.end(now, call);
            state.stage = Stage::Over;
            return Step::Again;
        }
        let length = random.random_range(1..=left.min(20_000));
        let mut chunk: Bytes = pattern::stretch(request.reply_seed(), written, length);
        match endpoint.write(now, call, &mut chunk) {
            Write::Accepted(count) => state.stage = Stage::Replying { written: written + count },
            Write::Blocked => return Step::Wait,
            Write::Failed(_) => state.stage = Stage::Over,
        }
        Step::Again
    }
}

impl ServerCall {
    fn posts_buffers(&self) -> bool {
        self.request.is_some_and(|request| request.manner == Manner::Lend)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Again,
    Wait,
    Sleep(Monotonic),
}
