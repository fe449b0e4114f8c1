//! The client half of a host's application.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use base::{AbortCode, Monotonic};
use rand::Rng;
use rand::rngs::SmallRng;
use rx_proto::{CallId, ConnectOptions, ConnectionId, Endpoint, Path, Read, Write};

use crate::pattern::{self, Request};
use crate::security::{self, Class};

/// The service that every host offers.
pub const SERVICE: u16 = 1;

/// A planned call.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The request to send.
    pub request: Request,
    /// Number of bytes of the request after which the client abandons the call.
    pub give_up_at: Option<usize>,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The complete and correct reply arrived.
    Replied,
    /// The call failed.
    Failed(AbortCode),
    /// The client abandoned the call.
    GivenUp,
    /// An incorrect reply arrived.
    Wrong,
}

/// Connections, the calls to make on them, and their outcomes.
#[derive(Debug, Default)]
pub struct Client {
    lines: Vec<Line>,
    calls: HashMap<CallId, ClientCall>,
    /// Outcomes by the seeds of the requests.
    pub outcomes: BTreeMap<u64, Outcome>,
}

/// A connection and the calls to make on it.
#[derive(Debug)]
struct Line {
    connection: ConnectionId,
    plans: VecDeque<Plan>,
    start: Monotonic,
    started: bool,
}

#[derive(Debug)]
struct ClientCall {
    line: usize,
    plan: Plan,
    sent: usize,
    received: usize,
    wrong: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Writing,
    Pausing,
    Reading,
}

impl Client {
    /// Plans calls on a new connection.
    pub fn add(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        to: SocketAddr,
        class: Class,
        plans: VecDeque<Plan>,
        start: Monotonic,
    ) {
        let options =
            ConnectOptions { idle_time: Some(Duration::from_secs(90)), ..ConnectOptions::default() };
        let security = security::client_class(class);
        let connection =
            endpoint.connect(now, Path::to(to), SERVICE, security, options).expect("room for a connection");
        self.lines.push(Line { connection, plans, start, started: false });
    }

    /// Whether all planned calls have been made and have ended.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.lines.iter().all(|line| line.plans.is_empty())
    }

    /// Whether this client made the call.
    pub fn has(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// Closes all connections.
    pub fn close(&mut self, now: Monotonic, endpoint: &mut Endpoint) {
        for line in self.lines.drain(..) {
            endpoint.close(now, line.connection);
        }
    }

    /// Returns the time at which the next connection starts its calls.
    pub fn next_start(&self) -> Option<Monotonic> {
        self.lines.iter().filter(|line| !line.started).map(|line| line.start).min()
    }

    /// Opens the calls that are due, as far as channels are free. Returns them.
    pub fn open(&mut self, now: Monotonic, endpoint: &mut Endpoint) -> Vec<CallId> {
        let mut opened = Vec::new();
        for (place, line) in self.lines.iter_mut().enumerate() {
            line.started |= line.start <= now;
            while line.started && !line.plans.is_empty() {
                if let Some(code) = endpoint.connection_error(line.connection) {
                    for plan in line.plans.drain(..) {
                        self.outcomes.insert(plan.request.seed, Outcome::Failed(code));
                    }
                    break;
                }
                let Some(call) = endpoint.open_call(now, line.connection) else { break };
                let Some(plan) = line.plans.pop_front() else { break };
                let state = ClientCall {
                    line: place,
                    plan,
                    sent: 0,
                    received: 0,
                    wrong: false,
                    stage: Stage::Writing,
                };
                self.calls.insert(call, state);
                opened.push(call);
            }
        }
        opened
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
            let ended = match state.stage {
                Stage::Pausing if woken => {
                    state.stage = Stage::Writing;
                    continue;
                }
                Stage::Pausing => return None,
                Stage::Writing => match state.write(now, endpoint, call, random) {
                    Ok(true) => None,
                    Ok(false) => return None,
                    Err(outcome) => Some(outcome),
                },
                Stage::Reading => match state.read(now, endpoint, call) {
                    Ok(true) => None,
                    Ok(false) => return None,
                    Err(outcome) => Some(outcome),
                },
            };
            if let Some(outcome) = ended {
                self.outcomes.insert(state.plan.request.seed, outcome);
                self.calls.remove(&call);
                endpoint.release(now, call);
                return None;
            }
            if state.stage == Stage::Pausing {
                return Some(now + Duration::from_millis(random.random_range(1..400)));
            }
        }
    }

    /// Returns the calls in progress with their connections, for messages.
    pub fn under_way(&self) -> Vec<(usize, Request)> {
        self.calls.values().map(|call| (call.line, call.plan.request)).collect()
    }
}

impl ClientCall {
    /// Writes a piece of the request. Returns whether there is more to do immediately.
    fn write(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        call: CallId,
        random: &mut SmallRng,
    ) -> Result<bool, Outcome> {
        let Plan { request, give_up_at } = self.plan;
        if give_up_at.is_some_and(|at| self.sent >= at) {
            return Err(Outcome::GivenUp);
        }
        let head = pattern::REQUEST_BYTES;
        let left = head + request.length - self.sent;
        if left == 0 {
            endpoint.end(now, call);
            self.stage = Stage::Reading;
            return Ok(true);
        }
        let mut chunk = match self.sent {
            0..pattern::REQUEST_BYTES => request.encode().slice(self.sent..),
            sent => pattern::stretch(request.seed, sent - head, random.random_range(1..=left.min(20_000))),
        };
        match endpoint.write(now, call, &mut chunk) {
            Write::Accepted(count) => self.sent += count,
            Write::Blocked => return Ok(false),
            Write::Failed(code) => return Err(Outcome::Failed(code)),
        }
        if random.random_bool(0.05) {
            self.stage = Stage::Pausing;
        }
        Ok(true)
    }

    fn read(&mut self, now: Monotonic, endpoint: &mut Endpoint, call: CallId) -> Result<bool, Outcome> {
        let request = self.plan.request;
        match endpoint.read(now, call) {
            Read::Blocked => Ok(false),
            Read::Failed(code) => Err(Outcome::Failed(code)),
            Read::Data(bytes) => {
                self.wrong |= !pattern::matches(request.reply_seed(), self.received, &bytes);
                self.received += bytes.len();
                Ok(true)
            }
            Read::End if self.wrong || self.received != request.reply_length => Err(Outcome::Wrong),
            Read::End => Err(Outcome::Replied),
        }
    }
}
