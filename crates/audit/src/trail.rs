//! All sinks together, and a service's way to them.

use crate::class::Filter;
use crate::draft::{Messages, Outline};
use crate::event::UNKNOWN;
use crate::form::{Form, Program};
use crate::intake::Intake;
use crate::outlines::Outlines;
use crate::pen;
use crate::queue::{Policy, Queue};
use crate::record::outcome;
use crate::sink::Target;
use crate::slip::{Call, Slip};
use crate::tables;
use crate::writer::{State, Writer};
use base::{LocalAuthority, Monotonic};
use crossbeam::channel::{Receiver, Sender, bounded};
use events::catalogue::{AuditFigures, Outcome};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long is waited for the threads of sinks when the server ends. One that hangs in the operating system,
/// like on a file server that is gone, is left behind.
const ENDING: Duration = Duration::from_secs(5);

/// What the trail's clock is asked with: the clock of [`Call::ended`].
pub type Clock = fn() -> Monotonic;

/// What one sink is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSettings {
    /// Its name, for people.
    pub name: String,
    /// Where its lines go.
    pub target: Target,
    /// How they look.
    pub form: Form,
    /// What it wants.
    pub filter: Filter,
    /// What happens when it does not keep up.
    pub policy: Policy,
    /// Records that may wait for it.
    pub queue_records: usize,
}

/// The audit.
#[derive(Debug)]
pub struct Trail {
    sinks: Vec<Lane>,
    /// What any sink wants.
    filter: Filter,
    outlines: Arc<Outlines>,
    /// Somebody measures what an audit costs, and calls are not recorded now.
    is_off: AtomicBool,
    /// Guards the way in which threads say that they have ended; used when the server ends.
    ended: Mutex<Option<Receiver<()>>>,
}

/// A sink as those see it who serve.
#[derive(Debug)]
struct Lane {
    name: String,
    filter: Filter,
    queue: Arc<Queue>,
    reopen: Arc<AtomicBool>,
}

impl Trail {
    /// Starts a thread for each sink. `authority` says whose realm is the cell's own; each sink is told that the
    /// programs have been started.
    ///
    /// # Errors
    /// No thread can be started. A sink that cannot be opened is none: it is tried again and again.
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

    /// The way for calls of a service, by the name that they are counted under; its procedures sorted by opcode.
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

    /// Whether calls are recorded; they are unless somebody measures what that costs.
    pub fn listen(&self, is_on: bool) {
        self.is_off.store(!is_on, Relaxed);
    }

    /// Whether any sink wants such a call.
    fn wants(&self, outline: &Outline, is_denied: bool) -> bool {
        self.filter.wants(outline.event.class, is_denied) && !self.is_off.load(Relaxed)
    }

    /// Whether a call that must not wait can be recorded; if not, somebody has to serve it who may wait.
    pub fn has_room(&self) -> bool {
        self.sinks.iter().all(|sink| sink.queue.has_room())
    }

    /// Opens files anew: somebody has renamed them.
    pub fn reopen(&self) {
        for sink in &self.sinks {
            sink.reopen.store(true, Relaxed);
            sink.queue.rouse();
        }
    }

    /// What was counted, by the names of sinks.
    pub fn figures(&self) -> Vec<(&str, AuditFigures)> {
        self.sinks.iter().map(|sink| (&sink.name[..], sink.queue.figures())).collect()
    }

    /// No call waits for a sink any more; what there is no room for is lost. To be called before
    /// whoever serves is asked to end.
    pub fn ending(&self) {
        self.sinks.iter().for_each(|sink| sink.queue.let_go());
    }

    /// Writes what is left, and ends. Calls that end later are not recorded.
    pub fn stop(&self) {
        self.sinks.iter().for_each(|sink| sink.queue.end());
        let Some(ended) = self.ended.lock().take() else { return };
        // Nothing is ever sent: the channel is closed when the last thread has ended.
        let deadline = Instant::now() + ENDING;
        if ended
            .recv_deadline(deadline)
            .is_err_and(|error| error == crossbeam::channel::RecvTimeoutError::Timeout)
        {
            tracing::error!("a sink of the audit hangs; it is left behind");
        }
    }

    fn record(&self, outline: &Outline, slip: &Slip<'_>, is_denied: bool) {
        for sink in self.sinks.iter().filter(|sink| sink.filter.wants(outline.event.class, is_denied)) {
            pen::push(&sink.queue, slip);
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What all sinks have in common.
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
            // Closed by whatever ends the thread.
            let _ended = ended;
            writer.run();
        };
        std::thread::Builder::new().name(format!("audit {}", settings.name)).spawn(run)?;
        Ok(Lane { name: settings.name.clone(), filter: settings.filter, queue, reopen })
    }
}

/// A service's way to the audit.
#[derive(Clone, Debug)]
pub struct ServiceTrail {
    trail: Arc<Trail>,
    /// With opcodes, by which they are sorted.
    outlines: Arc<[(u32, Outline)]>,
    /// Of opcodes that the service does not have.
    unknown: Outline,
    /// The lowest opcode, and where the outlines of those are that follow on it: most are among them.
    first: u32,
    near: [Option<u16>; NEAR_OPCODES],
}

/// How many opcodes from the lowest on are found without a search.
const NEAR_OPCODES: usize = 64;

impl ServiceTrail {
    /// How to record a call with this opcode; `None` if no sink could want it.
    pub fn begin(&self, opcode: u32) -> Option<&Outline> {
        self.outline(opcode, true)
    }

    /// The same of a call that has ended well: no sink wants it for having been denied.
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

    /// Whether a call that must not wait can be recorded.
    pub fn has_room(&self) -> bool {
        self.trail.has_room()
    }

    /// Records a call that has ended, and whose outline this is, if a sink wants it.
    pub fn record(&self, outline: &Outline, messages: Messages<'_>, call: &Call<'_>) {
        let is_denied = call.result.is_err() && outcome(outline.service, call.result) == Outcome::Denied;
        if self.trail.wants(outline, is_denied) {
            self.trail.record(outline, &Slip::new(outline, call, messages, is_denied), is_denied);
        }
    }
}
