//! `cellar volume split`: a directory becomes a volume, even if the server is killed meanwhile.

use crate::Test;
use crate::tests::jobs::{begin, finish};
use crate::tests::mixed::{copy, fetch_and_compare};
use crate::tests::own_file;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "splits", needs: &[Means::Netns], run: splits }]
}

/// Times after the start of the command at which the server is killed, in milliseconds.
const KILLED_AFTER_MS: [u64; 4] = [150, 400, 800, 1500];
/// Size of a file that takes a while to copy.
const BIG_FILE_MIB: u32 = 64;

fn cellar(cell: &Cell, command: &str) -> Result<String> {
    cell.run(&format!("cellar {command}"))?.ok()
}

fn splits() -> Result<()> {
    let mut cell = Cell::start(Server::Cellar, "split1", "10.99.0.79")?;
    cell.open_volume(Server::Cellar, "tree")?;
    let source = own_file("src");
    copy(&cell, &format!("{}/ cell:tree/data/", source.display()))?;
    let big = cell.scratch()?.join("big");
    cell.shell(&format!("head -c {BIG_FILE_MIB}M /dev/urandom > {}", big.display()))?.ok()?;
    let steps = cellar(&cell, "volume split tree/data --to data --dry-run")?;
    ensure!(steps.contains("put a mount point of data"), "{steps}");
    let refused = cell.run("cellar volume split tree/data/main.rs --to data")?;
    ensure!(refused.text.contains("is not a directory"), "{}", refused.text);
    fetch_and_compare(&cell, "data", &source).context("nothing was done")?;
    let done = cellar(&cell, "volume split tree/data --to data --json")?;
    ensure!(done.contains("split of"), "{done}");
    is_split(&cell, "tree", "data", &source)?;
    // OpenAFS's tools see two volumes.
    let listed = cell.run(&format!("vos listvol {} -localauth", cell.address))?.ok()?;
    ensure!(
        listed.contains("data ") && listed.contains("Total volumes offLine 0 ; Total busy 0"),
        "{listed}"
    );
    cell.run("vos examine data -localauth")?.ok()?;
    for (round, after) in KILLED_AFTER_MS.into_iter().enumerate() {
        let name = format!("part{round}");
        copy(&cell, &format!("{}/ cell:tree/{name}/", source.display()))?;
        copy(&cell, &format!("{} cell:tree/{name}/big", big.display()))?;
        begin(&cell, &format!("split tree/{name} --to {name}"))?;
        std::thread::sleep(Duration::from_millis(after));
        cell.end_cellar("KILL")?;
        cell.start_cellar()?;
        finish(&cell)?;
        let entry = cell.run(&format!("vos listvldb {name} -localauth"))?;
        println!("interop: killed after {after} ms: {}", entry.text.lines().next().unwrap_or_default());
        settled(&cell, &name, entry.text.contains("RW Site"), &big).with_context(|| name.clone())?;
    }
    Ok(())
}

/// Checks that the contents of the directory can be read under its name, and in the new volume.
fn is_split(cell: &Cell, parent: &str, name: &str, source: &std::path::Path) -> Result<()> {
    fetch_and_compare(cell, name, source).context("through the mount point")?;
    let fetched = cell.scratch()?.join("whole");
    copy(cell, &format!("cell:{name}/ {}", fetched.display()))?;
    cell.shell(&format!("diff -r {} {}", source.display(), fetched.display()))?
        .ok()
        .context("the new volume")?;
    std::fs::remove_dir_all(fetched)?;
    has_nothing_aside(cell, parent)
}

/// Checks that the mount point or directory remains, and no temporary files.
fn has_nothing_aside(cell: &Cell, parent: &str) -> Result<()> {
    super::wait_for(Duration::from_secs(90), || {
        let listed = cellar(cell, &format!("du {parent} --json"))?;
        Ok(!listed.contains(".split."))
    })
    .context("what was split off is removed")
}

/// Checks that the directory was split off, or is unchanged.
fn settled(cell: &Cell, name: &str, is_split: bool, big: &std::path::Path) -> Result<()> {
    let copied = cell.scratch()?.join("copied");
    copy(cell, &format!("cell:tree/{name}/big {}", copied.display()))?;
    cell.shell(&format!("cmp {} {}", big.display(), copied.display()))?.ok()?;
    if is_split {
        copy(cell, &format!("cell:{name}/big {}", copied.display()))?;
        cell.shell(&format!("cmp {} {}", big.display(), copied.display()))?.ok()?;
    }
    let listed = cell.run(&format!("vos listvol {} -localauth", cell.address))?.ok()?;
    let is_there = listed.lines().any(|line| line.starts_with(&format!("{name} ")));
    ensure!(is_there == is_split, "{listed}");
    ensure!(listed.contains("Total volumes offLine 0 ; Total busy 0"), "{listed}");
    has_nothing_aside(cell, "tree")
}
