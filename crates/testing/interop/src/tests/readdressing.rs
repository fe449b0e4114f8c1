//! A file server's address changes while it runs.

use crate::Test;
use crate::tests::wait_for;
use anyhow::{Context, Result};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "address-change", needs: &[Means::Netns], run: address_change }]
}

/// Time limit for the server to register its new address.
const LIMIT: Duration = Duration::from_secs(60);
const OLD: &str = "10.99.0.162";
const NEW: &str = "10.99.0.163";

fn address_change() -> Result<()> {
    let databases = Cell::start(Server::Cellar, "addr1", "10.99.0.161")?;
    let moving = Cell::start_cellar_like(&databases, "addr2", OLD)?;
    change(&databases, &moving)?;
    // The database server loses the address in its own CellServDB, and still recognises itself.
    databases.shell(&swap("10.99.0.161", "10.99.0.164"))?.ok()?;
    let registered = |log: &str| {
        let mut lines = log.lines().filter(|line| line.contains("registered in the location database"));
        lines.any(|line| line.contains("10.99.0.164"))
    };
    wait_for(LIMIT, || Ok(registered(&databases.cellar_log()))).with_context(|| databases.cellar_log())
}

/// Changes the address of `moving`.
fn change(databases: &Cell, moving: &Cell) -> Result<()> {
    moving.shell(&swap(OLD, NEW))?.ok()?;
    wait_for(LIMIT, || {
        let listed = listed(databases)?;
        Ok(listed.contains(NEW) && !listed.contains(OLD))
    })
    .with_context(|| moving.cellar_log())?;
    // Protection server lookups, and the volume server's calls to others, use the new address.
    for command in [
        format!("vos create {NEW} a moved -localauth"),
        format!("vos move moved {NEW} a 10.99.0.161 a -localauth"),
        format!("vos move moved 10.99.0.161 a {NEW} a -localauth"),
    ] {
        databases.run(&command)?.ok().with_context(|| moving.cellar_log())?;
    }
    Ok(())
}

fn swap(old: &str, new: &str) -> String {
    format!("ip addr del {old}/24 dev eth0 && ip addr add {new}/24 dev eth0")
}

fn listed(databases: &Cell) -> Result<String> {
    Ok(databases.run("vos listaddrs -noresolve -localauth")?.text)
}
