//! The bucket of a cluster is away while clients of all nodes write and read.

use super::{SPREAD, VOLUMES, create_volumes};
use crate::Test;
use crate::tests::series::Series;
use crate::tests::store::Writer;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::cluster::Cluster;
use interop::seaweed::Seaweed;
use std::time::{Duration, Instant, SystemTime};

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-bucket-killed", needs: super::NEEDS, run: || away(Way::Killed) }]
}

/// Runs only if it is asked for.
pub(super) fn hidden() -> Vec<Test> {
    vec![Test { name: "cluster-bucket-stopped", needs: super::NEEDS, run: || away(Way::Stopped) }]
}

/// What happens to the server of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It stands still: requests are neither refused nor answered.
    Stopped,
    /// It is killed, and started again: connections are refused.
    Killed,
}

/// How long it is away. Calls wait for 20 s at most.
const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(60);

/// No call fails while it is away for this long at most.
const HELD: Duration = Duration::from_secs(15);

/// Longest time from the return of the bucket until clients of all nodes go on.
const RETURN: Duration = Duration::from_secs(100);

/// Acknowledged steps of each writer before and after the bucket is away.
const STEPS: u64 = 15;

/// How long after the return of the bucket a change without an answer has taken effect, or never will.
const SETTLED: Duration = Duration::from_secs(3);

/// What a call may end with when the bucket was away for longer than it waits: UAETIMEDOUT.
const TIMED_OUT: [&str; 2] = ["49733484", "UAETIMEDOUT"];

/// For how long a reader waits for packets: nodes answer pings of calls that wait.
const PATIENCE_MS: u64 = 120_000;

/// A writer in the volume of one node, through the next node, and a reader of that volume through the third node.
struct Client<'a> {
    host: &'a Cell,
    node: &'static str,
    number: usize,
    writer: Writer,
    reader: Series,
    /// Acknowledged steps of the writers before this one.
    done: u64,
    /// Errors of writers that have ended.
    errors: Vec<String>,
}

impl<'a> Client<'a> {
    fn start(cluster: &'a Cluster, number: usize) -> Result<Client<'a>> {
        let at = |step: usize| cluster.nodes[(number + step) % cluster.nodes.len()].address;
        let (host, node, volume) = (&cluster.host, at(1), VOLUMES[number]);
        let writer = Writer::start_through(host, node, volume, u32::try_from(number)?, 0)?;
        let reader = Series::peek(host, at(2), volume, PATIENCE_MS)?;
        Ok(Client { host, node, number, writer, reader, done: 0, errors: Vec::new() })
    }

    /// Returns the number of acknowledged steps.
    fn done(&self) -> Result<u64> {
        Ok(self.writer.done()?.unwrap_or(self.done).max(self.done))
    }

    /// Starts the writer again if it has ended because the bucket was away. The next one compares all files first.
    fn keep(&mut self) -> Result<()> {
        if !self.writer.has_ended()? {
            return Ok(());
        }
        let printed = self.writer.printed()?;
        let error = printed.lines().rfind(|line| !line.starts_with("done ")).unwrap_or_default().to_owned();
        ensure!(TIMED_OUT.iter().any(|code| error.contains(code)), "the writer at {}: {printed}", self.node);
        self.done = self.done()?;
        self.errors.push(error);
        std::thread::sleep(SETTLED);
        let number = u32::try_from(self.number)?;
        self.writer = Writer::start_through(self.host, self.node, VOLUMES[self.number], number, self.done)?;
        Ok(())
    }

    /// Waits for further steps of the writer.
    fn more(&mut self, steps: u64) -> Result<()> {
        let before = self.done()?;
        wait_for(RETURN, || {
            self.keep()?;
            Ok(self.done()? >= before + steps)
        })
        .with_context(|| {
            format!("the writer at {}: {}", self.node, self.writer.printed().unwrap_or_default())
        })
    }

    /// Checks that the reader never saw an earlier version after a later one.
    fn check_reader(&self) -> Result<usize> {
        let versions: Vec<u64> = self.reader.rows()?.into_iter().map(|(_, version)| version).collect();
        ensure!(versions.is_sorted(), "a reader of {} went back: {versions:?}", VOLUMES[self.number]);
        Ok(versions.len())
    }
}

fn away(way: Way) -> Result<()> {
    let mut cluster = SPREAD.start()?;
    cluster.spread()?;
    create_volumes(&cluster)?;
    outages(&cluster, way).with_context(|| cluster.logs())?;
    cluster.end().with_context(|| cluster.logs())
}

fn outages(cluster: &Cluster, way: Way) -> Result<()> {
    let mut clients =
        (0..VOLUMES.len()).map(|number| Client::start(cluster, number)).collect::<Result<Vec<_>>>()?;
    clients.iter_mut().try_for_each(|client| client.more(STEPS))?;
    let processes = pids(cluster)?;
    let away = be_away(cluster, way, &mut clients, SHORT)?;
    let failed: Vec<&String> = clients.iter().flat_map(|client| &client.errors).collect();
    ensure!(
        failed.is_empty() || away > HELD,
        "calls failed although the bucket was away for {away:?} only: {failed:?}"
    );
    be_away(cluster, way, &mut clients, LONG)?;
    ensure!(pids(cluster)? == processes, "a node has started again");
    for client in clients {
        let (number, reads, errors) = (client.number, client.check_reader()?, client.errors);
        let steps = client.writer.kill()?;
        Writer::compare_in(&cluster.host, VOLUMES[number], u32::try_from(number)?, steps)?;
        println!("interop: {} has all {steps} steps, after {reads} reads and {errors:?}", VOLUMES[number]);
    }
    Ok(())
}

fn pids(cluster: &Cluster) -> Result<Vec<u32>> {
    cluster.nodes.iter().map(Cell::server_pid).collect()
}

/// Takes the bucket away for some time, and waits until the clients go on. Returns how long it was away: its start takes long on
/// a busy machine.
fn be_away(cluster: &Cluster, way: Way, clients: &mut [Client<'_>], span: Duration) -> Result<Duration> {
    let (seaweed, begun) = (Seaweed::of(&cluster.host), Instant::now());
    match way {
        Way::Stopped => _ = seaweed.rest(span)?,
        Way::Killed => {
            seaweed.kill()?;
            std::thread::sleep(span);
            seaweed.begin()?;
            seaweed.wait()?;
        }
    }
    let (away, back, time) = (begun.elapsed(), Instant::now(), SystemTime::now());
    let mut waits = Vec::new();
    for client in clients.iter_mut() {
        client.more(1)?;
        let read = client.reader.after(time)?;
        ensure!(read <= RETURN, "a reader waited for {read:?}");
        waits.push((back.elapsed(), read));
    }
    clients.iter_mut().try_for_each(|client| client.more(STEPS))?;
    ensure!(back.elapsed() <= RETURN, "clients needed {:?} to go on", back.elapsed());
    let status = cluster.status()?;
    let rows = status["partitions"].as_array().context("no partitions")?;
    ensure!(rows.iter().all(|row| row["state"] == "owned"), "{status}");
    println!("interop: {way:?} for {away:.1?}; changes and reads went on after {waits:.1?}");
    Ok(away)
}
