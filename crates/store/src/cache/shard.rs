//! A part of a cache, guarded by one lock.

use super::RandomFold;
use std::collections::HashMap;
use std::collections::hash_map;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// No slot.
const NONE: u32 = u32::MAX;

/// A value with what it is known by.
pub(super) struct Entry<K, V> {
    pub(super) key: K,
    pub(super) owner: u64,
    pub(super) value: V,
    pub(super) bytes: u64,
    /// When it came, counted from the beginning of the cache.
    pub(super) since_ms: u64,
}

/// A place for an entry, linked into the two chains that it stands in.
pub(super) struct Slot<K, V> {
    entry: Option<Entry<K, V>>,
    /// It was used since the hand went by.
    is_used: AtomicBool,
    links: [Links; 2],
}

impl<K, V: Clone> Slot<K, V> {
    /// The value, which is used.
    pub(super) fn used(&self) -> Option<V> {
        // A store only where it changes something: hits on one entry share its cache line.
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
        self.entry.as_ref().map(|entry| entry.value.clone())
    }
}

/// Neighbours in a chain.
#[derive(Clone, Copy)]
struct Links {
    before: u32,
    behind: u32,
}

const UNLINKED: Links = Links { before: NONE, behind: NONE };

/// Which of a slot's links.
#[derive(Clone, Copy)]
enum By {
    /// In the order in which entries came.
    Age = 0,
    /// Those of one owner.
    Owner = 1,
}

/// Slots that are linked to each other, first to last.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

const EMPTY: Chain = Chain { first: NONE, last: NONE };

pub(super) struct Shard<K, V> {
    /// Counted here, where the lock's cache line is at hand.
    pub(super) hits: AtomicU64,
    places: HashMap<K, u32, RandomFold>,
    owners: HashMap<u64, Chain, RandomFold>,
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    /// Oldest first.
    ages: Chain,
    /// Where to look for the next to be thrown out; `NONE` begins at the oldest.
    hand: u32,
    bytes: u64,
}

impl<K: Hash + Eq + Copy, V: Clone> Shard<K, V> {
    pub(super) fn new(hasher: RandomFold) -> Shard<K, V> {
        Shard {
            hits: AtomicU64::new(0),
            places: HashMap::with_hasher(hasher),
            owners: HashMap::with_hasher(hasher),
            slots: Vec::new(),
            free: Vec::new(),
            ages: EMPTY,
            hand: NONE,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// What its entries take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.find(key)?.used()
    }

    pub(super) fn peek(&self, key: &K) -> Option<(u64, V)> {
        self.find(key)?.entry.as_ref().map(|entry| (entry.owner, entry.value.clone()))
    }

    pub(super) fn find(&self, key: &K) -> Option<&Slot<K, V>> {
        self.slots.get(*self.places.get(key)? as usize)
    }

    /// Puts an entry; answers the one of the same key that it replaced.
    pub(super) fn insert(&mut self, entry: Entry<K, V>) -> Option<Entry<K, V>> {
        let before = self.remove(&entry.key);
        let (key, owner) = (entry.key, entry.owner);
        self.bytes += entry.bytes;
        // What is written again and again is used.
        let is_used = AtomicBool::new(before.is_some());
        let slot = Slot { entry: Some(entry), is_used, links: [UNLINKED; 2] };
        let at = if let Some(at) = self.free.pop() {
            self.slots[at as usize] = slot;
            at
        } else {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        };
        self.places.insert(key, at);
        push(&mut self.slots, &mut self.ages, By::Age, at);
        push(&mut self.slots, self.owners.entry(owner).or_insert(EMPTY), By::Owner, at);
        before
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<Entry<K, V>> {
        let at = *self.places.get(key)?;
        self.take(at)
    }

    /// Takes out at most `most` entries of an owner.
    pub(super) fn take_of_owner(&mut self, owner: u64, most: usize) -> Vec<Entry<K, V>> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(chain) = self.owners.get(&owner)
        {
            let first = chain.first;
            taken.extend(self.take(first));
        }
        taken
    }

    /// Takes out the oldest entry that was not used since the hand went by, other than `keep`.
    pub(super) fn evict(&mut self, keep: &K) -> Option<Entry<K, V>> {
        let mut at = if self.hand == NONE { self.ages.first } else { self.hand };
        // Once round takes away every mark.
        for _ in 0..=2 * self.places.len() {
            let slot = self.slots.get(at as usize)?;
            let behind = slot.links[By::Age as usize].behind;
            let is_kept = slot.entry.as_ref().is_some_and(|entry| entry.key == *keep);
            if !is_kept && !slot.is_used.swap(false, Relaxed) {
                self.hand = behind;
                return self.take(at);
            }
            at = if behind == NONE { self.ages.first } else { behind };
        }
        None
    }

    fn take(&mut self, at: u32) -> Option<Entry<K, V>> {
        let slot = self.slots.get_mut(at as usize)?;
        let entry = slot.entry.take()?;
        if self.hand == at {
            self.hand = slot.links[By::Age as usize].behind;
        }
        unlink(&mut self.slots, &mut self.ages, By::Age, at);
        if let hash_map::Entry::Occupied(mut chain) = self.owners.entry(entry.owner) {
            unlink(&mut self.slots, chain.get_mut(), By::Owner, at);
            if chain.get().first == NONE {
                chain.remove();
            }
        }
        self.bytes -= entry.bytes;
        self.places.remove(&entry.key);
        self.free.push(at);
        Some(entry)
    }
}

/// Puts a slot at a chain's end.
fn push<K, V>(slots: &mut [Slot<K, V>], chain: &mut Chain, by: By, at: u32) {
    slots[at as usize].links[by as usize] = Links { before: chain.last, behind: NONE };
    match slots.get_mut(chain.last as usize) {
        Some(last) => last.links[by as usize].behind = at,
        None => chain.first = at,
    }
    chain.last = at;
}

fn unlink<K, V>(slots: &mut [Slot<K, V>], chain: &mut Chain, by: By, at: u32) {
    let Links { before, behind } = slots[at as usize].links[by as usize];
    match slots.get_mut(before as usize) {
        Some(slot) => slot.links[by as usize].behind = behind,
        None => chain.first = behind,
    }
    match slots.get_mut(behind as usize) {
        Some(slot) => slot.links[by as usize].before = before,
        None => chain.last = before,
    }
}
