//! One client: a port with its connections, and its streams, each with one call at a time.

use super::mix::{Group, Operation};
use super::plan::Place;
use super::step::{CallKind, Step, Subject, Wrong, is_busy, steps};
use crate::files::Fid;
use crate::station::FILE_SERVICE;
use afs_idl::{Forgetful, MemoryStream, cb};
use base::{AbortCode, CallContext, Caller, HostUuid, Monotonic};
use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use rx_proto::limits::CHANNELS;
use rx_proto::{CallId, ConnectOptions, ConnectionId, Endpoint, Path, Read, Write};
use rx_security::ClientSecurity;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The reply was correct.
    Right { payload: u64 },
    /// The reply was incorrect.
    Wrong(&'static str),
    /// The server is busy; the stream will retry.
    Busy,
    /// The call failed.
    Failed(AbortCode),
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) kind: CallKind,
    pub(super) begun: Monotonic,
    pub(super) end: End,
    /// Time at which the stream continues; `None` for immediately.
    pub(super) resume: Option<Monotonic>,
    pub(super) stream: usize,
}

/// A simulated client; see the module documentation.
pub(super) struct Client {
    place: Place,
    callbacks: Forgetful,
    connections: Vec<ConnectionId>,
    streams: Vec<Stream>,
    /// Calls from the server whose requests are incomplete.
    served: Vec<(CallId, Caller, Vec<u8>)>,
}

/// A sequence of calls, one at a time.
struct Stream {
    steps: VecDeque<Step>,
    active: Option<Active>,
    /// Time at which the first step was first tried.
    begun: Option<Monotonic>,
    created: Fid,
    name: String,
    names: u64,
}

/// A call in progress.
struct Active {
    call: CallId,
    step: Step,
    /// Data that did not fit into the send queue yet.
    unsent: Bytes,
    is_sent: bool,
    reply: Reply,
}

/// Pause before retrying a busy server.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Pause after a failed call.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// Properties of a group that its streams use.
pub(super) struct Habits<'a> {
    pub(super) group: &'a Group,
    pub(super) weights: &'a [(Operation, u32)],
}

impl Client {
    pub(super) fn new(place: Place, uuid: HostUuid, streams: usize) -> Client {
        let stream = |_| Stream {
            steps: VecDeque::new(),
            active: None,
            begun: None,
            created: Fid::default(),
            name: String::new(),
            names: 0,
        };
        Client {
            place,
            callbacks: Forgetful::new(uuid),
            connections: Vec::new(),
            streams: (0..streams).map(stream).collect(),
            served: Vec::new(),
        }
    }

    /// Opens the connections, without sending anything.
    pub(super) fn connect(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        path: Path,
        security: Option<&Arc<dyn ClientSecurity>>,
    ) -> Result<(), AbortCode> {
        for _ in 0..self.streams.len().div_ceil(CHANNELS) {
            let options = ConnectOptions::default();
            let connection = endpoint.connect(now, path, FILE_SERVICE, security.cloned(), options)?;
            self.connections.push(connection);
        }
        Ok(())
    }

    /// Whether a stream has no call in progress and no step left.
    pub(super) fn is_idle(&self, stream: usize) -> bool {
        let stream = &self.streams[stream];
        stream.active.is_none() && stream.steps.is_empty()
    }

    /// Chooses a stream's next operation.
    pub(super) fn choose(&mut self, stream: usize, habits: &Habits<'_>, random: &mut SmallRng) {
        let sum: u32 = habits.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = random.random_range(0..sum);
        let chosen = habits.weights.iter().find(|(_, weight)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        });
        let Some((operation, _)) = chosen else { return };
        let picked = steps(*operation, habits.group, |below| random.random_range(0..below));
        self.streams[stream].steps = picked.into();
    }

    /// Starts a stream's next call. Returns the result if it fails immediately.
    pub(super) fn begin(&mut self, now: Monotonic, endpoint: &mut Endpoint, number: usize) -> Option<Done> {
        let connection = self.connections[number / CHANNELS];
        let stream = &mut self.streams[number];
        let step = *stream.steps.front()?;
        stream.begun.get_or_insert(now);
        let Some(call) = endpoint.open_call(now, connection) else {
            let code = endpoint.connection_error(connection).unwrap_or(AbortCode::RX_CALL_DEAD);
            return Some(stream.conclude(number, step, End::Failed(code), now));
        };
        if step == Step::Create {
            stream.names += 1;
            stream.name = format!("{number}-{}", stream.names);
        }
        let own_file = self.place.own_files.get(number).copied().unwrap_or_default();
        let subject = Subject { place: &self.place, created: stream.created, name: &stream.name, own_file };
        let mut request = Bytes::from(step.request(&subject));
        endpoint.write(now, call, &mut request);
        let reply = Reply::new(step.has_reply_data(), step.expected(&self.place));
        let unsent = step.data(&self.place);
        stream.active = Some(Active { call, step, unsent, is_sent: false, reply });
        self.go_on(now, endpoint, number)
    }

    /// Gives up all promises, on the first stream, which is idle.
    pub(super) fn say_goodbye(&mut self, now: Monotonic, endpoint: &mut Endpoint) -> Option<Done> {
        self.streams[0].steps = [Step::GiveUp].into();
        self.begin(now, endpoint, 0)
    }

    /// Handles an event of a call.
    pub(super) fn on_call(&mut self, now: Monotonic, endpoint: &mut Endpoint, call: CallId) -> Option<Done> {
        if let Some(index) = self.served.iter().position(|(served, ..)| *served == call) {
            let (call, caller, request) = self.served.swap_remove(index);
            self.serve(now, endpoint, call, caller, request);
            return None;
        }
        let has_it = |stream: &Stream| stream.active.as_ref().is_some_and(|active| active.call == call);
        let number = self.streams.iter().position(has_it)?;
        self.go_on(now, endpoint, number)
    }

    /// Sends and reads as much as possible.
    fn go_on(&mut self, now: Monotonic, endpoint: &mut Endpoint, number: usize) -> Option<Done> {
        let stream = &mut self.streams[number];
        let active = stream.active.as_mut()?;
        active.send(now, endpoint);
        let end = active.receive(now, endpoint)?;
        let step = active.step;
        let end = match end {
            Ok(reply) => match reply.check(step, &self.place) {
                Ok(created) => {
                    stream.created = created.unwrap_or(stream.created);
                    End::Right { payload: step.payload(&self.place) }
                }
                Err(Wrong(what)) => End::Wrong(what),
            },
            Err(code) if is_busy(code) => End::Busy,
            Err(code) => End::Failed(code),
        };
        endpoint.release(now, active.call);
        Some(stream.conclude(number, step, end, now))
    }

    /// Handles a call from the server.
    pub(super) fn on_arrival(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        call: CallId,
        caller: Caller,
    ) {
        self.serve(now, endpoint, call, caller, Vec::new());
    }

    fn serve(
        &mut self,
        now: Monotonic,
        endpoint: &mut Endpoint,
        call: CallId,
        caller: Caller,
        mut request: Vec<u8>,
    ) {
        loop {
            match endpoint.read(now, call) {
                Read::Data(data) if request.len() + data.len() <= REQUEST_BYTES_MAX => {
                    request.extend_from_slice(&data);
                }
                Read::Blocked => return self.served.push((call, caller, request)),
                Read::End => break,
                Read::Data(_) | Read::Failed(_) => return endpoint.release(now, call),
            }
        }
        let mut stream = MemoryStream { incoming: [Bytes::from(request)].into(), outgoing: Vec::new() };
        match cb::dispatch(&self.callbacks, &CallContext::new(&caller), &mut stream) {
            Ok(()) => {
                endpoint.write(now, call, &mut Bytes::from(stream.outgoing));
                endpoint.end(now, call);
            }
            Err(code) => endpoint.abort(now, call, code),
        }
        endpoint.release(now, call);
    }
}

/// Maximum length of a server's request.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

impl Stream {
    /// Records a call's end: the first step is finished, unless it is to be retried.
    fn conclude(&mut self, number: usize, step: Step, end: End, now: Monotonic) -> Done {
        self.active = None;
        let begun = self.begun.unwrap_or(now);
        let resume = match end {
            End::Right { .. } => None,
            End::Busy => Some(now + BUSY_PAUSE),
            End::Wrong(_) | End::Failed(_) => Some(now + FAILURE_PAUSE),
        };
        if end != End::Busy {
            self.begun = None;
            self.steps.pop_front();
        }
        if matches!(end, End::Failed(_)) && step == Step::Create {
            // There is no file to write or remove.
            self.steps.clear();
        }
        Done { kind: step.kind(), begun, end, resume, stream: number }
    }
}

impl Active {
    fn send(&mut self, now: Monotonic, endpoint: &mut Endpoint) {
        while !self.unsent.is_empty() {
            match endpoint.write(now, self.call, &mut self.unsent) {
                Write::Accepted(_) => {}
                Write::Blocked => return,
                // The reply or the abort will show the cause.
                Write::Failed(_) => break,
            }
        }
        if !std::mem::replace(&mut self.is_sent, true) {
            endpoint.end(now, self.call);
        }
    }

    /// Returns the complete reply or the call's error, or `None` if it has not arrived yet.
    fn receive(&mut self, now: Monotonic, endpoint: &mut Endpoint) -> Option<Result<Reply, AbortCode>> {
        loop {
            match endpoint.read(now, self.call) {
                Read::Data(data) => self.reply.take(&data),
                Read::Blocked => return None,
                Read::End => return Some(Ok(std::mem::take(&mut self.reply))),
                Read::Failed(code) => return Some(Err(code)),
            }
        }
    }
}

/// A reply in the course of arrival: optionally a length of eight bytes and that many bytes of data, then
/// messages.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The expected data.
    expected: Option<Bytes>,
    has_data: bool,
    /// Number of data bytes still to come, once the length is known.
    left: Option<u64>,
    /// Number of data bytes received.
    seen: usize,
    is_wrong: bool,
    /// Messages, preceded by the bytes of the length.
    messages: Vec<u8>,
}

/// Maximum number of message bytes kept.
const MESSAGES_BYTES_MAX: usize = 64 * 1024;

impl Reply {
    pub(super) fn new(has_data: bool, expected: Option<Bytes>) -> Reply {
        Reply { expected, has_data, ..Reply::default() }
    }

    /// Processes the next bytes.
    pub(super) fn take(&mut self, mut data: &[u8]) {
        if self.has_data && self.left.is_none() {
            let wanted = 8 - self.messages.len();
            let (head, rest) = data.split_at(wanted.min(data.len()));
            self.messages.extend_from_slice(head);
            data = rest;
            let Some(length) = self.messages.first_chunk::<8>() else { return };
            self.left = Some(u64::from_be_bytes(*length));
            self.messages.clear();
        }
        let left = usize::try_from(self.left.unwrap_or(0)).unwrap_or(usize::MAX);
        let (bytes, rest) = data.split_at(left.min(data.len()));
        self.compare(bytes);
        self.left = self.left.map(|left| left - bytes.len() as u64);
        self.is_wrong |= self.messages.len() + rest.len() > MESSAGES_BYTES_MAX;
        if !self.is_wrong {
            self.messages.extend_from_slice(rest);
        }
    }

    fn compare(&mut self, bytes: &[u8]) {
        if let Some(expected) = &self.expected {
            self.is_wrong |= expected.get(self.seen..self.seen + bytes.len()) != Some(bytes);
        }
        self.seen += bytes.len();
    }

    /// Checks the complete reply.
    pub(super) fn check(&self, step: Step, place: &Place) -> Result<Option<Fid>, Wrong> {
        let is_short = self.expected.as_ref().is_some_and(|expected| expected.len() != self.seen);
        if self.is_wrong || is_short {
            return Err(Wrong("the data"));
        }
        step.check(&self.messages, place)
    }
}
