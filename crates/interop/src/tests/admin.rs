//! Runs the same `vos`, `pts`, `bos`, `rxdebug` and `xstat_fs_test` commands against OpenAFS and Cellar, and
//! compares their output.
//!
//! `suites/*.txt` has the commands, one per line. `$ADDR` stands for the server, `$OTHER` for the cell's
//! second server if it has one, `$DUMPS` for the folder of volume dumps made by OpenAFS, `$SCRATCH` for a
//! folder of the cell. Permitted differences are listed in `suites/expected-differences.toml`, each with a
//! reason. An entry that no longer differs is an error, so that the file can only shrink.

use crate::Test;
use crate::tests::own_file;
use anyhow::{Context, Result, bail, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use interop::normalise::Normaliser;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt::Write as _;

pub(crate) fn tests() -> Vec<Test> {
    macro_rules! suites {
        ($($name:literal $suite:literal)*) => {
            vec![$(Test { name: $name, needs: &[Means::Netns], run: || compare($suite, &[]) }),*]
        };
    }
    let mut tests = suites!(
        "tools-pts" "pts" "tools-vos" "vos" "tools-vos-dump" "vos-dump" "tools-bos" "bos" "tools-rx" "rx"
        "tools-xstat" "xstat"
    );
    let run = || compare("vos-forward", &["-p", "2"]);
    tests.push(Test { name: "tools-vos-forward", needs: &[Means::Netns], run });
    let run = || compare_on_two("vos-servers");
    tests.push(Test { name: "tools-vos-servers", needs: &[Means::Netns], run });
    tests
}

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
struct Observed {
    status: i32,
    text: String,
}

/// A cell, and a second file server in it.
struct Subject {
    cell: Cell,
    other: Option<Cell>,
}

/// Runs a suite in two cells created with these options of the `openafs-cell` tool.
fn compare(suite: &str, options: &[&str]) -> Result<()> {
    let openafs = Cell::start_with(Server::OpenAfs, "afs1", "10.99.0.1", options)?;
    let cellar = Cell::start_with(Server::Cellar, "cellar1", "10.99.0.4", options)?;
    compare_in(suite, &Subject { cell: openafs, other: None }, &Subject { cell: cellar, other: None })
}

/// Runs a suite in two cells of two servers each.
fn compare_on_two(suite: &str) -> Result<()> {
    let openafs = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    let other = Some(Cell::start_joining(&openafs, "afs2", "10.99.0.2")?);
    let openafs = Subject { cell: openafs, other };
    let cellar = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    let other = Some(Cell::start_cellar_like(&cellar, "cellar2", "10.99.0.5")?);
    compare_in(suite, &openafs, &Subject { cell: cellar, other })
}

fn compare_in(suite: &str, openafs: &Subject, cellar: &Subject) -> Result<()> {
    let expected: Expected =
        toml::from_str(&std::fs::read_to_string(own_file("suites/expected-differences.toml"))?)?;
    let of_suite = expected.difference.into_iter().filter(|entry| entry.suite == suite);
    let mut expected: HashMap<String, Difference> =
        of_suite.map(|entry| (entry.command.clone(), entry)).collect();
    let mut report = String::new();
    let compared = compare_suite(suite, openafs, cellar, &mut expected, &mut report)?;
    for unused in expected.keys() {
        writeln!(report, "== expected-differences.toml has `{unused}`, which the suite does not run")?;
    }
    ensure!(report.is_empty(), "{report}\nCellar's log ends:\n{}", cellar.cell.cellar_log());
    println!("interop: {suite}: {compared} commands print the same, but for the expected differences");
    Ok(())
}

fn compare_suite(
    suite: &str,
    openafs: &Subject,
    cellar: &Subject,
    expected: &mut HashMap<String, Difference>,
    report: &mut String,
) -> Result<usize> {
    let text = std::fs::read_to_string(own_file(&format!("suites/{suite}.txt")))?;
    let (mut left, mut right) = (Normaliser::default(), Normaliser::default());
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect();
    for &line in &lines {
        // In parallel, since `vos` takes five seconds to release to several sites, whatever the servers are.
        let (theirs, ours) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| observe(openafs, line, &mut left));
            let ours = observe(cellar, line, &mut right);
            (theirs.join(), ours)
        });
        let Ok(theirs) = theirs else { bail!("the thread of `{line}` panicked") };
        let (theirs, ours) = (theirs?, ours?);
        let verdict = match expected.remove(line) {
            Some(entry) => judge_expected(&entry, &theirs, &ours),
            None if theirs == ours => Ok(()),
            None => Err(anyhow::anyhow!("differs")),
        };
        if let Err(error) = verdict {
            writeln!(
                report,
                "== {suite}: {line}: {error}\n-- OpenAFS (exit {}):\n{}\n-- Cellar (exit {}):\n{}",
                theirs.status, theirs.text, ours.status, ours.text
            )?;
        }
    }
    Ok(lines.len())
}

fn judge_expected(entry: &Difference, theirs: &Observed, ours: &Observed) -> Result<()> {
    if theirs == ours {
        bail!("no longer differs; remove it from expected-differences.toml ({})", entry.reason);
    }
    let pattern = regex::Regex::new(&format!("(?s)^{}$", entry.cellar.trim())).context("bad pattern")?;
    ensure!(pattern.is_match(&ours.text), "expected to differ ({}), but not like this", entry.reason);
    Ok(())
}

fn observe(subject: &Subject, line: &str, normaliser: &mut Normaliser) -> Result<Observed> {
    // If a line requests it, numbers that depend on previous events are replaced.
    let (line, numbers) = match line.strip_prefix("numbers-aside ") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let Subject { cell, other } = subject;
    let dumps = own_file("../afs-format/testdata/dump");
    let (dumps, scratch) = (dumps.to_str().context("path")?, cell.scratch()?);
    let scratch = scratch.to_str().context("path")?;
    // Without a second server `$OTHER` is empty, and the tools reject the line.
    let other = other.as_ref().map_or("", |other| other.address);
    let line = line.replace("$ADDR", cell.address).replace("$OTHER", other);
    let line = line.replace("$DUMPS", dumps).replace("$SCRATCH", scratch);
    let output = cell.shell(&line)?;
    let mut text = output.text.replace(scratch, "SCRATCH").replace(dumps, "DUMPS");
    if !other.is_empty() {
        text = regex::Regex::new(&format!(r"\b{}\b", regex::escape(other)))?
            .replace_all(&text, "OTHER")
            .into_owned();
    }
    let mut text = normaliser.apply(&text, cell.name);
    if numbers {
        text = regex::Regex::new(r"-?\b\d+(\.\d+)?\b")?.replace_all(&text, "N").into_owned();
    }
    Ok(Observed { status: output.status, text })
}
