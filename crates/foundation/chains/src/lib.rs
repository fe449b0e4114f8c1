//! Intrusive linked lists over a slab: values in numbered places, each of which may be in several chains, for
//! example by age and by owner. Adding to a chain and removing from it takes constant time and does not
//! allocate.

use std::iter::successors;
use std::ops::{Index, IndexMut};

/// Marks the absence of a place.
const NONE: u32 = u32::MAX;

/// Values in places, with links for `KINDS` kinds of chains (at least one).
///
/// [`add`](Self::add) a value, and [`push`](Self::push) its place to at most one [`Chain`] of each kind;
/// before [giving back](Self::give_back) the place, [`unlink`](Self::unlink) it from each. A chain belongs to
/// one kind (`by`, counted from 0) of one `Places`, and its owner passes it in.
#[derive(Debug)]
pub struct Places<T, const KINDS: usize> {
    slots: Vec<Slot<T, KINDS>>,
    /// First free place; each free place's first link leads to the next.
    free: u32,
    len: usize,
}

/// Storage of one place; public so that users can account for its size.
#[derive(Debug)]
pub struct Slot<T, const KINDS: usize> {
    value: T,
    links: [Links; KINDS],
}

/// Neighbours in a chain.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    behind: u32,
}

const UNLINKED: Links = Links { before: NONE, behind: NONE };

/// Linked places, from first to last.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    /// Returns the number of places in the chain.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the place that has been in the chain longest.
    pub fn first(&self) -> Option<u32> {
        present(self.first)
    }

    /// Returns the place that was added last.
    pub fn last(&self) -> Option<u32> {
        present(self.last)
    }
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { first: NONE, last: NONE, len: 0 }
    }
}

fn present(place: u32) -> Option<u32> {
    (place != NONE).then_some(place)
}

impl<T, const KINDS: usize> Default for Places<T, KINDS> {
    fn default() -> Places<T, KINDS> {
        Places { slots: Vec::new(), free: NONE, len: 0 }
    }
}

impl<T, const KINDS: usize> Places<T, KINDS> {
    /// Returns the number of places in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no place is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores a value and returns its place.
    pub fn add(&mut self, value: T) -> u32 {
        self.len += 1;
        let slot = Slot { value, links: [UNLINKED; KINDS] };
        let place = self.free;
        if let Some(free) = self.slots.get_mut(place as usize) {
            self.free = free.links[0].behind;
            *free = slot;
            return place;
        }
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    /// Frees a place for reuse. Its value is kept until then.
    pub fn give_back(&mut self, place: u32) {
        self.len -= 1;
        self.slots[place as usize].links[0].behind = self.free;
        self.free = place;
    }

    /// Returns the value in a place.
    pub fn get(&self, place: u32) -> Option<&T> {
        self.slots.get(place as usize).map(|slot| &slot.value)
    }

    /// Appends a place that is in no chain of this kind to one.
    pub fn push(&mut self, by: usize, chain: &mut Chain, place: u32) {
        self.slots[place as usize].links[by] = Links { before: chain.last, behind: NONE };
        match self.slots.get_mut(chain.last as usize) {
            Some(last) => last.links[by].behind = place,
            None => chain.first = place,
        }
        chain.last = place;
        chain.len += 1;
    }

    /// Removes a place from its chain of this kind.
    pub fn unlink(&mut self, by: usize, chain: &mut Chain, place: u32) {
        let Links { before, behind } = self.slots[place as usize].links[by];
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.links[by].behind = behind,
            None => chain.first = behind,
        }
        match self.slots.get_mut(behind as usize) {
            Some(slot) => slot.links[by].before = before,
            None => chain.last = before,
        }
        chain.len -= 1;
    }

    /// Returns the place after this one in its chain of this kind.
    pub fn behind(&self, by: usize, place: u32) -> Option<u32> {
        present(self.slots[place as usize].links[by].behind)
    }

    /// Returns all places of a chain, from first to last.
    pub fn chained(&self, by: usize, chain: &Chain) -> impl Iterator<Item = u32> + '_ {
        successors(chain.first(), move |place| self.behind(by, *place))
    }
}

impl<T, const KINDS: usize> Index<u32> for Places<T, KINDS> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        &self.slots[place as usize].value
    }
}

impl<T, const KINDS: usize> IndexMut<u32> for Places<T, KINDS> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.slots[place as usize].value
    }
}

#[cfg(test)]
mod tests;
