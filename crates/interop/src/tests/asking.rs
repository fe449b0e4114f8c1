//! `cellar stat rx` and `cellar stat xstat` beside `rxdebug` and `xstat_fs_test`: of both servers, they
//! tell the same figures. `cellar top` tells those of OpenAFS's in its tables.
//!
//! Asking changes some figures, so Cellar's tool asks before and after the other one, whose figures
//! have to lie between.

use crate::Test;
use crate::tests::own_file;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) fn tests() -> Vec<Test> {
    let openafs = || ask(Server::OpenAfs, "afs1", "10.99.0.1");
    let cellar = || ask(Server::Cellar, "cellar1", "10.99.0.4");
    vec![
        Test { name: "stat-openafs", needs: &[Means::Netns], run: openafs },
        Test { name: "stat-cellar", needs: &[Means::Netns], run: cellar },
        Test { name: "top-openafs", needs: &[Means::Netns], run: top },
    ]
}

/// What there is at the moment of asking, and may be otherwise a moment later; a minimum that is 0
/// until something was measured; and what starts over with every second.
const FLEETING: [&str; 5] =
    ["rx_nCallStructs", "rx_nFreeCallStructs", "rx_minRtt_Sec", "rx_minRtt_Usec", "rx_totalRtt_Usec"];

/// Figures by name.
type Figures = BTreeMap<String, i64>;

fn ask(server: Server, name: &'static str, address: &'static str) -> Result<()> {
    let cell = Cell::start(server, name, address)?;
    cell.open_volume(server, "work.1")?;
    let cellar = cellar_program()?;
    let stat = format!("{} stat --json", cellar.to_str().context("path")?);
    let run = |command: &str| cell.shell(command)?.ok().with_context(|| command.to_owned());
    let json = |command: String| -> Result<Value> { Ok(serde_json::from_str(&run(&command)?)?) };

    let transport = || -> Result<Value> { json(format!("{stat} rx {address} --connections --peers")) };
    let before = transport()?;
    let theirs = run(&format!("rxdebug {address} 7000 -rxstats -noconns"))?;
    let version = run(&format!("rxdebug {address} 7000 -version"))?;
    let after = transport()?;
    let counters = compare(&of_rxdebug(&theirs)?, &counters(&before), &counters(&after))?;
    let told = before["version"].as_str().context("version")?;
    ensure!(!told.is_empty() && version.contains(told), "version: {told:?} and {version}");
    ensure!(before["peers"].as_array().is_some_and(|peers| !peers.is_empty()), "no peers: {before}");

    let mut figures = 0;
    for collection in 0..4 {
        let ours = || -> Result<Figures> {
            Ok(of_xstat(&json(format!("{stat} xstat {address} --collection {collection}"))?))
        };
        let before = ours()?;
        let theirs = run(&format!("xstat_fs_test {address} -once -collID {collection}"))?;
        figures += compare(&of_xstat_fs_test(&theirs)?, &before, &ours()?)
            .with_context(|| format!("collection {collection}"))?;
    }
    println!("interop: {name}: {counters} figures as rxdebug prints them, {figures} as xstat_fs_test does");
    Ok(())
}

/// `cellar top` of OpenAFS's file server after calls of some kinds, beside what OpenAFS's own programs print.
fn top() -> Result<()> {
    let cell = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    cell.open_volume(Server::OpenAfs, "work.1")?;
    let program = cellar_program()?;
    let program = program.to_str().context("path")?;
    let run = |command: &str| cell.shell(command)?.ok().with_context(|| command.to_owned());
    let (suites, scratch) = (own_file("suites"), cell.scratch()?);
    run(&format!("{program} cp {}/ cell:work.1/suites/", suites.display()))?;
    run(&format!("{program} cp cell:work.1/suites/ {}/back/", scratch.display()))?;
    let address = cell.address;
    let look = || -> Result<Value> {
        Ok(serde_json::from_str(&run(&format!("{program} top --server {address} --json"))?)?)
    };
    let before = look()?;
    let transport = run(&format!("rxdebug {address} 7000 -rxstats -noconns"))?;
    let extended = run(&format!("xstat_fs_test {address} -once -collID 2"))?;
    let version = run(&format!("rxdebug {address} 7000 -version"))?;
    let after = look()?;
    let mut theirs = of_rxdebug(&transport)?;
    theirs.extend(of_xstat_fs_test(&extended)?);
    let figures = compare(&theirs, &of_top(&before, &theirs), &of_top(&after, &theirs))?;
    for operation in ["storedata", "createfile", "fetchdata", "makedir"] {
        ensure!(theirs[&format!("{operation} calls")] > 0, "no {operation} was called");
    }
    let told = before["version"].as_str().context("version")?;
    ensure!(!told.is_empty() && version.contains(told), "version: {told:?} and {version}");
    for untold in ["volumes", "clients", "disks", "locks"] {
        ensure!(before[untold]["not_told"].is_string(), "{untold}: {}", before[untold]);
    }
    let rows = |table: &str| before[table].as_array().cloned().unwrap_or_default();
    let ports: Vec<Value> = rows("workers").iter().map(|row| row["port"].clone()).collect();
    ensure!(ports == ["bosserver", "fileserver", "ptserver", "vlserver", "volserver"], "{ports:?}");
    let of_host = |row: &Value| row["host"] == address && row["calls"].as_u64() > Some(16);
    ensure!(rows("hosts").iter().any(of_host), "{}", before["hosts"]);
    let of_peer = |row: &Value| row["port"] == "fileserver" && row["received_bytes"].as_u64() > Some(14_000);
    ensure!(rows("peers").iter().any(of_peer), "{}", before["peers"]);
    let misses = |row: &Value| row["asked"].as_u64() >= row["misses"].as_u64();
    ensure!(rows("caches").len() == 3 && rows("caches").iter().all(misses), "{}", before["caches"]);
    println!("interop: top-openafs: {figures} figures as rxdebug and xstat_fs_test print them");
    Ok(())
}

/// What the tables of `cellar top` tell, under the names of `theirs`. What they leave out is 0.
fn of_top(told: &Value, theirs: &Figures) -> Figures {
    let mut figures: Figures = theirs.keys().map(|name| (name.clone(), 0)).collect();
    let rows = |table: &str| told[table].as_array().cloned().unwrap_or_default();
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    for row in rows("figures").iter().filter(|row| row["source"] != "callbacks") {
        let own = ["fileserver", "statistics"].iter().any(|source| row["source"] == *source);
        if own && let Some(name) = row["figure"].as_str() {
            figures.insert(name.to_owned(), i64::from(number(&row["value"]) as i32));
        }
    }
    for row in rows("calls") {
        let name = row["procedure"].as_str().unwrap_or("?").to_lowercase();
        figures.insert(format!("{name} calls"), number(&row["calls"]));
        figures.insert(format!("{name} successes"), number(&row["succeeded"]));
    }
    for row in rows("workers").iter().filter(|row| row["port"] == "fileserver") {
        figures.insert("basic_calls".to_owned(), number(&row["arrived"]));
    }
    figures
}

/// Each figure of theirs lies between ours. Tells how many there were.
fn compare(theirs: &Figures, before: &Figures, after: &Figures) -> Result<usize> {
    for (name, theirs) in theirs {
        let (Some(before), Some(after)) = (before.get(name), after.get(name)) else {
            anyhow::bail!("cellar stat does not tell {name} ({theirs})");
        };
        let range = *before.min(after)..=*before.max(after);
        ensure!(range.contains(theirs), "{name}: {theirs}, cellar stat {before} before and {after} after");
    }
    Ok(theirs.len())
}

fn counters(told: &Value) -> Figures {
    let counters = told["counters"].as_object().into_iter().flatten();
    let mut figures: Figures =
        counters.map(|(name, value)| (name.clone(), value.as_i64().unwrap_or(-1))).collect();
    figures.insert("basic_calls".to_owned(), told["basics"]["calls"].as_i64().unwrap_or(-1));
    figures
}

/// What rxdebug prints, under the names that `cellar stat rx` has for it.
fn of_rxdebug(printed: &str) -> Result<Figures> {
    let types = r"data (\d+) ack (\d+) busy (\d+) abort (\d+) ackall (\d+) challenge (\d+) response (\d+) debug (\d+)";
    let names = |prefix: &str| {
        ["data", "ack", "busy", "abort", "ackall", "challenge", "response", "debug"]
            .map(|name| format!("{prefix}_{name}"))
    };
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let lines = [
        (format!("packets read: +{types}"), names("read").to_vec()),
        (format!("packets sent: +{types}"), names("sent").to_vec()),
        (
            r"other read counters: data (\d+), ack (\d+), dup (\d+)".to_owned(),
            own(&["data_packets_read", "ack_packets_read", "duplicate_packets_read"]),
        ),
        (
            r"other send counters: ack (\d+), data (\d+) \(not resends\), resends (\d+), pushed (\d+)"
                .to_owned(),
            own(&["ack_packets_sent", "data_packets_sent", "data_packets_resent", "data_packets_pushed"]),
        ),
        (
            r"(\d+) server connections, (\d+) client connections, (\d+) peer structs".to_owned(),
            own(&["server_connections", "client_connections", "peers"]),
        ),
        (r"reclaims: \d+, calls: (\d+)".to_owned(), own(&["basic_calls"])),
    ];
    let mut figures = Figures::new();
    for (pattern, names) in lines {
        let found = Regex::new(&pattern)?.captures(printed);
        let found = found.with_context(|| format!("rxdebug does not print {pattern}:\n{printed}"))?;
        for (name, value) in names.into_iter().zip(found.iter().skip(1).flatten()) {
            figures.insert(name, value.as_str().parse()?);
        }
    }
    Ok(figures)
}

fn of_xstat(told: &Value) -> Figures {
    let mut figures = Figures::new();
    for row in told["figures"].as_array().into_iter().flatten() {
        figures.insert(row["figure"].as_str().unwrap_or("?").to_owned(), row["value"].as_i64().unwrap_or(-1));
    }
    for row in told["operations"].as_array().into_iter().flatten() {
        let name = row["operation"].as_str().unwrap_or("?").to_lowercase();
        for part in ["calls", "successes"] {
            figures.insert(format!("{name} {part}"), row[part].as_i64().unwrap_or(-1));
        }
    }
    figures
}

/// What xstat_fs_test prints: `NUMBER name`, and `Name: NUMBER ops (NUMBER OK); ...`.
fn of_xstat_fs_test(printed: &str) -> Result<Figures> {
    let figure = Regex::new(r"(?m)^\s+(\d+) (\w+)\s*$")?;
    let operation = Regex::new(r"(\w+): (\d+) ops \((\d+) OK\)")?;
    let mut figures = Figures::new();
    for found in figure.captures_iter(printed).filter(|found| !FLEETING.contains(&&found[2])) {
        figures.insert(found[2].to_owned(), found[1].parse::<u32>()?.cast_signed().into());
    }
    for found in operation.captures_iter(printed) {
        let name = found[1].to_lowercase();
        figures.insert(format!("{name} calls"), found[2].parse()?);
        figures.insert(format!("{name} successes"), found[3].parse()?);
    }
    Ok(figures)
}
