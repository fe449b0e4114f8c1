//! Output of commands: tables for people, JSON for programs.

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables and sentences.
    Text,
    /// One JSON value.
    Json,
}

/// Something that can be printed as a row of a table.
pub trait Row: Serialize {
    /// Column headings.
    const COLUMNS: &'static [&'static str];
    /// Returns the row's cells.
    fn cells(&self) -> Vec<String>;
}

impl Format {
    /// Returns the progress bar, hidden in JSON output.
    pub fn bar(self, bar: ProgressBar) -> ProgressBar {
        match self {
            Format::Text => bar,
            Format::Json => ProgressBar::hidden(),
        }
    }

    /// Prints rows.
    pub fn rows<T: Row>(self, rows: &[T]) -> Result<()> {
        if self == Format::Json {
            return print_json(&rows);
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(T::COLUMNS.to_vec());
        table.add_rows(rows.iter().map(Row::cells));
        line(table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n"))
    }

    /// Prints a table with columns determined at run time, or its JSON.
    pub fn table(
        self,
        headings: Vec<String>,
        rows: Vec<Vec<String>>,
        json: &serde_json::Value,
    ) -> Result<()> {
        if self == Format::Json {
            return print_json(json);
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(headings).add_rows(rows);
        line(table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n"))
    }

    /// Prints one result: a sentence, or the value as JSON.
    pub fn done<T: Serialize>(self, value: &T, sentence: impl Display) -> Result<()> {
        match self {
            Format::Text => line(sentence),
            Format::Json => print_json(value),
        }
    }
}

fn print_json<T: Serialize>(value: &T) -> Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

/// Whether the reader of standard output has closed it.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Writes one line to standard output. It is no error if the reader has closed it (`| head`).
pub fn line(text: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            IS_CLOSED.store(true, Relaxed);
            Ok(())
        }
        written => written.context("cannot write to standard output"),
    }
}

/// Returns whether the reader of standard output has closed it; endless output should end then.
pub fn is_closed() -> bool {
    IS_CLOSED.load(Relaxed)
}
