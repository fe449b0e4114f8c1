//! Tables of a foreign server: the figures it reports, and columns computed from them.

use crate::commands::stat::figures::{Labels, Show, by_second, share};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How a figure behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A counter. If it fell, the server was restarted.
    Sum,
    /// A number that grows and falls; the difference is its growth.
    Rise,
    /// A present value, or a maximum since the start.
    Now,
}

/// Computes a column's number from the figures of a row.
type Number = fn(&[u64]) -> u64;

/// Layout of a table.
#[derive(Debug)]
pub(super) struct Layout {
    /// Label headings. Rows that differ only in further labels are summed.
    pub(super) headings: &'static [&'static str],
    /// Figures of each row, units last.
    pub(super) figures: &'static [(&'static str, Kind)],
    /// Columns computed from the figures.
    pub(super) columns: &'static [(&'static str, Show, Number)],
}

/// A sample of a table.
#[derive(Clone, Debug)]
pub(super) struct ForeignTable {
    pub(super) layout: &'static Layout,
    rows: BTreeMap<Labels, Vec<u64>>,
}

impl ForeignTable {
    pub(super) fn new(layout: &'static Layout) -> ForeignTable {
        ForeignTable { layout, rows: BTreeMap::new() }
    }

    /// Adds figures to the row with these labels, creating it if necessary.
    pub(super) fn add<const N: usize>(&mut self, labels: &[&str], figures: [u64; N]) {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        add(&mut self.rows, labels, &figures);
    }

    /// Returns the changes since `before`.
    pub(super) fn since(&self, before: &ForeignTable) -> ForeignTable {
        let news = |(labels, now): (&Labels, &Vec<u64>)| {
            let old = before.rows.get(labels);
            let figures = self.layout.figures.iter().zip(now).enumerate().map(|(place, ((_, kind), now))| {
                let old = old.and_then(|old| old.get(place)).copied().unwrap_or(0);
                match kind {
                    Kind::Sum => now.checked_sub(old).unwrap_or(*now),
                    Kind::Rise => now.saturating_sub(old),
                    Kind::Now => *now,
                }
            });
            (labels.clone(), figures.collect())
        };
        ForeignTable { layout: self.layout, rows: self.rows.iter().map(news).collect() }
    }

    /// Returns the rows for display, summing those with the same displayed labels.
    fn shown(&self) -> BTreeMap<Labels, Vec<u64>> {
        let mut shown = BTreeMap::new();
        for (labels, figures) in &self.rows {
            let labels = labels.iter().take(self.layout.headings.len()).cloned().collect();
            add(&mut shown, labels, figures);
        }
        shown
    }

    /// Returns labels and column values of the rows.
    pub(super) fn numbers(&self) -> Vec<(Labels, Vec<u64>)> {
        let numbers = |figures: &[u64]| self.layout.columns.iter().map(|(_, _, of)| of(figures)).collect();
        self.shown().into_iter().map(|(labels, figures)| (labels, numbers(&figures))).collect()
    }

    /// Returns each row with its figures; growing figures become rates per second if `seconds` is given.
    pub(super) fn json(&self, seconds: Option<f64>) -> Value {
        let value = |kind: Kind, figure: u64| match seconds {
            Some(seconds) if kind != Kind::Now => by_second(figure, seconds),
            _ => json!(figure),
        };
        let object = |(labels, figures): (Labels, Vec<u64>)| {
            let labels = self.layout.headings.iter().zip(labels).map(|(name, label)| (*name, json!(label)));
            let figures = self
                .layout
                .figures
                .iter()
                .zip(figures)
                .map(|((name, kind), figure)| (*name, value(*kind, figure)));
            let cells = labels.chain(figures).map(|(name, value)| (name.to_owned(), value));
            Value::Object(cells.collect::<Map<_, _>>())
        };
        self.shown().into_iter().map(object).collect()
    }
}

fn add(rows: &mut BTreeMap<Labels, Vec<u64>>, labels: Labels, figures: &[u64]) {
    let row = rows.entry(labels).or_insert_with(|| vec![0; figures.len()]);
    row.iter_mut().zip(figures).for_each(|(sum, figure)| *sum = sum.saturating_add(*figure));
}

fn mean(sum: u64, of: u64) -> u64 {
    sum.checked_div(of).unwrap_or(0)
}

/// Calls of the file server, from its extended statistics.
pub(super) static CALLS: Layout = Layout {
    headings: &["service", "procedure"],
    figures: &[
        ("calls", Kind::Sum),
        ("succeeded", Kind::Sum),
        ("received_bytes", Kind::Sum),
        ("sent_bytes", Kind::Sum),
        ("run_ns", Kind::Sum),
        ("run_ns_max", Kind::Now),
    ],
    columns: &[
        ("CALLS", Show::Count, |row| row[0]),
        ("FAILED", Show::Count, |row| row[0].saturating_sub(row[1])),
        ("IN", Show::Bytes, |row| row[2]),
        ("OUT", Show::Bytes, |row| row[3]),
        // Only successful calls are timed.
        ("RUN MEAN", Show::Time, |row| mean(row[4], row[1])),
        ("MAX", Show::Time, |row| row[5]),
    ],
};

/// Vnode and directory caches.
pub(super) static CACHES: Layout = Layout {
    headings: &["cache"],
    figures: &[("asked", Kind::Sum), ("misses", Kind::Sum), ("writes", Kind::Sum), ("entries", Kind::Now)],
    columns: &[
        ("HITS", Show::Count, |row| row[0].saturating_sub(row[1])),
        ("MISSES", Show::Count, |row| row[1]),
        ("RATE", Show::Share, |row| share(row[0].saturating_sub(row[1]), row[0])),
        ("WRITES", Show::Count, |row| row[2]),
        ("ENTRIES", Show::Now, |row| row[3]),
    ],
};

/// Traffic of each port.
pub(super) static LANES: Layout = Layout {
    headings: &["port"],
    figures: &[
        ("received_packets", Kind::Sum),
        ("sent_packets", Kind::Sum),
        ("data_duplicates", Kind::Sum),
        ("data_sent", Kind::Sum),
        ("data_resent", Kind::Sum),
        ("no_packets", Kind::Sum),
        ("send_failures", Kind::Sum),
        ("round_trip_ns", Kind::Sum),
        ("round_trips", Kind::Sum),
        ("connections", Kind::Now),
        ("calls_present", Kind::Now),
        ("peers", Kind::Now),
    ],
    columns: &[
        ("PACKETS IN", Show::Count, |row| row[0]),
        ("PACKETS OUT", Show::Count, |row| row[1]),
        ("TWICE", Show::Count, |row| row[2]),
        ("DATA OUT", Show::Count, |row| row[3]),
        ("RESENT", Show::Count, |row| row[4]),
        ("NO PACKET", Show::Count, |row| row[5]),
        ("SEND FAILED", Show::Count, |row| row[6]),
        ("MEAN RTT", Show::Time, |row| mean(row[7], row[8])),
        ("CONNECTIONS", Show::Now, |row| row[9]),
        ("CALLS", Show::Now, |row| row[10]),
        ("PEERS", Show::Now, |row| row[11]),
    ],
};

/// Threads of each port, and calls that wait for one.
pub(super) static WORKERS: Layout = Layout {
    headings: &["port"],
    figures: &[
        ("idle", Kind::Now),
        ("waiting", Kind::Now),
        ("arrived", Kind::Sum),
        ("waited", Kind::Sum),
        ("refused", Kind::Sum),
    ],
    columns: &[
        ("IDLE", Show::Now, |row| row[0]),
        ("WAITING", Show::Now, |row| row[1]),
        ("ARRIVED", Show::Count, |row| row[2]),
        ("WAITED", Show::Count, |row| row[3]),
        ("REFUSED", Show::Count, |row| row[4]),
    ],
};

/// Traffic between each port and its peers.
pub(super) static PEERS: Layout = Layout {
    headings: &["port", "peer"],
    figures: &[
        ("received_bytes", Kind::Sum),
        ("data_sent", Kind::Sum),
        ("data_resent", Kind::Sum),
        ("sent_bytes", Kind::Sum),
        ("connections", Kind::Now),
        ("round_trip_ns", Kind::Now),
        ("variation_ns", Kind::Now),
        ("timeout_ns", Kind::Now),
        ("congestion_window", Kind::Now),
        ("packet_bytes", Kind::Now),
    ],
    columns: &[
        ("BYTES IN", Show::Bytes, |row| row[0]),
        ("DATA OUT", Show::Count, |row| row[1]),
        ("RESENT", Show::Count, |row| row[2]),
        ("BYTES OUT", Show::Bytes, |row| row[3]),
        ("CONNECTIONS", Show::Now, |row| row[4]),
        ("RTT", Show::Time, |row| row[5]),
        ("+-", Show::Time, |row| row[6]),
        ("TIMEOUT", Show::Time, |row| row[7]),
        ("CWND", Show::Now, |row| row[8]),
        ("PACKET", Show::Size, |row| row[9]),
    ],
};

/// Hosts, summed from connections and peers. Calls are those of present connections.
pub(super) static HOSTS: Layout = Layout {
    headings: &["host"],
    figures: &[
        ("calls", Kind::Sum),
        ("active", Kind::Now),
        ("connections", Kind::Now),
        ("received_bytes", Kind::Sum),
        ("sent_bytes", Kind::Sum),
    ],
    columns: &[
        ("CALLS", Show::Count, |row| row[0]),
        ("ACTIVE", Show::Now, |row| row[1]),
        ("CONNECTIONS", Show::Now, |row| row[2]),
        ("IN", Show::Bytes, |row| row[3]),
        ("OUT", Show::Bytes, |row| row[4]),
    ],
};

/// All reported figures, by their original names.
pub(super) static FIGURES: Layout = Layout {
    headings: &["source", "figure"],
    figures: &[("value", Kind::Now), ("risen", Kind::Rise)],
    columns: &[("RISEN", Show::Count, |row| row[1]), ("VALUE", Show::Now, |row| row[0])],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_keyed_by_all_labels() {
        let mut before = ForeignTable::new(&HOSTS);
        before.add(&["10.0.0.1", "connection 1"], [7, 0, 1, 0, 0]);
        before.add(&["10.0.0.1", "connection 2"], [100, 0, 1, 0, 0]);
        let mut now = ForeignTable::new(&HOSTS);
        now.add(&["10.0.0.1", "connection 1"], [9, 1, 1, 0, 0]);
        now.add(&["10.0.0.1", "connection 3"], [4, 0, 1, 0, 0]);
        now.add(&["10.0.0.1", "peer 7001"], [0, 0, 0, 10, 20]);
        // The second connection is gone and reduces no other row.
        assert_eq!(now.since(&before).numbers(), [(vec!["10.0.0.1".to_owned()], vec![6, 1, 2, 10, 20])]);
        assert_eq!(now.json(None)[0]["calls"], 13);
        let rates = now.since(&before).json(Some(4.0));
        assert_eq!((&rates[0]["calls"], &rates[0]["connections"]), (&json!(1.5), &json!(2)));
    }

    #[test]
    fn a_server_that_was_started_again_counts_from_zero() {
        let (mut before, mut now) = (ForeignTable::new(&CALLS), ForeignTable::new(&CALLS));
        before.add(&["AFS", "FetchStatus"], [10, 8, 0, 0, 800, 200]);
        now.add(&["AFS", "FetchStatus"], [12, 9, 0, 0, 950, 200]);
        assert_eq!(now.since(&before).numbers()[0].1, [2, 1, 0, 0, 150, 200]);
        assert_eq!(before.since(&now).numbers()[0].1[0], 10);
        let (mut before, mut now) = (ForeignTable::new(&FIGURES), ForeignTable::new(&FIGURES));
        before.add(&["fileserver", "peers"], [5, 5]);
        now.add(&["fileserver", "peers"], [3, 3]);
        assert_eq!(now.since(&before).numbers()[0].1, [0, 3]);
    }
}
