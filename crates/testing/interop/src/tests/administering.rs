//! OpenAFS's `vos` at a node of a cluster that owns no partition.

use crate::Test;
use crate::tests::cluster::PLAN;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cluster::Cluster;
use interop::means::Means;
use std::time::Duration;

const NEEDS: &[Means] = &[Means::Netns, Means::Seaweed];

/// Runs only if it is asked for: it takes minutes.
pub(crate) fn hidden() -> Vec<Test> {
    vec![Test { name: "cluster-vos", needs: NEEDS, run }]
}

/// Time limit for the administration to go on after the owner was killed.
const LIMIT: Duration = Duration::from_secs(60);

/// The last two nodes own a partition each.
const OWNERS: [&str; 2] = [PLAN.nodes[1].1, PLAN.nodes[2].1];

/// The address that the location database shows, the only one that `vos` accepts as the place of a volume: the first in order.
const FRONT: &str = PLAN.nodes[0].1;

/// MiB of the file that is dumped and moved.
const MIB: usize = 24;

fn run() -> Result<()> {
    let mut cluster = PLAN.start()?;
    let administered = administer(&mut cluster);
    administered.with_context(|| cluster.logs())?;
    cluster.end().with_context(|| cluster.logs())
}

fn administer(cluster: &mut Cluster) -> Result<()> {
    cluster.give("b", 1)?;
    cluster.give("c", 2)?;
    cluster.wait()?;
    let original = cluster.host.scratch()?.join("original");
    std::fs::write(&original, contents())?;
    create_and_show(cluster)?;
    dump_and_restore(cluster)?;
    move_about(cluster)?;
    release(cluster)?;
    back_up_and_change(cluster)?;
    strangers(cluster)?;
    kill_the_owner(cluster)?;
    remove(cluster)
}

/// Returns contents that no compression shortens.
fn contents() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..MIB << 17).flat_map(|_| next()).collect()
}

/// Runs `vos` as the cell.
fn vos(cluster: &Cluster, command: &str) -> Result<String> {
    let command = format!("vos {command} -localauth");
    cluster.host.run(&command)?.ok().with_context(|| command.clone())
}

fn expect(cluster: &Cluster, command: &str, words: &[&str]) -> Result<()> {
    let printed = vos(cluster, command)?;
    for word in words {
        ensure!(printed.contains(word), "vos {command} lacks `{word}`:\n{printed}");
    }
    Ok(())
}

/// Checks that a volume contains the original file.
fn compare(cluster: &Cluster, volume: &str) -> Result<()> {
    let (folder, host) = (cluster.host.scratch()?, &cluster.host);
    let copy = folder.join(format!("copy-of-{volume}"));
    host.run(&format!("cellar cp cell:{volume}/f {}", copy.display()))?
        .ok()
        .with_context(|| volume.to_owned())?;
    let is_same = std::fs::read(&copy)? == contents();
    ensure!(is_same, "the contents of {volume} differ");
    std::fs::remove_file(copy)?;
    Ok(())
}

fn create_and_show(cluster: &Cluster) -> Result<()> {
    vos(cluster, &format!("create {FRONT} b data -maxquota 0"))?;
    vos(cluster, &format!("create {FRONT} c other -maxquota 0"))?;
    let original = cluster.host.scratch()?.join("original");
    cluster.host.run(&format!("cellar cp {} cell:data/f", original.display()))?.ok()?;
    compare(cluster, "data")?;
    expect(cluster, &format!("listpart {FRONT}"), &["/vicepb", "/vicepc", "Total: 2"])?;
    expect(cluster, &format!("partinfo {FRONT}"), &["/vicepb", "/vicepc"])?;
    expect(cluster, &format!("listvol {FRONT}"), &["data", "other", "On-line"])?;
    expect(cluster, &format!("listvol {FRONT} c"), &["other", "On-line"])?;
    for server in [FRONT, OWNERS[0], OWNERS[1]] {
        expect(cluster, &format!("status {server}"), &["No active transactions"])?;
    }
    expect(cluster, "examine data", &["/vicepb", "On-line", "number of sites -> 1"])?;
    expect(cluster, "size data -dump", &["data"])
}

fn dump_and_restore(cluster: &Cluster) -> Result<()> {
    let dump = cluster.host.scratch()?.join("dump");
    vos(cluster, &format!("dump data -file {}", dump.display()))?;
    ensure!(dump.metadata()?.len() > (MIB as u64) << 20, "the dump is short");
    vos(cluster, &format!("restore {FRONT} c restored -file {}", dump.display()))?;
    compare(cluster, "restored")?;
    std::fs::remove_file(dump)?;
    expect(cluster, "examine restored", &["/vicepc", "On-line"])
}

/// Between partitions of two owners, and named by one node or by both.
fn move_about(cluster: &Cluster) -> Result<()> {
    vos(cluster, &format!("move data {FRONT} b {FRONT} c"))?;
    expect(cluster, "examine data", &["/vicepc", "On-line"])?;
    compare(cluster, "data")?;
    vos(cluster, &format!("move data {FRONT} c {} b", OWNERS[1]))?;
    expect(cluster, "examine data", &["/vicepb", "On-line"])?;
    compare(cluster, "data")?;
    let own = format!("cellar volume move data --to {FRONT} --partition c");
    cluster.host.run(&own)?.ok().context(own)?;
    compare(cluster, "data")?;
    vos(cluster, &format!("move data {FRONT} c {FRONT} b"))?;
    vos(cluster, &format!("copy data {FRONT} b copied {FRONT} c"))?;
    compare(cluster, "copied")?;
    vos(cluster, &format!("shadow data {FRONT} b {FRONT} c -toname hidden -toid 536999999"))?;
    expect(cluster, &format!("listvol {FRONT} c"), &["hidden"])?;
    vos(cluster, &format!("zap {FRONT} c 536999999"))?;
    vos(cluster, &format!("remove {FRONT} c copied"))?;
    Ok(())
}

/// With the read-only site on the partition of another owner.
fn release(cluster: &Cluster) -> Result<()> {
    vos(cluster, &format!("addsite {FRONT} c data"))?;
    for _ in 0..2 {
        vos(cluster, "release data -verbose")?;
        expect(cluster, "examine data.readonly", &["/vicepc", "On-line"])?;
        compare(cluster, "data.readonly")?;
    }
    let (host, folder) = (&cluster.host, cluster.host.scratch()?);
    let (more, copy) = (folder.join("more"), folder.join("more.copy"));
    std::fs::write(&more, "more")?;
    host.run(&format!("cellar cp {} cell:data/g", more.display()))?.ok()?;
    vos(cluster, "release data")?;
    host.run(&format!("cellar cp cell:data.readonly/g {}", copy.display()))?.ok()?;
    ensure!(std::fs::read(&copy)? == b"more", "the release lacks a change");
    Ok(())
}

fn back_up_and_change(cluster: &Cluster) -> Result<()> {
    vos(cluster, "backup data")?;
    expect(cluster, "examine data.backup", &["data.backup", "On-line"])?;
    vos(cluster, &format!("backupsys -prefix other -server {FRONT}"))?;
    expect(cluster, "examine other.backup", &["other.backup"])?;
    vos(cluster, "setfields other -maxquota 7777")?;
    expect(cluster, "examine other", &["7777"])?;
    vos(cluster, "rename other renamed")?;
    expect(cluster, "examine renamed", &["/vicepc"])?;
    vos(cluster, &format!("offline {FRONT} c renamed"))?;
    vos(cluster, &format!("online {FRONT} c renamed"))?;
    expect(cluster, "examine renamed", &["On-line"])?;
    vos(cluster, &format!("clone renamed {FRONT} c -toname cloned -toid 536999998"))?;
    expect(cluster, &format!("listvol {FRONT} c"), &["cloned"])?;
    vos(cluster, &format!("zap {FRONT} c 536999998"))?;
    vos(cluster, &format!("syncvldb {FRONT}"))?;
    vos(cluster, &format!("syncserv {FRONT}"))?;
    Ok(())
}

/// A stranger is refused by a node as by the owner.
fn strangers(cluster: &Cluster) -> Result<()> {
    for command in [
        "create SERVER b evil",
        "zap SERVER b 536999997",
        "dump data -server SERVER -partition b -file /dev/null",
    ] {
        let mut refused = Vec::new();
        for server in [OWNERS[0], FRONT] {
            let command = format!("vos {} -noauth", command.replace("SERVER", server));
            let output = cluster.host.run(&command)?;
            ensure!(output.status != 0, "{command} succeeds:\n{}", output.text);
            refused.push(output.text.replace(server, "SERVER"));
        }
        ensure!(refused[0] == refused[1], "{command} is refused in two ways: {refused:#?}");
    }
    let shown = vos(cluster, &format!("listvol {FRONT} b"))?;
    ensure!(!shown.contains("evil"), "{shown}");
    Ok(())
}

/// The owner is killed in the middle of a dump, which fails. Nothing stays locked.
fn kill_the_owner(cluster: &mut Cluster) -> Result<()> {
    let host = &cluster.host;
    let script = "set -o pipefail; vos dump data -localauth | (sleep 6; cat >/dev/null)";
    let output = std::thread::scope(|scope| -> Result<_> {
        let dumping = scope.spawn(|| host.shell(script));
        wait_for(LIMIT, || {
            Ok(!host.run(&format!("vos status {FRONT} -localauth"))?.text.contains("No active transactions"))
        })?;
        let killed = cluster.nodes[1].end_cellar("KILL");
        let output = dumping.join().map_err(|_| anyhow::anyhow!("the thread has panicked"))??;
        killed.map(|()| output)
    })?;
    ensure!(output.status != 0, "the dump of a killed server has succeeded");
    println!("interop: vos said: {}", output.text.lines().last().unwrap_or_default());
    wait_for(LIMIT, || Ok(cluster.owner("b")?.is_some_and(|owner| owner != 1)))?;
    expect(cluster, &format!("status {FRONT}"), &["No active transactions"])?;
    expect(cluster, "examine data", &["On-line"])?;
    let locked = vos(cluster, "listvldb -locked")?;
    ensure!(locked.contains("Total entries: 0") || !locked.contains("data"), "{locked}");
    let dump = cluster.host.scratch()?.join("dump-of-the-next-owner");
    vos(cluster, &format!("dump data -file {}", dump.display()))?;
    compare(cluster, "data")?;
    cluster.nodes[1].start_cellar_alone()?;
    wait_for(LIMIT, || {
        Ok(cluster.host.run(&format!("vos listvol {} -localauth", OWNERS[0]))?.text.contains("data"))
    })
}

fn remove(cluster: &Cluster) -> Result<()> {
    for command in [
        "remove -id data.readonly -server SERVER -partition c",
        "remove -id data.backup",
        "remove -id data",
        "remove -id renamed",
        "remove -id restored",
    ] {
        vos(cluster, &command.replace("SERVER", FRONT))?;
    }
    expect(cluster, &format!("listvol {FRONT}"), &["Total number of volumes on server"])?;
    let left = vos(cluster, &format!("listvol {FRONT} -quiet -fast"))?;
    ensure!(left.split_whitespace().next().is_none(), "volumes are left: {left}");
    Ok(())
}
