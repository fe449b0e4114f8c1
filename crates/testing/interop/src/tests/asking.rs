//! Compares statistics tools: `cellar stat rx` and `cellar stat xstat` return the same figures of both
//! servers as `rxdebug` and `xstat_fs_test`, `cellar top` shows those of OpenAFS's server in its tables, and
//! `afsmonitor` and `scout` show the same for both servers, on a terminal.
//!
//! Each query changes some figures, so Cellar's tool runs before and after the other one, whose figures must
//! be in between.

use crate::Test;
use crate::tests::own_file;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn tests() -> Vec<Test> {
    let openafs = || ask(Server::OpenAfs, "afs1", "10.99.0.1");
    let cellar = || ask(Server::Cellar, "cellar1", "10.99.0.4");
    let openafs_monitored = || monitor(Server::OpenAfs, "afs1", "10.99.0.1");
    let cellar_monitored = || monitor(Server::Cellar, "cellar1", "10.99.0.4");
    vec![
        Test { name: "stat-openafs", needs: &[Means::Netns], run: openafs },
        Test { name: "stat-cellar", needs: &[Means::Netns], run: cellar },
        Test { name: "top-openafs", needs: &[Means::Netns], run: top },
        Test { name: "monitors-openafs", needs: &[Means::Netns], run: openafs_monitored },
        Test { name: "monitors-cellar", needs: &[Means::Netns], run: cellar_monitored },
    ]
}

/// Figures that are not compared: momentary values, a minimum that is 0 until it is measured, and a fraction
/// of a second.
const FLEETING: [&str; 5] =
    ["rx_nCallStructs", "rx_nFreeCallStructs", "rx_minRtt_Sec", "rx_minRtt_Usec", "rx_totalRtt_Usec"];

/// Figures by name.
type Figures = BTreeMap<String, i64>;

fn ask(server: Server, name: &'static str, address: &'static str) -> Result<()> {
    let cell = Cell::start(server, name, address)?;
    cell.open_volume(server, "work.1")?;
    let run = |command: &str| cell.shell(command)?.ok().with_context(|| command.to_owned());
    let json = |command: String| -> Result<Value> { Ok(serde_json::from_str(&run(&command)?)?) };

    let transport =
        || -> Result<Value> { json(format!("cellar stat --json rx {address} --connections --peers")) };
    let before = transport()?;
    let theirs = run(&format!("rxdebug {address} 7000 -rxstats -noconns"))?;
    let version = run(&format!("rxdebug {address} 7000 -version"))?;
    let after = transport()?;
    let counters = compare(&of_rxdebug(&theirs)?, &counters(&before), &counters(&after))?;
    let reported = before["version"].as_str().context("version")?;
    ensure!(!reported.is_empty() && version.contains(reported), "version: {reported:?} and {version}");
    ensure!(before["peers"].as_array().is_some_and(|peers| !peers.is_empty()), "no peers: {before}");

    let mut figures = 0;
    for collection in 0..4 {
        let ours = || -> Result<Figures> {
            Ok(of_xstat(&json(format!("cellar stat --json xstat {address} --collection {collection}"))?))
        };
        let before = ours()?;
        let theirs = run(&format!("xstat_fs_test {address} -once -collID {collection}"))?;
        figures += compare(&of_xstat_fs_test(&theirs)?, &before, &ours()?)
            .with_context(|| format!("collection {collection}"))?;
    }
    println!("interop: {name}: {counters} figures as rxdebug prints them, {figures} as xstat_fs_test does");
    Ok(())
}

/// Compares the output of `afsmonitor` and the screen of `scout` after files were copied to the server and
/// back.
fn monitor(server: Server, name: &'static str, address: &'static str) -> Result<()> {
    let cell = Cell::start(server, name, address)?;
    cell.open_volume(server, "work.1")?;
    let run = |command: &str| cell.shell(command)?.ok().with_context(|| command.to_owned());
    let ours = || -> Result<Figures> {
        let mut figures = Figures::new();
        for collection in [2, 3] {
            let reported = run(&format!("cellar stat --json xstat {address} --collection {collection}"))?;
            figures.extend(of_xstat(&serde_json::from_str(&reported)?));
        }
        Ok(figures)
    };
    let (suites, scratch) = (own_file("suites"), cell.scratch()?);
    let files = i64::try_from(std::fs::read_dir(&suites)?.count())?;
    let (noted, shown) = (scratch.join("noted"), scratch.join("shown"));
    let monitor = format!("afsmonitor -fshosts {name} -frequency 1 -output {} -detailed", noted.display());
    let scout = format!("scout -server {address} -frequency 1");

    let at_first = ours()?;
    run(&format!("cellar cp {}/ cell:work.1/suites/", suites.display()))?;
    run(&format!("cellar cp cell:work.1/suites/ {}/back/", scratch.display()))?;
    let before = ours()?;
    let noted = on_terminal(&cell, &monitor, &scratch.join("terminal"), &noted, "[Probe 2,")?;
    let shown = on_terminal(&cell, &scout, &shown, &shown, "Probe 2 results")?;
    let after = ours()?;
    let noted = of_xstat_fs_test(noted.split("[Probe 2,").next().context("the first probe")?)?;
    let figures = compare(&noted, &before, &after)?;
    let of_copying = |operation: &str| {
        let [before, after] = [&at_first, &noted].map(|figures| figures[&format!("{operation} successes")]);
        after - before
    };
    // Directories are fetched as well.
    let [stored, created, fetched] = ["storedata", "createfile", "fetchdata"].map(of_copying);
    ensure!(
        stored == files && created == files && fetched > files,
        "of {files} files afsmonitor noted {stored} stored, {created} created, {fetched} fetched"
    );
    compare(&of_scout(&shown, address)?, &as_scout(server, &before), &as_scout(server, &after))
        .context("scout")?;
    // The server counts each of the two probes; nothing else in this test makes such calls.
    let asked = ["calls", "successes"].map(|part| {
        let figure = format!("getstatistics {part}");
        after[&figure] - before[&figure]
    });
    ensure!(asked[0] >= 2 && asked[0] == asked[1], "GetStatistics by scout: {asked:?} calls and successes");
    println!("interop: {name}: {figures} figures as afsmonitor notes them, 4 as scout shows them");
    Ok(())
}

/// Runs a program on a terminal until `file` contains `word`, and returns the file's contents.
fn on_terminal(cell: &Cell, program: &str, screen: &Path, file: &Path, word: &str) -> Result<String> {
    let (screen, file) = (screen.display(), file.display());
    let waited = cell.shell(&format!(
        "sleep 60 | TERM=vt100 timeout 60 script -qefc 'stty cols 132 rows 40; {program}' {screen} >/dev/null &
         script=$!
         for i in $(seq 500); do
             grep -qaF '{word}' {file} && break
             kill -0 $script || break
             sleep 0.1
         done
         kill $script
         cat {file}; grep -qaF '{word}' {file}"
    ))?;
    waited.ok().with_context(|| program.to_owned())
}

/// The numeric columns of `scout`.
const SCOUT: [&str; 4] = ["connections", "fetches", "stores", "hosts"];

/// Parses a server's row on `scout`'s screen. Only the first probe's row is complete, since later ones update
/// parts of it.
fn of_scout(shown: &str, address: &str) -> Result<Figures> {
    let shown = Regex::new(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][0-9A-Z]|[\x00-\x1f]")?.replace_all(shown, " ");
    let row = Regex::new(&format!(r"(\d+) +(\d+) +(\d+) +(\d+) +{} +a:\d+", address.replace('.', r"\.")))?;
    let found = row.captures(&shown).with_context(|| format!("scout shows no row of {address}:\n{shown}"))?;
    let values = found.iter().skip(1).flatten();
    SCOUT
        .into_iter()
        .zip(values)
        .map(|(name, value)| Ok((name.to_owned(), value.as_str().parse()?)))
        .collect()
}

/// Computes `scout`'s row from the figures of `xstat_fs_test`. OpenAFS's server only counts connections with
/// an authenticated caller.
fn as_scout(server: Server, figures: &Figures) -> Figures {
    let connections = if server == Server::OpenAfs { "host_NumClients" } else { "rx_nServerConns" };
    let calls = |names: [&str; 3]| names.map(|name| figures[&format!("{name} calls")]).iter().sum();
    SCOUT
        .into_iter()
        .map(str::to_owned)
        .zip([
            figures[connections],
            calls(["fetchdata", "fetchacl", "fetchstatus"]),
            calls(["storedata", "storeacl", "storestatus"]),
            figures["host_NonDeletedHosts"],
        ])
        .collect()
}

/// Compares `cellar top` for OpenAFS's file server, after calls of several kinds, with the output of
/// OpenAFS's programs.
fn top() -> Result<()> {
    let cell = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    cell.open_volume(Server::OpenAfs, "work.1")?;
    let run = |command: &str| cell.shell(command)?.ok().with_context(|| command.to_owned());
    let (suites, scratch) = (own_file("suites"), cell.scratch()?);
    run(&format!("cellar cp {}/ cell:work.1/suites/", suites.display()))?;
    run(&format!("cellar cp cell:work.1/suites/ {}/back/", scratch.display()))?;
    let address = cell.address;
    let look = || -> Result<Value> {
        Ok(serde_json::from_str(&run(&format!("cellar top --server {address} --json"))?)?)
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
    let reported = before["version"].as_str().context("version")?;
    ensure!(!reported.is_empty() && version.contains(reported), "version: {reported:?} and {version}");
    for unavailable in ["volumes", "clients", "disk", "locks"] {
        ensure!(before[unavailable]["not_available"].is_string(), "{unavailable}: {}", before[unavailable]);
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

/// Converts the tables of `cellar top` to the names of `theirs`. Missing figures are 0.
fn of_top(reported: &Value, theirs: &Figures) -> Figures {
    let mut figures: Figures = theirs.keys().map(|name| (name.clone(), 0)).collect();
    let rows = |table: &str| reported[table].as_array().cloned().unwrap_or_default();
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

/// Checks that each figure of OpenAFS's tool is between Cellar's two. Returns the number of figures.
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

fn counters(reported: &Value) -> Figures {
    let counters = reported["counters"].as_object().into_iter().flatten();
    let mut figures: Figures =
        counters.map(|(name, value)| (name.clone(), value.as_i64().unwrap_or(-1))).collect();
    figures.insert("basic_calls".to_owned(), reported["basics"]["calls"].as_i64().unwrap_or(-1));
    figures
}

/// Parses the output of rxdebug, with the names of `cellar stat rx`.
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

fn of_xstat(reported: &Value) -> Figures {
    let mut figures = Figures::new();
    for row in reported["figures"].as_array().into_iter().flatten() {
        figures.insert(row["figure"].as_str().unwrap_or("?").to_owned(), row["value"].as_i64().unwrap_or(-1));
    }
    for row in reported["operations"].as_array().into_iter().flatten() {
        let name = row["operation"].as_str().unwrap_or("?").to_lowercase();
        for part in ["calls", "successes"] {
            figures.insert(format!("{name} {part}"), row[part].as_i64().unwrap_or(-1));
        }
    }
    figures
}

/// Parses the output of xstat_fs_test: `NUMBER name`, and `Name: NUMBER ops (NUMBER OK); ...`.
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
