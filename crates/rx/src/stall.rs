//! A worker that can do nothing but wait, for its client or for somebody whom it asked, lets another
//! work in its place.
//!
//! Every wait of a worker comes to [`Stall::begin`], wherever in the service it happens: what the
//! thread serves is known to the thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use fair_queue::Ticket;

use crate::workers::WorkerPool;

/// Shorter waits are not worth another thread.
pub(crate) const STALL_AFTER: Duration = Duration::from_millis(5);

/// What a worker's thread is serving.
struct Serving {
    pool: Arc<WorkerPool>,
    ticket: Ticket,
}

thread_local! {
    static SERVING: RefCell<Option<Serving>> = const { RefCell::new(None) };
}

/// Runs `serve`, which serves the call of this ticket; gives the ticket back.
pub(crate) fn serving<T>(
    pool: Arc<WorkerPool>,
    ticket: Ticket,
    serve: impl FnOnce() -> T,
) -> (T, Option<Ticket>) {
    SERVING.with(|it| it.replace(Some(Serving { pool, ticket })));
    let result = serve();
    (result, SERVING.with(RefCell::take).map(|serving| serving.ticket))
}

/// As long as it lives, this thread's worker does not count as working.
pub(crate) struct Stall;

impl Stall {
    /// Begins a wait; on a thread that is no worker it means nothing.
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
