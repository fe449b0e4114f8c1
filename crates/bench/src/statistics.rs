//! Medians and spreads.

use serde::Serialize;

/// Middle and ends of some figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Half of the figures are not greater, half not less.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of these figures; `None` without any.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median: f64::midpoint(low, high), min, max })
    }
}

/// `part` per `whole`, where there is something to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// A figure with about three digits that matter.
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
