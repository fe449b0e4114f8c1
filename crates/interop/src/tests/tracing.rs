//! The probes and their scripts with the real bpftrace: every script is compiled for the program and attached
//! to a server that serves, and what a probe counts is what the server counted.

use crate::Test;
use crate::tests::own_file;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use regex::Regex;
use serde_json::Value;
use std::path::PathBuf;

/// Calls that are made while a probe counts them.
const CALLS: u64 = 25;

/// Ends a tracer in the background of a shell. It ignores the signal until it has attached everything, which is after it has
/// said that it does: so it is told until it has ended.
const END: &str = "while kill -INT $tracer 2>/dev/null; do sleep 0.5; done";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "bpftrace", needs: &[Means::Netns, Means::Bpftrace], run: trace }]
}

fn trace() -> Result<()> {
    let cell = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    let program = cellar_program()?;
    let cellar = program.to_str().context("path")?;
    let shell = |script: &str| cell.shell(script)?.ok().with_context(|| script.to_owned());
    let scripts = scripts()?;
    for script in &scripts {
        attach(&cell, cellar, script)?;
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
    let printed = traced(&cell, &format!("bpftrace -e '{text}'"), &work(cellar))?;
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

fn scripts() -> Result<Vec<PathBuf>> {
    let folder = own_file("../../contrib/bpftrace");
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

/// Calls that anybody may make.
fn work(cellar: &str) -> String {
    format!("for i in $(seq {CALLS}); do {cellar} server status >/dev/null; done")
}

/// Compiles a script, and then runs it while there are calls.
fn attach(cell: &Cell, cellar: &str, script: &std::path::Path) -> Result<()> {
    let run = own_file("../../contrib/bpftrace/run");
    let name = script.display();
    let start = format!("CELLAR_PROGRAM={cellar} {} {name}", run.display());
    let compiled = cell.shell(&format!("CELLAR_BPFTRACE=-d {start} 2>&1"))?.ok()?;
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

/// What a tracer prints that says `ready` when it is, while `work` is done.
fn traced(cell: &Cell, tracer: &str, work: &str) -> Result<String> {
    cell.shell(&format!(
        "log=$(mktemp); {tracer} >$log 2>&1 & tracer=$!
         until grep -q ready $log; do kill -0 $tracer || {{ cat $log; rm $log; exit 1; }}; sleep 0.05; done
         {work}
         {END}; wait $tracer; cat $log; rm $log"
    ))?
    .ok()
}
