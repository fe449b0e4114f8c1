//! The profile of this process; there is at most one at a time.

use crate::report::{Document, Progress, Report};
use crate::{cpu, waiting};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Maximum duration of a profile in seconds.
pub const SECONDS_MAX: u32 = 600;

/// Maximum number of samples per second and thread.
pub const HZ_MAX: u32 = 1000;

/// A profile is ended and discarded if its owner has not queried its state for this long.
pub const LEASE: Duration = Duration::from_secs(20);

/// Kind of profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Code that runs on the processors.
    Cpu,
    /// Waits of calls.
    Waits,
}

/// Parameters of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kind of profile.
    pub kind: Kind,
    /// Duration in seconds, 1 to [`SECONDS_MAX`].
    pub seconds: u32,
    /// Samples per second of each running thread, 1 to [`HZ_MAX`]; only for [`Kind::Cpu`].
    pub hz: u32,
}

/// Reason for refusing a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another profile is running.
    #[error("another profile is running, for up to {left_s} more seconds: a process takes one at a time")]
    Busy {
        /// Seconds until that profile ends by itself.
        left_s: u64,
    },
    /// A parameter is out of bounds.
    #[error("{what} is {got}, but must be between 1 and {max}")]
    Bounds {
        /// Name of the parameter.
        what: &'static str,
        /// Value of the parameter.
        got: u32,
        /// Maximum value.
        max: u32,
    },
    /// There is no such profile, or it was discarded.
    #[error("there is no profile {0}: it was abandoned, or replaced by another one")]
    Unknown(u64),
    /// The profile has not ended.
    #[error("the profile is still running")]
    NotYet,
    /// An error of the system.
    #[error("the profile could not be taken: {0}")]
    Failed(String),
}

/// Progress of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Sampling, or processing its samples.
    Runs,
    /// Its documents are available.
    Done,
}

/// State of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Whether it has ended.
    pub stage: Stage,
    /// Time that it has been running, or ran.
    pub elapsed: Duration,
    /// Number of samples taken or waits recorded.
    pub samples: u64,
    /// Periods whose samples were lost because too many arrived at once.
    pub lost: u64,
}

struct Profile {
    id: u64,
    begun: Instant,
    span: Duration,
    lease: Duration,
    progress: Progress,
    stopping: AtomicBool,
    /// Guards the time of the owner's last query, and the result; nothing blocks under the lock.
    inner: Mutex<Inner>,
}

struct Inner {
    asked: Instant,
    elapsed: Duration,
    result: Option<Result<Report, String>>,
}

/// Guards the latest profile; nothing blocks under the lock.
static LAST: Mutex<Option<Arc<Profile>>> = Mutex::new(None);

/// Starts a profile and returns its number, one of 2^63, so that it is not guessed by accident.
///
/// # Errors
/// [`Refusal::Busy`], [`Refusal::Bounds`], [`Refusal::Failed`].
pub fn start(request: Request) -> Result<u64, Refusal> {
    start_with(request, LEASE)
}

/// Starts a profile with the given lease.
pub(crate) fn start_with(request: Request, lease: Duration) -> Result<u64, Refusal> {
    bounds("the number of seconds", request.seconds, SECONDS_MAX)?;
    if request.kind == Kind::Cpu {
        bounds("the number of samples a second", request.hz, HZ_MAX)?;
    }
    let mut last = LAST.lock();
    if let Some(before) = last.as_ref().filter(|before| before.is_running()) {
        let left_s = before.span.saturating_sub(before.begun.elapsed()).as_secs();
        return Err(Refusal::Busy { left_s });
    }
    let profile = Arc::new(Profile::new(request, lease));
    let of_thread = Arc::clone(&profile);
    std::thread::Builder::new()
        .name("profiler".to_owned())
        .spawn(move || of_thread.run(request))
        .map_err(|error| Refusal::Failed(error.to_string()))?;
    let id = profile.id;
    *last = Some(profile);
    Ok(id)
}

/// Returns the state of a profile. The query keeps it alive for [`LEASE`].
///
/// # Errors
/// [`Refusal::Unknown`], and [`Refusal::Failed`] if it has failed.
pub fn state(id: u64) -> Result<State, Refusal> {
    let profile = find(id)?;
    let mut inner = profile.inner.lock();
    inner.asked = Instant::now();
    let (stage, elapsed) = match &inner.result {
        None => (Stage::Runs, profile.begun.elapsed()),
        Some(Ok(_)) => (Stage::Done, inner.elapsed),
        Some(Err(error)) => return Err(Refusal::Failed(error.clone())),
    };
    let progress = &profile.progress;
    Ok(State { stage, elapsed, samples: progress.samples.load(Relaxed), lost: progress.lost.load(Relaxed) })
}

/// Ends a profile early. Its results so far are available as soon as its state is done.
///
/// # Errors
/// [`Refusal::Unknown`].
pub fn stop(id: u64) -> Result<(), Refusal> {
    find(id)?.stopping.store(true, Relaxed);
    Ok(())
}

/// Returns a document of a profile that has ended; empty if profiles of its kind do not have it.
///
/// # Errors
/// [`Refusal::Unknown`], [`Refusal::NotYet`], [`Refusal::Failed`].
pub fn document(id: u64, document: Document) -> Result<Arc<str>, Refusal> {
    let profile = find(id)?;
    let inner = profile.inner.lock();
    match &inner.result {
        None => Err(Refusal::NotYet),
        Some(Err(error)) => Err(Refusal::Failed(error.clone())),
        Some(Ok(report)) => Ok(report.0[document as usize].clone()),
    }
}

fn bounds(what: &'static str, got: u32, max: u32) -> Result<(), Refusal> {
    if (1..=max).contains(&got) { Ok(()) } else { Err(Refusal::Bounds { what, got, max }) }
}

fn find(id: u64) -> Result<Arc<Profile>, Refusal> {
    LAST.lock().as_ref().filter(|last| last.id == id).cloned().ok_or(Refusal::Unknown(id))
}

impl Profile {
    fn new(request: Request, lease: Duration) -> Profile {
        let now = Instant::now();
        // The standard library's hasher has a random key.
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
        Profile {
            id: random >> 1 | 1,
            begun: now,
            span: Duration::from_secs(request.seconds.into()),
            lease,
            progress: Progress::default(),
            stopping: AtomicBool::new(false),
            inner: Mutex::new(Inner { asked: now, elapsed: Duration::ZERO, result: None }),
        }
    }

    fn is_running(&self) -> bool {
        self.inner.lock().result.is_none()
    }

    fn is_abandoned(&self) -> bool {
        self.inner.lock().asked.elapsed() > self.lease
    }

    fn is_over(&self) -> bool {
        self.stopping.load(Relaxed) || self.begun.elapsed() >= self.span || self.is_abandoned()
    }

    fn run(&self, request: Request) {
        let took = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.take(request)));
        let result = took.unwrap_or_else(|_| Err("the profiler panicked".to_owned()));
        if let Err(error) = &result {
            tracing::error!(error, "a profile could not be taken");
        }
        let is_abandoned = self.is_abandoned();
        self.inner.lock().result = Some(result);
        if is_abandoned {
            tracing::info!("no client polled a profile any more; it was stopped and discarded");
            let mut last = LAST.lock();
            if last.as_ref().is_some_and(|last| last.id == self.id) {
                *last = None;
            }
        }
    }

    fn take(&self, request: Request) -> Result<Report, String> {
        let is_over = || {
            let is_over = self.is_over();
            if is_over {
                self.inner.lock().elapsed = self.begun.elapsed();
            }
            is_over
        };
        match request.kind {
            Kind::Cpu => cpu::run(request.hz, &self.progress, is_over).map_err(|error| error.to_string()),
            Kind::Waits => waiting::run(&self.progress, is_over)
                .ok_or_else(|| "another listener observes waits in this process".to_owned()),
        }
    }
}
