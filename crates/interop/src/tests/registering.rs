//! Servers that claim each other's addresses, or have one UUID.

use crate::Test;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "registration-conflicts", needs: &[Means::Netns], run: registration_conflicts }]
}

const LIMIT: Duration = Duration::from_secs(60);
const FIRST: &str = "10.99.0.167";
const SECOND: &str = "10.99.0.168";
const BRIDGE: &str = "ip link add br7 type bridge && ip addr add 172.17.0.1/16 dev br7 && ip link set br7 up";

fn registration_conflicts() -> Result<()> {
    let first = Cell::start(Server::Cellar, "claim1", FIRST)?;
    let mut second = Cell::start_cellar_like(&first, "claim2", SECOND)?;
    same_bridge(&first, &mut second)?;
    copied_uuid(&first, &mut second)
}

/// Both have the same address on a bridge.
fn same_bridge(first: &Cell, second: &mut Cell) -> Result<()> {
    second.end_cellar("TERM")?;
    first.shell(BRIDGE)?.ok()?;
    wait_for(LIMIT, || Ok(listed(first)?.contains("172.17.0.1"))).context("the first one has the bridge")?;
    let before = listed(first)?;
    second.shell(BRIDGE)?.ok()?;
    second.start_cellar_alone()?;
    wait_for(LIMIT, || Ok(second.cellar_log().contains("172.17.0.1 of this server")))
        .with_context(|| second.cellar_log())?;
    ensure!(listed(first)? == before, "{before}\nbecame\n{}", listed(first)?);
    second.end_cellar("TERM")?;
    let restrict = second.path().join("var/local/NetRestrict");
    std::fs::write(&restrict, "172.16.0.0/12 bridges\n")?;
    second.start_cellar_alone()?;
    registered(second).context("without the bridge's address")
}

/// The second machine is a copy of the first.
fn copied_uuid(first: &Cell, second: &mut Cell) -> Result<()> {
    let before = listed(first)?;
    second.end_cellar("TERM")?;
    let sysid = "var/local/sysid";
    std::fs::copy(first.path().join(sysid), second.path().join(sysid))?;
    second.start_cellar_alone()?;
    wait_for(LIMIT, || Ok(second.cellar_log().contains("the sysid file was copied")))
        .with_context(|| second.cellar_log())?;
    ensure!(listed(first)? == before, "{before}\nbecame\n{}", listed(first)?);
    let found = second.run("cellar doctor")?.text;
    ensure!(found.contains("server-uuid-copied"), "{found}");
    second.end_cellar("TERM")?;
    std::fs::remove_file(second.path().join(sysid))?;
    second.start_cellar_alone()?;
    registered(second).context("with a UUID of its own")
}

/// Waits until the last thing about its registration that a server logs is that it is registered.
fn registered(cell: &Cell) -> Result<()> {
    wait_for(LIMIT, || {
        let log = cell.cellar_log();
        let last = log.lines().rfind(|line| line.contains("serve::registration"));
        Ok(last.is_some_and(|line| line.contains("registered in the location database")))
    })
    .with_context(|| cell.cellar_log())
}

fn listed(cell: &Cell) -> Result<String> {
    cell.run("vos listaddrs -noresolve -printuuid -localauth")?.ok()
}
