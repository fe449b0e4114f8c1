//! Slow calls, and where their time went.

use crate::recorder::{ClientKey, Procedure};
use base::{AbortCode, UnixTime};
use events::parts::PARTS;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Maximum number of calls kept. To make room, the oldest call of the most frequent procedure is dropped, so
/// that one slow FetchStatus remains visible among thousands of slow stores.
const CALLS_MAX: usize = 256;

/// Name in [`SlowCall::cause`] for time that belongs to none of the parts.
const OWN: &str = "work";

/// A slow call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// Time at which it ended.
    pub ended: UnixTime,
    /// Procedure that was called.
    pub procedure: Procedure,
    /// Client that made the call.
    pub client: ClientKey,
    /// First volume that it used; 0 for none.
    pub volume: u32,
    /// Success or abort code.
    pub result: Result<(), AbortCode>,
    /// Bytes of the request.
    pub received: u64,
    /// Bytes of the reply.
    pub sent: u64,
    /// Nanoseconds from arrival to end.
    pub total_ns: u64,
    /// Nanoseconds spent in each of [`PARTS`].
    pub parts_ns: [u64; PARTS.len()],
}

impl SlowCall {
    /// Returns what took most of the time, and how many nanoseconds: one of [`PARTS`], or `work` for time
    /// outside known waits.
    pub fn cause(&self) -> (&'static str, u64) {
        let waits = self.parts_ns.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        let own = (OWN, self.total_ns.saturating_sub(waits));
        let parts = PARTS.into_iter().zip(self.parts_ns);
        parts.chain([own]).max_by_key(|(_, ns)| *ns).unwrap_or(own)
    }
}

/// The most recent slow calls. Touched only when a slow call ends, or on request.
#[derive(Debug, Default)]
pub(crate) struct SlowCalls {
    /// Guards the calls and their total number; nothing blocks under the lock.
    calls: Mutex<(VecDeque<(u64, SlowCall)>, u64)>,
}

impl SlowCalls {
    /// Adds a call.
    pub(crate) fn push(&self, call: SlowCall) {
        let mut calls = self.calls.lock();
        if calls.0.len() >= CALLS_MAX
            && let Some(place) = most_common(&calls.0)
        {
            calls.0.remove(place);
        }
        calls.1 += 1;
        let number = calls.1;
        calls.0.push_back((number, call));
    }

    /// Returns the calls kept, the oldest first, each with its number, which starts at 1.
    pub(crate) fn all(&self) -> Vec<(u64, SlowCall)> {
        self.calls.lock().0.iter().cloned().collect()
    }
}

/// Returns the index of the oldest call of the most frequent procedure.
fn most_common(calls: &VecDeque<(u64, SlowCall)>) -> Option<usize> {
    // First index and number of calls of each procedure; there are few.
    let mut found: Vec<(&Procedure, usize, usize)> = Vec::new();
    for (place, (_, call)) in calls.iter().enumerate() {
        match found.iter_mut().find(|(procedure, ..)| **procedure == call.procedure) {
            Some((_, _, count)) => *count += 1,
            None => found.push((&call.procedure, place, 1)),
        }
    }
    found.into_iter().max_by_key(|(_, _, count)| *count).map(|(_, place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Identity;
    use events::catalogue::Class;

    fn call(total_ns: u64, parts_ns: [u64; PARTS.len()]) -> SlowCall {
        SlowCall {
            ended: UnixTime(1),
            procedure: Procedure { service: "AFS", name: "StoreData", class: Class::Store },
            client: ClientKey { host: [10, 0, 0, 1].into(), user: Identity::Anonymous },
            volume: 7,
            result: Ok(()),
            received: 1,
            sent: 2,
            total_ns,
            parts_ns,
        }
    }

    #[test]
    fn the_cause_is_the_longest_part() {
        for (total, parts, expected) in [
            (100, [0, 0, 0, 0, 0, 0], ("work", 100)),
            (100, [10, 0, 60, 0, 20, 0], ("disk", 60)),
            (100, [50, 0, 0, 0, 0, 0], ("work", 50)),
            (100, [0, 90, 0, 0, 80, 0], ("lock", 90)),
            (100, [u64::MAX, 1, 0, 0, 0, 0], ("queue", u64::MAX)),
        ] {
            assert_eq!(call(total, parts).cause(), expected);
        }
    }

    #[test]
    fn the_oldest_make_room() {
        let calls = SlowCalls::default();
        assert!(calls.all().is_empty());
        (0..300).for_each(|total| calls.push(call(total, [0; PARTS.len()])));
        let all = calls.all();
        assert_eq!(all.len(), CALLS_MAX);
        assert_eq!((all[0].0, all[0].1.total_ns), (45, 44));
        assert_eq!((all[255].0, all[255].1.total_ns), (300, 299));
    }

    #[test]
    fn many_of_one_kind_do_not_push_another_out() {
        let calls = SlowCalls::default();
        let procedure = Procedure { service: "AFS", name: "FetchStatus", class: Class::Status };
        calls.push(SlowCall { procedure, ..call(984, [0; PARTS.len()]) });
        (0..1000).for_each(|total| calls.push(call(total, [0; PARTS.len()])));
        let all = calls.all();
        assert_eq!(all.len(), CALLS_MAX);
        assert_eq!((all[0].0, all[0].1.total_ns), (1, 984));
        assert_eq!((all[1].0, all[255].0), (747, 1001));
    }
}
