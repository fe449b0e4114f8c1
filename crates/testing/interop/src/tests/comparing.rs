//! Compares the output of the same commands for OpenAFS and Cellar.
//!
//! `suites/*.txt` has the commands, one per line. Permitted differences are listed in
//! `suites/expected-differences.toml`, each with a reason. An entry that no longer differs is an error, so that the
//! file can only shrink.

use crate::tests::own_file;
use anyhow::{Context, Result, bail, ensure};
use interop::normalise::Normaliser;
use regex::Regex;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt::Write as _;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default)]
    difference: Vec<Difference>,
}

/// A command whose output differs from that of OpenAFS.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// Name of the suite.
    suite: String,
    /// Line of the suite.
    command: String,
    /// Reason for the difference.
    reason: String,
    /// Regular expression for all of Cellar's normalised output.
    cellar: String,
}

/// Result of one command in one cell.
#[derive(PartialEq)]
pub(crate) struct Observed {
    /// Exit status.
    pub(crate) status: i32,
    /// Normalised output.
    pub(crate) text: String,
}

/// The lines of a suite, without comments.
pub(crate) fn suite_lines(suite: &str) -> Result<Vec<String>> {
    let path = own_file(&format!("suites/{suite}.txt"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let commands = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(commands.map(str::to_owned).collect())
}

/// Returns the command of a line, and whether numbers in its output, which depend on previous events, are not compared.
pub(crate) fn command_of(line: &str) -> (&str, bool) {
    match line.strip_prefix("numbers-aside ") {
        Some(rest) => (rest, true),
        None => (line, false),
    }
}

/// Replaces what a second run cannot repeat. `host` is the server's name.
pub(crate) fn normalised(
    text: &str,
    host: &str,
    normaliser: &mut Normaliser,
    numbers: bool,
) -> Result<String> {
    let text = normaliser.apply(text, host);
    if !numbers {
        return Ok(text);
    }
    Ok(Regex::new(r"-?\b\d+(\.\d+)?\b")?.replace_all(&text, "N").into_owned())
}

/// The comparison of a suite.
pub(crate) struct Comparison {
    suite: String,
    expected: HashMap<String, Difference>,
    report: String,
    compared: usize,
}

impl Comparison {
    /// Reads the expected differences of a suite.
    pub(crate) fn of(suite: &str) -> Result<Comparison> {
        let text = std::fs::read_to_string(own_file("suites/expected-differences.toml"))?;
        let all: Expected = toml::from_str(&text)?;
        let of_suite = all.difference.into_iter().filter(|entry| entry.suite == suite);
        let expected = of_suite.map(|entry| (entry.command.clone(), entry)).collect();
        Ok(Comparison { suite: suite.to_owned(), expected, report: String::new(), compared: 0 })
    }

    /// Compares the results of one line.
    pub(crate) fn add(&mut self, line: &str, theirs: &Observed, ours: &Observed) -> Result<()> {
        self.compared += 1;
        let verdict = match self.expected.remove(line) {
            Some(entry) => judge_expected(&entry, theirs, ours),
            None if theirs == ours => Ok(()),
            None => Err(anyhow::anyhow!("differs")),
        };
        let Err(error) = verdict else { return Ok(()) };
        writeln!(
            self.report,
            "== {}: {line}: {error}\n-- OpenAFS (exit {}):\n{}\n-- Cellar (exit {}):\n{}",
            self.suite, theirs.status, theirs.text, ours.status, ours.text
        )?;
        Ok(())
    }

    /// Fails if anything differed, or if an expected difference belongs to no line. `log` is added to a failure.
    pub(crate) fn finish(mut self, log: impl FnOnce() -> String) -> Result<()> {
        for unused in self.expected.keys() {
            writeln!(
                self.report,
                "== expected-differences.toml has `{unused}`, which the suite does not run"
            )?;
        }
        ensure!(self.report.is_empty(), "{}\nCellar's log ends:\n{}", self.report, log());
        println!(
            "interop: {}: {} commands print the same, but for the expected differences",
            self.suite, self.compared
        );
        Ok(())
    }
}

fn judge_expected(entry: &Difference, theirs: &Observed, ours: &Observed) -> Result<()> {
    if theirs == ours {
        bail!("no longer differs; remove it from expected-differences.toml ({})", entry.reason);
    }
    let pattern = Regex::new(&format!("(?s)^{}$", entry.cellar.trim())).context("bad pattern")?;
    ensure!(pattern.is_match(&ours.text), "expected to differ ({}), but not like this", entry.reason);
    Ok(())
}
