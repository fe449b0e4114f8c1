//! OpenAFS's kernel client in an emulated guest. Runs only by name, since its module is built first.

mod volumes;

use crate::Test;
use crate::tests::comparing::{Comparison, Observed, command_of, normalised, suite_lines};
use crate::tests::script;
use anyhow::{Context, Result};
use interop::cell::{Cell, Server};
use interop::means::Means;
use interop::normalise::Normaliser;
use interop::vm::{Guest, Running};

const NEEDS: &[Means] = &[Means::Netns, Means::Emulation, Means::Libafs];

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "libafs-commands", needs: NEEDS, run: commands },
        Test { name: "libafs-volumes", needs: NEEDS, run: volumes::volumes },
    ]
}

const SUITE: &str = "libafs";
/// The cell below the guest's /afs.
pub(crate) const ROOT: &str = "/afs/test.example";
/// Time limit for a guest, three times what was measured.
const SECONDS: u32 = 900;

/// The commands of [`SUITE`] in a cell of OpenAFS's servers and in Cellar's, at the same time.
fn commands() -> Result<()> {
    let lines = suite_lines(SUITE)?;
    let openafs = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    let cellar = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    let theirs = begin(&openafs, Server::OpenAfs, &lines)?;
    let ours = begin(&cellar, Server::Cellar, &lines)?;
    let (theirs, ours) = (finish(theirs, &openafs, &lines), finish(ours, &cellar, &lines));
    let log = || format!("Cellar's log ends:\n{}", cellar.cellar_log());
    let (theirs, ours) = (theirs.context("OpenAFS's cell")?, ours.with_context(log)?);
    let mut comparison = Comparison::of(SUITE)?;
    for (line, (theirs, ours)) in lines.iter().zip(theirs.iter().zip(&ours)) {
        comparison.add(line, theirs, ours)?;
    }
    comparison.finish(|| cellar.cellar_log())
}

/// Boots a guest that runs the lines of the suite.
fn begin(cell: &Cell, server: Server, lines: &[String]) -> Result<Running> {
    cell.open_volume(server, "root.cell")?;
    cell.run(&format!("vos create {} a other -maxquota 5000 -localauth", cell.address))?.ok()?;
    let commands: Vec<&str> = lines.iter().map(|line| command_of(line).0).collect();
    let path = cell.path().join("commands");
    std::fs::write(&path, commands.join("\n") + "\n")?;
    let files = script(cell, "files", "", &["files.sh"])?;
    let prelude = format!("export D={ROOT} ADDR={} CELL=test.example REALM=TEST.EXAMPLE", cell.address);
    Guest::libafs(cell, "commands", SECONDS)
        .with(&["--file", &format!("{}:/commands", path.display())])
        .with(&["--file", &format!("{}:/files.sh", files.display())])
        .start(&script(cell, "commands", &prelude, &["commands.sh"])?)
}

/// Returns the normalised output of each line.
fn finish(guest: Running, cell: &Cell, lines: &[String]) -> Result<Vec<Observed>> {
    let printed = guest.finish()?.ok()?;
    let mut normaliser = Normaliser::default();
    let mut rest = printed.as_str();
    let mut observed = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let ended = || format!("`{line}` did not end:\n{printed}");
        let (_, after) = rest.split_once(&format!("\n@@ {number}\n")).with_context(ended)?;
        let (text, after) = after.split_once("\n@@ status ").with_context(ended)?;
        let (status, after) = after.split_once('\n').with_context(ended)?;
        let text = normalised(text, cell.name, &mut normaliser, command_of(line).1)?;
        observed.push(Observed { status: status.trim().parse().with_context(ended)?, text });
        rest = after;
    }
    Ok(observed)
}
