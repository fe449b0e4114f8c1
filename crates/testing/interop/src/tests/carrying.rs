//! A large volume moves between two owners of a cluster, by `vos` and by `cellar`, and is released and copied, while a client
//! writes to it. The counters of the bucket show that none of its data passes through a node, and that none is copied meanwhile.
//! Once the source is gone, what was lent is returned, and all data is there at the next owner.

use crate::Test;
use crate::tests::cluster::PLAN;
use crate::tests::series::{Series, check_files};
use anyhow::{Context, Result, ensure};
use interop::cluster::{BUCKET, Cluster};
use interop::means::Means;
use interop::seaweed::{Requests, Seaweed};
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

/// Runs only if it is asked for.
pub(crate) fn hidden() -> Vec<Test> {
    vec![Test { name: "cluster-carries", needs: NEEDS, run }]
}

/// MiB of the file in the volume.
const MIB: usize = 200;

/// Most bytes of objects that the nodes write, and that they read, during a step: metadata, leases, and what the client writes.
const BYTES_MAX: f64 = (16 << 20) as f64;

/// The address that `vos` accepts as the place of a volume.
const FRONT: &str = PLAN.nodes[0].1;

/// The node through which the client writes; it owns no partition.
const CLIENTS: usize = 0;

fn run() -> Result<()> {
    let mut cluster = PLAN.start()?;
    let carried = carry(&mut cluster);
    carried.with_context(|| cluster.logs())?;
    cluster.end().with_context(|| cluster.logs())
}

fn carry(cluster: &mut Cluster) -> Result<()> {
    cluster.give("b", 1)?;
    cluster.give("c", 2)?;
    cluster.wait()?;
    let host = &cluster.host;
    let original = host.scratch()?.join("large");
    write_noise(&original)?;
    let to_the_volume = format!("cellar cp {} cell:large/f", original.display());
    cluster.create_volume_in("large", "b")?;
    run_all(cluster, &[to_the_volume])?;
    let client = Series::pulse(host, cluster.nodes[CLIENTS].address, "large")?;
    client.more(10)?;
    measure(cluster, &format!("vos move large {FRONT} b {FRONT} c -localauth"))?;
    client.more(10)?;
    measure(cluster, &format!("cellar volume move large --to {FRONT} --partition b"))?;
    client.more(10)?;
    let longest = client.longest_wait(0)?;
    let files = client.rows()?.len();
    drop(client);
    println!("interop: a client wrote {files} files meanwhile, and waited {longest:.1?} at most");
    compare(cluster, "large", &original)?;
    check_files(host, "large", files)?;
    run_all(cluster, &[format!("vos addsite {FRONT} c large -localauth")])?;
    measure(cluster, "vos release large -localauth")?;
    compare(cluster, "large.readonly", &original)?;
    measure(cluster, &format!("vos copy large {FRONT} b copied {FRONT} c -localauth"))?;
    compare(cluster, "copied", &original)?;
    // What is left depends on nothing that is removed.
    let returned = count_returned(cluster);
    run_all(
        cluster,
        &[
            format!("vos remove {FRONT} c large.readonly -localauth"),
            format!("vos remove {FRONT} b large -localauth"),
        ],
    )?;
    let begun = Instant::now();
    while count_returned(cluster) == returned {
        ensure!(begun.elapsed() < RETURNED_WITHIN, "nothing that was lent is returned");
        std::thread::sleep(Duration::from_secs(1));
    }
    println!("interop: lent objects were returned after {:.0?}", begun.elapsed());
    compare(cluster, "copied", &original)?;
    cluster.give("c", 1)?;
    cluster.wait()?;
    compare(cluster, "copied", &original)?;
    check_files(host, "copied", files)?;
    run_all(cluster, &[format!("cellar store check --on {}", cluster.nodes[1].address)])
}

/// How long it may take until lent objects of a volume that was removed are copied and returned.
const RETURNED_WITHIN: Duration = Duration::from_secs(180);

/// Returns how often lent objects were returned.
fn count_returned(cluster: &Cluster) -> usize {
    cluster.logs().matches("lent objects were returned").count()
}

fn run_all(cluster: &Cluster, commands: &[String]) -> Result<()> {
    let run = |command: &String| cluster.host.run(command)?.ok().map(drop).with_context(|| command.clone());
    commands.iter().try_for_each(run)
}

/// Runs a command, and checks that the bucket sent and received next to nothing meanwhile.
fn measure(cluster: &Cluster, command: &str) -> Result<()> {
    let seaweed = Seaweed::of(&cluster.host);
    let (before, begun) = (seaweed.requests(BUCKET)?, Instant::now());
    cluster.host.run(command)?.ok().with_context(|| command.to_owned())?;
    let (took, asked) = (begun.elapsed(), seaweed.requests(BUCKET)?.since(&before));
    println!("interop: {command} with {MIB} MiB took {:.1} s: {asked:?}", took.as_secs_f64());
    let Requests { received_bytes, sent_bytes, .. } = asked;
    ensure!(received_bytes < BYTES_MAX && sent_bytes < BYTES_MAX, "{command} moved data: {asked:?}");
    Ok(())
}

/// Writes a file that no compression shortens.
fn write_noise(path: &Path) -> Result<()> {
    let mut noise = std::fs::File::open("/dev/urandom")?.take((MIB as u64) << 20);
    std::io::copy(&mut noise, &mut std::fs::File::create(path)?)?;
    Ok(())
}

/// Checks that a volume contains the original file.
fn compare(cluster: &Cluster, volume: &str, original: &Path) -> Result<()> {
    let copy = cluster.host.scratch()?.join(format!("copy-of-{volume}"));
    run_all(cluster, &[format!("cellar cp cell:{volume}/f {}", copy.display())])?;
    let is_same = std::fs::read(&copy)? == std::fs::read(original)?;
    ensure!(is_same, "the contents of {volume} differ");
    std::fs::remove_file(copy)?;
    Ok(())
}
