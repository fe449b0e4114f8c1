//! Free space on a partition, with the file system queried only from time to time.

use crate::StoreError;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Maximum age of a cached answer. Small files are stored in metadata, whose writes are not checked against
/// the reserve; within this time they use far less than the reserve.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Space on a partition in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Space that file data and metadata may use: the size of the file system without the reserve.
    pub total_bytes: u64,
    /// Space still available to file data, without the reserve. The difference to the total is the space
    /// used, unless the reserve is in use.
    pub usable_bytes: u64,
}

/// The last answer and its time. The lock is held during the query, so that concurrent callers share it.
#[derive(Debug, Default)]
pub(crate) struct Gauge(Mutex<Option<(Instant, Room)>>);

impl Gauge {
    /// Returns the last answer, or the result of `ask` if that answer is too old.
    pub(crate) fn read(&self, ask: impl FnOnce() -> Result<Room, StoreError>) -> Result<Room, StoreError> {
        let mut last = self.0.lock();
        let now = Instant::now();
        if let Some((_, room)) = last.filter(|(at, _)| now.duration_since(*at) < AGE_MAX) {
            return Ok(room);
        }
        let room = ask()?;
        *last = Some((now, room));
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_serves_for_a_while_and_a_failure_for_none() {
        let gauge = Gauge::default();
        let some = Room { total_bytes: 2, usable_bytes: 1 };
        assert!(gauge.read(|| Err(StoreError::Full)).is_err());
        assert_eq!(gauge.read(|| Ok(some)).unwrap(), some);
        let old = gauge.0.lock().map(|(at, room)| (at + 100 * AGE_MAX, room));
        *gauge.0.lock() = old;
        assert_eq!(gauge.read(|| Err(StoreError::Full)).unwrap(), some);
        *gauge.0.lock() = old.and_then(|(at, room)| Some((at.checked_sub(102 * AGE_MAX)?, room)));
        assert!(gauge.read(|| Err(StoreError::Full)).is_err());
    }
}
