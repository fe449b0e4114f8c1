//! Distributions of sizes and durations.

/// Buckets per power of two.
const PER_POWER: u64 = 8;
/// Binary logarithm of `PER_POWER`.
const POWER_BITS: u32 = PER_POWER.trailing_zeros();
/// Number of buckets in a histogram.
pub const BUCKETS: usize = 320;

/// Counts of values by size. A bucket is an eighth of a power of two wide, so statements about a value are
/// off by at most an eighth of it; values below 8 and sums are exact. Values of 2^42 and more (73 minutes, in
/// nanoseconds) fall into the last bucket.
///
/// Allocates memory only when the first value is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum: u64,
    max: u64,
    buckets: Option<Box<[u64; BUCKETS]>>,
}

impl Histogram {
    /// Records a value.
    pub fn record(&mut self, value: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
        self.buckets_mut()[bucket_of(value)] += 1;
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the maximum; 0 if empty. After [`Self::since`], the upper bound of its bucket.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean; 0 if empty.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Returns the given quantile, in thousandths: an upper bound that exceeds the exact value by at most an
    /// eighth; 0 if empty.
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

    /// Returns the number of values that are at most `bound`. Exact if `bound` is one less than a power of
    /// two.
    pub fn count_up_to(&self, bound: u64) -> u64 {
        self.buckets().filter(|(index, _)| upper_bound(*index) <= bound).map(|(_, count)| count).sum()
    }

    /// Returns the non-empty buckets with their indices.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let all = self.buckets.iter().flat_map(|buckets| buckets.iter().copied().enumerate());
        all.filter(|(_, count)| *count > 0)
    }

    /// Builds a histogram from another one's sum, maximum and buckets. Buckets with an invalid index count as
    /// the last one.
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

    /// Returns what was recorded after `before`, an earlier state of the same histogram, or everything if
    /// `before` cannot be one (the server was restarted).
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

/// Returns the bucket of a value.
pub fn bucket_of(value: u64) -> usize {
    if value < PER_POWER {
        return value as usize;
    }
    let power = value.ilog2();
    let within = (value >> (power - POWER_BITS)) - PER_POWER;
    let index = u64::from(power - POWER_BITS + 1) * PER_POWER + within;
    (index as usize).min(BUCKETS - 1)
}

/// Returns the largest value of a bucket.
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
    fn a_histogram_is_rebuilt_from_its_numbers() {
        let reported = of(&[1, 9, 9, 1_000_000, u64::MAX]);
        assert_eq!(Histogram::from_buckets(reported.sum(), reported.max(), reported.buckets()), reported);
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
            let (exact, reported) = (values[place], histogram.quantile(permille));
            prop_assert!(reported >= exact && reported - exact <= exact / PER_POWER, "{exact} {reported}");
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
