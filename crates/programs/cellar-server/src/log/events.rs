//! Log lines of individual events that pass `events::lines`, written by a separate thread.

use ::events::lines::Line;
use ::events::{FieldValue, LINES};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Period of the line limit, after which the number of dropped lines is logged.
const PERIOD: Duration = Duration::from_secs(1);

/// Interval at which the thread checks whether to end.
const NAP: Duration = Duration::from_millis(100);

/// The writer thread. Dropping it writes the remaining lines and ends the thread.
pub struct EventLog {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EventLog {
    /// Starts writing event lines.
    pub fn start() -> EventLog {
        let (lines, ending) = (LINES.open(), Arc::<AtomicBool>::default());
        let is_ending = ending.clone();
        let thread = crate::threads::thread("event-log", move || write_all(&lines, &is_ending));
        EventLog { ending, thread: Some(thread) }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that logs events panicked");
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

/// Logs how many lines were dropped beyond `before`, and returns the present count.
fn say_left_out(before: u64) -> u64 {
    let now = left_out();
    if now > before {
        tracing::warn!(target: "event", lines = now - before, "event lines were dropped: there were more \
            than `observe.log_events_per_second`, or the log did not keep up");
    }
    now
}

pub(super) fn write(line: &Line) {
    tracing::info!(target: "event", fields = ?Named(line), "{}", line.event);
}

/// A line as a structure with named values.
struct Named<'a>(&'a Line);

impl Debug for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Event");
        for (name, reported) in &self.0.reported {
            match reported {
                FieldValue::Text(text) => shown.field(name, text),
                FieldValue::Number(number) => shown.field(name, number),
                FieldValue::Code(code) => shown.field(name, code),
            };
        }
        shown.finish()
    }
}
