//! A part of a cache, guarded by one lock.

use super::RandomFold;
use chains::{Chain, Places};
use std::collections::HashMap;
use std::collections::hash_map;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Chain of entries in order of insertion.
const BY_AGE: usize = 0;
/// Chain of entries of the same owner.
const BY_OWNER: usize = 1;

/// Slot of one entry.
pub(super) type Slot<K, V> = chains::Slot<Place<K, V>, 2>;

/// A value with its key and owner.
pub(super) struct Entry<K, V> {
    pub(super) key: K,
    pub(super) owner: u64,
    pub(super) value: V,
    pub(super) bytes: u64,
    /// Insertion time in milliseconds since the cache was created.
    pub(super) since_ms: u64,
}

/// An entry as stored in a shard.
pub(super) struct Place<K, V> {
    entry: Option<Entry<K, V>>,
    /// Whether the entry was used since the hand last passed it.
    is_used: AtomicBool,
}

impl<K, V: Clone> Place<K, V> {
    /// Returns the value and marks the entry as used.
    pub(super) fn used(&self) -> Option<V> {
        // Stored only on a change: concurrent hits on one entry share its cache line.
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
        self.entry.as_ref().map(|entry| entry.value.clone())
    }
}

pub(super) struct Shard<K, V> {
    /// Counted here because the lock's cache line is already loaded.
    pub(super) hits: AtomicU64,
    places: HashMap<K, u32, RandomFold>,
    owners: HashMap<u64, Chain, RandomFold>,
    entries: Places<Place<K, V>, 2>,
    /// All entries, oldest first.
    ages: Chain,
    /// Where the search for the next entry to evict continues; `None` starts at the oldest.
    hand: Option<u32>,
    bytes: u64,
}

impl<K: Hash + Eq + Copy, V: Clone> Shard<K, V> {
    pub(super) fn new(hasher: RandomFold) -> Shard<K, V> {
        Shard {
            hits: AtomicU64::new(0),
            places: HashMap::with_hasher(hasher),
            owners: HashMap::with_hasher(hasher),
            entries: Places::default(),
            ages: Chain::default(),
            hand: None,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes that its entries occupy.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.find(key)?.used()
    }

    pub(super) fn peek(&self, key: &K) -> Option<(u64, V)> {
        self.find(key)?.entry.as_ref().map(|entry| (entry.owner, entry.value.clone()))
    }

    pub(super) fn find(&self, key: &K) -> Option<&Place<K, V>> {
        self.entries.get(*self.places.get(key)?)
    }

    /// Inserts an entry; returns the one with the same key that it replaced.
    pub(super) fn insert(&mut self, entry: Entry<K, V>) -> Option<Entry<K, V>> {
        let before = self.remove(&entry.key);
        let (key, owner) = (entry.key, entry.owner);
        self.bytes += entry.bytes;
        // Replacing an entry counts as use.
        let is_used = AtomicBool::new(before.is_some());
        let at = self.entries.add(Place { entry: Some(entry), is_used });
        self.places.insert(key, at);
        self.entries.push(BY_AGE, &mut self.ages, at);
        self.entries.push(BY_OWNER, self.owners.entry(owner).or_default(), at);
        before
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<Entry<K, V>> {
        let at = *self.places.get(key)?;
        self.take(at)
    }

    /// Removes and returns at most `most` entries of an owner.
    pub(super) fn take_of_owner(&mut self, owner: u64, most: usize) -> Vec<Entry<K, V>> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(first) = self.owners.get(&owner).and_then(Chain::first)
        {
            taken.extend(self.take(first));
        }
        taken
    }

    /// Removes and returns the oldest entry, other than `keep`, that was not used since the hand last passed
    /// it.
    pub(super) fn evict(&mut self, keep: &K) -> Option<Entry<K, V>> {
        let mut next = self.hand;
        // One full turn clears every mark.
        for _ in 0..=2 * self.places.len() {
            let at = next.or_else(|| self.ages.first())?;
            next = self.entries.behind(BY_AGE, at);
            let place = &self.entries[at];
            let is_kept = place.entry.as_ref().is_some_and(|entry| entry.key == *keep);
            if !is_kept && !place.is_used.swap(false, Relaxed) {
                self.hand = next;
                return self.take(at);
            }
        }
        None
    }

    fn take(&mut self, at: u32) -> Option<Entry<K, V>> {
        let entry = self.entries[at].entry.take()?;
        if self.hand == Some(at) {
            self.hand = self.entries.behind(BY_AGE, at);
        }
        self.entries.unlink(BY_AGE, &mut self.ages, at);
        if let hash_map::Entry::Occupied(mut chain) = self.owners.entry(entry.owner) {
            self.entries.unlink(BY_OWNER, chain.get_mut(), at);
            if chain.get().is_empty() {
                chain.remove();
            }
        }
        self.bytes -= entry.bytes;
        self.places.remove(&entry.key);
        self.entries.give_back(at);
        Some(entry)
    }
}
