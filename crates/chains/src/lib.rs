//! Values in numbered places, each of which may stand in several chains: in the order of age, say, and among those
//! of its owner. Joining and leaving a chain costs the same however long it is, and no allocation.

use std::iter::successors;
use std::ops::{Index, IndexMut};

/// No place.
const NONE: u32 = u32::MAX;

/// Values in places, with links for so many chains (at least one).
///
/// [`add`](Self::add) a value, [`push`](Self::push) its place to one [`Chain`] of each kind at most; before the place
/// is [given back](Self::give_back), [`unlink`](Self::unlink) it from each. A chain belongs to one kind (`by`, counted
/// from 0) of one of these, and its owner passes it in.
#[derive(Debug)]
pub struct Places<T, const KINDS: usize> {
    slots: Vec<Slot<T, KINDS>>,
    /// The first that is free; each leads to the next behind it by its first links.
    free: u32,
    len: usize,
}

/// What a place takes; public for those who count bytes.
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

/// Places that are linked to each other, first to last.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    /// How many places stand in it.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The one that has stood in it longest.
    pub fn first(&self) -> Option<u32> {
        present(self.first)
    }

    /// The one that came last.
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
    /// How many places are taken.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a value in a place, which it answers.
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

    /// Another value may have the place. This one stays until then.
    pub fn give_back(&mut self, place: u32) {
        self.len -= 1;
        self.slots[place as usize].links[0].behind = self.free;
        self.free = place;
    }

    /// The value in a place.
    pub fn get(&self, place: u32) -> Option<&T> {
        self.slots.get(place as usize).map(|slot| &slot.value)
    }

    /// Puts a place that stands in no chain of this kind at the end of one.
    pub fn push(&mut self, by: usize, chain: &mut Chain, place: u32) {
        self.slots[place as usize].links[by] = Links { before: chain.last, behind: NONE };
        match self.slots.get_mut(chain.last as usize) {
            Some(last) => last.links[by].behind = place,
            None => chain.first = place,
        }
        chain.last = place;
        chain.len += 1;
    }

    /// Takes a place out of the chain of this kind that it stands in.
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

    /// Who came behind a place in its chain of this kind.
    pub fn behind(&self, by: usize, place: u32) -> Option<u32> {
        present(self.slots[place as usize].links[by].behind)
    }

    /// All places of a chain, first to last.
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
