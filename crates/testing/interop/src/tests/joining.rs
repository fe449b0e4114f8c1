//! A mixed cell: OpenAFS has the databases and a file server, and a Cellar file server joins.

use crate::Test;
use crate::tests::dumps::{dumped_from, vnodes};
use crate::tests::mixed::{all, copy, fetch_and_compare};
use crate::tests::{own_file, run_until, wait_for};
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "joining-moves", needs: &[Means::Netns], run: moves },
        Test { name: "joining-releases", needs: &[Means::Netns], run: releases },
        Test { name: "joining-databases-down", needs: &[Means::Netns], run: databases_down },
    ]
}

/// An unused address, which Cellar's CellServDB has as its first database server.
pub(crate) const NOBODY: &str = "10.99.0.43";

/// An OpenAFS cell with a Cellar file server.
pub(crate) struct Pair {
    pub(crate) openafs: Cell,
    pub(crate) cellar: Cell,
}

impl Pair {
    pub(crate) fn start() -> Result<Pair> {
        Pair::start_with(&[])
    }

    /// Starts a pair; `options` are those of the `openafs-cell` tool for OpenAFS's cell.
    pub(crate) fn start_with(options: &[&str]) -> Result<Pair> {
        let openafs = Cell::start_with(Server::OpenAfs, "afs4", "10.99.0.41", options)?;
        let cellar = Cell::start_cellar_joining(&openafs, "cellar4", "10.99.0.42", NOBODY)?;
        Ok(Pair { openafs, cellar })
    }

    /// Runs commands on the database server. `OPENAFS` and `CELLAR` stand for the addresses, and `vos`
    /// authenticates with the cell's key.
    pub(crate) fn all(&self, commands: &[&str]) -> Result<()> {
        let full = |command: &&str| {
            let end = if command.starts_with("vos ") { " -localauth" } else { "" };
            let command = command.replace("OPENAFS", self.openafs.address);
            format!("{}{end}", command.replace("CELLAR", self.cellar.address))
        };
        let commands: Vec<String> = commands.iter().map(full).collect();
        all(&self.openafs, &commands)
            .with_context(|| format!("Cellar's log ends:\n{}", self.cellar.cellar_log()))
    }

    /// Checks that the copies of a volume on both servers are equal.
    fn same_on_both(&self, volume: &str) -> Result<()> {
        self.same((volume, self.openafs.address), (volume, self.cellar.address))
    }

    /// Checks that two volumes, each on a given server, are equal.
    fn same(&self, one: (&str, &str), other: (&str, &str)) -> Result<()> {
        let [here, there] = [one, other]
            .map(|(volume, server)| vnodes(&std::fs::read(dumped_from(&self.openafs, volume, server)?)?));
        let (here, there) = (here?, there?);
        ensure!(here == there, "{one:?} ({} bytes) and {other:?} ({} bytes) differ", here.len(), there.len());
        println!("interop: {} on {} and {} on {} hold the same", one.0, one.1, other.0, other.1);
        Ok(())
    }
}

/// Creates volumes on Cellar's server, and moves them to and from it.
fn moves() -> Result<()> {
    let pair = Pair::start()?;
    let listed = pair.openafs.run("vos listaddrs -noresolve -localauth")?.ok()?;
    ensure!([&pair.openafs, &pair.cellar].iter().all(|cell| listed.contains(cell.address)), "{listed}");
    let tree = own_file(".");
    pair.openafs.open_volume(Server::OpenAfs, "tree")?;
    copy(&pair.openafs, &format!("{}/ cell:tree/first/", tree.display()))?;
    pair.all(&["vos backup tree", "vos move tree OPENAFS a CELLAR a"])?;
    fetch_and_compare(&pair.openafs, "first", &tree)?;
    copy(&pair.openafs, &format!("{}/ cell:tree/second/", tree.display()))?;
    pair.all(&["vos backup tree", "vos examine tree.backup"])?;
    pair.same(("tree", pair.cellar.address), ("tree.backup", pair.cellar.address))?;
    pair.all(&["vos move tree CELLAR a OPENAFS a"])?;
    fetch_and_compare(&pair.openafs, "first", &tree)?;
    fetch_and_compare(&pair.openafs, "second", &tree)?;

    pair.all(&[
        "vos copy tree OPENAFS a copied CELLAR a",
        "vos copy copied CELLAR a back OPENAFS a",
        "vos shadow tree OPENAFS a CELLAR a",
        "vos create CELLAR a ours",
        "vos clone copied -toname cloned",
        "vos syncserv CELLAR",
        "vos syncvldb CELLAR",
        "vos syncserv OPENAFS",
        "vos syncvldb OPENAFS",
        "vos listvldb -server CELLAR",
        "vos remove -id ours",
    ])?;
    let servers = (pair.openafs.address, pair.cellar.address);
    pair.same(("tree", servers.0), ("copied", servers.1))?;
    pair.same(("copied", servers.1), ("back", servers.0))?;
    pair.same(("tree", servers.0), ("tree", servers.1)).context("the shadow")?;
    nothing_is_left(&pair)
}

/// Checks that no entry is locked, and that no volume needs repair.
fn nothing_is_left(pair: &Pair) -> Result<()> {
    nothing_is_left_on(&pair.openafs, &[&pair.openafs, &pair.cellar])
}

/// Checks the same for any file servers, from one host.
pub(crate) fn nothing_is_left_on(host: &Cell, servers: &[&Cell]) -> Result<()> {
    let locked = host.run("vos listvldb -locked -localauth")?.ok()?;
    ensure!(locked.contains("Total entries: 0"), "{locked}");
    for cell in servers {
        let list = format!("vos listvol {} -localauth", cell.address);
        run_until(host, &list, |listed| listed.contains("Total volumes offLine 0 ; Total busy 0"))?;
    }
    Ok(())
}

/// Releases to both servers, from a read-write volume on either, first in full and then incrementally.
fn releases() -> Result<()> {
    let pair = Pair::start()?;
    pair.openafs.open_volume(Server::OpenAfs, "theirs")?;
    pair.all(&["cellar volume create ours --on CELLAR --quota 0"])?;
    for volume in ["theirs", "ours"] {
        pair.all(&[&format!("cellar volume set {volume} --quota 3G")])?;
        let shown = pair.openafs.run(&format!("vos examine {volume} -localauth"))?.ok()?;
        ensure!(shown.contains("MaxQuota    3145728 K"), "{shown}");
        copy(&pair.openafs, &format!("{}/ cell:{volume}/first/", own_file("src").display()))?;
        let sites = ["OPENAFS", "CELLAR"].map(|server| format!("vos addsite {server} a {volume}"));
        let release = format!("vos release {volume}");
        pair.all(&[&sites[0], &sites[1], &release])?;
        pair.same_on_both(&format!("{volume}.readonly"))?;
        copy(&pair.openafs, &format!("{}/ cell:{volume}/second/", own_file("guest").display()))?;
        pair.all(&[&release])?;
        pair.same_on_both(&format!("{volume}.readonly"))?;
        pair.all(&[&format!("{release} -force")])?;
        pair.same_on_both(&format!("{volume}.readonly"))?;
    }
    nothing_is_left(&pair)
}

/// The database server stops and restarts while Cellar's file server runs, and is down when the file server
/// starts.
fn databases_down() -> Result<()> {
    let mut pair = Pair::start()?;
    pair.openafs.open_volume(Server::OpenAfs, "data")?;
    let (host, file) = (pair.openafs.address, pair.openafs.path().join("file"));
    std::fs::write(&file, "for hosts of the lab\n")?;
    pair.all(&["vos move data OPENAFS a CELLAR a"])?;
    copy(&pair.openafs, &format!("{} cell:data/file", file.display()))?;
    let read = format!("cellar cp --noauth --server {host} cell:data/file {}.copy", file.display());
    pair.all(&[&read])?;

    // Only the protection server is down: callers that do not depend on it are served.
    pair.all(&["bos stop OPENAFS ptserver -wait -localauth"])?;
    pair.all(&[&read])?;
    pair.all(&["bos start OPENAFS ptserver -localauth"])?;

    // Without any database server at its start, the file server serves and registers as soon as there is one.
    pair.cellar.end_cellar("TERM")?;
    pair.all(&["bos stop OPENAFS ptserver -wait -localauth", "bos stop OPENAFS vlserver -wait -localauth"])?;
    pair.cellar.start_cellar_alone()?;
    let log = |cell: &Cell| std::fs::read_to_string(cell.path().join("cellar.log")).unwrap_or_default();
    wait_for(Duration::from_secs(30), || Ok(log(&pair.cellar).contains("cannot register")))?;
    pair.all(&["bos start OPENAFS ptserver -localauth", "bos start OPENAFS vlserver -localauth"])?;
    wait_for(Duration::from_secs(90), || {
        let text = log(&pair.cellar);
        let last = text.rsplit("cannot register").next().unwrap_or_default();
        Ok(last.contains("registered in the location database"))
    })
    .with_context(|| pair.cellar.cellar_log())?;
    wait_for(Duration::from_secs(60), || Ok(pair.all(&[&read]).is_ok()))?;
    pair.all(&["vos move data CELLAR a OPENAFS a"])?;
    pair.all(&[&read])?;
    nothing_is_left(&pair)
}
