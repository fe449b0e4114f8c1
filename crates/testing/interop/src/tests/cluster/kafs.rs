//! Kernel clients, Linux's own and OpenAFS's, in a cluster whose nodes die. The guest knows the three addresses of one file server: those of
//! the nodes, or service addresses, which move.

use super::PLAN;
use crate::Test;
use crate::tests::addresses::SERVED;
use crate::tests::kafs::{NEWEST, OWN, acknowledged, check_records};
use crate::tests::libafs::ROOT;
use crate::tests::{script, wait_for};
use anyhow::{Context, Result, ensure};
use interop::cell::Cell;
use interop::cluster::{Cluster, Plan};
use interop::means::Means;
use interop::vm::{GUEST, Guest, Running};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed, Means::Emulation];
const NEEDS_OF_LIBAFS: &[Means] = &[Means::Netns, Means::Seaweed, Means::Emulation, Means::Libafs];
const NEEDS_OF_NEWEST: &[Means] = &[Means::Netns, Means::Seaweed, Means::Emulation, Means::Backports];

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-kafs", needs: NEEDS, run: || owners_die(KernelClient::Linux(OWN), PLAN) }]
}

/// They run only if they are asked for.
pub(super) fn hidden() -> Vec<Test> {
    let newest = |name, run| Test { name, needs: NEEDS_OF_NEWEST, run };
    vec![
        newest("cluster-kafs-newest", || owners_die(KernelClient::Linux(NEWEST), PLAN)),
        newest("cluster-kafs-addresses", || owners_die(KernelClient::Linux(NEWEST), SERVED)),
        Test {
            name: "cluster-libafs",
            needs: NEEDS_OF_LIBAFS,
            run: || owners_die(KernelClient::OpenAfs, PLAN),
        },
    ]
}

/// The AFS client of a guest's kernel.
#[derive(Clone, Copy)]
enum KernelClient {
    /// kafs, of the kernel with these options.
    Linux(&'static [&'static str]),
    /// OpenAFS's module, which mounts the whole cell.
    OpenAfs,
}

impl KernelClient {
    /// Returns the volume that the guest writes to.
    fn volume(self) -> &'static str {
        match self {
            KernelClient::Linux(_) => "data",
            KernelClient::OpenAfs => "root.cell",
        }
    }

    /// Boots a guest of the cluster's host, which writes until there is a file `stop` in `out`.
    fn start(self, host: &Cell, out: &Path) -> Result<Running> {
        let share = ["--share", out.to_str().context("path")?];
        let (guest, prelude) = match self {
            KernelClient::Linux(kernel) => {
                let guest = Guest::new(host, "cluster", SECONDS).with(kernel);
                let guest = guest.with(&["--hostroot", "--net", "tap", "--guest-ip", GUEST]);
                (guest.mount(self.volume(), "/mnt"), String::new())
            }
            KernelClient::OpenAfs => (Guest::libafs(host, "cluster", SECONDS), format!("D={ROOT}")),
        };
        guest.with(&share).start(&script(host, "cluster", &prelude, &["writer.sh"])?)
    }
}

/// Time limit for the guest to boot, and to do something.
const LIMIT: Duration = Duration::from_secs(400);

/// Longest pause of the guest after the death of the owner, which is also the node that it calls, or not. It waits for the
/// takeover, and repeats a call after a second or more.
const PAUSE: Duration = Duration::from_secs(30);

/// Records that the guest writes between two deaths.
const RECORDS: usize = 8;

/// Time limit for the guest.
const SECONDS: u32 = 900;

fn owners_die(kernel: KernelClient, plan: Plan) -> Result<()> {
    let mut cluster = plan.start()?;
    cluster.create_volume(kernel.volume())?;
    // The nodes answer the guest, and call it, through the host of the databases.
    for node in &cluster.nodes {
        node.shell(&format!("ip route add {GUEST} via {}", cluster.host.address))?.ok()?;
    }
    let out = cluster.host.path().join("out");
    std::fs::create_dir(&out)?;
    let guest = kernel.start(&cluster.host, &out)?;
    let mut client = Client { guest };
    let outcome = kill_owners(&mut cluster, &mut client);
    std::fs::write(out.join("stop"), "")?;
    let output = client.guest.finish()?;
    outcome.with_context(|| format!("{}\nthe guest:\n{}", cluster.logs(), output.text))?;
    ensure!(output.status == 0, "the guest did not finish:\n{}", output.text);
    let written = acknowledged(&output.text);
    check_records(&cluster.host, kernel.volume(), &written).with_context(|| cluster.logs())?;
    let refused: Vec<&str> = output.text.lines().filter(|line| line.starts_with("refused ")).collect();
    println!("interop: {} records are there; the kernel reported {refused:?}", written.len());
    cluster.end().with_context(|| cluster.logs())
}

/// A guest that writes.
struct Client {
    guest: Running,
}

impl Client {
    fn records(&self) -> usize {
        acknowledged(&self.guest.printed()).len()
    }

    /// Waits for further records; returns how long that took.
    fn more(&mut self, records: usize) -> Result<Duration> {
        let (begun, before) = (Instant::now(), self.records());
        wait_for(LIMIT, || {
            ensure!(self.guest.is_running()?, "the guest has ended");
            Ok(self.records() >= before + records)
        })
        .with_context(|| format!("the guest gets no further than {} records", self.records()))?;
        Ok(begun.elapsed())
    }
}

/// The owner dies while the guest calls another node, and while the guest calls the owner itself.
fn kill_owners(cluster: &mut Cluster, client: &mut Client) -> Result<()> {
    client.more(RECORDS)?;
    let front = front(cluster, client)?;
    let owner = (front + 1) % cluster.nodes.len();
    cluster.give("b", owner)?;
    kill(cluster, client, owner, "another node than the one that the guest calls")?;
    let front = self::front(cluster, client)?;
    cluster.give("b", front)?;
    kill(cluster, client, front, "the node that the guest calls")
}

/// Kills the owner and starts it again.
fn kill(cluster: &mut Cluster, client: &mut Client, owner: usize, which: &str) -> Result<()> {
    client.more(RECORDS)?;
    let name = cluster.nodes[owner].name;
    cluster.nodes[owner].end_cellar("KILL")?;
    // The first one may have been acknowledged before.
    let pause = client.more(2)?;
    println!(
        "interop: the owner {name}, {which}, was killed; two records later {:.1} s had passed",
        pause.as_secs_f64()
    );
    ensure!(pause <= PAUSE, "the guest waited for {pause:?}");
    client.more(RECORDS)?;
    ensure!(cluster.present_owner("b")? != owner, "the killed node owns the partition");
    cluster.nodes[owner].start_cellar_alone()?;
    cluster.wait()?;
    client.more(RECORDS).map(drop)
}

/// Returns the node that the guest calls: the one that passes its calls on, or the owner.
fn front(cluster: &Cluster, client: &mut Client) -> Result<usize> {
    let before = forwarded(cluster)?;
    client.more(RECORDS)?;
    let after = forwarded(cluster)?;
    let passes_on = (0..after.len()).find(|node| after[*node] >= before[*node] + RECORDS as u64);
    passes_on.map_or_else(|| cluster.present_owner("b"), Ok)
}

fn forwarded(cluster: &Cluster) -> Result<Vec<u64>> {
    let of = |node: &Cell| -> Result<u64> {
        let shown = cluster.run(&format!("cellar stat cluster --on {} --json", node.address))?;
        let shown: Value = serde_json::from_str(&shown).context(shown)?;
        shown["cluster"]["forwarded"].as_u64().with_context(|| shown.to_string())
    };
    cluster.nodes.iter().map(of).collect()
}
