//! Lines of single events: what `events::lines` lets through, written by a thread of its own.

use ::events::lines::Line;
use ::events::{LINES, Told};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often as many lines may be written again, and it is said how many were left out.
const PERIOD: Duration = Duration::from_secs(1);

/// How long the thread may take to hear that it is to end.
const NAP: Duration = Duration::from_millis(100);

/// The thread. Dropped, it writes what was told until then and ends.
pub struct EventLog {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EventLog {
    /// Writes what is told from now on.
    pub fn start() -> EventLog {
        let (lines, ending) = (LINES.open(), Arc::<AtomicBool>::default());
        let is_ending = ending.clone();
        let thread = crate::serve::thread("event-log", move || write_all(&lines, &is_ending));
        EventLog { ending, thread: Some(thread) }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes lines of events panicked");
        }
    }
}

fn write_all(lines: &Receiver<Line>, ending: &AtomicBool) {
    let (mut begun, mut left_out) = (Instant::now(), left_out());
    loop {
        let is_last = ending.load(Ordering::Relaxed);
        match lines.recv_timeout(NAP) {
            Ok(line) => write(&line),
            Err(RecvTimeoutError::Timeout) if is_last => return,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if begun.elapsed() >= PERIOD || is_last {
            begun = Instant::now();
            LINES.refill();
            left_out = say_left_out(left_out);
        }
    }
}

fn left_out() -> u64 {
    LINES.figures().iter().map(|figures| figures.dropped).sum()
}

/// Says how many lines were left out since there were `before`.
fn say_left_out(before: u64) -> u64 {
    let now = left_out();
    if now > before {
        tracing::warn!(target: "event", lines = now - before, "lines of events were left out: there were more than \
            `observe.log_events_per_second`, or the log did not keep up");
    }
    now
}

pub(super) fn write(line: &Line) {
    tracing::info!(target: "event", told = ?Named(line), "{}", line.event);
}

/// What a line tells, as a structure.
struct Named<'a>(&'a Line);

impl Debug for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Event");
        for (name, told) in &self.0.told {
            match told {
                Told::Text(text) => shown.field(name, text),
                Told::Number(number) => shown.field(name, number),
                Told::Code(code) => shown.field(name, code),
            };
        }
        shown.finish()
    }
}
