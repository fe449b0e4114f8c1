//! How long clients of the survivors wait when the owner of their volumes ends.

use super::ClusterOptions;
use super::pulse::Pulse;
use crate::report::{spread, table};
use crate::statistics::{Spread, short};
use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use interop::cluster::Cluster;
use std::time::{Duration, Instant, SystemTime};

/// How the owner ends.
const SIGNALS: [(&str, &str); 2] = [("KILL", "killed"), ("TERM", "stopped in order")];

/// Time limit for clients to go on.
const LIMIT: Duration = Duration::from_secs(120);

/// An acknowledgement within this time after the end may be that of a call executed before.
const LATE: Duration = Duration::from_millis(200);

/// Acknowledged files of each client before the next end.
const BEATS: usize = 25;

/// Ends of the owner with one signal.
#[derive(Default)]
struct Row {
    /// Seconds from the end to the first change through the slower of the survivors.
    first: Vec<f64>,
    /// Seconds from the start of the ended node to the first change through it.
    back: Vec<f64>,
}

/// Ends the owner again and again, and returns the table. Fails if an acknowledged file is gone.
pub(super) fn measure(nodes: &mut Cluster, options: &ClusterOptions) -> Result<String> {
    let volumes: Vec<String> = (0..nodes.nodes.len()).map(|index| format!("pulse{index}")).collect();
    volumes.iter().try_for_each(|volume| nodes.create_volume(volume))?;
    let start =
        |(index, volume): (usize, &String)| Pulse::start(&nodes.host, nodes.nodes[index].address, volume);
    let pulses: Vec<Pulse> = volumes.iter().enumerate().map(start).collect::<Result<_>>()?;
    let mut rows = [const { Row { first: Vec::new(), back: Vec::new() } }; SIGNALS.len()];
    for turn in 0..options.ends {
        for ((signal, how), row) in SIGNALS.iter().zip(&mut rows) {
            eprintln!("bench: owner {how}, {} of {}", turn + 1, options.ends);
            end_owner(nodes, &pulses, signal, row).with_context(|| nodes.logs())?;
        }
    }
    let acknowledged = compare(nodes, &volumes, pulses)?;
    Ok(format!("{}\n\nAll {acknowledged} acknowledged files were there at the end.", rendered(&rows)))
}

fn rendered(rows: &[Row]) -> Table {
    let mut rendered = table(
        &[
            "the owner is",
            "times",
            "first change through each survivor, s",
            "90 %",
            "over 12 s",
            "first change through the node after its start, s",
        ],
        1,
    );
    for ((_, how), row) in SIGNALS.iter().zip(rows) {
        rendered.add_row([
            (*how).to_owned(),
            row.first.len().to_string(),
            Spread::of(row.first.iter().copied()).map_or_else(|| "-".into(), spread),
            high(&row.first).map_or_else(|| "-".into(), short),
            row.first.iter().filter(|seconds| **seconds > 12.0).count().to_string(),
            Spread::of(row.back.iter().copied()).map_or_else(|| "-".into(), spread),
        ]);
    }
    rendered
}

/// Returns the figure that nine tenths do not exceed.
fn high(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 9).div_ceil(10).saturating_sub(1)).copied()
}

fn end_owner(nodes: &mut Cluster, pulses: &[Pulse], signal: &str, row: &mut Row) -> Result<()> {
    for pulse in pulses {
        more(pulse, BEATS)?;
    }
    let mut owner = None;
    wait(|| {
        owner = nodes.owner("b")?;
        Ok(owner.is_some())
    })?;
    let owner = owner.context("no owner")?;
    let ended = SystemTime::now();
    nodes.nodes[owner].end_cellar(signal)?;
    let mut slowest = Duration::ZERO;
    for (_, pulse) in pulses.iter().enumerate().filter(|(index, _)| *index != owner) {
        slowest = slowest.max(after(pulse, ended + LATE)?.duration_since(ended)?);
    }
    row.first.push(slowest.as_secs_f64());
    let started = SystemTime::now();
    nodes.nodes[owner].start_cellar_alone()?;
    row.back.push(after(&pulses[owner], started)?.duration_since(started)?.as_secs_f64());
    Ok(())
}

/// Waits for further files of a client.
fn more(pulse: &Pulse, files: usize) -> Result<()> {
    let before = pulse.beats()?.len();
    wait(|| Ok(pulse.beats()?.len() >= before + files))
}

/// Returns the time of the first acknowledgement after `since`.
fn after(pulse: &Pulse, since: SystemTime) -> Result<SystemTime> {
    let mut first = None;
    wait(|| {
        first = pulse.beats()?.into_iter().find(|beat| beat.at > since);
        Ok(first.is_some())
    })?;
    Ok(first.context("no acknowledgement")?.at)
}

fn wait(mut is_there: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_there()? {
        ensure!(begun.elapsed() < LIMIT, "a client did not go on within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends the clients and checks that their files are there; returns the number of files.
fn compare(nodes: &Cluster, volumes: &[String], pulses: Vec<Pulse>) -> Result<usize> {
    let mut acknowledged = 0;
    for (volume, pulse) in volumes.iter().zip(pulses) {
        let beats = pulse.beats()?;
        drop(pulse);
        let copy = nodes.host.scratch()?.join(volume);
        nodes.host.run(&format!("cellar cp cell:{volume}/ {}", copy.display()))?.ok()?;
        let lost: Vec<&str> =
            beats.iter().map(|beat| &*beat.name).filter(|name| !copy.join(name).exists()).collect();
        ensure!(lost.is_empty(), "acknowledged files are gone from {volume}: {lost:?}");
        acknowledged += beats.len();
    }
    Ok(acknowledged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_do_not_exceed_the_high_figure() {
        assert_eq!(high(&[]), None);
        assert_eq!(high(&[3.0, 1.0]), Some(3.0));
        let figures: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(high(&figures), Some(18.0));
    }
}
