//! A cell of both: Cellar has the databases and a file server, OpenAFS's file server is its second one.

use crate::Test;
use crate::tests::dumps::{dumped_from, vnodes};
use crate::tests::own_file;
use crate::tests::trees::compare;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use std::path::Path;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "mixed-cell", needs: &[Means::Netns], run: mixed }]
}

fn mixed() -> Result<()> {
    let cellar = Cell::start(Server::Cellar, "cellar3", "10.99.0.5")?;
    let openafs = Cell::start_joining(&cellar, "afs3", "10.99.0.6")?;
    let (ours, theirs) = (cellar.address, openafs.address);
    let listed = cellar.run("vos listaddrs -noresolve -localauth")?.ok()?;
    ensure!(listed.contains(ours) && listed.contains(theirs), "the file servers registered are {listed}");

    cellar.open_volume(Server::Cellar, "tree")?;
    let tree = own_file(".");
    copy(&cellar, &format!("{}/ cell:tree/first/", tree.display()))?;
    all(&cellar, &[format!("vos move tree {ours} a {theirs} a -localauth")])?;
    fetch_and_compare(&cellar, "first", &tree)?;
    copy(&cellar, &format!("{}/ cell:tree/second/", tree.display()))?;
    all(&cellar, &[format!("vos move tree {theirs} a {ours} a -localauth")])?;
    fetch_and_compare(&cellar, "first", &tree)?;
    fetch_and_compare(&cellar, "second", &tree)?;

    // Read-only copies on both, from a read-write volume on either.
    all(&cellar, &[format!("vos create {theirs} a theirs -localauth")])?;
    for volume in ["tree", "theirs"] {
        all(
            &cellar,
            &[
                format!("vos addsite {ours} a {volume} -localauth"),
                format!("vos addsite {theirs} a {volume} -localauth"),
                format!("vos release {volume} -localauth"),
                format!("vos release {volume} -force -localauth"),
            ],
        )?;
        let [here, there] = [ours, theirs].map(|server| {
            vnodes(&std::fs::read(dumped_from(&cellar, &format!("{volume}.readonly"), server)?)?)
        });
        ensure!(here? == there?, "the read-only copies of {volume} on both servers differ");
    }
    for server in [ours, theirs] {
        all(
            &cellar,
            &[
                format!("vos syncserv {server} -localauth"),
                format!("vos syncvldb {server} -localauth"),
                format!("vos copy tree {ours} a tree.{} {server} a -localauth", server.replace('.', "-")),
            ],
        )?;
    }
    Ok(())
}

pub(crate) fn all(cell: &Cell, commands: &[String]) -> Result<()> {
    for command in commands {
        cell.run(command)?.ok().with_context(|| command.clone())?;
    }
    Ok(())
}

pub(crate) fn copy(cell: &Cell, paths: &str) -> Result<()> {
    all(cell, &[format!("{} cp {paths}", cellar_program()?.display())])
}

/// What stands in `tree/FOLDER` is what stands in `source`.
pub(crate) fn fetch_and_compare(cell: &Cell, folder: &str, source: &Path) -> Result<()> {
    let fetched = cell.scratch()?.join("fetched");
    copy(cell, &format!("cell:tree/{folder}/ {}", fetched.display()))?;
    compare(source, &fetched)?;
    std::fs::remove_dir_all(fetched).context("removing the copy")
}
