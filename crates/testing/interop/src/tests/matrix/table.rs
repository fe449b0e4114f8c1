//! Table of operations by direction, with what was compared after each.

use anyhow::{Result, ensure};
use std::fmt;

/// Rows in the order of their first occurrence.
#[derive(Default)]
pub(super) struct Table {
    directions: Vec<String>,
    rows: Vec<(&'static str, Vec<String>)>,
}

impl Table {
    /// Adds the results of one direction.
    pub(super) fn add(&mut self, direction: &str, rows: Vec<(&'static str, String)>) {
        self.directions.push(direction.to_owned());
        for (operation, compared) in rows {
            match self.rows.iter_mut().find(|(known, _)| *known == operation) {
                Some((_, cells)) => cells.push(compared),
                None => self.rows.push((operation, vec![compared])),
            }
        }
    }

    /// Fails unless every operation ran in every direction.
    pub(super) fn is_whole(&self, directions: usize) -> Result<()> {
        for (operation, cells) in &self.rows {
            ensure!(cells.len() == directions, "{operation} was done in {} directions", cells.len());
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "interop: {:42} {}", "equal after", self.directions.join(" / "))?;
        self.rows.iter().try_for_each(|(operation, cells)| {
            let same = cells.windows(2).all(|pair| pair[0] == pair[1]);
            let cells = if same { format!("{} each", cells[0]) } else { cells.join(" / ") };
            writeln!(f, "interop: {operation:42} {cells}")
        })
    }
}
