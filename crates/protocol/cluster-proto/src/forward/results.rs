//! Results of calls that must not be executed twice, for fronts that repeat a call whose reply was lost.

use base::{CallId, Monotonic};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// How long a result is kept. A front gives a call up long before.
const KEPT: Duration = Duration::from_secs(60);

/// Maximum number of results.
const RESULTS_MAX: usize = 16_384;

/// What to do with a forwarded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun<T> {
    /// Execute it, then call [`Results::end`] or [`Results::abandon`].
    New,
    /// It is being executed: ask again later.
    Running,
    /// It was executed, with this result.
    Done(T),
}

/// The results of one owner, by the identities of calls, whose process is that of the front
/// ([`Incarnation::nonce`](crate::Incarnation)). They are lost with the owner's process.
#[derive(Debug)]
pub struct Results<T> {
    /// `None` while the call is executed.
    calls: HashMap<CallId, Option<T>>,
    /// Ended calls, oldest first.
    ended: VecDeque<(Monotonic, CallId)>,
}

impl<T> Default for Results<T> {
    fn default() -> Results<T> {
        Results { calls: HashMap::new(), ended: VecDeque::new() }
    }
}

impl<T: Clone> Results<T> {
    /// Begins a call.
    pub fn begin(&mut self, now: Monotonic, key: CallId) -> Begun<T> {
        self.forget(now);
        match self.calls.get(&key) {
            None => {
                self.calls.insert(key, None);
                Begun::New
            }
            Some(None) => Begun::Running,
            Some(Some(result)) => Begun::Done(result.clone()),
        }
    }

    /// Stores the result of a call that [`begin`](Results::begin) has let begin.
    pub fn end(&mut self, now: Monotonic, key: CallId, result: T) {
        self.calls.insert(key, Some(result));
        self.ended.push_back((now, key));
        self.forget(now);
    }

    /// Ends a call that was not executed.
    pub fn abandon(&mut self, key: CallId) {
        self.calls.remove(&key);
    }

    /// Returns the number of calls that are executed or remembered.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call is executed or remembered.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    fn forget(&mut self, now: Monotonic) {
        while let Some(&(at, key)) = self.ended.front()
            && (self.ended.len() > RESULTS_MAX || now.since(at) >= KEPT)
        {
            self.ended.pop_front();
            self.calls.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> CallId {
        CallId { process: 7, number }
    }

    #[test]
    fn a_repeated_call_finds_its_result() {
        let (mut results, now) = (Results::default(), Monotonic(0));
        assert_eq!(results.begin(now, key(1)), Begun::New);
        assert_eq!(results.begin(now, key(1)), Begun::Running);
        results.end(now, key(1), "made");
        assert_eq!(results.begin(now, key(1)), Begun::Done("made"));
        assert_eq!(results.begin(now, key(2)), Begun::New, "another call");
        results.abandon(key(2));
        assert_eq!(results.begin(now, key(2)), Begun::New);
        let other = CallId { process: 8, number: 1 };
        assert_eq!(results.begin(now, other), Begun::New, "another process");
    }

    #[test]
    fn results_are_bounded_and_kept_for_a_minute() {
        let (mut results, at) = (Results::default(), |second: u64| Monotonic(second * 1_000_000_000));
        for number in 0..RESULTS_MAX as u64 + 5 {
            assert_eq!(results.begin(at(0), key(number)), Begun::New);
            results.end(at(0), key(number), number);
        }
        assert_eq!((results.len(), results.begin(at(0), key(4))), (RESULTS_MAX, Begun::New));
        assert_eq!(results.begin(at(59), key(5)), Begun::Done(5));
        assert_eq!(results.begin(at(60), key(5)), Begun::New);
        assert_eq!(results.len(), 2, "running calls are not forgotten");
    }
}
