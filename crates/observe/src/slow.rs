//! Calls that took long, and what their time went to.

use crate::recorder::{ClientKey, Procedure};
use base::{AbortCode, UnixTime};
use events::current::PARTS;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Calls that are remembered; the oldest makes room for the next.
const CALLS_MAX: usize = 256;

/// What [`SlowCall::cause`] says of time that went to none of the parts.
const OWN: &str = "work";

/// A call that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// When it ended.
    pub ended: UnixTime,
    /// What was called.
    pub procedure: Procedure,
    /// Who called.
    pub client: ClientKey,
    /// The first volume that it used; 0 for none.
    pub volume: u32,
    /// How it ended.
    pub result: Result<(), AbortCode>,
    /// Bytes of the request.
    pub received: u64,
    /// Bytes of the reply.
    pub sent: u64,
    /// Nanoseconds from its arrival to its end.
    pub total_ns: u64,
    /// Nanoseconds of each of [`PARTS`].
    pub parts_ns: [u64; PARTS.len()],
}

impl SlowCall {
    /// What most of the time went to, and how many nanoseconds: one of [`PARTS`], or `work` for what was
    /// no wait that is known.
    pub fn cause(&self) -> (&'static str, u64) {
        let waits = self.parts_ns.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        let own = (OWN, self.total_ns.saturating_sub(waits));
        let parts = PARTS.into_iter().zip(self.parts_ns);
        parts.chain([own]).max_by_key(|(_, ns)| *ns).unwrap_or(own)
    }
}

/// The last slow calls. Only who was slow touches it.
#[derive(Debug, Default)]
pub(crate) struct SlowCalls {
    /// Guards the calls and how many there ever were; nothing waits under it.
    calls: Mutex<(VecDeque<SlowCall>, u64)>,
}

impl SlowCalls {
    /// Adds a call.
    pub(crate) fn push(&self, call: SlowCall) {
        let mut calls = self.calls.lock();
        if calls.0.len() >= CALLS_MAX {
            calls.0.pop_front();
        }
        calls.0.push_back(call);
        calls.1 += 1;
    }

    /// The calls that are remembered, the oldest first, each with its number from 1.
    pub(crate) fn all(&self) -> Vec<(u64, SlowCall)> {
        let calls = self.calls.lock();
        let first = calls.1 - calls.0.len() as u64 + 1;
        (first..).zip(calls.0.iter().cloned()).collect()
    }
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
    fn the_cause_is_what_took_longest() {
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
}
