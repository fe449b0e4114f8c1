//! Lets another worker run while one only waits, for its client or for a peer that it called.
//!
//! Every wait of a worker calls [`Stall::begin`], wherever in the service it occurs: a thread-local records
//! the call that the thread serves.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use fair_queue::Ticket;

use crate::workers::WorkerPool;

/// Minimum wait that justifies another thread.
pub(crate) const STALL_AFTER: Duration = Duration::from_millis(5);

/// The call that a worker's thread is serving.
struct Serving {
    pool: Arc<WorkerPool>,
    ticket: Ticket,
}

thread_local! {
    static SERVING: RefCell<Option<Serving>> = const { RefCell::new(None) };
}

/// Runs `serve` on the call of this ticket, and returns the ticket with the result.
pub(crate) fn serving<T>(
    pool: Arc<WorkerPool>,
    ticket: Ticket,
    serve: impl FnOnce() -> T,
) -> (T, Option<Ticket>) {
    SERVING.with(|it| it.replace(Some(Serving { pool, ticket })));
    let result = serve();
    (result, SERVING.with(RefCell::take).map(|serving| serving.ticket))
}

/// Lets the thread wait for this time. If it is a worker, another one may serve meanwhile.
pub fn pause(span: Duration) {
    let _stall = (span >= STALL_AFTER).then(Stall::begin);
    std::thread::sleep(span);
}

/// Runs `wait`, which may wait for something outside of this process. If this thread is a worker, another one may serve
/// meanwhile.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let _stall = Stall::begin();
    wait()
}

/// A guard during which this thread's worker does not count as working.
pub(crate) struct Stall;

impl Stall {
    /// Starts a wait. Has no effect on a thread that is not a worker.
    pub(crate) fn begin() -> Stall {
        with_serving(|serving| serving.pool.stall(&mut serving.ticket));
        Stall
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        with_serving(|serving| serving.pool.resume(&mut serving.ticket));
    }
}

fn with_serving(action: impl FnOnce(&mut Serving)) {
    SERVING.with(|it| {
        if let Some(serving) = it.borrow_mut().as_mut() {
            action(serving);
        }
    });
}
