//! A mixed cell: Cellar has the databases and a file server, and OpenAFS has a second file server.

use crate::Test;
use crate::tests::dumps::{dumped_from, vnodes};
use crate::tests::kafs::token;
use crate::tests::own_file;
use crate::tests::trees::compare;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::path::Path;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "mixed-cell", needs: &[Means::Netns], run: mixed }]
}

/// Less than the size of the copied tree; an empty volume has some 2 KiB.
const LEAST_BYTES: usize = 100_000;

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

    // Read-only copies on both servers, from a read-write volume on either.
    openafs.open_volume(Server::OpenAfs, "theirs")?;
    copy(&cellar, &format!("{}/ cell:theirs/first/", tree.display()))?;
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
        let (here, there) = (here?, there?);
        ensure!(here == there, "the read-only copies of {volume} on both servers differ");
        ensure!(here.len() > LEAST_BYTES, "the read-only copies of {volume} have {} bytes", here.len());
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
    queried_identities(&cellar, &openafs)
}

/// OpenAFS's file server gets group memberships from Cellar's protection server. A user added to a group in
/// an access list gains access with the next connection, and a removed user loses it.
fn queried_identities(cellar: &Cell, openafs: &Cell) -> Result<()> {
    let file = cellar.scratch()?.join("for-friends");
    std::fs::write(&file, "for friends\n")?;
    let people: Vec<String> = ["ann -id 1001", "bob -id 1002", "eve -id 1003"]
        .map(|who| format!("pts createuser {who} -localauth"))
        .into();
    all(cellar, &people)?;
    all(
        cellar,
        &[
            "pts creategroup ann:friends -owner ann -localauth".into(),
            "cellar volume create private --acl ann:friends=rl --acl bob=rl".into(),
            format!("cellar cp {} cell:private/for-friends", file.display()),
            format!("vos move private {} a {} a -localauth", cellar.address, openafs.address),
        ],
    )?;
    let tokens = [token(cellar, "ann")?, token(cellar, "bob")?, token(cellar, "eve")?];
    let see = |what: &str, wanted: [bool; 3]| -> Result<()> {
        for (token, is_let_in) in tokens.iter().zip(wanted) {
            let program = std::env::current_exe()?;
            let seen =
                cellar.run(&format!("{} list {} private {token}", program.display(), cellar.address))?;
            let expected = if is_let_in { "for-friends" } else { "permission denied" };
            ensure!(seen.text.contains(expected), "{what}, {token}: expected {expected}, not {}", seen.text);
        }
        Ok(())
    };
    see("ann is not in her group", [false, true, false])?;
    all(cellar, &["pts adduser ann ann:friends -localauth".into()])?;
    see("ann is in her group", [true, true, false])?;
    all(
        cellar,
        &[
            "pts removeuser ann ann:friends -localauth".into(),
            "pts adduser eve ann:friends -localauth".into(),
        ],
    )?;
    see("eve is in the group in place of ann", [false, true, true])
}

pub(crate) fn all(cell: &Cell, commands: &[String]) -> Result<()> {
    for command in commands {
        cell.run(command)?.ok().with_context(|| command.clone())?;
    }
    Ok(())
}

/// Copies with `cellar cp`.
pub(crate) fn copy(cell: &Cell, paths: &str) -> Result<()> {
    all(cell, &[format!("cellar cp {paths}")])
}

/// Checks that `tree/FOLDER` equals `source`.
pub(crate) fn fetch_and_compare(cell: &Cell, folder: &str, source: &Path) -> Result<()> {
    let fetched = cell.scratch()?.join("fetched");
    copy(cell, &format!("cell:tree/{folder}/ {}", fetched.display()))?;
    compare(source, &fetched)?;
    std::fs::remove_dir_all(fetched).context("removing the copy")
}
