//! A maximum since the start that also supports the maximum of an interval.

/// Number of periods with a separate maximum.
const PERIODS: usize = 4;

/// The maximum of values since the server started and of each of the last few periods, so that one large
/// early value does not hide later ones. The caller of `record` passes the current period; periods are
/// numbered from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    ever: u64,
    /// Latest period; 0 if periods are not used.
    period: u64,
    /// Maximum of each period, indexed by its number modulo `PERIODS`.
    lately: [u64; PERIODS],
}

impl Longest {
    /// Records a value of this period. A late value counts towards the latest period.
    pub fn record(&mut self, value: u64, period: u64) {
        if period > self.period {
            self.begin(period);
        }
        self.ever = self.ever.max(value);
        let slot = &mut self.lately[place(self.period)];
        *slot = (*slot).max(value);
    }

    /// Starts a period. Maxima older than `PERIODS` periods remain only in the overall maximum.
    #[cold]
    pub fn begin(&mut self, period: u64) {
        let first = (self.period + 1).max(period.saturating_sub(PERIODS as u64 - 1));
        (first..=period).for_each(|passed| self.lately[place(passed)] = 0);
        self.period = self.period.max(period);
    }

    /// Returns the overall maximum; after [`Self::since`], the maximum since then.
    pub fn value(&self) -> u64 {
        self.ever
    }

    /// Adds all values of `other`.
    pub fn add(&mut self, other: &Longest) {
        self.ever = self.ever.max(other.ever);
        if other.period > self.period {
            self.begin(other.period);
        }
        for period in other.periods().filter(|period| period + PERIODS as u64 > self.period) {
            let slot = &mut self.lately[place(period)];
            *slot = (*slot).max(other.lately[place(period)]);
        }
    }

    /// Returns the maximum of the values recorded after `before`, an earlier state, or in the period in which
    /// `before` was taken. A value larger than all before it is exact; smaller ones are known only for the
    /// last few periods.
    #[must_use]
    pub fn since(&self, before: &Longest) -> Longest {
        if self.period == 0 {
            return self.clone();
        }
        let news = self.periods().filter(|period| *period >= before.period);
        let lately = news.map(|period| self.lately[place(period)]).max().unwrap_or(0);
        let ever = if self.ever > before.ever { self.ever } else { lately };
        Longest { ever, ..self.clone() }
    }

    /// Returns the state as numbers, to send it to another process.
    pub fn numbers(&self) -> Vec<u64> {
        [self.ever, self.period].into_iter().chain(self.lately).collect()
    }

    /// Builds the state from these numbers. A server without periods sends only the overall maximum.
    pub fn from_numbers(numbers: &[u64]) -> Longest {
        let of = |place: usize| numbers.get(place).copied().unwrap_or(0);
        Longest { ever: of(0), period: of(1), lately: std::array::from_fn(|place| of(2 + place)) }
    }

    /// Returns the periods with a separate maximum.
    fn periods(&self) -> impl Iterator<Item = u64> + use<> {
        self.period.saturating_sub(PERIODS as u64 - 1).max(1)..=self.period
    }
}

fn place(period: u64) -> usize {
    (period % PERIODS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_great_value_hides_no_later_ones() {
        let mut longest = Longest::default();
        longest.record(900, 1);
        let first = longest.clone();
        longest.record(7, 1);
        assert_eq!(longest.since(&first).value(), 900, "it is of the same period");
        longest.record(5, 3);
        let second = longest.clone();
        assert_eq!(second.since(&first).value(), 900);
        longest.record(6, 4);
        longest.record(4, 4);
        assert_eq!(longest.since(&second).value(), 6);
        assert_eq!(longest.value(), 900, "since the start");
        let mut later = longest.clone();
        later.begin(9);
        assert_eq!(later.since(&longest).value(), 0, "nothing came");
        later.record(1000, 9);
        later.begin(99);
        assert_eq!(later.since(&first).value(), 1000, "greater than all before, however long ago");
    }

    #[test]
    fn without_periods_the_overall_maximum_is_shown() {
        let [before, now] = [[50], [50]].map(|numbers| Longest::from_numbers(&numbers));
        assert_eq!(now.since(&before).value(), 50);
        let mut longest = Longest::default();
        longest.record(3, 6);
        assert_eq!(Longest::from_numbers(&longest.numbers()), longest);
    }

    proptest! {
        /// Merges the values of two threads. Between two samples the result is at least the maximum within
        /// the periods kept, and at most the maximum since the start of the first sample's period.
        #[test]
        fn sums_include_all_values(
            values in proptest::collection::vec((0_usize..2, 1_u64..1000, 0_u64..3), 1..60),
            split in 0_usize..60,
        ) {
            let split = split.min(values.len());
            let (mut parts, mut period, mut all) = ([Longest::default(), Longest::default()], 1, Vec::new());
            let sum = |parts: &[Longest; 2], period: u64| {
                let mut sum = Longest::default();
                for part in parts {
                    sum.add(part);
                }
                sum.begin(period);
                sum
            };
            let mut before = (sum(&parts, period), period);
            for (index, (part, value, passed)) in values.iter().enumerate() {
                if index == split {
                    before = (sum(&parts, period), period);
                }
                period += passed;
                parts[*part].record(*value, period);
                all.push((index, period, *value));
            }
            let news = sum(&parts, period).since(&before.0).value();
            let greatest = |least: u64, first: usize| {
                let of = all.iter().filter(|(index, period, _)| *index >= first && *period >= least);
                of.map(|(.., value)| *value).max().unwrap_or(0)
            };
            prop_assert!(news >= greatest((period + 1).saturating_sub(PERIODS as u64), split));
            prop_assert!(news <= greatest(before.1, 0).max(greatest(0, split)));
        }
    }
}
