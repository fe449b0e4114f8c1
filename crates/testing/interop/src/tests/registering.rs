//! Registrations that would take the addresses of another file server, and machines with many addresses.
//!
//! The hosts have no NetInfo, so that the servers choose among all addresses of the machine.

use crate::Test;
use crate::tests::wait_for;
use afs_format::sysid::SysId;
use anyhow::{Context, Result, ensure};
use base::HostUuid;
use interop::cell::{Cell, Server};
use interop::means::Means;
use serde_json::Value;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "registration-conflicts", needs: &[Means::Netns], run: registration_conflicts }]
}

/// Time limit for a registration, or for its refusal: four attempts.
const LIMIT: Duration = Duration::from_secs(60);
/// Name, address and additional interface of each file server. By its name, `br7` may be part of the
/// site's network, and `docker0` leads to containers.
const FIRST: (&str, &str) = ("reg2", "10.99.0.172");
const SECOND: (&str, &str) = ("reg3", "10.99.0.173");
const CLONE: (&str, &str) = ("reg4", "10.99.0.174");
const MANY: (&str, &str) = ("reg5", "10.99.0.175");
/// The address that several machines have on a bridge.
const BRIDGE: &str = "172.17.0.1";
/// Number of bridges whose addresses are sorted before the address that clients use.
const BRIDGES: u32 = 20;
/// Maximum number of addresses in an entry (MAXIPADDRS in OpenAFS's vldbint.xg).
const ADDRESSES_MAX: usize = 15;

fn registration_conflicts() -> Result<()> {
    let databases = Cell::start(Server::Cellar, "reg1", "10.99.0.171")?;
    let first = start(&databases, FIRST, &[&bridge("br7", BRIDGE)])?;
    let entry = registered(&databases, FIRST.1).with_context(|| first.cellar_log())?;
    ensure!(entry.addresses == [FIRST.1, BRIDGE], "the route to the databases comes first: {entry:?}");
    databases.run(&format!("vos create {} a works -localauth", FIRST.1))?.ok()?;

    same_address(&databases, &entry)?;
    containers(&databases)?;
    copied_sysid(&databases, &first, &entry)?;
    many_addresses(&databases)?;

    ensure!(registered(&databases, FIRST.1)? == entry, "the first server's entry has changed");
    let site = databases.run("vos listvldb works -noresolve -localauth")?.ok()?;
    ensure!(site.contains(&format!("server {} partition /vicepa", FIRST.1)), "the volume's site: {site}");
    Ok(())
}

/// A server with an address of another one is refused, until NetRestrict leaves it out.
fn same_address(databases: &Cell, theirs: &Entry) -> Result<()> {
    let mut second = start(databases, SECOND, &[&bridge("br7", BRIDGE)])?;
    let logged = refused(databases, &second, SECOND.1)?;
    let own = own_uuid(&second)?;
    for part in [BRIDGE, &own, &theirs.uuid, "NetRestrict", "vos changeaddr"] {
        ensure!(logged.contains(part), "the server's log does not name {part}:\n{logged}");
    }
    let reported = databases.cellar_log();
    let refusal =
        reported.lines().find(|line| line.contains("registration refused")).context("no refusal")?;
    for part in [&own, &theirs.uuid, FIRST.1, BRIDGE] {
        ensure!(refusal.contains(part), "the location server's log does not name {part}:\n{refusal}");
    }
    let finding = finding(&second, "address-conflict")?;
    ensure!(finding.contains(BRIDGE) && finding.contains(&theirs.uuid), "{finding}");

    std::fs::write(second.path().join("var/local/NetRestrict"), format!("{BRIDGE}\n"))?;
    second.end_cellar("TERM")?;
    second.start_cellar_alone()?;
    let entry = registered(databases, SECOND.1).with_context(|| second.cellar_log())?;
    ensure!(entry.addresses == [SECOND.1] && entry.uuid == own, "after NetRestrict: {entry:?}");
    forget(databases, second, SECOND.1)
}

/// The bridge to containers is not registered, and the log names it.
fn containers(databases: &Cell) -> Result<()> {
    let server = start(databases, SECOND, &[&bridge("docker0", BRIDGE)])?;
    let entry = registered(databases, SECOND.1).with_context(|| server.cellar_log())?;
    ensure!(entry.addresses == [SECOND.1], "the bridge docker0 is registered: {entry:?}");
    let log = server.cellar_log();
    let line = log.lines().find(|line| line.contains("not registered")).context("nothing is left out")?;
    ensure!(line.contains(BRIDGE) && line.contains("docker0"), "{line}");
    forget(databases, server, SECOND.1)
}

/// A machine that was cloned with its sysid file is refused, until that file is removed.
fn copied_sysid(databases: &Cell, original: &Cell, theirs: &Entry) -> Result<()> {
    let sysid = "var/local/sysid";
    let copy = format!("cp {} $OWN/{sysid}", original.path().join(sysid).display());
    let mut clone = start(databases, CLONE, &[&copy])?;
    let logged = refused(databases, &clone, CLONE.1)?;
    for part in [&theirs.uuid, FIRST.1, "sysid file was copied"] {
        ensure!(logged.contains(part), "the server's log does not name {part}:\n{logged}");
    }
    let finding = finding(&clone, "server-uuid-copied")?;
    ensure!(finding.contains(FIRST.1) && finding.contains(&theirs.uuid), "{finding}");
    ensure!(registered(databases, FIRST.1)? == *theirs, "the original's entry has changed");

    clone.end_cellar("TERM")?;
    std::fs::remove_file(clone.path().join(sysid)).context(sysid)?;
    clone.start_cellar_alone()?;
    let entry = registered(databases, CLONE.1).with_context(|| clone.cellar_log())?;
    ensure!(entry.addresses == [CLONE.1] && entry.uuid != theirs.uuid, "with a new sysid: {entry:?}");
    forget(databases, clone, CLONE.1)
}

/// Of more addresses than an entry has room for, the one that clients use is registered.
fn many_addresses(databases: &Cell) -> Result<()> {
    let bridges: Vec<String> =
        (1..=BRIDGES).map(|number| bridge(&format!("br{number}"), &format!("10.0.{number}.1"))).collect();
    let bridges: Vec<&str> = bridges.iter().map(String::as_str).collect();
    let server = start(databases, MANY, &bridges)?;
    let entry = registered(databases, MANY.1).with_context(|| server.cellar_log())?;
    ensure!(entry.addresses.first().is_some_and(|first| first == MANY.1), "{entry:?}");
    ensure!(entry.addresses.len() == ADDRESSES_MAX, "{entry:?}");
    wait_for(LIMIT, || Ok(server.cellar_log().contains("a server has at most")))
        .with_context(|| server.cellar_log())?;
    let log = server.cellar_log();
    let finding = finding(&server, "addresses-left-out")?;
    for address in (1..=BRIDGES).map(|number| format!("10.0.{number}.1")) {
        let line = log.lines().find(|line| line.contains("not registered") && line.contains(&address));
        let is_registered = entry.addresses.contains(&address);
        ensure!(is_registered == line.is_none(), "{address} is in the log and in {entry:?}, or in neither");
        ensure!(is_registered != finding.contains(&address), "{address}, {entry:?}: {finding}");
    }
    forget(databases, server, MANY.1)
}

/// Returns the command that adds a bridge with this address.
fn bridge(name: &str, address: &str) -> String {
    format!("ip link add {name} type bridge && ip addr add {address}/24 dev {name} && ip link set {name} up")
}

/// Starts a file server without NetInfo in the cell of `databases` after these commands, in which `$OWN` is the
/// folder of the new host. Does not wait until it is registered.
fn start(databases: &Cell, (name, address): (&'static str, &'static str), commands: &[&str]) -> Result<Cell> {
    let script = format!("set -e; rm $OWN/var/local/NetInfo; {}", commands.join("; "));
    Cell::start_cellar_after(databases, name, address, &script)
}

/// Removes a server that has ended from the location database.
fn forget(databases: &Cell, server: Cell, address: &str) -> Result<()> {
    drop(server);
    databases.run(&format!("vos changeaddr {address} -remove -localauth"))?.ok().map(drop)
}

/// An entry of the location database.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) uuid: String,
    pub(crate) addresses: Vec<String>,
}

/// Returns the entry with this address, as soon as there is one.
pub(crate) fn registered(databases: &Cell, address: &str) -> Result<Entry> {
    let mut found = None;
    wait_for(LIMIT, || {
        found = entries(databases)?
            .into_iter()
            .find(|entry| entry.addresses.iter().any(|registered| registered == address));
        Ok(found.is_some())
    })
    .with_context(|| format!("{address} is not registered"))?;
    found.context("no entry")
}

fn entries(databases: &Cell) -> Result<Vec<Entry>> {
    let listed = databases.run("vos listaddrs -printuuid -noresolve -localauth")?.ok()?;
    let mut entries: Vec<Entry> = Vec::new();
    for line in listed.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(uuid) = line.strip_prefix("UUID: ") {
            entries.push(Entry { uuid: grouped(uuid)?, addresses: Vec::new() });
        } else {
            entries.last_mut().context("an address before a UUID")?.addresses.push(line.to_owned());
        }
    }
    Ok(entries)
}

/// Returns a UUID in the usual form: OpenAFS's tools divide the fourth group.
fn grouped(uuid: &str) -> Result<String> {
    let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).with_context(|| format!("`{uuid}` is not a UUID"))?;
    Ok(HostUuid(number.to_be_bytes()).to_string())
}

/// Waits until the registration of a server is refused, and returns the server's log.
fn refused(databases: &Cell, server: &Cell, address: &str) -> Result<String> {
    // The reason follows in a line of its own.
    let reasons = ["is registered for server", "is registered with addresses"];
    wait_for(LIMIT, || {
        let log = server.cellar_log();
        let is_explained = reasons.iter().any(|reason| log.contains(reason));
        Ok(is_explained && log.contains("cannot register in the location database"))
    })
    .with_context(|| server.cellar_log())?;
    let entries = entries(databases)?;
    let is_registered = entries.iter().any(|entry| entry.addresses.iter().any(|it| it == address));
    ensure!(!is_registered, "{address} is registered nevertheless: {entries:?}");
    Ok(server.cellar_log())
}

/// Returns the UUID in a server's sysid file.
fn own_uuid(server: &Cell) -> Result<String> {
    let bytes = std::fs::read(server.path().join("var/local/sysid"))?;
    Ok(SysId::parse(&bytes)?.uuid.to_string())
}

/// Returns what the doctor on the host of `server` says about this problem.
fn finding(server: &Cell, problem: &str) -> Result<String> {
    let printed = server.run(&format!("cellar doctor --on {} --interval 1 --json", server.address))?.text;
    let mut documents = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    let reported = documents.next().context("nothing")?.with_context(|| printed.clone())?;
    let mut findings = reported["findings"].as_array().into_iter().flatten();
    let found = findings.find(|finding| finding["problem"] == problem);
    Ok(found.with_context(|| format!("the doctor does not find {problem}: {printed}"))?.to_string())
}
