//! Medians and spreads.

use serde::Serialize;

/// Median and extremes of some figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Median.
    pub(crate) median: f64,
    /// Minimum.
    pub(crate) min: f64,
    /// Maximum.
    pub(crate) max: f64,
}

impl Spread {
    /// Computes the spread of these figures; `None` if there are none.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median: f64::midpoint(low, high), min, max })
    }
}

/// Comparison of two alternatives measured in pairs of consecutive runs, so that disturbances of the machine
/// affect both.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Paired {
    /// Median of the pairs' ratios.
    pub(crate) median: f64,
    /// Lower bound of the 95 percent confidence interval for the median.
    pub(crate) low: f64,
    /// Upper bound of that interval; with few pairs the bounds are the extremes.
    pub(crate) high: f64,
}

impl Paired {
    /// Computes the comparison from the ratios of pairs; `None` if there are none. The bounds are order
    /// statistics of the ratios: the number of ratios below the true median has a binomial distribution with
    /// probability one half, whatever the disturbances.
    pub(crate) fn of(ratios: impl IntoIterator<Item = f64>) -> Option<Paired> {
        let mut sorted: Vec<f64> = ratios.into_iter().collect();
        let median = Spread::of(sorted.iter().copied())?.median;
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        // 1.96 standard deviations, each of sqrt(n)/2, below the median.
        let from_end = ((count as f64 - 1.96 * (count as f64).sqrt()) / 2.0).floor().max(0.0) as usize;
        Some(Paired { median, low: sorted[from_end], high: sorted[count - 1 - from_end] })
    }

    /// Formats the comparison for tables: the difference in percent, and its bounds.
    pub(crate) fn percent(self) -> String {
        let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
        format!("{} % ({}..{})", percent(self.median), percent(self.low), percent(self.high))
    }
}

/// Returns `part` per `whole`, unless `whole` is 0.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Formats a figure with about three significant digits.
pub(crate) fn short(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let spread = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]), spread(3.0, 3.0, 3.0));
        assert_eq!(Spread::of([9.0, 1.0, 2.0]), spread(2.0, 1.0, 9.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0]), spread(3.0, 1.0, 9.0));
    }

    #[test]
    fn pairs_have_a_median_and_bounds_robust_to_outliers() {
        let paired = |median, low, high| Some(Paired { median, low, high });
        assert_eq!(Paired::of([]), None);
        assert_eq!(Paired::of([1.1]), paired(1.1, 1.1, 1.1));
        assert_eq!(Paired::of([3.0, 1.0, 2.0]), paired(2.0, 1.0, 3.0), "few: the ends");
        // 25 pairs: (25 - 9.8) / 2 = 7 of them are beyond each bound.
        let ratios = |wild: f64| (0..25_u32).map(move |n| if n < 24 { f64::from(n) } else { wild });
        assert_eq!(Paired::of(ratios(24.0)), paired(12.0, 7.0, 17.0));
        assert_eq!(Paired::of(ratios(1e9)), paired(12.0, 7.0, 17.0));
        let reported = Paired { median: 1.0125, low: 0.99, high: 1.0 }.percent();
        assert_eq!(reported, "+1.2 % (-1.0..+0.0)");
    }

    #[test]
    fn ratios_and_digits() {
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
        assert_eq!(ratio(3.0, 0.0), None);
        for (figure, text) in
            [(1234.5, "1234"), (99.96, "100.0"), (12.34, "12.3"), (0.456, "0.46"), (0.0, "0.00")]
        {
            assert_eq!(short(figure), text);
        }
    }
}
