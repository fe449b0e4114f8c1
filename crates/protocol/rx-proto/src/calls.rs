//! All calls of an endpoint: active ones and resting ones.

use crate::call::Call;
use crate::call::rest::LingeringReply;
use crate::slab::{Key, Slab};

/// The calls of an endpoint. A call keeps its key when it changes between active and resting.
#[derive(Debug)]
pub(crate) struct Calls {
    places: Slab<Place>,
    /// The resting calls, stored contiguously.
    rests: Slab<LingeringReply>,
}

/// Storage location of a call.
#[derive(Debug)]
enum Place {
    /// An active call, boxed because it is large and short-lived.
    AtWork(Box<Call>),
    Resting(Key),
}

impl Calls {
    pub(crate) fn new() -> Calls {
        Calls { places: Slab::new(), rests: Slab::new() }
    }

    /// Returns the number of active and resting calls.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Stores an active call.
    pub(crate) fn insert(&mut self, call: Box<Call>) -> Key {
        self.places.insert_with(|_| Place::AtWork(call))
    }

    /// Removes an active call.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<Call>> {
        self.get(key)?;
        match self.places.remove(key)? {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// Returns an active call.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Call> {
        match self.places.get(key)? {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// Returns an active call.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Call> {
        match self.places.get_mut(key)? {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// Returns a resting call.
    pub(crate) fn resting(&self, key: Key) -> Option<&LingeringReply> {
        match self.places.get(key)? {
            Place::AtWork(_) => None,
            Place::Resting(rest) => self.rests.get(*rest),
        }
    }

    /// Replaces an active call by its compact form, and returns the call.
    pub(crate) fn put_to_rest(&mut self, key: Key, rest: LingeringReply) -> Option<Box<Call>> {
        let place = self.places.get_mut(key).filter(|place| matches!(place, Place::AtWork(_)))?;
        match std::mem::replace(place, Place::Resting(self.rests.insert_with(|_| rest))) {
            Place::AtWork(call) => Some(call),
            Place::Resting(_) => None,
        }
    }

    /// Replaces a resting call by its restored active call.
    pub(crate) fn put_to_work(&mut self, key: Key, call: Box<Call>) {
        if let Some(place) = self.places.get_mut(key)
            && let Place::Resting(rest) = std::mem::replace(place, Place::AtWork(call))
        {
            self.rests.discard(rest);
        }
    }

    /// Removes a resting call.
    pub(crate) fn discard_resting(&mut self, key: Key) {
        if let Some(&Place::Resting(rest)) = self.places.get(key) {
            self.rests.discard(rest);
            self.places.discard(key);
        }
    }

    /// Iterates over the connections of all calls, of each once per call.
    pub(crate) fn connections(&self) -> impl Iterator<Item = Key> {
        let places = (0..self.places.places()).filter_map(|place| self.places.at(place));
        places.filter_map(|(_, place)| match place {
            Place::AtWork(call) => Some(call.connection),
            Place::Resting(rest) => self.rests.get(*rest).map(|rest| rest.connection),
        })
    }

    /// Iterates over all calls: active ones, and `None` for each resting call.
    pub(crate) fn all(&self) -> impl Iterator<Item = Option<&Call>> {
        let places = (0..self.places.places()).filter_map(|place| self.places.at(place));
        places.map(|(_, place)| match place {
            Place::AtWork(call) => Some(&**call),
            Place::Resting(_) => None,
        })
    }
}
