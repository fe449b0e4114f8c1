//! The waiting calls of one user in one class.

use std::collections::{BTreeMap, VecDeque};

use crate::holders::Place;

/// Where a flow stands in its [`Line`](crate::line::Line).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing waits.
    Idle,
    /// May be served.
    Ready,
    /// Over a share: is served if nobody is ready.
    Held,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Flow<T> {
    /// When it has used up what it was given.
    pub(crate) tag: u64,
    pub(crate) standing: Standing,
    /// Volumes whose turn will come, the next in front.
    turns: VecDeque<u32>,
    /// Volumes that are full.
    parked: BTreeMap<u32, Place>,
    /// What waits, by volume; none is empty.
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

    /// Whether a volume's turn can come.
    pub(crate) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The volume that is served next: one that is full only if there is no other.
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

    /// Takes a call of the volume that is next. With it the place of a parked line that became empty.
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

    /// Takes the newest call for a volume. With it the place of a parked line that became empty.
    pub(crate) fn pop_newest(&mut self, volume: u32) -> Option<(T, Option<Place>)> {
        let calls = self.calls.get_mut(&volume)?;
        let call = calls.pop_back()?;
        if !calls.is_empty() {
            return Some((call, None));
        }
        self.calls.remove(&volume);
        let place = self.parked.remove(&volume);
        // Found at once as a rule: a volume with nothing but a new call has come last.
        if place.is_none()
            && let Some(turn) = self.turns.iter().rposition(|it| *it == volume)
        {
            self.turns.remove(turn);
        }
        Some((call, place))
    }

    /// Everything that waits.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &T> {
        self.calls.values().flatten()
    }

    /// Takes the volume whose turn it is out of the turns.
    pub(crate) fn park(&mut self, place: Place) {
        if let Some(volume) = self.turns.pop_front() {
            self.parked.insert(volume, place);
        }
    }

    /// Gives a parked volume its turns again.
    pub(crate) fn unpark(&mut self, volume: u32) {
        if self.parked.remove(&volume).is_some() {
            self.turns.push_back(volume);
        }
    }
}
