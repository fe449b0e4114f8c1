//! Figures of one client with one volume.

use events::Figures;
use events::catalogue::UsageFigures;

/// Figures of one client with one volume, by procedure.
#[derive(Clone, Debug, Default)]
pub struct PairFigures {
    /// Indexed by procedure number. A client uses only a few procedures on a volume, so searching a list is
    /// faster than a table.
    calls: Vec<(usize, UsageFigures)>,
}

impl PairFigures {
    /// Returns the sum over all procedures.
    pub fn usage(&self) -> UsageFigures {
        let mut usage = UsageFigures::default();
        self.calls.iter().for_each(|(_, figures)| usage.add(figures));
        usage
    }

    /// Returns the row of a procedure, creating it if needed.
    pub(crate) fn of_procedure(&mut self, number: usize) -> &mut UsageFigures {
        let place = self.calls.iter().position(|(own, _)| *own == number).unwrap_or_else(|| {
            self.calls.push((number, UsageFigures::default()));
            self.calls.len() - 1
        });
        &mut self.calls[place].1
    }

    /// Calls `each` with the figures of each procedure.
    pub(crate) fn each_mut(&mut self, each: impl FnMut(&mut UsageFigures)) {
        self.calls.iter_mut().map(|(_, figures)| figures).for_each(each);
    }

    /// Returns procedure numbers with their figures.
    pub fn calls(&self) -> &[(usize, UsageFigures)] {
        &self.calls
    }
}

impl Figures for PairFigures {
    fn add(&mut self, other: &PairFigures) {
        for (number, figures) in &other.calls {
            self.of_procedure(*number).add(figures);
        }
    }

    fn since(&self, before: &PairFigures) -> Option<PairFigures> {
        let has = |number: &usize| self.calls.iter().any(|(own, _)| own == number);
        if !before.calls.iter().all(|(number, _)| has(number)) {
            return None;
        }
        let mut news = PairFigures::default();
        for (number, figures) in &self.calls {
            let had = before.calls.iter().find(|(own, _)| own == number);
            let came = had.map_or_else(|| Some(figures.clone()), |(_, had)| figures.since(had))?;
            news.calls.push((*number, came));
        }
        Some(news)
    }

    fn weight(&self) -> u64 {
        self.calls.iter().map(|(_, figures)| figures.weight()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(numbers: &[usize]) -> PairFigures {
        let mut pair = PairFigures::default();
        for number in numbers {
            pair.of_procedure(*number).calls += 1;
        }
        pair
    }

    fn reported(pair: &PairFigures) -> Vec<(usize, u64)> {
        let mut reported: Vec<_> = pair.calls().iter().map(|(number, of)| (*number, of.calls)).collect();
        reported.sort_unstable();
        reported
    }

    #[test]
    fn procedures_are_separate_and_add_up() {
        let (early, mut sum) = (pair(&[3, 3, 9]), pair(&[9, 1]));
        sum.add(&early);
        assert_eq!((sum.weight(), reported(&sum)), (5, vec![(1, 1), (3, 2), (9, 2)]));
        let news = sum.since(&early).unwrap();
        assert_eq!((news.weight(), reported(&news)), (2, vec![(1, 1), (3, 0), (9, 1)]));
        assert!(early.since(&sum).is_none(), "a server that was started again counts from zero");
    }
}
