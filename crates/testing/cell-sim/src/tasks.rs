//! Threads that take turns: exactly one runs at a time, and only the world decides which one is next.
//!
//! The code of servers blocks: on a call to a client, on data that has not arrived, on the disk. Here, a thread
//! that would block calls [`wait`] instead, which returns when the world has seen the awaited event and has
//! chosen this thread. Between two waits a thread runs alone, so a history depends on its seed only.

use base::Monotonic;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::stream::Incoming;

/// Real time after which a thread that does not wait in [`wait`] is considered stuck.
const STUCK: Duration = Duration::from_secs(60);

/// The event that a thread waits for.
#[derive(Clone, Debug)]
pub(crate) enum Wait {
    /// Its turn only.
    Turn,
    /// The end of an outgoing call.
    Call(u64),
    /// A time.
    Until(Monotonic),
    /// Data of an incoming call.
    Data(Arc<Incoming>),
    /// More than `seen` reports, or a time.
    Reports { count: Arc<AtomicU64>, seen: u64, until: Monotonic },
}

/// The machine of this thread has crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crashed;

/// The result of a turn.
enum Turn {
    Waits(Wait),
    Ended(Result<(), Box<dyn Any + Send>>),
}

/// A thread's connection to the world.
struct Link {
    wake: Receiver<()>,
    turns: Sender<Turn>,
    is_off: Arc<AtomicBool>,
}

thread_local! {
    static LINK: RefCell<Option<Link>> = const { RefCell::new(None) };
}

/// Returns whether this thread is one of those that take turns.
pub(crate) fn is_task() -> bool {
    LINK.with_borrow(Option::is_some)
}

/// Ends this thread's turn until the world has seen an event.
///
/// # Errors
/// If the thread's machine has crashed. The thread should end soon; further waits fail as well.
///
/// # Panics
/// On a thread that takes no turns.
pub(crate) fn wait(wait: Wait) -> Result<(), Crashed> {
    LINK.with_borrow(|link| {
        let link = link.as_ref().expect("a thread that takes turns");
        if link.is_off.load(SeqCst) {
            return Err(Crashed);
        }
        link.turns.send(Turn::Waits(wait)).map_err(|_| Crashed)?;
        link.wake.recv().map_err(|_| Crashed)?;
        if link.is_off.load(SeqCst) { Err(Crashed) } else { Ok(()) }
    })
}

struct Task {
    name: String,
    wait: Wait,
    is_off: Arc<AtomicBool>,
    wake: Sender<()>,
    turns: Receiver<Turn>,
    thread: JoinHandle<()>,
}

/// All threads of a world, by number.
#[derive(Default)]
pub(crate) struct Tasks {
    started: u64,
    tasks: BTreeMap<u64, Task>,
}

impl Tasks {
    /// Starts a thread that waits for its first turn. When `is_off` is set, its waits fail.
    pub(crate) fn start(
        &mut self,
        name: String,
        is_off: Arc<AtomicBool>,
        body: impl FnOnce() + Send + 'static,
    ) {
        let ((wake, woken), (ends, turns)) = (channel(), channel());
        let off = Arc::clone(&is_off);
        let run = move || {
            if woken.recv().is_err() {
                return;
            }
            LINK.set(Some(Link { wake: woken, turns: ends.clone(), is_off: off }));
            let result = catch_unwind(AssertUnwindSafe(body));
            // The world may be gone.
            _ = ends.send(Turn::Ended(result));
        };
        let thread = Builder::new().name(name.clone()).spawn(run).expect("a thread");
        self.started += 1;
        let task = Task { name, wait: Wait::Turn, is_off, wake, turns, thread };
        self.tasks.insert(self.started, task);
    }

    /// Returns the threads whose event has happened, given a function that decides this.
    pub(crate) fn ready(&self, has_happened: impl Fn(&Wait) -> bool) -> Vec<u64> {
        let is_ready = |task: &Task| task.is_off.load(SeqCst) || has_happened(&task.wait);
        self.tasks.iter().filter(|(_, task)| is_ready(task)).map(|(number, _)| *number).collect()
    }

    /// Returns the earliest time that a thread waits for.
    pub(crate) fn next_time(&self) -> Option<Monotonic> {
        let time = |task: &Task| match task.wait {
            Wait::Until(until) | Wait::Reports { until, .. } => Some(until),
            Wait::Turn | Wait::Call(_) | Wait::Data(_) => None,
        };
        self.tasks.values().filter_map(time).min()
    }

    /// Gives a thread its turn. Returns when it waits again or has ended.
    ///
    /// # Panics
    /// If the thread panics, or blocks elsewhere than in [`wait`].
    pub(crate) fn run(&mut self, number: u64) {
        let task = self.tasks.get_mut(&number).expect("a thread that has not ended");
        task.wake.send(()).expect("the thread waits");
        match task.turns.recv_timeout(STUCK) {
            Ok(Turn::Waits(wait)) => task.wait = wait,
            Ok(Turn::Ended(result)) => {
                let task = self.tasks.remove(&number).expect("it has just run");
                _ = task.thread.join();
                if let Err(panic) = result {
                    eprintln!("the panic above is in {}", task.name);
                    resume_unwind(panic);
                }
            }
            Err(error) => {
                panic!("{} blocks, but not in the simulation, after {:?}: {error}", task.name, task.wait)
            }
        }
    }

    /// Runs all threads whose machine has crashed, until they have ended.
    pub(crate) fn run_crashed(&mut self) {
        while let Some(number) = self.crashed() {
            self.run(number);
        }
    }

    fn crashed(&self) -> Option<u64> {
        self.tasks.iter().find(|(_, task)| task.is_off.load(SeqCst)).map(|(number, _)| *number)
    }

    /// Returns what each thread waits for, for messages.
    pub(crate) fn waiting(&self) -> Vec<String> {
        self.tasks.values().map(|task| format!("{}: {:?}", task.name, task.wait)).collect()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in std::mem::take(&mut self.tasks).into_values() {
            drop((task.wake, task.turns));
            if !std::thread::panicking() {
                _ = task.thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn threads_take_turns_in_the_order_of_the_world() {
        let (mut tasks, log) = (Tasks::default(), Arc::new(Mutex::new(Vec::new())));
        let is_off = Arc::new(AtomicBool::new(false));
        for name in ["a", "b"] {
            let log = Arc::clone(&log);
            tasks.start(name.into(), Arc::clone(&is_off), move || {
                log.lock().push(format!("{name}1"));
                let result = wait(Wait::Until(Monotonic(5)));
                log.lock().push(format!("{name}2 {result:?}"));
            });
        }
        assert_eq!(tasks.ready(|wait| matches!(wait, Wait::Turn)), [1, 2]);
        tasks.run(2);
        tasks.run(1);
        assert_eq!((tasks.ready(|_| false), tasks.next_time()), (Vec::new(), Some(Monotonic(5))));
        tasks.run(1);
        is_off.store(true, SeqCst);
        tasks.run_crashed();
        assert_eq!(*log.lock(), ["b1", "a1", "a2 Ok(())", "b2 Err(Crashed)"]);
        assert!(tasks.tasks.is_empty() && !is_task());
    }

    #[test]
    fn a_panic_of_a_thread_reaches_the_world() {
        let mut tasks = Tasks::default();
        tasks.start("it".into(), Arc::default(), || panic!("a test wanted this"));
        assert!(catch_unwind(AssertUnwindSafe(|| tasks.run(1))).is_err());
    }
}
