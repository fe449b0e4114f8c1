//! What commands print: a table for people, JSON for programs.

use anyhow::Result;
use comfy_table::{Table, presets};
use serde::Serialize;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tables and sentences.
    Text,
    /// One JSON value.
    Json,
}

/// Something that can be printed as a row of a table.
pub trait Row: Serialize {
    /// Headings of the columns.
    const COLUMNS: &'static [&'static str];
    /// The row's cells.
    fn cells(&self) -> Vec<String>;
}

impl Format {
    /// Prints rows.
    pub fn rows<T: Row>(self, rows: &[T]) -> Result<()> {
        if self == Format::Json {
            return print_json(&rows);
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(T::COLUMNS.to_vec());
        table.add_rows(rows.iter().map(Row::cells));
        println!("{}", table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n"));
        Ok(())
    }

    /// Prints one result: a sentence, or the value.
    pub fn done<T: Serialize>(self, value: &T, sentence: impl std::fmt::Display) -> Result<()> {
        match self {
            Format::Text => println!("{sentence}"),
            Format::Json => print_json(value)?,
        }
        Ok(())
    }
}

fn print_json<T: Serialize>(value: &T) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}
