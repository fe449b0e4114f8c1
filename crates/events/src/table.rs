//! Tables with a row for each of many things, bounded in size, whose sums are exact all the same.

use ahash::RandomState;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What can stand in a row.
pub trait Figures: Clone + Default {
    /// Adds what another row counted.
    fn add(&mut self, other: &Self);

    /// What was counted after `before`, an earlier state of the same row; `None` if it cannot be one.
    fn since(&self, before: &Self) -> Option<Self>;

    /// Rows of less weight make room for others.
    fn weight(&self) -> u64;
}

/// Rows by key, at most so many. When there is no room for one more, the lighter half of the rows is
/// added to the row of all others: a host that invents keys cannot make the table grow, and pushes out
/// light rows only. The sum of all rows, that one too, is exact.
#[derive(Clone, Debug)]
pub struct Table<K, F> {
    /// In the order in which they came.
    rows: Vec<Row<K, F>>,
    /// Where the row of a hash is.
    index: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    others: F,
    rows_max: usize,
    /// How often rows have moved.
    moves: u64,
    /// Unknown outside, so that nobody can choose keys that collide.
    hashing: RandomState,
}

#[derive(Clone, Debug)]
struct Row<K, F> {
    hash: u64,
    key: K,
    figures: F,
}

/// Where a row was found, which is where it is until rows move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    index: usize,
    moves: u64,
}

impl<K: Clone + Hash + Eq, F: Figures> Table<K, F> {
    /// A table of at most so many rows.
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

    /// The row of a key.
    pub fn row(&mut self, key: &K) -> &mut F {
        self.row_of(key, |own| own == key, || key.clone())
    }

    /// The row of a key that need not be made to look for it: `borrowed` must hash as the key does whose
    /// `is_equal` is true, and `make` gives that key.
    pub fn row_of(
        &mut self,
        borrowed: &(impl Hash + ?Sized),
        is_equal: impl Fn(&K) -> bool,
        make: impl FnOnce() -> K,
    ) -> &mut F {
        let place = self.place_of(borrowed, make, |_, _| ());
        let row = &mut self.rows[place.index];
        // Two keys of one hash are next to impossible; the sums hold even so.
        if is_equal(&row.key) { &mut row.figures } else { &mut self.others }
    }

    /// Where the row of a key is, as [`row_of`](Self::row_of) finds it: who uses it again and again looks there first.
    /// `let_go` is told of each row that loses its place among the rows of their own, before it is added to the others.
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

    /// The key and the row at a place, unless rows have moved since.
    pub fn at(&mut self, place: Place) -> Option<(&K, &mut F)> {
        let row = self.rows.get_mut(place.index).filter(|_| place.moves == self.moves)?;
        Some((&row.key, &mut row.figures))
    }

    /// All rows of their own.
    pub fn rows(&self) -> impl Iterator<Item = (&K, &F)> {
        self.rows.iter().map(|row| (&row.key, &row.figures))
    }

    /// Does that to all rows, that of the others too.
    pub fn each_mut(&mut self, mut each: impl FnMut(&mut F)) {
        self.rows.iter_mut().for_each(|row| each(&mut row.figures));
        each(&mut self.others);
    }

    /// What has no row of its own.
    pub fn others(&self) -> &F {
        &self.others
    }

    /// The same, to add to it what belongs to no row.
    pub fn others_mut(&mut self) -> &mut F {
        &mut self.others
    }

    /// The sum of everything.
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

    /// The heaviest rows, at most so many, and the sum of the rest.
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

/// Rows of their own and the sum of the others, as [`Table::top`] gives them.
pub type Look<K, F> = (Vec<(K, F)>, F);

/// What came between two looks at a table. Rows may have joined the others or come from them meanwhile;
/// what then cannot be told of a row is counted as others', so that the sum over all is exact.
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
    // A server that was started again counts from zero.
    rest.since(&counted).map_or_else(|| now.clone(), |others| (rows, others))
}

/// Takes keys that are hashes.
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
    fn who_asks_is_told_of_each_row_that_has_to_go() {
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
        /// Whatever joins the others and comes back: what came between two looks adds up.
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
