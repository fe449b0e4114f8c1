//! Storage with stable, never reused keys.
//!
//! A slot is reused with a new generation. When its generations are exhausted the slot is retired, so that no
//! key ever recurs.

/// Index and generation of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Returns both parts as one number, which is unique within the slab.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

/// A vector with reusable slots. The key of a removed entry finds nothing, even if its slot is in use again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stores the value that `make` creates for its future key.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.checked_add(1).expect("an exhausted slot is not free");
        let key = Key { index, generation: slot.generation };
        slot.value = Some(make(key));
        self.len += 1;
        key
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        self.vacate(key);
        Some(value)
    }

    /// Accounts for a removed entry and frees its slot, unless the slot's generations are exhausted.
    fn vacate(&mut self, key: Key) {
        if key.generation < u32::MAX {
            self.free.push(key.index);
        }
        self.len -= 1;
    }

    /// Removes an entry in place, without moving it out.
    pub(crate) fn discard(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(key.index as usize)
            && slot.generation == key.generation
            && slot.value.is_some()
        {
            slot.value = None;
            self.vacate(key);
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// Returns two entries; `None` if they are the same one, or either was removed.
    pub(crate) fn get_pair_mut(&mut self, one: Key, other: Key) -> Option<(&mut T, &mut T)> {
        let pair = self.slots.get_disjoint_mut([one.index as usize, other.index as usize]).ok()?;
        let [first, second] = pair;
        let is_current = first.generation == one.generation && second.generation == other.generation;
        if !is_current {
            return None;
        }
        first.value.as_mut().zip(second.value.as_mut())
    }

    /// Returns the keys of all entries.
    pub(crate) fn keys(&self) -> Vec<Key> {
        (0..self.places()).filter_map(|place| self.at(place)).map(|(key, _)| key).collect()
    }

    /// Returns the number of slots, used and free.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Returns the entry in a slot.
    pub(crate) fn at(&self, place: usize) -> Option<(Key, &T)> {
        let slot = self.slots.get(place)?;
        let key = Key { index: place as u32, generation: slot.generation };
        slot.value.as_ref().map(|value| (key, value))
    }
}

#[cfg(test)]
impl<T> Slab<T> {
    /// Creates a slab whose single free slot has had this many generations.
    pub(crate) fn worn(generation: u32) -> Slab<T> {
        Slab { slots: vec![Slot { generation, value: None }], free: vec![0], len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_generations_left_is_retired() {
        for discards in [false, true] {
            let mut slab = Slab::worn(u32::MAX - 2);
            let mut keys = Vec::new();
            for value in 'a'..='f' {
                let key = slab.insert_with(|_| value);
                assert_eq!(slab.get(key), Some(&value));
                if discards {
                    slab.discard(key);
                } else {
                    _ = slab.remove(key);
                }
                keys.push(key);
            }
            let numbers: std::collections::HashSet<u64> = keys.iter().map(|key| key.number()).collect();
            assert_eq!(numbers.len(), keys.len(), "keys never come back");
            assert_eq!((slab.len(), slab.places()), (0, 2), "a second place after the first was exhausted");
            assert!(keys.iter().all(|key| slab.get(*key).is_none()));
        }
    }

    #[test]
    fn old_keys_find_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert_with(|_| 'a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert_with(|_| 'b');
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.at(0), Some((second, &'b')));
        assert_eq!(slab.places(), 1);
        assert_eq!(slab.keys(), [second]);
        slab.discard(first);
        assert_eq!(slab.len(), 1);
        slab.discard(second);
        slab.discard(second);
        assert_eq!((slab.get(second), slab.len()), (None, 0));
        let third = slab.insert_with(|_| 'c');
        assert_eq!((slab.places(), slab.get(third)), (1, Some(&'c')));
    }
}
