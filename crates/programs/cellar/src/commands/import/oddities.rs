//! Irregularities in a database file, and how the import treats them.

use crate::output::line;
use afs_format::ubik::{Fate, Oddity};
use anyhow::{Result, bail};
use serde::Serialize;
use std::path::Path;

/// Irregularities in one file.
pub(super) struct Oddities<'a> {
    pub(super) file: &'a Path,
    /// How to repair the file with OpenAFS's tools.
    pub(super) remedy: &'static str,
    pub(super) found: Vec<Oddity>,
}

/// An irregularity in JSON.
#[derive(Serialize)]
pub(super) struct OddityView {
    byte: usize,
    what: String,
    fate: String,
}

impl Oddities<'_> {
    pub(super) fn shown(&self) -> Vec<OddityView> {
        let shown = |odd: &Oddity| OddityView {
            byte: odd.offset,
            what: odd.what.clone(),
            fate: odd.fate.to_string(),
        };
        self.found.iter().map(shown).collect()
    }

    /// Fails with a list of all irregularities if one of them prevents the import.
    pub(super) fn check(&self) -> Result<()> {
        if self.found.iter().all(|odd| odd.fate != Fate::Refused) {
            return Ok(());
        }
        let lines: Vec<String> = self.found.iter().map(Oddity::to_string).collect();
        let (file, lines) = (self.file.display(), lines.join("\n"));
        bail!("{file}: nothing is imported ({})\n{lines}\n{}", self.sum(), self.remedy)
    }

    pub(super) fn print(&self) -> Result<()> {
        self.found.iter().try_for_each(|odd| line(odd.to_string()))
    }

    /// Returns the end of the sentence that summarises the import.
    pub(super) fn ending(&self) -> String {
        if self.found.is_empty() { String::new() } else { format!("; {}. {}", self.sum(), self.remedy) }
    }

    fn sum(&self) -> String {
        let count = |fate| match self.found.iter().filter(|odd| odd.fate == fate).count() {
            0 => None,
            count => Some(format!("{count} {fate}")),
        };
        let all = [Fate::Kept, Fate::Repaired, Fate::LeftOut, Fate::Refused];
        all.into_iter().filter_map(count).collect::<Vec<_>>().join(", ")
    }
}
