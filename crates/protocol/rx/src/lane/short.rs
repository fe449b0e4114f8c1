//! Short calls, which the lane's thread answers itself.

use super::{Arrivals, Arrived, Displaced, Lane, LaneState};
use crate::call::CallHandle;
use crate::clock;
use bytes::Bytes;
use parking_lot::MutexGuard;
use std::sync::{Arc, Weak};

impl Lane {
    /// Answers the calls that need no waiting and passes the others to the workers. Leaves both lists empty.
    pub(super) fn try_answer(&self, calls: &mut Vec<Arrived>, answers: &mut Vec<Option<Bytes>>) {
        if calls.is_empty() {
            return;
        }
        answers.extend(calls.iter().map(|call| self.arrivals.try_answer(call)));
        let mut state = self.lock();
        let now = clock::now();
        for (answer, arrived) in answers.drain(..).zip(calls.drain(..)) {
            match answer {
                Some(reply) => state.endpoint.reply(now, arrived.call, reply),
                None => state.hand_on(&*self.arrivals, arrived),
            }
        }
        self.unlock(state);
    }

    /// Releases the lock, wakes threads, and refuses the evicted calls of other lanes, so that no thread holds the locks
    /// of two lanes. To be called after events were dispatched.
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, LaneState>) {
        let displaced = std::mem::take(&mut state.displaced);
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        for condvar in woken {
            condvar.notify_one();
        }
        if displaced.is_empty() {
            return;
        }
        let Some(siblings) = self.siblings.get().and_then(Weak::upgrade) else { return };
        for Displaced { lane, call, code } in displaced {
            CallHandle::new(Arc::clone(&siblings.all()[lane]), call).abort(code);
        }
    }
}

impl LaneState {
    /// Passes calls to the workers that the lane's thread could have answered itself.
    pub(super) fn hand_on_short(&mut self, arrivals: &dyn Arrivals) {
        for arrived in std::mem::take(&mut self.short) {
            self.hand_on(arrivals, arrived);
        }
    }
}
