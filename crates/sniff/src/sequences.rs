//! Which packets of one direction of a call have been seen.

/// Packets beyond the first unseen one that are told apart: more than any window.
const SPAN: u32 = 256;

/// What a sequence number means after those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next one.
    InOrder,
    /// So many before it have not been seen.
    AfterGap(u32),
    /// One of those, after all: it was overtaken, or is a second attempt for one that was lost before
    /// it came here.
    IntoGap,
    /// Seen before.
    Again,
}

/// The sequence numbers seen, as a lowest unseen one and a bit for each after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    /// The lowest number that has not been seen, 0 as long as none has been.
    base: u32,
    /// Bit n: `base + n` has been seen.
    seen: [u64; (SPAN / 64) as usize],
    highest: u32,
    /// Numbers that were given up.
    missed: u64,
}

impl Sequences {
    pub(crate) fn see(&mut self, number: u32) -> Arrival {
        if self.base == 0 {
            // A capture that begins within a call does not miss what was before it.
            self.base = if number <= SPAN { 1 } else { number };
            self.highest = self.base - 1;
        }
        if number < self.base || number - self.base < SPAN && self.bit(number - self.base) {
            return Arrival::Again;
        }
        if number - self.base >= SPAN {
            self.give_up_before(number - SPAN + 1);
        }
        let offset = number - self.base;
        self.seen[(offset / 64) as usize] |= 1 << (offset % 64);
        let highest = self.highest;
        self.highest = highest.max(number);
        self.advance();
        match number.checked_sub(highest) {
            None | Some(0) => Arrival::IntoGap,
            Some(1) => Arrival::InOrder,
            Some(more) => Arrival::AfterGap(more - 1),
        }
    }

    /// Whether everything up to this number has been seen.
    pub(crate) fn is_complete(&self, last: u32) -> bool {
        self.base > last && self.missed == 0
    }

    /// Numbers below the highest that have not been seen.
    pub(crate) fn missing(&self) -> u64 {
        if self.base == 0 {
            return 0;
        }
        let seen: u32 = self.seen.iter().map(|word| word.count_ones()).sum();
        let span = u64::from(self.highest.saturating_add(1).saturating_sub(self.base));
        self.missed + span.saturating_sub(seen.into())
    }

    fn bit(&self, offset: u32) -> bool {
        self.seen[(offset / 64) as usize] >> (offset % 64) & 1 == 1
    }

    fn advance(&mut self) {
        while self.bit(0) {
            self.shift(1);
        }
    }

    fn give_up_before(&mut self, base: u32) {
        let by = base - self.base;
        let counted = (0..by.min(SPAN)).filter(|offset| !self.bit(*offset)).count() as u64;
        self.missed += counted + u64::from(by.saturating_sub(SPAN));
        for _ in 0..by.min(SPAN) {
            self.shift(1);
        }
        self.base = base;
    }

    fn shift(&mut self, by: u32) {
        let mut carry = 0;
        for word in self.seen.iter_mut().rev() {
            let low = *word << (64 - by);
            *word = *word >> by | carry;
            carry = low;
        }
        self.base = self.base.saturating_add(by);
    }
}

#[cfg(test)]
mod tests {
    use super::Arrival::{AfterGap, Again, InOrder, IntoGap};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_in_every_order() {
        let mut seen = Sequences::default();
        let arrivals = [1, 2, 5, 2, 4, 3, 3, 6].map(|number| seen.see(number));
        assert_eq!(arrivals, [InOrder, InOrder, AfterGap(2), Again, IntoGap, IntoGap, Again, InOrder]);
        assert!(seen.is_complete(6) && !seen.is_complete(7));
        assert_eq!(seen.missing(), 0);
    }

    #[test]
    fn nothing_is_missing_where_nothing_was_seen() {
        assert_eq!(Sequences::default().missing(), 0);
    }

    #[test]
    fn gaps_that_are_never_filled() {
        let mut seen = Sequences::default();
        assert_eq!(seen.see(1), Arrival::InOrder);
        assert_eq!(seen.see(1000), Arrival::AfterGap(998));
        assert_eq!(seen.missing(), 998);
        assert_eq!(seen.see(2), Arrival::Again, "too old to be told apart");
        assert_eq!(seen.see(999), Arrival::IntoGap);
        assert_eq!(seen.missing(), 997);
        assert!(!seen.is_complete(1000));
        let mut middle = Sequences::default();
        assert_eq!(middle.see(5000), Arrival::InOrder);
        assert_eq!(middle.see(5001), Arrival::InOrder);
        assert_eq!(middle.missing(), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(numbers in proptest::collection::vec(1u32..200, 1..300)) {
            let mut seen = Sequences::default();
            let mut set = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(seen.see(number) == Arrival::Again, !set.insert(number));
                let highest = *set.last().unwrap();
                prop_assert_eq!(seen.missing(), u64::from(highest) - set.len() as u64);
                prop_assert_eq!(seen.is_complete(highest), set.len() == highest as usize);
            }
        }

        #[test]
        fn survives_anything(numbers in proptest::collection::vec(any::<u32>(), 0..50)) {
            let mut seen = Sequences::default();
            for number in numbers {
                seen.see(number);
                seen.missing();
            }
        }
    }
}
