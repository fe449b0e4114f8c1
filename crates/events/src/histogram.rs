//! Distributions of sizes and durations.

/// Buckets of each power of two.
const PER_POWER: u64 = 8;
/// log2 of that.
const POWER_BITS: u32 = PER_POWER.trailing_zeros();
/// Buckets of a histogram.
pub const BUCKETS: usize = 320;

/// How often values of each size occurred. A bucket is an eighth of a power of two wide, so what is said
/// of a value is wrong by at most an eighth of it; values below 8 and sums are exact. Values of 2^42 and
/// more (73 minutes, in nanoseconds) fall into the last bucket.
///
/// Takes some memory only once something has been recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum: u64,
    max: u64,
    buckets: Option<Box<[u64; BUCKETS]>>,
}

impl Histogram {
    /// Adds a value.
    pub fn record(&mut self, value: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
        self.buckets_mut()[bucket_of(value)] += 1;
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The greatest of them; 0 without any. After [`Self::since`] the upper bound of its bucket.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their mean; 0 without any.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// A value that so many of a thousand values do not exceed, and by at most an eighth greater than the
    /// least such; 0 without any.
    pub fn quantile(&self, permille: u64) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(permille.min(1000))).div_ceil(1000).max(1) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets() {
            seen += count;
            if seen >= wanted {
                return upper_bound(index).min(self.max);
            }
        }
        self.max
    }

    /// How many values are at most `bound`, to be asked for bounds that are one less than a power of two:
    /// for those it is exact.
    pub fn count_up_to(&self, bound: u64) -> u64 {
        self.buckets().filter(|(index, _)| upper_bound(*index) <= bound).map(|(_, count)| count).sum()
    }

    /// The buckets that are not empty, by number.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let all = self.buckets.iter().flat_map(|buckets| buckets.iter().copied().enumerate());
        all.filter(|(_, count)| *count > 0)
    }

    /// A histogram from what another one told: sum, greatest value, buckets. Buckets that there cannot be
    /// count as the last.
    pub fn from_buckets(sum: u64, max: u64, buckets: impl IntoIterator<Item = (usize, u64)>) -> Histogram {
        let mut histogram = Histogram { sum, max, ..Histogram::default() };
        for (index, count) in buckets {
            histogram.count = histogram.count.saturating_add(count);
            let bucket = &mut histogram.buckets_mut()[index.min(BUCKETS - 1)];
            *bucket = bucket.saturating_add(count);
        }
        histogram
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        if let Some(theirs) = &other.buckets {
            self.buckets_mut().iter_mut().zip(theirs.iter()).for_each(|(own, their)| *own += their);
        }
    }

    /// What was recorded after `before`, an earlier state of the same histogram. All of it, if that
    /// cannot be one (the server was started again).
    #[must_use]
    pub fn since(&self, before: &Histogram) -> Histogram {
        if self.count < before.count || self.sum < before.sum {
            return self.clone();
        }
        let mut old = [0; BUCKETS];
        before.buckets().for_each(|(index, count)| old[index] = count);
        let news = self.buckets().map(|(index, count)| (index, count.saturating_sub(old[index])));
        let news: Vec<(usize, u64)> = news.filter(|(_, count)| *count > 0).collect();
        let max = news.last().map_or(0, |(index, _)| upper_bound(*index).min(self.max));
        Histogram::from_buckets(self.sum - before.sum, max, news)
    }

    fn buckets_mut(&mut self) -> &mut [u64; BUCKETS] {
        self.buckets.get_or_insert_with(|| Box::new([0; BUCKETS]))
    }
}

/// The bucket that a value belongs to.
pub fn bucket_of(value: u64) -> usize {
    if value < PER_POWER {
        return value as usize;
    }
    let power = value.ilog2();
    let within = (value >> (power - POWER_BITS)) - PER_POWER;
    let index = u64::from(power - POWER_BITS + 1) * PER_POWER + within;
    (index as usize).min(BUCKETS - 1)
}

/// The greatest value of a bucket.
pub fn upper_bound(index: usize) -> u64 {
    let index = index.min(BUCKETS - 1) as u64;
    if index + 1 == BUCKETS as u64 {
        return u64::MAX;
    }
    if index < PER_POWER {
        return index;
    }
    let (power, within) = (index / PER_POWER - 1, index % PER_POWER);
    ((PER_POWER + within + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for value in values {
            histogram.record(*value);
        }
        histogram
    }

    #[test]
    fn every_value_lies_in_its_bucket_and_none_is_wide() {
        for value in
            (0..70_000).chain((3..42).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]))
        {
            let index = bucket_of(value);
            let upper = upper_bound(index);
            assert!(value <= upper, "{value}");
            assert!(index == 0 || value > upper_bound(index - 1), "{value}");
            assert!(index + 1 == BUCKETS || (upper - value) * PER_POWER <= value, "{value} {upper}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_of(1 << 42), BUCKETS - 1);
    }

    #[test]
    fn an_empty_one_has_nothing() {
        let none = Histogram::default();
        assert_eq!((none.count(), none.sum(), none.max(), none.mean(), none.quantile(500)), (0, 0, 0, 0, 0));
        assert_eq!(none.since(&none), none);
    }

    #[test]
    fn what_was_told_of_a_histogram_makes_it_again() {
        let told = of(&[1, 9, 9, 1_000_000, u64::MAX]);
        assert_eq!(Histogram::from_buckets(told.sum(), told.max(), told.buckets()), told);
        assert_eq!(Histogram::from_buckets(0, 0, [(usize::MAX, u64::MAX), (5, 7)]).count(), u64::MAX);
    }

    #[test]
    fn a_server_that_was_started_again_counts_from_zero() {
        let (before, now) = (of(&[5, 5, 5]), of(&[7]));
        assert_eq!(now.since(&before), now);
    }

    #[test]
    fn counts_up_to_a_power_of_two_are_exact() {
        let histogram = of(&[0, 1, 1023, 1024, 1025, 5000]);
        assert_eq!([0, 1, 1023, 2047, 8191].map(|bound| histogram.count_up_to(bound)), [1, 2, 3, 5, 6]);
    }

    proptest! {
        #[test]
        fn quantiles_are_off_by_an_eighth_at_most(mut values in proptest::collection::vec(0_u64..1 << 41, 1..200),
                                                  permille in 0_u64..=1000) {
            let histogram = of(&values);
            values.sort_unstable();
            let place = (values.len() as u64 * permille).div_ceil(1000).max(1) as usize - 1;
            let (exact, told) = (values[place], histogram.quantile(permille));
            prop_assert!(told >= exact && told - exact <= exact / PER_POWER, "{exact} {told}");
        }

        #[test]
        fn parts_add_up(first in proptest::collection::vec(any::<u32>(), 0..50),
                        second in proptest::collection::vec(any::<u32>(), 0..50)) {
            let wide = |values: &[u32]| of(&values.iter().map(|value| u64::from(*value)).collect::<Vec<_>>());
            let (before, news) = (wide(&first), wide(&second));
            let mut both = before.clone();
            both.merge(&news);
            prop_assert_eq!(&both, &wide(&[first, second].concat()));
            let since = both.since(&before);
            prop_assert_eq!((since.count(), since.sum()), (news.count(), news.sum()));
            prop_assert!(since.buckets().eq(news.buckets()));
            prop_assert!(since.max() >= news.max());
        }
    }
}
