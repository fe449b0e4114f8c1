//! Tables with a fixed limit, whatever the traffic.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key. All keys beyond the limit share one value.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<K, V> {
    limit: usize,
    values: HashMap<K, V>,
    others: Option<V>,
}

impl<K: Eq + Hash, V: Default> Bounded<K, V> {
    pub(crate) fn new(limit: usize) -> Bounded<K, V> {
        Bounded { limit, values: HashMap::new(), others: None }
    }

    /// Returns the key's value, or the shared one.
    pub(crate) fn entry(&mut self, key: K) -> &mut V {
        if self.values.len() < self.limit || self.values.contains_key(&key) {
            return self.values.entry(key).or_default();
        }
        self.others.get_or_insert_default()
    }

    /// Returns the values by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter()
    }

    /// Returns the value of all keys beyond the limit, if there are any.
    pub(crate) fn others(&self) -> Option<&V> {
        self.others.as_ref()
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.others = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_limit_share_a_value() {
        let mut table: Bounded<u32, u64> = Bounded::new(2);
        for key in [1, 2, 3, 4, 1, 3] {
            *table.entry(key) += 1;
        }
        let mut values: Vec<_> = table.iter().map(|(key, value)| (*key, *value)).collect();
        values.sort_unstable();
        assert_eq!((values, table.others()), (vec![(1, 2), (2, 1)], Some(&3)));
    }
}
