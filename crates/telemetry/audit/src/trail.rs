//! All sinks together, and the interface for services.

use crate::class::Filter;
use crate::draft::{Messages, Outline};
use crate::event::{Event, UNKNOWN};
use crate::form::{Form, Program};
use crate::intake::Intake;
use crate::outlines::Outlines;
use crate::queue::{Policy, Queue};
use crate::raw_record::{Call, RawRecord};
use crate::record::outcome;
use crate::sink::Target;
use crate::tables;
use crate::thread_writer;
use crate::writer::{State, Writer};
use base::{LocalAuthority, Monotonic};
use crossbeam::channel::{Receiver, Sender, bounded};
use events::catalogue::{AuditFigures, Outcome};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum time to wait for the threads of sinks when the server ends. A thread that hangs in the operating
/// system, for example on an unreachable file server, is abandoned.
const ENDING: Duration = Duration::from_secs(5);

/// The trail's clock, which is also the clock of [`Call::ended`].
pub type Clock = fn() -> Monotonic;

/// Settings of one sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSettings {
    /// Name for messages.
    pub name: String,
    /// Destination of its lines.
    pub target: Target,
    /// Format of its lines.
    pub form: Form,
    /// Calls that it records.
    pub filter: Filter,
    /// What happens when it does not keep up.
    pub policy: Policy,
    /// Maximum number of queued records.
    pub queue_records: usize,
}

/// The audit.
#[derive(Debug)]
pub struct Trail {
    sinks: Vec<Lane>,
    /// Calls that any sink selects.
    filter: Filter,
    outlines: Arc<Outlines>,
    /// Whether recording is off, to measure its cost.
    is_off: AtomicBool,
    /// Guards the channel by which threads report that they have ended; used when the server ends.
    ended: Mutex<Option<Receiver<()>>>,
}

/// A sink as seen by serving threads.
#[derive(Debug)]
struct Lane {
    name: String,
    filter: Filter,
    queue: Arc<Queue>,
    reopen: Arc<AtomicBool>,
}

impl Trail {
    /// Starts a thread for each sink. `authority` decides whether a realm is the cell's own; each sink
    /// records the start of the programs.
    ///
    /// # Errors
    /// A thread cannot be started. A sink that cannot be opened is not an error: opening it is retried.
    pub fn start(
        settings: &[SinkSettings],
        programs: &[Program],
        authority: &Arc<dyn LocalAuthority>,
        clock: Clock,
    ) -> io::Result<Trail> {
        let (sender, ended) = bounded(0);
        let outlines = Arc::<Outlines>::default();
        let common = Common { programs, authority, outlines: &outlines, clock };
        let sinks = settings.iter().map(|sink| Lane::start(sink, &common, sender.clone()));
        let sinks = sinks.collect::<io::Result<Vec<Lane>>>()?;
        let filter = sinks.iter().fold(Filter::NOTHING, |filter, sink| filter.or(sink.filter));
        Ok(Trail { sinks, filter, outlines, is_off: AtomicBool::new(false), ended: Mutex::new(Some(ended)) })
    }

    /// Returns the interface for a service, by the name that its calls are counted under; `procedures` must
    /// be sorted by opcode.
    pub fn service(
        self: &Arc<Self>,
        name: &'static str,
        procedures: &'static [(u32, &'static str)],
    ) -> ServiceTrail {
        let events = tables::events(name);
        let event = |opcode| events.iter().find(|event| event.opcode == opcode).unwrap_or(&UNKNOWN);
        let outline = |&(opcode, procedure): &(u32, &'static str)| {
            (opcode, self.outlines.add(event(opcode), name, procedure))
        };
        let outlines: Arc<[(u32, Outline)]> = procedures.iter().map(outline).collect();
        let unknown = self.outlines.add(&UNKNOWN, name, "unknown");
        let first = procedures.first().map_or(0, |(opcode, _)| *opcode);
        let place = |opcode| outlines.binary_search_by_key(&opcode, |(opcode, _)| *opcode).ok();
        let near = std::array::from_fn(|above| place(first.wrapping_add(above as u32)).map(|at| at as u16));
        ServiceTrail { trail: Arc::clone(self), outlines, unknown, first, near }
    }

    /// Returns the outline of an event of a service.
    pub(crate) fn outline(
        &self,
        event: &'static Event,
        service: &'static str,
        name: &'static str,
    ) -> Outline {
        self.outlines.add(event, service, name)
    }

    /// Turns recording on or off. It is on unless its cost is being measured.
    pub fn listen(&self, is_on: bool) {
        self.is_off.store(!is_on, Relaxed);
    }

    /// Whether any sink selects such a call.
    fn wants(&self, outline: &Outline, is_denied: bool) -> bool {
        self.filter.wants(outline.event.class, is_denied) && !self.is_off.load(Relaxed)
    }

    /// Whether a call that must not block can be recorded; if not, a thread that may block has to serve it.
    pub fn has_room(&self) -> bool {
        self.sinks.iter().all(|sink| sink.queue.has_room())
    }

    /// Reopens files, after they were renamed.
    pub fn reopen(&self) {
        for sink in &self.sinks {
            sink.reopen.store(true, Relaxed);
            sink.queue.rouse();
        }
    }

    /// Returns the counters of each sink, by name.
    pub fn figures(&self) -> Vec<(&str, AuditFigures)> {
        self.sinks.iter().map(|sink| (&sink.name[..], sink.queue.figures())).collect()
    }

    /// Stops calls from waiting for a sink; records without space are dropped. Call it before the serving
    /// threads are stopped.
    pub fn ending(&self) {
        self.sinks.iter().for_each(|sink| sink.queue.let_go());
    }

    /// Writes the remaining records and ends. Calls that end later are not recorded.
    pub fn stop(&self) {
        self.sinks.iter().for_each(|sink| sink.queue.end());
        let Some(ended) = self.ended.lock().take() else { return };
        // Nothing is ever sent: the channel closes when the last thread has ended.
        let deadline = Instant::now() + ENDING;
        if ended
            .recv_deadline(deadline)
            .is_err_and(|error| error == crossbeam::channel::RecvTimeoutError::Timeout)
        {
            tracing::error!("an audit sink hangs; shutting down without it");
        }
    }

    /// Records something, if a sink selects it.
    pub(crate) fn record_if_wanted(&self, outline: &Outline, raw_record: &RawRecord<'_>, is_denied: bool) {
        if self.wants(outline, is_denied) {
            self.record(outline, raw_record, is_denied);
        }
    }

    fn record(&self, outline: &Outline, raw_record: &RawRecord<'_>, is_denied: bool) {
        for sink in self.sinks.iter().filter(|sink| sink.filter.wants(outline.event.class, is_denied)) {
            thread_writer::push(&sink.queue, raw_record);
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Settings that all sinks share.
struct Common<'a> {
    programs: &'a [Program],
    authority: &'a Arc<dyn LocalAuthority>,
    outlines: &'a Arc<Outlines>,
    clock: Clock,
}

impl Lane {
    fn start(settings: &SinkSettings, common: &Common<'_>, ended: Sender<()>) -> io::Result<Lane> {
        let queue = Arc::new(Queue::new(settings.queue_records, settings.policy));
        let reopen = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            name: settings.name.clone(),
            programs: common.programs.to_vec(),
            target: settings.target.clone(),
            form: settings.form,
            queue: queue.clone(),
            intake: Intake::new(queue.clone()),
            outlines: common.outlines.reader(),
            authority: common.authority.clone(),
            clock: common.clock,
            reopen: reopen.clone(),
            state: State::default(),
        };
        let run = move || {
            // Dropped however the thread ends.
            let _ended = ended;
            writer.run();
        };
        std::thread::Builder::new().name(format!("audit {}", settings.name)).spawn(run)?;
        Ok(Lane { name: settings.name.clone(), filter: settings.filter, queue, reopen })
    }
}

/// A service's interface to the audit.
#[derive(Clone, Debug)]
pub struct ServiceTrail {
    trail: Arc<Trail>,
    /// Outlines by opcode, sorted.
    outlines: Arc<[(u32, Outline)]>,
    /// Outline for opcodes that the service does not have.
    unknown: Outline,
    /// Lowest opcode, and the indices of the outlines for the opcodes that follow it, which are most of them.
    first: u32,
    near: [Option<u16>; NEAR_OPCODES],
}

/// Number of opcodes, from the lowest, that are found without a search.
const NEAR_OPCODES: usize = 64;

impl ServiceTrail {
    /// Returns the outline for a call with this opcode; `None` if no sink may select it.
    pub fn begin(&self, opcode: u32) -> Option<&Outline> {
        self.outline(opcode, true)
    }

    /// Returns the outline for a call that has succeeded, so that filters for denied calls do not apply.
    pub fn begin_good(&self, opcode: u32) -> Option<&Outline> {
        self.outline(opcode, false)
    }

    fn outline(&self, opcode: u32, is_denied: bool) -> Option<&Outline> {
        let outline = self.place(opcode).map_or(&self.unknown, |place| &self.outlines[place].1);
        self.trail.wants(outline, is_denied).then_some(outline)
    }

    fn place(&self, opcode: u32) -> Option<usize> {
        match self.near.get(opcode.wrapping_sub(self.first) as usize) {
            Some(place) => place.map(usize::from),
            None => self.outlines.binary_search_by_key(&opcode, |(opcode, _)| *opcode).ok(),
        }
    }

    /// Whether a call that must not block can be recorded.
    pub fn has_room(&self) -> bool {
        self.trail.has_room()
    }

    /// Records a call with this outline that has ended, if a sink selects it.
    pub fn record(&self, outline: &Outline, messages: Messages<'_>, call: &Call<'_>) {
        let is_denied = call.result.is_err() && outcome(outline.service, call.result) == Outcome::Denied;
        self.trail.record_if_wanted(outline, &RawRecord::new(outline, call, messages, is_denied), is_denied);
    }
}
