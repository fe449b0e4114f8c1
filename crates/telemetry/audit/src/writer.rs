//! The thread of a sink, which formats records as lines and writes them.

use crate::form::{Entry, Form, Memory, Notice, Program, Writing};
use crate::intake::Intake;
use crate::outlines::OutlinesRead;
use crate::queue::Queue;
use crate::record::{self, Record};
use crate::sink::{Batch, Done, Sink, Target};
use crate::trail::Clock;
use base::LocalAuthority;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Size of a batch in bytes.
const BATCH_BYTES: usize = 256 << 10;
/// How long to gather records, so that a busy server rarely wakes its writers.
const GATHER: Duration = Duration::from_millis(10);
/// Longest sleep, and interval of checks whether the open file is stale.
const LOOK: Duration = Duration::from_secs(1);
/// Pause before retrying a sink that accepts no more data.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// First and longest pause before reopening a failed sink.
const FAILED_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Maximum time for writing the remaining records when the server ends.
const ENDING: Duration = Duration::from_secs(3);
/// Minimum interval between log messages about a failing sink.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

/// Everything that the thread of one sink needs.
pub(crate) struct Writer {
    pub(crate) name: String,
    /// Programs whose start it records.
    pub(crate) programs: Vec<Program>,
    pub(crate) target: Target,
    pub(crate) form: Form,
    pub(crate) queue: Arc<Queue>,
    pub(crate) intake: Intake,
    pub(crate) outlines: OutlinesRead,
    pub(crate) authority: Arc<dyn LocalAuthority>,
    pub(crate) clock: Clock,
    /// Whether files have to be reopened.
    pub(crate) reopen: Arc<AtomicBool>,
    pub(crate) state: State,
}

/// Result of taking records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// All available records.
    All,
    /// A full batch; there may be more records.
    Part,
}

/// State of a writer.
#[derive(Default)]
pub(crate) struct State {
    sink: Option<Box<dyn Sink>>,
    memory: Memory,
    batch: Batch,
    /// Number of lost records that the trail has recorded.
    reported: u64,
    looked: Option<Instant>,
    complained: Option<Instant>,
    complained_of_loss: Option<Instant>,
    pause: Duration,
    /// When to give up, once the server is ending.
    until: Option<Instant>,
}

impl Writer {
    /// Writes until the queue ends.
    pub(crate) fn run(mut self) {
        self.queue.read_here();
        self.notice(Notice::On);
        for program in self.programs.clone() {
            self.notice(Notice::Started(program));
        }
        self.flush();
        while !self.queue.is_ending() {
            let found = self.fill();
            self.flush();
            match found {
                Found::Nothing => {
                    self.look_at_file();
                    self.queue.sleep(LOOK, || self.intake.is_empty());
                }
                Found::All => self.queue.gather(GATHER),
                Found::Part => {}
            }
        }
        while self.fill() != Found::Nothing {
            self.flush();
        }
        self.notice(Notice::Off);
        self.flush();
    }

    fn notice(&mut self, notice: Notice) {
        let State { memory, batch, .. } = &mut self.state;
        let mut writing = Writing { form: self.form, authority: &*self.authority, memory };
        writing.add(batch, &Entry::Trail(notice), now_ns());
    }

    /// Takes records from the queue.
    fn fill(&mut self) -> Found {
        let lost = self.queue.counts.dropped.load(Relaxed);
        if lost > self.state.reported {
            self.notice(Notice::Lost(lost - self.state.reported));
            self.complain_of_loss(lost);
            self.state.reported = lost;
        }
        let clock_ns = (self.clock)().0;
        // The clock is unrelated to the date; the offset between the two is the same for all queued records.
        let date_ns = now_ns().wrapping_sub(clock_ns);
        self.intake.look(if self.queue.is_ending() { u64::MAX } else { clock_ns });
        let State { memory, batch, .. } = &mut self.state;
        let mut writing = Writing { form: self.form, authority: &*self.authority, memory };
        let is_full = loop {
            if batch.len() >= BATCH_BYTES {
                break true;
            }
            let Some((words, thread)) = self.intake.next() else { break false };
            let record = Record::new(words, self.outlines.of(record::procedure(words)), thread);
            writing.add(batch, &Entry::Call(record), record.ended_ns().wrapping_add(date_ns));
        };
        self.intake.put_back();
        match (batch.is_done(), is_full) {
            (true, _) => Found::Nothing,
            (false, true) => Found::Part,
            (false, false) => Found::All,
        }
    }

    /// Writes the batch, however long it takes while the server runs.
    fn flush(&mut self) {
        let mut before = Done::default();
        while !self.state.batch.is_done() {
            self.look_at_file();
            let result = self.write();
            self.count(&mut before);
            let Err(error) = result else { break };
            if self.must_give_up() {
                let left = self.state.batch.records_left();
                self.queue.counts.dropped.fetch_add(left, Relaxed);
                tracing::error!(sink = self.name, lost = left, %error, "could not write all audit records");
                break;
            }
            self.suffer(&error);
        }
        self.state.batch.clear();
    }

    fn write(&mut self) -> io::Result<()> {
        if self.state.sink.is_none() {
            self.state.sink = Some(self.target.open()?);
            self.queue.counts.opened.fetch_add(1, Relaxed);
        }
        let Some(sink) = &mut self.state.sink else { return Ok(()) };
        let result = sink.write(&mut self.state.batch);
        if result.is_ok() {
            self.recovered();
        }
        result
    }

    fn count(&self, before: &mut Done) {
        let done = self.state.batch.progress();
        let counts = &self.queue.counts;
        counts.records.fetch_add(done.records - before.records, Relaxed);
        counts.written.fetch_add(done.bytes.saturating_sub(before.bytes), Relaxed);
        *before = done;
    }

    fn must_give_up(&mut self) -> bool {
        self.queue.is_ending()
            && Instant::now() >= *self.state.until.get_or_insert_with(|| Instant::now() + ENDING)
    }

    /// Logs an error and pauses.
    fn suffer(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::WouldBlock {
            return std::thread::sleep(FULL_PAUSE);
        }
        self.state.sink = None;
        let counts = &self.queue.counts;
        counts.failures.fetch_add(1, Relaxed);
        counts.failing.store(true, Relaxed);
        if is_due(&mut self.state.complained) {
            let target = self.target.describe();
            tracing::error!(sink = self.name, place = target, %error, "cannot write the audit trail; \
                retrying");
        }
        self.state.pause = (self.state.pause * 2).clamp(FAILED_PAUSES[0], FAILED_PAUSES[1]);
        let pause = if self.queue.is_ending() { FAILED_PAUSES[0] } else { self.state.pause };
        std::thread::park_timeout(pause);
    }

    fn recovered(&mut self) {
        self.state.pause = Duration::ZERO;
        if self.queue.counts.failing.swap(false, Relaxed) {
            tracing::info!(sink = self.name, "the audit trail is written again");
        }
    }

    fn complain_of_loss(&mut self, lost: u64) {
        if is_due(&mut self.state.complained_of_loss) {
            tracing::warn!(sink = self.name, lost, "audit records were lost: the sink does not keep up");
        }
    }

    /// Closes a file that was renamed or removed, or that has to be reopened.
    fn look_at_file(&mut self) {
        let is_asked = self.reopen.swap(false, Relaxed);
        let is_due = self.state.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if is_due {
            self.state.looked = Some(Instant::now());
        }
        let is_stale = || self.state.sink.as_ref().is_some_and(|sink| sink.is_stale());
        if is_asked || is_due && is_stale() {
            self.state.sink = None;
        }
    }
}

/// Whether another log message is due; if so, records the current time.
fn is_due(last: &mut Option<Instant>) -> bool {
    let due = last.is_none_or(|last| last.elapsed() >= COMPLAINT_PERIOD);
    if due {
        *last = Some(Instant::now());
    }
    due
}

/// Returns the time in nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
