//! A progress line, shown on terminals.

use indicatif::ProgressBar;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters of completed calls, which any thread may increase.
#[derive(Debug, Default)]
pub struct Tally {
    calls: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    is_over: AtomicBool,
}

/// Update interval of the line.
const INTERVAL: Duration = Duration::from_millis(500);

impl Tally {
    /// Counts a call and its payload.
    pub fn call(&self, bytes: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a failed call.
    pub fn failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of successful calls, their payload in bytes, and the number of failed calls.
    pub fn totals(&self) -> (u64, u64, u64) {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (get(&self.calls), get(&self.bytes), get(&self.failures))
    }

    /// Ends [`Tally::show`].
    pub fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Shows rates on the terminal until [`Tally::finish`].
    pub fn show(&self, what: &str) {
        let bar = ProgressBar::new_spinner();
        let mut last = (Instant::now(), self.totals());
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::park_timeout(INTERVAL);
            let now = (Instant::now(), self.totals());
            bar.set_message(format!("{what}: {}", rates(last.1, now.1, now.0 - last.0)));
            bar.tick();
            last = now;
        }
        bar.finish_and_clear();
    }
}

fn rates(earlier: (u64, u64, u64), now: (u64, u64, u64), span: Duration) -> String {
    let per_second = |now: u64, earlier: u64| (now - earlier) as f64 / span.as_secs_f64().max(1e-9);
    let calls = per_second(now.0, earlier.0);
    let megabytes = per_second(now.1, earlier.1) / 1e6;
    format!("{calls:.0} calls/s, {megabytes:.1} MB/s, {} calls, {} failed", now.0, now.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_interval() {
        let text = rates((10, 0, 0), (30, 4_000_000, 1), Duration::from_secs(2));
        assert_eq!(text, "10 calls/s, 2.0 MB/s, 30 calls, 1 failed");
    }

    #[test]
    fn shown_until_it_is_over() {
        let tally = Tally::default();
        tally.call(7);
        tally.failure();
        tally.finish();
        tally.show("test");
        assert_eq!(tally.totals(), (1, 7, 1));
    }
}
