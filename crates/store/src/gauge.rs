//! Room on a partition, asked of the file system now and then only.

use crate::StoreError;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How old an answer may be. Small files lie in the metadata, which no reserve guards at every
/// write: in this time they take far less than the reserve.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Room on a partition in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What file data and metadata may take: the size of the file system without the reserve.
    pub total_bytes: u64,
    /// What file data may still take: not the reserve. The difference to the total is what is used, unless the reserve is
    /// in use.
    pub usable_bytes: u64,
}

/// The last answer and its time. The lock is held while the file system is asked, so that it is
/// asked once.
#[derive(Debug, Default)]
pub(crate) struct Gauge(Mutex<Option<(Instant, Room)>>);

impl Gauge {
    /// The last answer, or that of `ask` if it is too old.
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
        let old = gauge.0.lock().map(|(at, room)| (at + AGE_MAX, room));
        *gauge.0.lock() = old;
        assert_eq!(gauge.read(|| Err(StoreError::Full)).unwrap(), some);
        *gauge.0.lock() = old.and_then(|(at, room)| Some((at.checked_sub(2 * AGE_MAX)?, room)));
        assert!(gauge.read(|| Err(StoreError::Full)).is_err());
    }
}
