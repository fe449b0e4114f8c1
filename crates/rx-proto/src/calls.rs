//! All calls of an endpoint: those that are at work, and those that rest.

use crate::call::Call;
use crate::call::rest::Rest;
use crate::slab::{Key, Slab};

/// See the module's description. A call keeps its key, whichever it is.
#[derive(Debug)]
pub(crate) struct Calls {
    places: Slab<Place>,
    /// What rests, side by side.
    rests: Slab<Rest>,
}

/// Where a call is.
#[derive(Debug)]
enum Place {
    /// Boxed: they are large, and come and go.
    AtWork(Box<Call>),
    Resting(Key),
}

impl Calls {
    pub(crate) fn new() -> Calls {
        Calls { places: Slab::new(), rests: Slab::new() }
    }

    /// How many there are of both.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Stores one that is at work.
    pub(crate) fn insert(&mut self, call: Box<Call>) -> Key {
        self.places.insert_with(|_| Place::AtWork(call))
    }

    /// Takes out one that is at work.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<Call>> {
        self.get(key)?;
        match self.places.remove(key)? {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// One that is at work.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Call> {
        match self.places.get(key)? {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// One that is at work.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Call> {
        match self.places.get_mut(key)? {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// One that rests.
    pub(crate) fn resting(&self, key: Key) -> Option<&Rest> {
        match self.places.get(key)? {
            Place::AtWork(_) => None,
            Place::Resting(rest) => self.rests.get(*rest),
        }
    }

    /// Keeps of one that is at work no more than this, and gives it back.
    pub(crate) fn put_to_rest(&mut self, key: Key, rest: Rest) -> Option<Box<Call>> {
        let place = self.places.get_mut(key).filter(|place| matches!(place, Place::AtWork(_)))?;
        match std::mem::replace(place, Place::Resting(self.rests.insert_with(|_| rest))) {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// Puts one that rested back to work.
    pub(crate) fn put_to_work(&mut self, key: Key, call: Box<Call>) {
        if let Some(place) = self.places.get_mut(key)
            && let Place::Resting(rest) = std::mem::replace(place, Place::AtWork(call))
        {
            self.rests.discard(rest);
        }
    }

    /// Forgets one that rests.
    pub(crate) fn discard_resting(&mut self, key: Key) {
        if let Some(&Place::Resting(rest)) = self.places.get(key) {
            self.rests.discard(rest);
            self.places.discard(key);
        }
    }

    /// All of both: those at work, and nothing for each that rests.
    pub(crate) fn all(&self) -> impl Iterator<Item = Option<&Call>> {
        let places = (0..self.places.places()).filter_map(|place| self.places.at(place));
        places.map(|(_, place)| match place {
            Place::AtWork(call) => Some(&**call),
            Place::Resting(_) => None,
        })
    }
}
