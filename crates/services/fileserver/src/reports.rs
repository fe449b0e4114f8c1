//! Reports between threads.

use crate::environment::Reports;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Wakes waiting threads.
#[derive(Debug, Default)]
pub(crate) struct ThreadReports {
    /// The number of reports. Held only to read or change it.
    count: Mutex<u64>,
    added: Condvar,
}

impl Reports for ThreadReports {
    fn count(&self) -> u64 {
        *self.count.lock()
    }

    fn wait(&self, seen: u64, limit: Duration) -> bool {
        let mut count = self.count.lock();
        !self.added.wait_while_for(&mut count, |count| *count <= seen, limit).timed_out()
    }

    fn report(&self) {
        *self.count.lock() += 1;
        self.added.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_report_wakes_all_and_is_not_missed() {
        let reports = ThreadReports::default();
        assert!(!reports.wait(0, Duration::from_millis(1)), "there is none");
        let seen = reports.count();
        reports.report();
        assert!(reports.wait(seen, Duration::ZERO), "it came before the wait");
        let seen = reports.count();
        thread::scope(|scope| {
            let wait = || reports.wait(seen, Duration::from_secs(60));
            let waiting = [scope.spawn(wait), scope.spawn(wait)];
            reports.report();
            assert_eq!(waiting.map(|thread| thread.join().unwrap()), [true, true]);
        });
    }
}
