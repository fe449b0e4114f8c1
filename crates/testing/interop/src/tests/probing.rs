//! `cellar probe` with an OpenAFS and a Cellar file server, one of which is killed and restarted.

use crate::Test;
use crate::tests::joining::Pair;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Server;
use interop::means::Means;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "probe", needs: &[Means::Netns], run: probe }]
}

/// Longer than any client waits for a server that is down.
const PATIENCE: Duration = Duration::from_secs(300);

/// The volumes on OpenAFS's and on Cellar's server.
const VOLUMES: [&str; 2] = ["theirs", "ours"];

fn probe() -> Result<()> {
    let mut pair = Pair::start()?;
    pair.openafs.open_volume(Server::OpenAfs, VOLUMES[0])?;
    let create = format!("cellar volume create {} --on CELLAR --quota 0", VOLUMES[1]);
    pair.all(&[&create])?;
    let history = pair.openafs.scratch()?.join("history");
    let path = history.to_str().context("path")?.to_owned();
    let mut prober = pair.openafs.start_beside(
        &[&["probe", "run"][..], &VOLUMES, &["--history", &path, "--interval", "1"]].concat(),
    )?;
    let good = |volume: &'static str, from_ms: u64| {
        move |line: &Value| {
            line["volume"] == volume && line["error"].is_null() && line["time_ms"].as_u64() > Some(from_ms)
        }
    };
    for volume in VOLUMES {
        wait_until(&history, good(volume, 0)).with_context(|| format!("{volume}, at first"))?;
    }
    let killed_ms = now_ms();
    pair.cellar.end_cellar("KILL")?;
    let is_failure = |line: &Value| line["volume"] == VOLUMES[1] && !line["error"].is_null();
    wait_until(&history, is_failure).context("no failure is seen")?;
    pair.cellar.start_cellar_alone()?;
    let started_ms = now_ms();
    wait_until(&history, good(VOLUMES[1], started_ms)).context("it does not come back")?;
    let printed = prober.end()?;
    ensure!(printed.contains(&format!("{} on {}", VOLUMES[1], pair.cellar.address)), "{printed}");

    let report = pair.openafs.run(&format!("cellar probe report --history {path} --json"))?.ok()?;
    let report: Value = serde_json::from_str(&report)?;
    let incidents = report["incidents"].as_array().context("incidents")?;
    ensure!(incidents.len() == 1, "{report}");
    let incident = &incidents[0];
    let (start, end) = (incident["start_ms"].as_u64(), incident["end_ms"].as_u64());
    ensure!(incident["volume"] == VOLUMES[1] && incident["server"] == pair.cellar.address, "{incident}");
    // A probe that was running when the server was killed started earlier.
    ensure!(start.is_some_and(|start| start + 60_000 > killed_ms && start < started_ms), "{incident}");
    ensure!(end.is_some_and(|end| end > killed_ms && Some(end) > start), "{incident}");
    let text = pair.openafs.run(&format!("cellar probe report --history {path}"))?.ok()?;
    ensure!(text.contains("INCIDENTS") && text.contains(VOLUMES[1]), "{text}");
    println!("interop: probe: one incident, from its start to its end: {incident}");
    Ok(())
}

/// Waits until a line of the history matches.
fn wait_until(history: &Path, is_so: impl Fn(&Value) -> bool) -> Result<()> {
    wait_for(PATIENCE, || {
        let text = std::fs::read_to_string(history).unwrap_or_default();
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).any(|line: Value| is_so(&line)))
    })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_millis() as u64)
}
