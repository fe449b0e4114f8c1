//! Promotion of a volume from a Cellar cell to a cell with OpenAFS servers, with read-only copies on two of
//! them; and between Cellar cells.

mod cells;

use crate::Test;
use crate::tests::dumps::{dumped_from, vnodes};
use crate::tests::matrix::seen::{LIST, compare_lines, listing};
use crate::tests::mixed::copy;
use crate::tests::own_file;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::path::PathBuf;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "promote-to-openafs", needs: &[Means::Netns, Means::Fuse], run: to_openafs },
        Test { name: "promote-through-cells", needs: &[Means::Netns], run: cells::through },
    ]
}

const VOLUME: &str = "software";

struct World {
    source: Cell,
    target: Cell,
    second: Cell,
    cells: PathBuf,
}

/// Promotes a volume, promotes a change, and rolls it back.
fn to_openafs() -> Result<()> {
    let world = World::start()?;
    world.source.open_volume(Server::Cellar, VOLUME)?;
    copy(&world.source, &format!("{}/ cell:{VOLUME}/first/", own_file("src").display()))?;
    world.promote(&format!("{VOLUME} --to test.example"))?;
    let first = world.same_everywhere()?;
    copy(&world.source, &format!("{}/ cell:{VOLUME}/second/", own_file("guest").display()))?;
    world.promote(&format!("{VOLUME} --to test.example"))?;
    let second = world.same_everywhere()?;
    ensure!(first.len() < second.len(), "the change was not promoted");
    let sent = world.promote(&format!("{VOLUME} --to test.example"))?;
    println!("interop: an unchanged volume once more:\n{sent}");
    world.promote(&format!("rollback {VOLUME} --in test.example"))?;
    compare_lines(&world.seen_in_target()?, &first).context("after going back")?;
    world.copies_are_equal()?;
    let locked = world.target.run("vos listvldb -locked -localauth")?.ok()?;
    ensure!(locked.contains("Total entries: 0"), "{locked}");
    println!("{}", world.promote(&format!("status {VOLUME}"))?);
    Ok(())
}

impl World {
    fn start() -> Result<World> {
        let source = Cell::start_with(Server::Cellar, "cellar8", "10.99.0.81", &["-c", "home.example"])?;
        let target = Cell::start(Server::OpenAfs, "afs8", "10.99.0.82")?;
        let second = Cell::start_joining(&target, "afs9", "10.99.0.83")?;
        let (key, cells) = (source.path().join("release.key"), source.path().join("promote.toml"));
        let new = format!("cellar promote key new {}", key.display());
        let public = source.run(&new)?.ok().context(new)?;
        let keyfile = |cell: &Cell| cell.path().join("etc/server/KeyFileExt").display().to_string();
        let text = format!(
            "source = \"home.example\"\nsigning_key = \"release.key\"\nstate = \"state\"\n\
             [trusted]\nrelease = \"{}\"\n\
             [cell.\"home.example\"]\ndatabase_servers = [\"{}\"]\nkeyfile = \"{}\"\n\
             [cell.\"test.example\"]\ndatabase_servers = [\"{}\"]\nkeyfile = \"{}\"\n\
             sites = [\"{} a\", \"{} a\"]\n",
            public.trim(),
            source.address,
            keyfile(&source),
            target.address,
            keyfile(&target),
            target.address,
            second.address
        );
        std::fs::write(&cells, text)?;
        Ok(World { source, target, second, cells })
    }

    fn promote(&self, arguments: &str) -> Result<String> {
        let command = format!("cellar promote {arguments} --cells {}", self.cells.display());
        self.source.run(&command)?.ok().context(command)
    }

    /// Returns what OpenAFS's client sees in the target cell.
    fn seen_in_target(&self) -> Result<Vec<String>> {
        listing(&self.target, &format!("test.example:{VOLUME}.readonly"), LIST)
    }

    /// Checks that both servers of the target have the contents of the source, and that a client sees them
    /// there.
    fn same_everywhere(&self) -> Result<Vec<String>> {
        let wanted = listing(&self.source, &format!("home.example:{VOLUME}"), LIST)?;
        let seen = self.seen_in_target()?;
        compare_lines(&seen, &wanted)?;
        let copies = self.copies_are_equal()?;
        let original = vnodes(&std::fs::read(dumped_from(&self.source, VOLUME, self.source.address)?)?)?;
        ensure!(copies == original, "the copies hold something else than the original");
        println!("interop: {} lines, dumps of {} KiB: same in both cells", seen.len(), copies.len() >> 10);
        Ok(seen)
    }

    /// Checks that both read-only copies are equal; returns their dump from the root directory on.
    fn copies_are_equal(&self) -> Result<Vec<u8>> {
        let copy = format!("{VOLUME}.readonly");
        let [one, other] = [&self.target, &self.second]
            .map(|server| vnodes(&std::fs::read(dumped_from(&self.target, &copy, server.address)?)?));
        let (one, other) = (one?, other?);
        ensure!(one == other, "the two copies differ");
        Ok(one)
    }
}
