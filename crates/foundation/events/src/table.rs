//! Bounded tables with a row for each of many keys, whose sums are nevertheless exact.

use ahash::RandomState;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Figures of a row.
pub trait Figures: Clone + Default {
    /// Adds the counts of another row.
    fn add(&mut self, other: &Self);

    /// Returns the counts since `before`, an earlier state of the same row; `None` if it cannot be one.
    fn since(&self, before: &Self) -> Option<Self>;

    /// Returns the weight; lighter rows are removed first.
    fn weight(&self) -> u64;
}

/// Rows by key, up to a limit. To make room, the lighter half of the rows is added to a common row for all
/// others. A host that invents keys cannot make the table grow, and displaces only light rows. The sum of all
/// rows, including the common one, is exact.
#[derive(Clone, Debug)]
pub struct Table<K, F> {
    /// In order of insertion.
    rows: Vec<Row<K, F>>,
    /// Index of the row with a given hash.
    index: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    others: F,
    rows_max: usize,
    /// Number of times that rows have moved.
    moves: u64,
    /// Random, so that a client cannot choose colliding keys.
    hashing: RandomState,
}

#[derive(Clone, Debug)]
struct Row<K, F> {
    hash: u64,
    key: K,
    figures: F,
}

/// Position of a row, valid until rows move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    index: usize,
    moves: u64,
}

impl<K: Clone + Hash + Eq, F: Figures> Table<K, F> {
    /// Creates a table of at most `rows_max` rows.
    pub fn new(rows_max: usize) -> Table<K, F> {
        Table {
            rows: Vec::new(),
            index: HashMap::default(),
            others: F::default(),
            rows_max: rows_max.max(2),
            moves: 0,
            hashing: RandomState::new(),
        }
    }

    /// Returns the row of a key.
    pub fn row(&mut self, key: &K) -> &mut F {
        self.row_of(key, |own| own == key, || key.clone())
    }

    /// Returns the row of a key without constructing the key for the lookup: `borrowed` must have the same
    /// hash as the key for which `is_equal` is true, and `make` constructs that key.
    pub fn row_of(
        &mut self,
        borrowed: &(impl Hash + ?Sized),
        is_equal: impl Fn(&K) -> bool,
        make: impl FnOnce() -> K,
    ) -> &mut F {
        let place = self.place_of(borrowed, make, |_, _| ());
        let row = &mut self.rows[place.index];
        // Two keys with the same hash are next to impossible; the sums are exact even then.
        if is_equal(&row.key) { &mut row.figures } else { &mut self.others }
    }

    /// Returns the position of a key's row, found as in [`row_of`](Self::row_of); callers that use the row
    /// repeatedly cache it. `let_go` is called with each row that is displaced, before it is added to the
    /// common row.
    pub fn place_of(
        &mut self,
        borrowed: &(impl Hash + ?Sized),
        make: impl FnOnce() -> K,
        let_go: impl FnMut(&K, &F),
    ) -> Place {
        let hash = self.hashing.hash_one(borrowed);
        if let Some(index) = self.index.get(&hash) {
            return Place { index: *index, moves: self.moves };
        }
        if self.rows.len() >= self.rows_max {
            self.make_room(let_go);
        }
        let index = self.rows.len();
        self.rows.push(Row { hash, key: make(), figures: F::default() });
        self.index.insert(hash, index);
        Place { index, moves: self.moves }
    }

    /// Returns key and row at a position, unless rows have moved since.
    pub fn at(&mut self, place: Place) -> Option<(&K, &mut F)> {
        let row = self.rows.get_mut(place.index).filter(|_| place.moves == self.moves)?;
        Some((&row.key, &mut row.figures))
    }

    /// Returns all rows except the common one.
    pub fn rows(&self) -> impl Iterator<Item = (&K, &F)> {
        self.rows.iter().map(|row| (&row.key, &row.figures))
    }

    /// Calls `each` with all rows, including the common one.
    pub fn each_mut(&mut self, mut each: impl FnMut(&mut F)) {
        self.rows.iter_mut().for_each(|row| each(&mut row.figures));
        each(&mut self.others);
    }

    /// Returns the common row of all keys without a row.
    pub fn others(&self) -> &F {
        &self.others
    }

    /// Returns the common row, to add figures that belong to no key.
    pub fn others_mut(&mut self) -> &mut F {
        &mut self.others
    }

    /// Returns the sum of all rows.
    pub fn total(&self) -> F {
        let mut total = self.others.clone();
        self.rows().for_each(|(_, row)| total.add(row));
        total
    }

    /// Adds all rows of `other`.
    pub fn merge(&mut self, other: &Table<K, F>) {
        self.others.add(&other.others);
        for (key, row) in other.rows() {
            self.row(key).add(row);
        }
    }

    /// Returns the heaviest rows, at most `rows_max`, and the sum of the rest.
    pub fn top(&self, rows_max: usize) -> (Vec<(K, F)>, F) {
        let mut rows: Vec<(K, F)> = self.rows().map(|(key, row)| (key.clone(), row.clone())).collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
        let mut others = self.others.clone();
        rows.drain(rows_max.min(rows.len())..).for_each(|(_, row)| others.add(&row));
        (rows, others)
    }

    fn make_room(&mut self, mut let_go: impl FnMut(&K, &F)) {
        self.rows.sort_unstable_by_key(|row| (row.figures.weight(), row.hash));
        let light = self.rows.len().div_ceil(2);
        for row in self.rows.drain(..light) {
            let_go(&row.key, &row.figures);
            self.others.add(&row.figures);
        }
        self.index = self.rows.iter().enumerate().map(|(index, row)| (row.hash, index)).collect();
        self.moves += 1;
    }
}

/// Rows and the sum of all others, as returned by [`Table::top`].
pub type Look<K, F> = (Vec<(K, F)>, F);

/// Returns the figures between two samples of a table. Rows may have moved to or from the common row in
/// between; figures that cannot be attributed to a row then count towards the common row, so that the overall
/// sum is exact.
pub fn since<K: Clone + Hash + Eq, F: Figures>(now: &Look<K, F>, before: &Look<K, F>) -> Look<K, F> {
    let mut old: HashMap<&K, &F> = before.0.iter().map(|(key, row)| (key, row)).collect();
    let (mut rows, mut rest) = (Vec::new(), now.1.clone());
    for (key, row) in &now.0 {
        let had = old.get(key).copied();
        let news = had.map_or_else(|| (before.1.weight() == 0).then(|| row.clone()), |had| row.since(had));
        match news {
            Some(news) => {
                old.remove(key);
                rows.push((key.clone(), news));
            }
            None => rest.add(row),
        }
    }
    let mut counted = before.1.clone();
    for row in old.values() {
        counted.add(row);
    }
    // A restarted server counts from zero.
    rest.since(&counted).map_or_else(|| now.clone(), |others| (rows, others))
}

/// A hasher for keys that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Figures for u64 {
        fn add(&mut self, other: &u64) {
            *self += other;
        }

        fn since(&self, before: &u64) -> Option<u64> {
            self.checked_sub(*before)
        }

        fn weight(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn invented_keys_push_out_light_rows_only() {
        let mut table = Table::new(8);
        *table.row(&0_u32) += 1000;
        for key in 1..100_000 {
            *table.row(&key) += 1;
        }
        assert!(table.rows().count() <= 8);
        assert!(table.rows().any(|row| row == (&0, &1000)));
        assert_eq!(table.total(), 1000 + 99_999);
        let (top, others) = table.top(1);
        assert_eq!((&top[..], others), (&[(0, 1000)][..], 99_999));
    }

    #[test]
    fn a_key_need_not_be_made_to_be_found() {
        let mut table: Table<String, u64> = Table::new(4);
        for text in ["a", "b", "a"] {
            *table.row_of(text, |own| own == text, || text.to_owned()) += 1;
        }
        assert_eq!(*table.row(&"a".to_owned()), 2);
    }

    #[test]
    fn evicted_rows_are_reported() {
        let mut table: Table<u32, u64> = Table::new(4);
        let (mut gone, mut sum) = (Vec::new(), 0);
        for key in 0..10 {
            let place = table.place_of(&key, || key, |key, row| gone.push((*key, *row)));
            *table.at(place).unwrap().1 += u64::from(key) + 1;
            sum += u64::from(key) + 1;
        }
        assert_eq!(gone.iter().map(|(_, row)| row).sum::<u64>(), *table.others());
        assert_eq!((gone.len() + table.rows().count(), table.total()), (10, sum));
        assert_eq!(gone[..2], [(0, 1), (1, 2)], "the lightest");
    }

    #[test]
    fn a_place_holds_until_rows_move() {
        let mut table = Table::new(4);
        let place = table.place_of(&7_u32, || 7_u32, |_, _| ());
        *table.at(place).unwrap().1 += 5;
        assert_eq!((table.place_of(&7_u32, || 7, |_, _| ()), *table.row(&7)), (place, 5));
        (0..3).for_each(|key| *table.row(&key) += 1);
        assert_eq!(table.at(place).map(|(key, row)| (*key, *row)), Some((7, 5)));
        *table.row(&3) += 1;
        assert_eq!(table.at(place), None, "there was no room");
        assert_eq!((*table.row(&7), table.total()), (5, 9));
    }

    fn history() -> impl Strategy<Value = Vec<(u8, u32)>> {
        proptest::collection::vec((0_u8..12, 1_u32..50), 0..80)
    }

    proptest! {
        /// For any movement of rows to and from the common row, the differences between two samples add up.
        #[test]
        fn sums_are_exact(first in history(), second in history(), rows_max in 2_usize..10, top in 0_usize..10) {
            let mut table = Table::new(rows_max);
            let mut sum = 0;
            for (key, amount) in first {
                *table.row(&key) += u64::from(amount);
                sum += u64::from(amount);
            }
            prop_assert_eq!(table.total(), sum);
            let before = table.top(top);
            let mut news = 0;
            for (key, amount) in second {
                *table.row(&key) += u64::from(amount);
                news += u64::from(amount);
            }
            let now = table.top(top);
            let (rows, others) = since(&now, &before);
            prop_assert_eq!(rows.iter().map(|(_, row)| row).sum::<u64>() + others, news);
            let mut merged = Table::new(rows_max);
            merged.merge(&table);
            prop_assert_eq!(merged.total(), sum + news);
        }
    }
}
