//! A table of any type, ready for display.

use super::foreign_table::ForeignTable;
use crate::commands::stat::figures::{Labels, Show, Tabular};
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
    /// Labels that identify the row.
    pub(super) labels: Labels,
    /// One number per column.
    pub(super) numbers: Vec<u64>,
}

impl Grid {
    /// Builds the grid of a sample; as rates per second if `seconds` is given.
    pub(super) fn new<F: Tabular>(headings: &[&str], look: &Look<Labels, F>, seconds: Option<f64>) -> Grid {
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

    /// Builds the grid of a foreign server's sample; as rates per second if `seconds` is given.
    pub(super) fn of_foreign(reported: &ForeignTable, seconds: Option<f64>) -> Grid {
        let columns: Vec<(&'static str, Show)> =
            reported.layout.columns.iter().map(|(heading, show, _)| (*heading, *show)).collect();
        let rate = |(number, (_, show)): (u64, &(&str, Show))| {
            seconds.map_or(number, |seconds| show.rate(number, seconds))
        };
        let row = |(labels, numbers): (Labels, Vec<u64>)| GridRow {
            labels,
            numbers: numbers.into_iter().zip(&columns).map(rate).collect(),
        };
        let rows = reported.numbers().into_iter().map(row).collect();
        let shown = |(heading, show): (&'static str, Show)| {
            (heading, if seconds.is_some() { show.of_rate() } else { show })
        };
        let columns = columns.iter().copied().map(shown).collect();
        Grid { labels: upper(reported.layout.headings), columns, rows }
    }

    /// Builds a grid that shows a sentence in place of a table.
    pub(super) fn of_sentence(sentence: &str) -> Grid {
        let row = GridRow { labels: vec![sentence.to_owned()], numbers: vec![] };
        Grid { labels: vec!["NOT AVAILABLE".to_owned()], columns: vec![], rows: vec![row] }
    }

    /// Returns all headings, labels first.
    pub(super) fn headings(&self) -> Vec<String> {
        let columns = self.columns.iter().map(|(heading, _)| (*heading).to_owned());
        self.labels.iter().cloned().chain(columns).collect()
    }

    /// Returns the number of label columns.
    pub(super) fn label_count(&self) -> usize {
        self.labels.len()
    }

    /// Returns the number of numeric columns.
    pub(super) fn column_count(&self) -> usize {
        self.columns.len()
    }

    /// Returns all rows as text.
    pub(super) fn texts(&self) -> Vec<Vec<String>> {
        self.rows.iter().map(|row| self.text(row)).collect()
    }

    /// Returns a row as text.
    pub(super) fn text(&self, row: &GridRow) -> Vec<String> {
        let numbers = self.columns.iter().zip(&row.numbers).map(|((_, show), number)| show.text(*number));
        row.labels.iter().cloned().chain(numbers).collect()
    }

    /// Returns the rows with a label that contains `filter`, sorted by a column, largest first unless
    /// `ascending`.
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
