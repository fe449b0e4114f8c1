//! Owners of the partition are killed at random moments, while clients of all nodes write, and some have promises and locks.

use super::history::History;
use super::{CHANGES, LIMIT, SINGLE, TAKEOVER, compare, create_volumes_together, pulses, walk};
use crate::Test;
use crate::tests::series::{SETTLED, Series};
use crate::tests::soak;
use crate::tests::store::Writer;
use crate::tests::wait_for;
use afs_idl::ClientConnection;
use afs_idl::common::Fid;
use afs_idl::fs::{self, FetchStatus};
use anyhow::{Context, Result, anyhow, ensure};
use base::AbortCode;
use cell_client::Network;
use cell_client::files::Attributes;
use interop::cluster::Cluster;
use interop::hostile::{Client, uuid};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-killed", needs: super::NEEDS, run: killed }]
}

/// Minimum number of times that the owner is killed.
const KILLS: u32 = 2;

/// Longest random pause before a kill.
const MOMENT: Duration = Duration::from_secs(2);

/// The volume of the test itself, and the file in it with promises and a lock.
const VOLUME: &str = "held";
const FILE: &[u8] = b"file";

/// The end of the bridge where the test itself is.
pub(super) const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);

const FILE_PORT: u16 = 7000;
const FILE_SERVICE: u16 = 1;
const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: 1_000_000_000 };

/// ViceLockType.
const LOCK_WRITE: i32 = 1;

/// The code for a client without capabilities, EAGAIN, and that for others.
const LOCKED: [AbortCode; 2] = [AbortCode(11), AbortCode::UAEAGAIN];

/// The number of locks of a file with a write lock: -1.
const WRITE_LOCKED: u32 = u32::MAX;

/// The cluster during the test.
struct Trial {
    cluster: Cluster,
    pulses: Vec<Series>,
    histories: Vec<History>,
    rng: SmallRng,
    /// Acknowledged steps of the writers.
    done: u64,
    /// The file with promises and a lock.
    file: Fid,
    /// Number of kills of owners.
    kills: u32,
}

/// Owners are killed while clients change files through every node, then a node that owns nothing; all come back.
fn killed() -> Result<()> {
    let seed: u64 = rand::random();
    println!("interop: cluster-killed has seed {seed}");
    let cluster = SINGLE.start()?;
    create_volumes_together(&cluster)?;
    cluster.create_volume(VOLUME)?;
    let cell = walk::client(&cluster, 0)?;
    let made = cell.create(&cell.root_of(VOLUME)?, FILE, ATTRIBUTES);
    let file = made.map_err(|code| anyhow!("CreateFile: {code:?}"))?.fid.into();
    let pulses = pulses(&cluster)?;
    let histories = (0..cluster.nodes.len()).map(|node| History::of(&format!("data{node}"))).collect();
    let rng = SmallRng::seed_from_u64(seed);
    let mut trial = Trial { cluster, pulses, histories, rng, done: 0, file, kills: 0 };
    trial.run().with_context(|| format!("seed {seed}\n{}", trial.cluster.logs()))?;
    trial.cluster.end().with_context(|| trial.cluster.logs())
}

impl Trial {
    fn run(&mut self) -> Result<()> {
        let end = soak().map(|span| Instant::now() + span);
        while self.kills < KILLS || end.is_some_and(|end| Instant::now() < end) {
            self.kill_owner().with_context(|| format!("kill {} of an owner", self.kills))?;
            self.kills += 1;
        }
        self.kill_front()?;
        Writer::compare_in(&self.cluster.host, "steps", 0, self.done)?;
        compare(&self.cluster, &self.pulses)
    }

    fn look(&mut self, node: usize) -> Result<()> {
        self.histories.iter_mut().try_for_each(|history| history.look(&self.cluster, node))
    }

    fn start_writer(&self, node: usize) -> Result<Writer> {
        let address = self.cluster.nodes[node].address;
        Writer::start_through(&self.cluster.host, address, "steps", 0, self.done)
    }

    /// Kills the owner of the partition. The clients of the others notice nothing but a pause.
    fn kill_owner(&mut self) -> Result<()> {
        let nodes = self.cluster.nodes.len();
        let owner = self.cluster.present_owner("b")?;
        let survivors = [(owner + 1) % nodes, (owner + 2) % nodes];
        let writer = self.start_writer(survivors[0])?;
        let start = self.done;
        more(&writer, start + CHANGES as u64)?;
        self.pulses.iter().try_for_each(|pulse| pulse.more(CHANGES))?;
        self.look(owner)?;
        let holders = Holders::new(&self.cluster, self.file, owner, survivors)?;
        let failures = self.failures(survivors)?;
        std::thread::sleep(self.rng.random_range(Duration::ZERO..MOMENT));

        self.cluster.nodes[owner].end_cellar("KILL")?;
        let since = SystemTime::now();
        holders.change(&self.cluster, self.kills)?;
        holders.use_lock(&self.cluster)?;
        self.check_pauses(survivors, since)?;
        ensure!(self.failures(survivors)? == failures, "calls through the other nodes have failed");
        self.look(survivors[1])?;
        more(&writer, writer.done()?.unwrap_or(start) + CHANGES as u64)?;
        self.done = writer.kill()?;

        self.cluster.nodes[owner].start_cellar_alone()?;
        self.pulses[owner].more(CHANGES).context("the killed node does not pass calls on")?;
        ensure!(self.cluster.present_owner("b")? != owner, "the killed node owns the partition");
        self.look(owner)
    }

    /// Kills a node that does not own the partition.
    fn kill_front(&mut self) -> Result<()> {
        let (nodes, owner) = (self.cluster.nodes.len(), self.cluster.present_owner("b")?);
        let front = (owner + 1) % nodes;
        let writer = self.start_writer(owner)?;
        more(&writer, self.done + CHANGES as u64)?;
        self.cluster.nodes[front].end_cellar("KILL")?;
        let since = SystemTime::now();
        let others = [owner, (owner + 2) % nodes];
        others.iter().try_for_each(|node| self.pulses[*node].more(CHANGES))?;
        self.check_pauses(others, since)?;
        self.cluster.nodes[front].start_cellar_alone()?;
        self.pulses[front].more(CHANGES).context("the killed front does not pass calls on")?;
        self.done = writer.kill()?;
        self.look(front)
    }

    /// Checks how long clients of these nodes have waited since the kill.
    fn check_pauses(&self, nodes: [usize; 2], since: SystemTime) -> Result<()> {
        for (node, pulse) in nodes.map(|index| (&self.cluster.nodes[index], &self.pulses[index])) {
            let (taken, longest) = (pulse.after(since + SETTLED)?, pulse.longest_gap(since)?);
            println!(
                "interop: {} acknowledged a change {:.1} s after the kill; the longest pause was {:.1} s",
                node.name,
                taken.as_secs_f64(),
                longest.as_secs_f64()
            );
            ensure!(longest <= TAKEOVER, "clients of {} waited for {longest:?}", node.name);
        }
        Ok(())
    }

    /// Returns the calls of the clients of these nodes that have failed.
    fn failures(&self, nodes: [usize; 2]) -> Result<Vec<String>> {
        let all = nodes.map(|node| self.pulses[node].failures());
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }
}

/// Waits until a writer has made this many steps. It must not end.
fn more(writer: &Writer, steps: u64) -> Result<()> {
    wait_for(LIMIT, || Ok(writer.done()?.unwrap_or(0) >= steps)).with_context(|| {
        format!("the writer has not made {steps} steps: {}", writer.printed().unwrap_or_default())
    })
}

/// Two clients with a promise on a file. The first one calls the owner, and has locked the file.
struct Holders {
    file: Fid,
    clients: [Client; 2],
    survivors: [usize; 2],
    /// How often each was reset or had a promise broken before the owner died.
    messages: [usize; 2],
}

impl Holders {
    fn new(cluster: &Cluster, file: Fid, owner: usize, survivors: [usize; 2]) -> Result<Holders> {
        let clients = [Client::anonymous(HERE, uuid())?, Client::anonymous(HERE, uuid())?];
        let locking = files(cluster, &clients[0], owner);
        let lock = fs::SetLockRequest { fid: file, lock_type: LOCK_WRITE };
        fs::set_lock(&*locking, &lock).map_err(|code| anyhow!("SetLock at the owner: {code:?}"))?;
        // Locks break no promises, but these come last.
        for (client, node) in clients.iter().zip([owner, survivors[0]]) {
            status(cluster, client, node, file)?;
        }
        let messages = [0, 1].map(|at| messages(&clients[at]));
        Ok(Holders { file, clients, survivors, messages })
    }

    /// Changes the file through each of the other nodes. When the first change is acknowledged, both clients must have lost
    /// their promises.
    fn change(&self, cluster: &Cluster, kill: u32) -> Result<()> {
        let changer = Client::anonymous(HERE, uuid())?;
        let mut last = None;
        for (number, node) in (0..).zip(self.survivors) {
            let mode = 0o600 + kill % 8 * 8 + number;
            change(cluster, &changer, node, (self.file, mode))?;
            let after = [0, 1].map(|at| messages(&self.clients[at]));
            ensure!(
                after[0] > self.messages[0] && after[1] > self.messages[1],
                "a change was acknowledged, and the clients with promises had {after:?} messages after {:?}",
                self.messages
            );
            last = Some(mode);
        }
        let seen = status(cluster, &self.clients[0], self.survivors[0], self.file)?;
        ensure!(Some(seen.unix_mode_bits & 0o777) == last, "the file has {seen:?}");
        Ok(())
    }

    /// The lock has survived: others cannot have it, and its holder can extend and release it.
    fn use_lock(&self, cluster: &Cluster) -> Result<()> {
        let [holder, other] = &self.clients;
        let (held, [first, second]) = (self.file, self.survivors);
        let name = |node: usize| cluster.nodes[node].name;
        let lock = |node| {
            fs::set_lock(
                &*files(cluster, other, node),
                &fs::SetLockRequest { fid: held, lock_type: LOCK_WRITE },
            )
        };
        for node in [first, second] {
            let refused = lock(node).map(drop);
            let is_held = refused.is_err_and(|code| LOCKED.contains(&code));
            ensure!(is_held, "a second lock, through {}: {refused:?}", name(node));
            let seen = status(cluster, other, node, held)?;
            ensure!(seen.lock_count == WRITE_LOCKED, "locked, {} shows {seen:?}", name(node));
        }
        let own = files(cluster, holder, second);
        fs::extend_lock(&*own, &fs::ExtendLockRequest { fid: held })
            .map_err(|code| anyhow!("ExtendLock: {code:?}"))?;
        let release = fs::ReleaseLockRequest { fid: held };
        fs::release_lock(&*own, &release).map_err(|code| anyhow!("ReleaseLock: {code:?}"))?;
        lock(first).map_err(|code| anyhow!("SetLock of the released file: {code:?}"))?;
        fs::release_lock(&*files(cluster, other, first), &release)
            .map_err(|code| anyhow!("ReleaseLock: {code:?}"))?;
        Ok(())
    }
}

/// Gives a file another mode, through a node.
pub(super) fn change(
    cluster: &Cluster,
    client: &Client,
    node: usize,
    (file, mode): (Fid, u32),
) -> Result<()> {
    let status =
        fs::StoreStatus { mask: fs::store_mask::MODE, unix_mode_bits: mode, ..fs::StoreStatus::default() };
    let changed =
        fs::store_status(&*files(cluster, client, node), &fs::StoreStatusRequest { fid: file, status });
    changed.map(drop).map_err(|code| anyhow!("StoreStatus through {}: {code:?}", cluster.nodes[node].name))
}

/// Returns a client's connection to the file service of a node.
fn files(cluster: &Cluster, client: &Client, node: usize) -> Arc<dyn ClientConnection> {
    let address: Ipv4Addr = cluster.nodes[node].address.parse().expect("it is a constant");
    client.connect((address, FILE_PORT).into(), FILE_SERVICE)
}

pub(super) fn status(cluster: &Cluster, client: &Client, node: usize, fid: Fid) -> Result<FetchStatus> {
    let reply = fs::fetch_status(&*files(cluster, client, node), &fs::FetchStatusRequest { fid });
    let reply =
        reply.map_err(|code| anyhow!("FetchStatus through {}: {code:?}", cluster.nodes[node].name))?;
    Ok(reply.status)
}

/// Returns how often a client was made to forget promises.
fn messages(client: &Client) -> usize {
    client.resets() + client.broken().len()
}
