//! The probes and their scripts with the real bpftrace: every script is compiled for the program and attached
//! to a running server, and the counts of probes equal those of the server.

use crate::Test;
use crate::tests::fuse::in_mounted_cell;
use crate::tests::own_file;
use anyhow::{Context, Result, anyhow, ensure};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::TryRecvError;

/// Number of calls made while a probe counts them.
const CALLS: u64 = 25;

/// Stops a tracer in the background of a shell. The tracer ignores the signal until it has attached
/// everything, which is later than its message, so the signal is repeated until it exits. A second signal while it
/// detaches, which takes some seconds on a busy machine, would abort that.
const END: &str = "while kill -INT $tracer 2>/dev/null; do \
    for i in $(seq 150); do kill -0 $tracer 2>/dev/null || break; sleep 0.1; done; done";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "bpftrace", needs: &[Means::Netns, Means::Bpftrace], run: trace },
        Test {
            name: "bpftrace-caches",
            needs: &[Means::Netns, Means::Bpftrace, Means::Fuse],
            run: trace_caches_and_callbacks,
        },
    ]
}

fn trace() -> Result<()> {
    let cell = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    let program = cellar_program()?;
    let cellar = program.to_str().context("path")?;
    let shell = |script: &str| cell.shell(script)?.ok().with_context(|| script.to_owned());
    let pid = server(&cell)?;
    let scripts = scripts()?;
    for script in &scripts {
        attach(&cell, cellar, pid, script)?;
    }
    let ended = || -> Result<u64> {
        let calls: Value = serde_json::from_str(&shell(&format!("{cellar} stat --json calls"))?)?;
        let rows = calls.as_array().context("rows")?;
        let row = rows.iter().find(|row| row["procedure"] == "GetServerInfo");
        Ok(row.and_then(|row| row["calls"].as_u64()).unwrap_or(0))
    };
    let before = ended()?;
    let text = format!(
        "usdt:{cellar}:cellar:call__end {{ @[str(arg0, arg1)] = count(); }} interval:s:1 {{ printf(\"ready\\n\"); }}"
    );
    let printed = traced(&cell, &format!("bpftrace -p {pid} -e '{text}'"), &work(cellar))?;
    let expected = ended()? - before;
    let counted = Regex::new(r"@\[GetServerInfo\]: (\d+)")?.captures(&printed);
    let counted: u64 = counted.with_context(|| printed.clone())?[1].parse()?;
    ensure!(
        expected == CALLS && counted == CALLS,
        "of {CALLS} calls the server counted {expected}, bpftrace {counted}"
    );
    println!("interop: bpftrace: {} scripts attached; {counted} of {CALLS} calls counted", scripts.len());
    Ok(())
}

/// Counts by event and by cache or message type.
type Counts = BTreeMap<(String, String), u64>;

/// Compares the probes' counts of caches and callback messages with those of the server.
fn trace_caches_and_callbacks() -> Result<()> {
    let cell = Cell::start_configured("cellar1", "10.99.0.4", "[store]\nchunk_cache_mb = 1\n")?;
    let program = cellar_program()?;
    let cellar = program.to_str().context("path")?;
    let data = cell.scratch()?.join("data").display().to_string();
    cell.open_volume(Server::Cellar, "root.cell")?;
    let shell = |script: &str| cell.shell(script)?.ok().with_context(|| script.to_owned());
    shell(&format!(
        "mkdir {data} && for i in $(seq 20); do head -c 200000 /dev/urandom >{data}/f$i; done
         {cellar} cp {data}/ cell:root.cell/"
    ))?;
    let probe = |name: &str, action: &str| format!("usdt:{cellar}:cellar:{name} {{ {action} }} ");
    let text = [
        probe("cache__miss", "@[\"misses\", str(arg0, arg1)] = sum(1);"),
        probe("cache__evict", "@[\"evictions\", str(arg0, arg1)] = sum(1);"),
        probe("cache__purge", "@[\"purged\", str(arg0, arg1)] = sum(arg2);"),
        probe("callback__send", "@[\"callbacks\", \"sent\"] = sum(1);"),
        probe("callback__end", "@[\"callbacks\", str(arg2, arg3)] = sum(1);"),
        "interval:s:1 { printf(\"ready\\n\"); }".to_owned(),
    ];
    let before = caches(&shell(&format!("{cellar} stat --json caches"))?)?;
    let tracer = format!("bpftrace -p {} -e '{}'", server(&cell)?, text.concat());
    let traced_work = |root: &Path| {
        // A file is read, changed by another client while the reader has a promise, dropped from the server's
        // caches, and read again.
        let work = format!(
            "cat {}/f1 >/dev/null; {cellar} cp {data}/f2 cell:root.cell/f1; {cellar} cp cell:root.cell/ {data}.read
             {cellar} volume forget root.cell; {cellar} cp cell:root.cell/ {data}.again",
            root.display()
        );
        traced(&cell, &tracer, &work)
    };
    let printed = beside_a_busy_neighbour(cellar, || in_mounted_cell(&cell, traced_work))?;
    let after = caches(&shell(&format!("{cellar} stat --json caches"))?)?;
    let mut traced = Counts::new();
    for found in Regex::new(r"@\[(\w+), (\w+)\]: (\d+)")?.captures_iter(&printed) {
        traced.insert((found[1].to_owned(), found[2].to_owned()), found[3].parse()?);
    }
    let of = |what: &str, which: &str| (what.to_owned(), which.to_owned());
    let [sent, delivered] = ["sent", "delivered"].map(|name| traced.remove(&of("callbacks", name)));
    ensure!(sent.is_some() && sent == delivered, "messages sent and delivered: {printed}");
    let news = after.into_iter().map(|(key, now)| {
        let news = now - before.get(&key).copied().unwrap_or(0);
        (key, news)
    });
    let counted: Counts = news.filter(|(_, news)| *news > 0).collect();
    for (what, which) in
        [("misses", "status"), ("misses", "chunks"), ("evictions", "chunks"), ("purged", "status")]
    {
        ensure!(counted.contains_key(&of(what, which)), "no {what} of {which}: {printed}");
    }
    ensure!(traced == counted, "bpftrace {traced:?}, the server {counted:?}");
    println!("interop: bpftrace-caches: {counted:?}, {sent:?} messages");
    Ok(())
}

/// Runs `traced` while a server of another cell, which runs the same program, continuously has cache misses
/// and purges.
fn beside_a_busy_neighbour<T>(cellar: &str, traced: impl FnOnce() -> Result<T>) -> Result<T> {
    let neighbour = Cell::start(Server::Cellar, "cellar2", "10.99.0.5")?;
    neighbour.open_volume(Server::Cellar, "root.cell")?;
    let read = format!("{cellar} cp /etc/passwd cell:root.cell/file && {cellar} volume forget root.cell");
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let keep_busy = move || -> Result<()> {
        while ended.try_recv() == Err(TryRecvError::Empty) {
            neighbour.shell(&read)?.ok()?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(keep_busy);
        let result = traced();
        drop(end);
        reader.join().map_err(|_| anyhow!("the neighbour's reader panicked"))??;
        result
    })
}

/// Parses the server's counters of its caches.
fn caches(json: &str) -> Result<Counts> {
    let rows: Value = serde_json::from_str(json)?;
    let mut counts = Counts::new();
    for row in rows.as_array().context("rows")? {
        let name = row["name"].as_str().context("name")?;
        for what in ["misses", "evictions", "purged"] {
            counts.insert((what.to_owned(), name.to_owned()), row[what].as_u64().context("number")?);
        }
    }
    Ok(counts)
}

/// Returns the process id of a cell's server in the cell. Tracers attach only to this process, since other
/// tests run the same program.
fn server(cell: &Cell) -> Result<u32> {
    let pid = cell.shell("pgrep -o -x cellar")?.ok()?;
    pid.trim().parse().with_context(|| format!("not a process: {pid}"))
}

fn scripts() -> Result<Vec<PathBuf>> {
    let folder = own_file("../../../contrib/bpftrace");
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "bt") {
            scripts.push(path);
        }
    }
    scripts.sort();
    ensure!(!scripts.is_empty(), "{} has no scripts", folder.display());
    Ok(scripts)
}

/// Returns a script of calls that anyone may make.
fn work(cellar: &str) -> String {
    format!("for i in $(seq {CALLS}); do {cellar} server status >/dev/null; done")
}

/// Compiles a script, and then runs it during a call.
fn attach(cell: &Cell, cellar: &str, pid: u32, script: &Path) -> Result<()> {
    let run = own_file("../../../contrib/bpftrace/run");
    let name = script.display();
    let compile = format!("CELLAR_BPFTRACE=-d CELLAR_PROGRAM={cellar} {} {name} 2>&1", run.display());
    let compiled = cell.shell(&compile)?.ok()?;
    let start = format!("CELLAR_PID={pid} {} {name}", run.display());
    ensure!(compiled.contains("usdt:") && !compiled.contains("ERROR: No"), "{name}: {compiled}");
    let printed = cell.shell(&format!(
        "log=$(mktemp); {start} >$log 2>&1 & tracer=$!
         until grep -q Attaching $log; do kill -0 $tracer || {{ cat $log; rm $log; exit 1; }}; sleep 0.05; done
         {cellar} server status >/dev/null
         sleep 1; {END}; wait $tracer; status=$?; cat $log; rm $log; exit $status"
    ))?;
    let printed = printed.ok().with_context(|| format!("{name}"))?;
    ensure!(!printed.contains("ERROR: Error"), "{name}: {printed}");
    Ok(())
}

/// Runs `work` while a tracer runs, and returns the tracer's output. The tracer prints `ready` when it has
/// started.
fn traced(cell: &Cell, tracer: &str, work: &str) -> Result<String> {
    cell.shell(&format!(
        "log=$(mktemp); {tracer} >$log 2>&1 & tracer=$!
         until grep -q ready $log; do kill -0 $tracer || {{ cat $log; rm $log; exit 1; }}; sleep 0.05; done
         {work}
         {END}; wait $tracer; cat $log; rm $log"
    ))?
    .ok()
}
