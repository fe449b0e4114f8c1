//! The state that a failed database is read in: the newest one that was durable.
//!
//! RocksDB shows a commit before it is durable. After a failure those that were not would be shown until the restart,
//! and then be gone. So each sync leaves a snapshot of what it covers, and the first failure keeps the newest one.

use parking_lot::Mutex;
use rocksdb::{DB, Snapshot};
use self_cell::self_cell;
use std::sync::{Arc, OnceLock};

self_cell! {
    /// A snapshot, with the database that it belongs to.
    pub(super) struct State {
        owner: Arc<DB>,
        #[covariant]
        dependent: Snapshot,
    }
}

impl State {
    /// Returns the current state.
    pub(super) fn of(db: &Arc<DB>) -> State {
        State::new(Arc::clone(db), |db| db.snapshot())
    }
}

/// The newest durable state of a database.
#[derive(Default)]
pub(super) struct Durable {
    /// Replaced by each sync; `None` after a failure, or if the database does not change.
    newest: Mutex<Option<State>>,
    /// Set at the first failure.
    last: OnceLock<State>,
}

impl Durable {
    /// Begins with the state in which a database was opened.
    pub(super) fn begin(db: &Arc<DB>) -> Durable {
        Durable { newest: Mutex::new(Some(State::of(db))), last: OnceLock::new() }
    }

    /// Replaces the state by one that was taken before a sync that succeeded. Returns `false` after a failure: the sync
    /// must not be acknowledged, since reads do not show what it covers.
    #[must_use]
    pub(super) fn advance(&self, state: State) -> bool {
        let mut newest = self.newest.lock();
        let is_open = newest.is_some();
        // The old one is released after the lock.
        let _old = if is_open { newest.replace(state) } else { Some(state) };
        drop(newest);
        is_open
    }

    /// Keeps the newest state and returns it; `None` if the database does not change.
    pub(super) fn freeze(&self) -> Option<&Snapshot<'_>> {
        let last = self.last.get().or_else(|| {
            let mut newest = self.newest.lock();
            if let Some(state) = newest.take() {
                // Set only here, under the lock.
                _ = self.last.set(state);
            }
            self.last.get()
        });
        last.map(State::borrow_dependent)
    }
}
