//! Tracks which packets of one direction of a call have been seen.

use rx_proto::limits::WINDOW_MAX;

/// Number of packets tracked from the first unseen one: all that fit in a window after a lost packet.
const SPAN: u32 = WINDOW_MAX as u32;

/// If the first packet has a higher number than this, the capture started within the call, and earlier
/// packets do not count as lost.
const FIRST_MAX: u32 = 256;

/// Number of sequence numbers per word.
const WORD: u32 = u64::BITS;

/// How a sequence number relates to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next expected number.
    InOrder,
    /// This many numbers before it have not been seen.
    AfterGap(u32),
    /// Fills a gap: it was reordered, or is a retransmission of a packet lost before the capture point.
    IntoGap,
    /// Already seen.
    Again,
}

/// The sequence numbers seen, as a lowest unseen number and a bit for each one after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    /// Lowest unseen number; 0 before the first packet.
    base: u32,
    /// Bit `number % SPAN` is set if that number, beyond `base`, has been seen. Usually empty, since there is
    /// no gap.
    seen: Vec<u64>,
    highest: u32,
    /// Numbers no longer tracked that were never seen.
    missed: u64,
}

impl Sequences {
    pub(crate) fn see(&mut self, number: u32) -> Arrival {
        if self.base == 0 {
            // In a capture that starts within a call, earlier packets do not count as missing.
            self.base = if number <= FIRST_MAX { 1 } else { number };
            self.highest = self.base - 1;
        }
        if number < self.base || number - self.base < SPAN && self.bit(number) {
            return Arrival::Again;
        }
        if number - self.base >= SPAN {
            self.give_up_before(number - SPAN + 1);
        }
        self.set(number);
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

    /// Returns how many numbers below the highest have not been seen.
    pub(crate) fn missing(&self) -> u64 {
        if self.base == 0 {
            return 0;
        }
        let seen: u32 = self.seen.iter().map(|word| word.count_ones()).sum();
        let span = u64::from(self.highest.saturating_add(1).saturating_sub(self.base));
        self.missed + span.saturating_sub(seen.into())
    }

    fn bit(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.seen.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, number: u32) {
        if self.seen.is_empty() && number == self.base {
            self.base = number.saturating_add(1);
            return;
        }
        self.seen.resize((SPAN / WORD) as usize, 0);
        let (word, bit) = place(number);
        self.seen[word] |= bit;
    }

    fn clear(&mut self, number: u32) {
        let (word, bit) = place(number);
        if let Some(word) = self.seen.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Advances to the lowest number that has not been seen.
    fn advance(&mut self) {
        while self.bit(self.base) {
            self.clear(self.base);
            self.base = self.base.saturating_add(1);
        }
        if self.base > self.highest {
            self.seen = Vec::new();
        }
    }

    fn give_up_before(&mut self, base: u32) {
        let end = base.min(self.base.saturating_add(SPAN));
        for number in self.base..end {
            self.missed += u64::from(!self.bit(number));
            self.clear(number);
        }
        self.missed += u64::from(base - end);
        self.base = base;
    }
}

/// Returns the index of a number's word, and its bit.
fn place(number: u32) -> (usize, u64) {
    let offset = number % SPAN;
    ((offset / WORD) as usize, 1 << (offset % WORD))
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
        assert_eq!(seen.see(9000), Arrival::AfterGap(8998));
        assert_eq!(seen.missing(), 8998);
        assert_eq!(seen.see(2), Arrival::Again, "too old to be told apart");
        assert_eq!(seen.see(8999), Arrival::IntoGap);
        assert_eq!(seen.missing(), 8997);
        assert!(!seen.is_complete(9000));
        let mut middle = Sequences::default();
        assert_eq!(middle.see(5000), Arrival::InOrder);
        assert_eq!(middle.see(5001), Arrival::InOrder);
        assert_eq!(middle.missing(), 0);
    }

    #[test]
    fn a_whole_window_behind_a_lost_packet() {
        let mut seen = Sequences::default();
        assert_eq!(seen.see(1), InOrder);
        assert_eq!(seen.see(3), AfterGap(1));
        let window = WINDOW_MAX as u32;
        assert!((4..2 + window).all(|number| seen.see(number) == InOrder));
        assert_eq!((seen.see(2), seen.see(2), seen.see(3)), (IntoGap, Again, Again));
        assert!(seen.is_complete(1 + window) && seen.seen.is_empty());
    }

    /// Numbers in a first window, close together and spread out.
    fn spread() -> impl Strategy<Value = u32> {
        prop_oneof![1u32..200, 1u32..=SPAN]
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(first in 1..=FIRST_MAX, more in proptest::collection::vec(spread(), 0..300)) {
            let mut seen = Sequences::default();
            let mut set = BTreeSet::new();
            for number in [first].into_iter().chain(more) {
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
