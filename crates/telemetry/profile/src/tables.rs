//! Tables of a profile as text: a line of column names, then one line per row, separated by tabs. This is the
//! format on the network and for other programs.

use std::fmt::Write as _;
use thiserror::Error;

/// Maximum number of rows in a table.
pub(crate) const ROWS_MAX: usize = 2000;

/// The text is not such a table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the table is malformed: expected {expected}")]
pub struct TableError {
    /// Line number, from 1.
    pub line: usize,
    /// Expected contents.
    pub expected: String,
}

/// A row of a table.
pub trait Table: Sized {
    /// Names of the columns: texts first, then numbers.
    const COLUMNS: &'static [&'static str];

    /// Number of text columns.
    const TEXTS: usize;

    /// Returns the row's texts and numbers, in order.
    fn cells(&self) -> (Vec<String>, Vec<u64>);

    /// Builds the row from texts and numbers, whose counts must match the columns.
    fn of(texts: &[&str], numbers: &[u64]) -> Self;

    /// Formats the table.
    fn write(rows: &[Self]) -> String {
        let mut text = Self::COLUMNS.join("\t");
        text.push('\n');
        for row in rows {
            let (texts, numbers) = row.cells();
            let texts = texts.iter().map(|text| crate::symbols::plain(text));
            let cells: Vec<String> = texts.chain(numbers.iter().map(u64::to_string)).collect();
            let _ = writeln!(text, "{}", cells.join("\t"));
        }
        text
    }

    /// Parses the rows of an untrusted text.
    fn read(text: &str) -> Result<Vec<Self>, TableError> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != Self::COLUMNS.join("\t")) {
            return Err(TableError { line: 1, expected: format!("the names {}", Self::COLUMNS.join(", ")) });
        }
        lines.map(|(index, line)| row(index + 1, line)).collect()
    }
}

fn row<T: Table>(line: usize, text: &str) -> Result<T, TableError> {
    let cells: Vec<&str> = text.split('\t').collect();
    if cells.len() != T::COLUMNS.len() {
        return Err(TableError { line, expected: format!("{} cells", T::COLUMNS.len()) });
    }
    let (texts, rest) = cells.split_at(T::TEXTS);
    let numbers: Result<Vec<u64>, _> = rest.iter().map(|cell| cell.parse()).collect();
    let numbers = numbers
        .map_err(|_| TableError { line, expected: format!("whole numbers from cell {} on", T::TEXTS + 1) })?;
    Ok(T::of(texts, &numbers))
}

/// Disk accesses with the same stack, volume and client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoRow {
    /// Kind of access: read, write or sync.
    pub access: String,
    /// Volume id; 0 for none.
    pub volume: u64,
    /// User and host; empty if the access was not for a call.
    pub client: String,
    /// Service, procedure and functions, separated by `;`, the innermost last.
    pub stack: String,
    /// Number of accesses.
    pub accesses: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Total duration in nanoseconds.
    pub total_ns: u64,
    /// Longest duration in nanoseconds.
    pub longest_ns: u64,
}

impl Table for IoRow {
    const COLUMNS: &'static [&'static str] =
        &["access", "client", "stack", "volume", "accesses", "bytes", "total_ns", "longest_ns"];
    const TEXTS: usize = 3;

    fn cells(&self) -> (Vec<String>, Vec<u64>) {
        let texts = vec![self.access.clone(), self.client.clone(), self.stack.clone()];
        (texts, vec![self.volume, self.accesses, self.bytes, self.total_ns, self.longest_ns])
    }

    fn of(texts: &[&str], numbers: &[u64]) -> IoRow {
        IoRow {
            access: texts[0].into(),
            client: texts[1].into(),
            stack: texts[2].into(),
            volume: numbers[0],
            accesses: numbers[1],
            bytes: numbers[2],
            total_ns: numbers[3],
            longest_ns: numbers[4],
        }
    }
}

/// Waits for locks of one name held at one source location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRow {
    /// Name of the lock.
    pub lock: String,
    /// Source location where the holder took it: file and line.
    pub holder: String,
    /// Service and procedure of the waiting call; empty if the thread served no call.
    pub waiter: String,
    /// Number of waits.
    pub waits: u64,
    /// Total duration in nanoseconds.
    pub total_ns: u64,
    /// Longest duration in nanoseconds.
    pub longest_ns: u64,
}

impl Table for LockRow {
    const COLUMNS: &'static [&'static str] = &["lock", "holder", "waiter", "waits", "total_ns", "longest_ns"];
    const TEXTS: usize = 3;

    fn cells(&self) -> (Vec<String>, Vec<u64>) {
        let texts = vec![self.lock.clone(), self.holder.clone(), self.waiter.clone()];
        (texts, vec![self.waits, self.total_ns, self.longest_ns])
    }

    fn of(texts: &[&str], numbers: &[u64]) -> LockRow {
        LockRow {
            lock: texts[0].into(),
            holder: texts[1].into(),
            waiter: texts[2].into(),
            waits: numbers[0],
            total_ns: numbers[1],
            longest_ns: numbers[2],
        }
    }
}

/// Calls of one procedure that waited for the same things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyRow {
    /// Service and procedure.
    pub procedure: String,
    /// What they waited for, separated by `+`; `-` for nothing.
    pub path: String,
    /// Number of calls.
    pub calls: u64,
    /// Total duration in nanoseconds.
    pub total_ns: u64,
    /// Median duration in nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile in nanoseconds.
    pub p90_ns: u64,
    /// 99th percentile in nanoseconds.
    pub p99_ns: u64,
    /// Longest duration in nanoseconds.
    pub longest_ns: u64,
}

impl Table for LatencyRow {
    const COLUMNS: &'static [&'static str] =
        &["procedure", "path", "calls", "total_ns", "p50_ns", "p90_ns", "p99_ns", "longest_ns"];
    const TEXTS: usize = 2;

    fn cells(&self) -> (Vec<String>, Vec<u64>) {
        let numbers = [self.calls, self.total_ns, self.p50_ns, self.p90_ns, self.p99_ns, self.longest_ns];
        (vec![self.procedure.clone(), self.path.clone()], numbers.to_vec())
    }

    fn of(texts: &[&str], numbers: &[u64]) -> LatencyRow {
        LatencyRow {
            procedure: texts[0].into(),
            path: texts[1].into(),
            calls: numbers[0],
            total_ns: numbers[1],
            p50_ns: numbers[2],
            p90_ns: numbers[3],
            p99_ns: numbers[4],
            longest_ns: numbers[5],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let io = IoRow {
            access: "read".into(),
            volume: 7,
            client: "ann\tat\nhome".into(),
            stack: "AFS;FetchData;a".into(),
            accesses: 3,
            bytes: 5,
            total_ns: u64::MAX,
            longest_ns: 1,
        };
        let reported = IoRow::read(&IoRow::write(std::slice::from_ref(&io))).unwrap();
        assert_eq!(reported, [IoRow { client: "ann?at?home".into(), ..io }]);
        let lock = LockRow { lock: "volume".into(), waits: 1, ..LockRow::default() };
        assert_eq!(LockRow::read(&LockRow::write(std::slice::from_ref(&lock))).unwrap(), [lock]);
        let latency = LatencyRow { path: "disk+client".into(), p99_ns: 4, ..LatencyRow::default() };
        assert_eq!(LatencyRow::read(&LatencyRow::write(std::slice::from_ref(&latency))).unwrap(), [latency]);
    }

    #[test]
    fn invalid_tables_are_refused_with_their_place() {
        let head = LockRow::COLUMNS.join("\t");
        for (text, line, expected) in [
            (String::new(), 1, "the names lock,"),
            ("lock\n".to_owned(), 1, "the names lock,"),
            (format!("{head}\na\tb\tc\t1\t2\t3\na\n"), 3, "6 cells"),
            (format!("{head}\na\tb\tc\t1\t-2\t3\n"), 2, "whole numbers from cell 4"),
        ] {
            let error = LockRow::read(&text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            assert!(error.expected.starts_with(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(?s).{0,100}") {
            let _ = (IoRow::read(&text), LockRow::read(&text), LatencyRow::read(&text));
            let head = LatencyRow::COLUMNS.join("\t");
            let _ = LatencyRow::read(&format!("{head}\n{text}"));
        }
    }
}
