//! Passes every call to its service and counts it.

use super::admission::Admission;
use super::holdings::{Held, Holdings};
use afs_idl::CallStream;
use audit::{Call, Draft, Messages, ServiceTrail};
use base::{AbortCode, CallContext, CallFacts, Caller, Monotonic, RecvBuffer};
use bytes::Bytes;
use cell_client::network::now;
use events::parts::{self, Part};
use fileserver::Answer;
use observe::{Ended, ServiceMeter};
use rx::{Demand, ServerCall, Service};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use volume::Pending;
use waits::Client;

/// Handles a call to the service. The call ends when the changes that it made are durable: in `Dispatch`
/// itself, or when the returned value is.
pub(super) type Dispatch =
    Box<dyn Fn(&CallContext<'_>, &mut dyn CallStream) -> Pending<Result<(), AbortCode>> + Send + Sync>;

/// Returns the reply to a request with the time taken, so that counting the call need not read the clock
/// again.
type AnswerTo = dyn Fn(&CallContext<'_>, &[u8]) -> Option<Answer> + Send + Sync;

/// Requests with their callers.
type Requests<'a> = &'a [(&'a Caller, &'a [u8])];

/// Fast path for calls that can be answered without waiting.
pub(super) struct FastPath {
    /// See [`Service::try_answer`].
    pub(super) answer: Box<AnswerTo>,
    /// See [`Service::prefetch`].
    pub(super) prefetch: Box<dyn Fn(Requests<'_>) + Send + Sync>,
}

/// Returns the demand of a request; see [`Service::demand`].
pub(super) type DemandOf = Box<dyn Fn(&Caller, &[u8]) -> Demand + Send + Sync>;

/// Abort code counted for a service that panics.
const PANIC_CODE: AbortCode = AbortCode::UAEIO;

/// Adapts a generated dispatcher to the transport.
pub(super) struct Dispatcher {
    /// Which callers are served.
    pub(super) admission: Admission,
    pub(super) dispatch: Dispatch,
    pub(super) fast_path: Option<FastPath>,
    pub(super) demand: DemandOf,
    pub(super) meter: ServiceMeter,
    /// Memory held by callers of all services.
    pub(super) holdings: Arc<Holdings>,
    /// Connection to the audit, if there is one.
    pub(super) trail: Option<ServiceTrail>,
}

impl Dispatcher {
    /// Ends a call when its changes are durable. If possible, the thread that makes them durable ends it, so
    /// that its worker can continue.
    fn end(
        &self,
        served: Pending<Result<(), AbortCode>>,
        counted: &mut Counted<'_>,
    ) -> Result<(), AbortCode> {
        let served = match served.into_ready() {
            Ok(result) => return result,
            Err(served) => served,
        };
        let (result, durable) = served.into_parts();
        if result.is_err() || !counted.call.reply_is_small() || !self.has_room() {
            durable.wait().map_err(|error| error.abort_code())?;
            return result;
        }
        let count = counted.hand_over();
        counted.call.conclude_later(move |conclusion| {
            durable.when_durable(move |durable| {
                let result = durable.map_err(|error| error.abort_code());
                count.end(result);
                conclusion.end_with_others(result)
            });
        });
        result
    }

    /// Returns the time if calls are counted.
    fn clock(&self) -> Option<Monotonic> {
        self.meter.is_counting().then(rx::now)
    }

    /// Returns whether the audit has room for a record; a thread that must not block cannot wait for the
    /// audit.
    fn has_room(&self) -> bool {
        self.trail.as_ref().is_none_or(ServiceTrail::has_room)
    }
}

impl Service for Dispatcher {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        let context = CallContext::new(&caller);
        let mut counted = Counted::begin(self, &context, call);
        let result = self.admission.check(&caller).and_then(|()| {
            let served = (self.dispatch)(&context, &mut counted);
            self.end(served, &mut counted)
        });
        counted.result = result;
        result
    }

    fn try_answer(&self, caller: &Caller, request: &[u8]) -> Option<Bytes> {
        let fast_path = self.fast_path.as_ref().filter(|_| self.admission.is_open(caller))?;
        let opcode = opcode(request);
        // The fast path only succeeds; any error falls back to a worker.
        let audited = self.trail.as_ref().and_then(|trail| Some((trail, trail.begin_good(opcode)?)));
        if audited.is_some_and(|(trail, _)| !trail.has_room()) {
            return None;
        }
        self.meter.begin();
        let context = CallContext::new(caller);
        let Answer { reply, time, ended } = (fast_path.answer)(&context, request)?;
        let call = Ended {
            opcode,
            result: Ok(()),
            fast_path: true,
            received: request.len() as u64,
            sent: reply.len() as u64,
            wait_ns: 0,
            run_ns: nanoseconds(time),
            parts_ns: parts::spent_ns(),
        };
        let facts = context.facts();
        self.meter.ended(caller, &facts, &call, now);
        if let Some((trail, outline)) = audited {
            let messages = Messages { request, reply: &reply };
            trail.record(outline, messages, &recorded(caller, &facts, &call, ended));
        }
        Some(reply)
    }

    fn prefetch(&self, requests: &[(&Caller, &[u8])]) {
        if let Some(fast_path) = &self.fast_path {
            (fast_path.prefetch)(requests);
        }
    }

    fn demand(&self, caller: &Caller, request: &[u8]) -> Demand {
        (self.demand)(caller, request)
    }
}

/// A call whose bytes are counted. It is recorded when dropped, even by a panic.
struct Counted<'a> {
    of: &'a Dispatcher,
    context: &'a CallContext<'a>,
    call: &'a mut ServerCall,
    /// Start time; `None` if calls are not counted.
    begun: Option<Monotonic>,
    /// The first bytes of the request.
    head: [u8; 4],
    received: u64,
    sent: u64,
    result: Result<(), AbortCode>,
    /// Whether something else records the call.
    is_handed_over: bool,
    /// Draft of the audit record, once the opcode is known.
    draft: Option<Draft>,
    /// Memory that the caller holds for a large reply.
    held: Option<Held>,
}

impl<'a> Counted<'a> {
    fn begin(of: &'a Dispatcher, context: &'a CallContext<'a>, call: &'a mut ServerCall) -> Counted<'a> {
        let waited_ns = nanoseconds(call.waited());
        of.meter.begin();
        parts::spent(Part::Queue, waited_ns);
        waits::probes::queue_leave(waited_ns);
        if waits::is_watched() {
            waits::set_client(Client { host: context.peer.ip(), user: context.identity.to_string() });
        }
        let (begun, result) = (of.clock(), Err(PANIC_CODE));
        Counted {
            of,
            context,
            call,
            begun,
            head: [0; 4],
            received: 0,
            sent: 0,
            result,
            is_handed_over: false,
            draft: None,
            held: None,
        }
    }

    /// Returns the figures of the call up to now.
    fn so_far(&self) -> Ended {
        Ended {
            opcode: u32::from_be_bytes(self.head),
            result: self.result,
            fast_path: false,
            received: self.received,
            sent: self.sent,
            wait_ns: nanoseconds(self.call.waited()),
            run_ns: elapsed_ns(self.begun),
            parts_ns: parts::spent_ns(),
        }
    }

    /// Leaves the recording to the thread that ends the call.
    fn hand_over(&mut self) -> Owing {
        self.is_handed_over = true;
        Owing {
            meter: self.of.meter.clone(),
            audited: self.of.trail.clone().zip(self.draft.take()),
            caller: self.context.caller().clone(),
            facts: self.context.facts(),
            call: self.so_far(),
            since: self.of.clock(),
        }
    }

    fn note_received(&mut self, bytes: &[u8]) {
        let known = (self.received as usize).min(self.head.len());
        for (place, byte) in self.head[known..].iter_mut().zip(bytes) {
            *place = *byte;
        }
        if self.of.trail.is_some() {
            self.draft(known, bytes);
        }
        self.received += bytes.len() as u64;
        let is_known = known < self.head.len() && self.received >= self.head.len() as u64;
        if is_known && self.of.meter.is_counting() {
            self.begin_procedure();
        }
    }

    /// Reports the start of the call once its opcode is known.
    fn begin_procedure(&self) {
        let (opcode, waited_ns) = (u32::from_be_bytes(self.head), nanoseconds(self.call.waited()));
        waits::opcode(opcode);
        waits::queued(waited_ns);
        waits::probes::call_start(self.of.meter.name(), opcode, self.context.peer.ip(), waited_ns);
    }

    /// Passes received bytes to the audit draft; `known` bytes of the opcode were received before.
    fn draft(&mut self, known: usize, bytes: &[u8]) {
        if let Some(draft) = &mut self.draft {
            draft.received(bytes);
        } else if known < self.head.len() && known + bytes.len() >= self.head.len() {
            let outline = self.of.trail.as_ref().and_then(|trail| trail.begin(u32::from_be_bytes(self.head)));
            self.draft = outline.map(|outline| {
                let mut draft = Draft::new(outline);
                draft.received(&self.head[..known]);
                draft.received(bytes);
                draft
            });
        }
    }
}

impl CallStream for Counted<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let count = self.call.read(buf)?;
        self.note_received(&buf[..count]);
        Ok(count)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        let piece = self.call.read_chunk(max)?;
        self.note_received(&piece);
        Ok(piece)
    }

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        let known = rooms.front().map_or(0, |first| first.filled().len());
        let room = self.call.fill(rooms)?;
        self.note_received(&room.filled()[known..]);
        Ok(room)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        let bytes = data.len() as u64;
        if let Some(draft) = &mut self.draft {
            draft.sent(&data);
        }
        self.call.write(data)?;
        self.sent += bytes;
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.held.get_or_insert_with(|| Held::nothing(&self.of.holdings, self.context)).add(bytes)
    }

    fn write_held(&mut self, data: Vec<u8>) -> Result<(), AbortCode> {
        let mut held = Held::nothing(&self.of.holdings, self.context);
        if self.sent == 0 {
            held.add(data.len())?;
        } else {
            // A reply that has started continues. The send queue limits the data in flight of one call.
            held.add_anyway(data.len());
        }
        self.write(held.bytes_of(data))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.is_handed_over {
            let (caller, facts, call) = (self.context.caller(), self.context.facts(), self.so_far());
            self.of.meter.ended(caller, &facts, &call, now);
            if let (Some(trail), Some(draft)) = (&self.of.trail, &self.draft) {
                record(trail, draft, caller, &facts, &call);
            }
        }
    }
}

/// A served call that waits until its changes are durable, and is recorded when it ends.
struct Owing {
    meter: ServiceMeter,
    audited: Option<(ServiceTrail, Draft)>,
    caller: Caller,
    facts: CallFacts,
    call: Ended,
    since: Option<Monotonic>,
}

impl Owing {
    fn end(mut self, result: Result<(), AbortCode>) {
        let waited = elapsed_ns(self.since);
        let disk = &mut self.call.parts_ns[Part::Disk as usize];
        *disk = disk.saturating_add(waited);
        self.call.run_ns = self.call.run_ns.saturating_add(waited);
        self.call.result = result;
        self.meter.ended(&self.caller, &self.facts, &self.call, now);
        if let Some((trail, draft)) = &self.audited {
            record(trail, draft, &self.caller, &self.facts, &self.call);
        }
    }
}

/// Records a call that has just ended in the audit.
fn record(trail: &ServiceTrail, draft: &Draft, caller: &Caller, facts: &CallFacts, call: &Ended) {
    trail.record(draft.outline(), draft.messages(), &recorded(caller, facts, call, rx::now()));
}

fn recorded<'a>(caller: &'a Caller, facts: &'a CallFacts, call: &Ended, ended: Monotonic) -> Call<'a> {
    Call { caller, result: call.result, facts, took_ns: call.wait_ns.saturating_add(call.run_ns), ended }
}

/// Returns the opcode of a request; 0, which no service uses, if it is too short.
fn opcode(request: &[u8]) -> u32 {
    request.first_chunk().map_or(0, |head| u32::from_be_bytes(*head))
}

/// Returns the nanoseconds since a time; 0 if the clock was not read.
fn elapsed_ns(since: Option<Monotonic>) -> u64 {
    since.map_or(0, |since| nanoseconds(rx::now().since(since)))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
