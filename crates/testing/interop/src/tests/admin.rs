//! Runs the same `vos`, `pts`, `bos`, `rxdebug` and `xstat_fs_test` commands against OpenAFS and Cellar, and
//! compares their output.
//!
//! `suites/*.txt` has the commands, one per line. `$ADDR` stands for the server, `$OTHER` for the cell's
//! second server if it has one, `$DUMPS` for the folder of volume dumps made by OpenAFS, `$SCRATCH` for a
//! folder of the cell.

use crate::Test;
use crate::tests::comparing::{Comparison, Observed, command_of, normalised, suite_lines};
use crate::tests::own_file;
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server};
use interop::means::Means;
use interop::normalise::Normaliser;

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
    let mut comparison = Comparison::of(suite)?;
    let (mut left, mut right) = (Normaliser::default(), Normaliser::default());
    for line in suite_lines(suite)? {
        // In parallel, since `vos` takes five seconds to release to several sites, whatever the servers are.
        let (theirs, ours) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| observe(openafs, &line, &mut left));
            let ours = observe(cellar, &line, &mut right);
            (theirs.join(), ours)
        });
        let Ok(theirs) = theirs else { bail!("the thread of `{line}` panicked") };
        comparison.add(&line, &theirs?, &ours?)?;
    }
    comparison.finish(|| cellar.cell.cellar_log())
}

fn observe(subject: &Subject, line: &str, normaliser: &mut Normaliser) -> Result<Observed> {
    let (line, numbers) = command_of(line);
    let Subject { cell, other } = subject;
    let dumps = own_file("../../protocol/afs-format/testdata/dump");
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
    let text = normalised(&text, cell.name, normaliser, numbers)?;
    Ok(Observed { status: output.status, text })
}
