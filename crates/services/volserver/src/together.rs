//! Shares one read of a volume between several targets.
//!
//! All targets of a ForwardMultiple go through the same steps: the lists of vnodes, each vnode, each chunk of
//! data. The first target to reach a step reads, and the others take the result from a window of bounded size
//! that holds the steps between the last target and the first.
//!
//! When the window is full, the first targets wait for the last one, but for each target only for a limited
//! total time: then it continues alone, with its own reads. So does a target whose transfer restarts after an
//! interruption. A failed target is not waited for.

use base::AbortCode;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The size of a piece in the window.
pub(crate) trait Weighed {
    /// Returns the size in bytes.
    fn weight(&self) -> usize;
}

/// Targets that share reads. One lock guards the state; nothing is read or sent while holding it.
pub(crate) struct Together<P> {
    state: Mutex<State<P>>,
    changed: Condvar,
    window_bytes: usize,
    patience: Duration,
}

struct State<P> {
    /// Step of the first piece.
    first: u64,
    pieces: VecDeque<Arc<P>>,
    bytes: usize,
    /// Whether a target is reading the step after the last piece.
    is_reading: bool,
    /// Indexed by member number; `None` for targets that have left.
    members: Vec<Option<Standing>>,
}

/// Position of a target.
struct Standing {
    step: u64,
    /// Start of the current wait of others for this target, and the total of earlier waits.
    awaited_since: Option<Instant>,
    awaited: Duration,
}

/// One of the targets. Dropping it leaves the group.
pub(crate) struct Member<P: Weighed> {
    together: Arc<Together<P>>,
    number: usize,
    step: u64,
}

/// What a target does for a step.
enum Turn<P> {
    /// Use the piece that was read.
    Take(Arc<P>),
    /// Read the step for all targets.
    Read,
    /// Read the step for this target only.
    Alone,
}

impl<P: Weighed> Together<P> {
    /// Creates the members for `count` targets. The window holds about `window_bytes`, and the total wait for
    /// one target is at most `patience`.
    pub(crate) fn begin(count: usize, window_bytes: usize, patience: Duration) -> Vec<Member<P>> {
        let standing = || Some(Standing { step: 0, awaited_since: None, awaited: Duration::ZERO });
        let members = std::iter::repeat_with(standing).take(count).collect();
        let state = State { first: 0, pieces: VecDeque::new(), bytes: 0, is_reading: false, members };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let together = Arc::new(Together { state, changed, window_bytes, patience });
        (0..count).map(|number| Member { together: Arc::clone(&together), number, step: 0 }).collect()
    }

    fn turn(&self, number: usize, step: u64) -> Turn<P> {
        let mut state = self.state.lock();
        loop {
            if state.members[number].is_none() {
                return Turn::Alone;
            }
            let place = step.checked_sub(state.first).and_then(|place| usize::try_from(place).ok());
            if let Some(piece) = place.and_then(|place| state.pieces.get(place)).cloned() {
                self.advance(&mut state, number);
                return Turn::Take(piece);
            }
            if state.is_reading {
                self.changed.wait(&mut state);
            } else if state.bytes < self.window_bytes {
                state.is_reading = true;
                return Turn::Read;
            } else {
                self.wait_for_last(&mut state);
            }
        }
    }

    /// Waits for the slowest targets while the window is full, or drops those that have used up their time.
    fn wait_for_last(&self, state: &mut MutexGuard<'_, State<P>>) {
        let now = Instant::now();
        let first = state.first;
        let mut longest = self.patience;
        for member in &mut state.members {
            let Some(last) = member.as_mut().filter(|standing| standing.step == first) else { continue };
            let since = *last.awaited_since.get_or_insert(now);
            let left = self.patience.saturating_sub(last.awaited + now.duration_since(since));
            longest = longest.min(left);
            if left.is_zero() {
                *member = None;
            }
        }
        if longest.is_zero() {
            state.forget_common();
            self.changed.notify_all();
        } else {
            self.changed.wait_for(state, longest);
        }
    }

    fn advance(&self, state: &mut State<P>, number: usize) {
        if let Some(standing) = &mut state.members[number] {
            standing.step += 1;
            standing.awaited += standing.awaited_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        }
        if state.forget_common() {
            self.changed.notify_all();
        }
    }

    fn publish(&self, number: usize, piece: Arc<P>) {
        let mut state = self.state.lock();
        state.is_reading = false;
        state.bytes += piece.weight();
        state.pieces.push_back(piece);
        self.advance(&mut state, number);
        self.changed.notify_all();
    }

    fn leave(&self, number: usize) {
        let mut state = self.state.lock();
        state.members[number] = None;
        state.forget_common();
        self.changed.notify_all();
    }
}

impl<P: Weighed> State<P> {
    fn forget_common(&mut self) -> bool {
        let before = self.first;
        let last = self.members.iter().flatten().map(|standing| standing.step).min();
        while last.is_none_or(|last| self.first < last) {
            let Some(piece) = self.pieces.pop_front() else { break };
            self.bytes -= piece.weight();
            self.first += 1;
        }
        self.first != before
    }
}

/// A read on behalf of all targets; dropping it marks the read as failed.
struct Reading<'a, P: Weighed>(&'a Together<P>);

impl<P: Weighed> Drop for Reading<'_, P> {
    fn drop(&mut self) {
        self.0.state.lock().is_reading = false;
        self.0.changed.notify_all();
    }
}

impl<P: Weighed> Member<P> {
    /// Returns the next step, calling `read` if no other target has read it.
    pub(crate) fn next(&mut self, read: impl FnOnce() -> Result<P, AbortCode>) -> Result<Arc<P>, AbortCode> {
        let step = self.step;
        self.step += 1;
        match self.together.turn(self.number, step) {
            Turn::Take(piece) => Ok(piece),
            Turn::Alone => read().map(Arc::new),
            Turn::Read => {
                let reading = Reading(&self.together);
                let piece = Arc::new(read()?);
                std::mem::forget(reading);
                self.together.publish(self.number, Arc::clone(&piece));
                Ok(piece)
            }
        }
    }
}

impl<P: Weighed> Drop for Member<P> {
    fn drop(&mut self) {
        self.together.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc;
    use std::thread;

    struct Number(u64);

    impl Weighed for Number {
        fn weight(&self) -> usize {
            1
        }
    }

    const STEPS: u64 = 1000;
    const LONG: Duration = Duration::from_secs(3600);

    /// Performs `steps` and counts the reads.
    fn walk(member: &mut Member<Number>, steps: std::ops::Range<u64>, reads: &AtomicUsize) {
        for step in steps {
            let read = || {
                reads.fetch_add(1, Relaxed);
                Ok(Number(step))
            };
            assert_eq!(member.next(read).unwrap().0, step);
        }
    }

    #[test]
    fn each_step_is_read_once_for_all() {
        for window in [1, 10, 5000] {
            let reads = AtomicUsize::new(0);
            thread::scope(|scope| {
                for mut member in Together::begin(13, window, LONG) {
                    let reads = &reads;
                    scope.spawn(move || walk(&mut member, 0..STEPS, reads));
                }
            });
            assert_eq!(reads.into_inner() as u64, STEPS, "window {window}");
        }
    }

    #[test]
    fn the_window_is_bounded() {
        let mut members = Together::begin(2, 10, Duration::ZERO);
        let mut slow = members.pop().unwrap();
        let reads = AtomicUsize::new(0);
        walk(&mut members[0], 0..10, &reads);
        assert_eq!(members[0].together.state.lock().bytes, 10);
        walk(&mut slow, 0..5, &reads);
        assert_eq!((members[0].together.state.lock().bytes, reads.load(Relaxed)), (5, 10));
        walk(&mut members[0], 10..STEPS, &reads);
        assert!(members[0].together.state.lock().bytes <= 10);
    }

    #[test]
    fn a_stalled_target_continues_by_itself() {
        let reads = AtomicUsize::new(0);
        let mut members = Together::begin(4, 10, LONG);
        let mut slow = members.pop().unwrap();
        walk(&mut slow, 0..3, &reads);
        // Only this one has used up its time: the others wait for each other, too.
        slow.together.state.lock().members[3].as_mut().unwrap().awaited =
            LONG.saturating_sub(Duration::from_millis(50));
        thread::scope(|scope| {
            for mut member in members {
                let reads = &reads;
                scope.spawn(move || walk(&mut member, 0..STEPS, reads));
            }
        });
        assert_eq!(reads.load(Relaxed) as u64, STEPS, "the others read once");
        walk(&mut slow, 3..STEPS, &reads);
        assert_eq!(reads.load(Relaxed) as u64, STEPS + STEPS - 3);
    }

    #[test]
    fn a_target_that_fails_holds_nobody_up() {
        let reads = AtomicUsize::new(0);
        let mut members = Together::begin(3, 10, LONG);
        let mut dead = members.pop().unwrap();
        walk(&mut dead, 0..5, &reads);
        let (begun, wait) = mpsc::channel();
        thread::scope(|scope| {
            for mut member in members {
                let (reads, begun) = (&reads, begun.clone());
                scope.spawn(move || {
                    walk(&mut member, 0..9, reads);
                    begun.send(()).unwrap();
                    walk(&mut member, 9..STEPS, reads);
                });
            }
            wait.recv().unwrap();
            drop(dead);
        });
        assert_eq!(reads.into_inner() as u64, STEPS);
    }

    #[test]
    fn a_read_that_fails_is_the_readers_own_trouble() {
        let reads = AtomicUsize::new(0);
        let mut members = Together::begin(2, 10, LONG);
        walk(&mut members[0], 0..1, &reads);
        assert!(members[0].next(|| Err(AbortCode::RX_CALL_DEAD)).is_err());
        let mut other = members.pop().unwrap();
        drop(members);
        walk(&mut other, 0..STEPS, &reads);
        assert_eq!(reads.into_inner() as u64, STEPS);
    }
}
