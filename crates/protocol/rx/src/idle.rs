//! Measures how long a thread has been idle.

use base::Monotonic;
use parking_lot::Mutex;

/// Total time that one thread has slept, including a sleep in progress.
#[derive(Debug, Default)]
pub(crate) struct IdleTime {
    /// Nanoseconds of finished sleeps, and the start of the current one. The lock guards nothing else and is
    /// never held while waiting.
    slept: Mutex<(u64, Option<Monotonic>)>,
}

impl IdleTime {
    /// Records that the thread goes to sleep.
    pub(crate) fn begin(&self, now: Monotonic) {
        self.slept.lock().1 = Some(now);
    }

    /// Records that the thread woke up.
    pub(crate) fn end(&self, now: Monotonic) {
        let mut slept = self.slept.lock();
        slept.0 += since(slept.1.take(), now);
    }

    /// Returns the nanoseconds slept until `now`.
    pub(crate) fn until(&self, now: Monotonic) -> u64 {
        let slept = self.slept.lock();
        slept.0 + since(slept.1, now)
    }
}

fn since(began: Option<Monotonic>, now: Monotonic) -> u64 {
    began.map_or(0, |began| now.0.saturating_sub(began.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_counts_while_it_lasts_and_once() {
        let idle = IdleTime::default();
        assert_eq!(idle.until(Monotonic(100)), 0);
        idle.begin(Monotonic(100));
        assert_eq!(idle.until(Monotonic(130)), 30);
        idle.end(Monotonic(150));
        assert_eq!([idle.until(Monotonic(150)), idle.until(Monotonic(900))], [50, 50]);
        idle.end(Monotonic(950));
        idle.begin(Monotonic(1000));
        assert_eq!(idle.until(Monotonic(1001)), 51);
    }
}
