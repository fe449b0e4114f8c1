//! The waiting calls of one user in one class.

use std::collections::{BTreeMap, VecDeque};

use crate::holders::Place;

/// State of a flow in its [`Line`](crate::line::Line).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No calls wait.
    Idle,
    /// May be served.
    Ready,
    /// The user has reached its share; served only if no flow is ready.
    Held,
}

/// The waiting calls of one user in one class, by volume.
#[derive(Debug)]
pub(crate) struct Flow<T> {
    /// Time in units of work at which the user has used up its share so far.
    pub(crate) tag: u64,
    pub(crate) standing: Standing,
    /// Volumes that take turns, the next one first.
    turns: VecDeque<u32>,
    /// Volumes that have reached their share.
    parked: BTreeMap<u32, Place>,
    /// Waiting calls by volume; no entry is empty.
    calls: BTreeMap<u32, VecDeque<T>>,
}

impl<T> Flow<T> {
    pub(crate) fn new(tag: u64) -> Flow<T> {
        Flow {
            tag,
            standing: Standing::Idle,
            turns: VecDeque::new(),
            parked: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether any volume can be served.
    pub(crate) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Returns the volume to serve next. A parked one is returned only if there is no other.
    pub(crate) fn next_volume(&self) -> Option<u32> {
        self.turns.front().or_else(|| self.parked.keys().next()).copied()
    }

    pub(crate) fn push(&mut self, volume: u32, call: T) {
        let calls = self.calls.entry(volume).or_default();
        if calls.is_empty() {
            self.turns.push_back(volume);
        }
        calls.push_back(call);
    }

    /// Takes a call for the next volume. If that volume was parked and has no more calls, also returns its
    /// position.
    pub(crate) fn pop(&mut self) -> Option<(u32, T, Option<Place>)> {
        let volume = self.next_volume()?;
        let calls = self.calls.get_mut(&volume)?;
        let call = calls.pop_front()?;
        let is_last = calls.is_empty();
        if is_last {
            self.calls.remove(&volume);
        }
        let mut place = None;
        if self.turns.pop_front().is_some() {
            if !is_last {
                self.turns.push_back(volume);
            }
        } else if is_last {
            place = self.parked.remove(&volume);
        }
        Some((volume, call, place))
    }

    /// Takes the newest call for a volume. If the volume was parked and has no more calls, also returns its
    /// position.
    pub(crate) fn pop_newest(&mut self, volume: u32) -> Option<(T, Option<Place>)> {
        let calls = self.calls.get_mut(&volume)?;
        let call = calls.pop_back()?;
        if !calls.is_empty() {
            return Some((call, None));
        }
        self.calls.remove(&volume);
        let place = self.parked.remove(&volume);
        // Usually found immediately: a volume with only a new call is at the end.
        if place.is_none()
            && let Some(turn) = self.turns.iter().rposition(|it| *it == volume)
        {
            self.turns.remove(turn);
        }
        Some((call, place))
    }

    /// Returns all waiting calls.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &T> {
        self.calls.values().flatten()
    }

    /// Parks the volume whose turn it is.
    pub(crate) fn park(&mut self, place: Place) {
        if let Some(volume) = self.turns.pop_front() {
            self.parked.insert(volume, place);
        }
    }

    /// Returns a parked volume to the turns.
    pub(crate) fn unpark(&mut self, volume: u32) {
        if self.parked.remove(&volume).is_some() {
            self.turns.push_back(volume);
        }
    }
}
