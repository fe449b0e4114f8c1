//! A table as it is shown, whatever it is about.

use super::told::Told;
use crate::commands::stat::figures::{Labels, Show, Shown};
use crate::commands::stat::tables;
use events::table::Look;

/// Labels and numbers of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    labels: Vec<String>,
    columns: Vec<(&'static str, Show)>,
    rows: Vec<GridRow>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GridRow {
    /// What it is about.
    pub(super) labels: Labels,
    /// Numbers of the columns.
    pub(super) numbers: Vec<u64>,
}

impl Grid {
    /// The rows of a look; numbers by second, if it is of so many seconds.
    pub(super) fn new<F: Shown>(headings: &[&str], look: &Look<Labels, F>, seconds: Option<f64>) -> Grid {
        let number = |figures: &F| {
            let of = |(_, show, of): &(&str, Show, fn(&F) -> u64)| {
                seconds.map_or_else(|| of(figures), |seconds| show.rate(of(figures), seconds))
            };
            F::COLUMNS.iter().map(of).collect()
        };
        let shown = |show: Show| if seconds.is_some() { show.of_rate() } else { show };
        let rows = tables::rows(headings, look);
        Grid {
            labels: upper(headings),
            columns: F::COLUMNS.iter().map(|(heading, show, _)| (*heading, shown(*show))).collect(),
            rows: rows
                .iter()
                .map(|(labels, figures)| GridRow { labels: labels.clone(), numbers: number(figures) })
                .collect(),
        }
    }

    /// What a server of others tells; by second likewise.
    pub(super) fn of_told(told: &Told, seconds: Option<f64>) -> Grid {
        let columns: Vec<(&'static str, Show)> =
            told.layout.columns.iter().map(|(heading, show, _)| (*heading, *show)).collect();
        let rate = |(number, (_, show)): (u64, &(&str, Show))| {
            seconds.map_or(number, |seconds| show.rate(number, seconds))
        };
        let row = |(labels, numbers): (Labels, Vec<u64>)| GridRow {
            labels,
            numbers: numbers.into_iter().zip(&columns).map(rate).collect(),
        };
        let rows = told.numbers().into_iter().map(row).collect();
        let shown = |(heading, show): (&'static str, Show)| {
            (heading, if seconds.is_some() { show.of_rate() } else { show })
        };
        let columns = columns.iter().copied().map(shown).collect();
        Grid { labels: upper(told.layout.headings), columns, rows }
    }

    /// A sentence where there is no table.
    pub(super) fn of_sentence(sentence: &str) -> Grid {
        let row = GridRow { labels: vec![sentence.to_owned()], numbers: vec![] };
        Grid { labels: vec!["NOT TOLD".to_owned()], columns: vec![], rows: vec![row] }
    }

    /// All headings, labels first.
    pub(super) fn headings(&self) -> Vec<String> {
        let columns = self.columns.iter().map(|(heading, _)| (*heading).to_owned());
        self.labels.iter().cloned().chain(columns).collect()
    }

    /// How many of them are labels.
    pub(super) fn label_count(&self) -> usize {
        self.labels.len()
    }

    /// How many are numbers.
    pub(super) fn column_count(&self) -> usize {
        self.columns.len()
    }

    /// All rows as text.
    pub(super) fn texts(&self) -> Vec<Vec<String>> {
        self.rows.iter().map(|row| self.text(row)).collect()
    }

    /// A row as text.
    pub(super) fn text(&self, row: &GridRow) -> Vec<String> {
        let numbers = self.columns.iter().zip(&row.numbers).map(|((_, show), number)| show.text(*number));
        row.labels.iter().cloned().chain(numbers).collect()
    }

    /// The rows whose labels have these letters, by a column, the greatest first unless `ascending`.
    pub(super) fn sorted(&self, column: usize, ascending: bool, filter: &str) -> Vec<GridRow> {
        let filter = filter.to_lowercase();
        let matches = |row: &&GridRow| row.labels.iter().any(|label| label.to_lowercase().contains(&filter));
        let mut rows: Vec<GridRow> = self.rows.iter().filter(matches).cloned().collect();
        let number = |row: &GridRow| row.numbers.get(column).copied().unwrap_or(0);
        rows.sort_by(|a, b| {
            let order = number(b).cmp(&number(a));
            let order = if ascending { order.reverse() } else { order };
            order.then_with(|| a.labels.cmp(&b.labels))
        });
        rows
    }
}

fn upper(headings: &[&str]) -> Vec<String> {
    headings.iter().map(|heading| heading.to_uppercase()).collect()
}
