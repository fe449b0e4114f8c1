//! The nodes of a cluster are upgraded, one after the other, while clients of all service addresses go on.

use super::{VOLUMES, create_volumes};
use crate::Test;
use crate::tests::addresses::{SERVED, SERVICE};
use crate::tests::series::{Series, check_files};
use crate::tests::store::Writer;
use crate::tests::wait_for;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, cellar_program};
use interop::cluster::{BUCKET, Cluster, PLACE, Plan};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-upgrade", needs: super::NEEDS, run: upgrade }]
}

const UPGRADED: Plan = Plan { partitions: &["a", "b", "c"], ..SERVED };

/// Time limit for a node to be back, and for clients to go on.
const LIMIT: Duration = Duration::from_secs(90);

/// Longest pause of a client while a node is drained, stopped and started. A node that stops lets calls end for 5 s at most; the
/// others hold a call for up to 20 s.
const PAUSE: Duration = Duration::from_secs(19);

/// Acknowledged changes of each client before and after each node's end.
const CHANGES: usize = 15;

/// What a file server answers while it restarts or moves something. Clients repeat such calls by themselves, and no program sees
/// it: VRESTARTING and VBUSY.
const REPEATED: [&str; 2] = ["VRESTARTING", "VBUSY"];

/// A client of one service address, which creates files, and one that stores, renames and removes files.
struct Client {
    volume: &'static str,
    number: u32,
    pulse: Series,
    writer: Writer,
}

impl Client {
    fn start(cluster: &Cluster, number: usize) -> Result<Client> {
        let (host, volume, address) = (&cluster.host, VOLUMES[number], SERVICE[number]);
        let number = u32::try_from(number)?;
        let writer = Writer::start_through(host, address, volume, number, 0)?;
        Ok(Client { volume, number, pulse: Series::pulse(host, address, volume)?, writer })
    }

    fn more(&mut self) -> Result<()> {
        self.pulse.more(CHANGES)?;
        let done = |writer: &Writer| -> Result<u64> { Ok(writer.done()?.unwrap_or(0)) };
        let before = done(&self.writer)?;
        wait_for(LIMIT, || {
            ensure!(!self.writer.has_ended()?, "a call failed: {}", self.writer.printed()?);
            Ok(done(&self.writer)? >= before + CHANGES as u64)
        })
        .with_context(|| self.writer.printed().unwrap_or_default())
    }

    /// Checks that no call failed, and that everything acknowledged is there.
    fn check(self, host: &Cell) -> Result<()> {
        let failures = self.pulse.failures()?;
        let is_repeated = |line: &String| REPEATED.iter().any(|code| line.contains(code));
        ensure!(failures.iter().all(is_repeated), "{}: calls failed: {failures:?}", self.volume);
        let files = self.pulse.rows()?.len();
        drop(self.pulse);
        // Files that a writer removes meanwhile cannot be copied.
        let steps = self.writer.kill()?;
        check_files(host, self.volume, files)?;
        Writer::compare_in(host, self.volume, self.number, steps)?;
        println!(
            "interop: {} has {files} files and {steps} steps; {} calls were repeated",
            self.volume,
            failures.len()
        );
        Ok(())
    }
}

/// Asks the location database for the file servers again and again, until it is stopped.
struct Watcher {
    folder: PathBuf,
}

impl Watcher {
    fn start(host: &Cell) -> Result<Watcher> {
        let folder = host.scratch()?.join("watched");
        std::fs::create_dir_all(&folder)?;
        let list = "vos listaddrs -printuuid -noresolve -localauth";
        let script = format!(
            "cd {}; (i=0; while [ ! -e stop ]; do i=$((i + 1)); {list} >$i.part 2>&1; mv $i.part $i.listed; sleep 0.3; done; \
             touch stopped) </dev/null >/dev/null 2>&1 &",
            folder.display()
        );
        host.shell(&script)?.ok()?;
        Ok(Watcher { folder })
    }

    /// Checks that every answer was the same, and that it has one server with the service addresses.
    fn stop(self) -> Result<()> {
        std::fs::write(self.folder.join("stop"), "")?;
        wait_for(LIMIT, || Ok(self.folder.join("stopped").exists()))?;
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut count = 0;
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "listed") {
                seen.insert(sorted(&std::fs::read_to_string(path)?));
                count += 1;
            }
        }
        ensure!(seen.len() == 1, "the registered servers changed: {seen:#?}");
        let only = seen.first().context("no answer")?;
        let holders: Vec<&str> = only.split("UUID:").filter(|block| block.contains(SERVICE[0])).collect();
        let [block] = holders[..] else { anyhow::bail!("not one server: {only}") };
        ensure!(SERVICE.iter().all(|address| block.contains(address)), "{block}");
        println!("interop: the location database named one server with the same addresses {count} times");
        Ok(())
    }
}

/// Returns a list of servers in an order that does not depend on the database's.
fn sorted(listed: &str) -> String {
    let mut blocks: Vec<String> = listed
        .split("UUID:")
        .map(|block| {
            let mut lines: Vec<&str> = block.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            // The UUID comes first.
            if let Some(addresses) = lines.get_mut(1..) {
                addresses.sort_unstable();
            }
            lines.join(" ")
        })
        .collect();
    blocks.sort_unstable();
    blocks.join("\nUUID: ")
}

fn upgrade() -> Result<()> {
    let mut cluster = UPGRADED.start()?;
    let program = next_program(&cluster)?;
    cluster.spread()?;
    create_volumes(&cluster)?;
    let watcher = Watcher::start(&cluster.host)?;
    let mut clients =
        (0..VOLUMES.len()).map(|number| Client::start(&cluster, number)).collect::<Result<Vec<_>>>()?;
    one_after_the_other(&mut cluster, &mut clients, &program).with_context(|| cluster.logs())?;
    watcher.stop().with_context(|| cluster.logs())?;
    clients.into_iter().try_for_each(|client| client.check(&cluster.host)).with_context(|| cluster.logs())?;
    refused(&mut cluster).with_context(|| cluster.logs())?;
    cluster.end().with_context(|| cluster.logs())
}

/// Returns another file with the program.
fn next_program(cluster: &Cluster) -> Result<PathBuf> {
    let folder = cluster.host.scratch()?.join("next");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("cellar");
    std::fs::copy(cellar_program()?, &program)?;
    Ok(program)
}

/// Drains each node, stops it, and starts another program file in its place.
fn one_after_the_other(cluster: &mut Cluster, clients: &mut [Client], program: &Path) -> Result<()> {
    clients.iter_mut().try_for_each(Client::more)?;
    for index in 0..cluster.nodes.len() {
        let (begun, name) = (SystemTime::now(), cluster.nodes[index].name);
        cluster.run(&format!("cellar cluster drain {name}"))?;
        cluster.nodes[index].end_cellar("TERM")?;
        clients.iter_mut().try_for_each(Client::more)?;
        let node = &mut cluster.nodes[index];
        node.use_program(program.to_owned());
        node.start_cellar_alone()?;
        wait_for(LIMIT, || Ok(cluster.address_of(index).is_ok())).context("no service address")?;
        cluster.give(UPGRADED.partitions[index], index)?;
        clients.iter_mut().try_for_each(Client::more)?;
        let runs = std::fs::read_link(format!("/proc/{}/exe", cluster.nodes[index].server_pid()?))?;
        ensure!(runs == program, "{name} runs {}", runs.display());
        let pauses =
            clients.iter().map(|client| client.pulse.longest_gap(begun)).collect::<Result<Vec<_>>>()?;
        println!("interop: {name} runs another program; the clients' longest pauses were {pauses:.1?}");
        ensure!(pauses.iter().all(|pause| *pause <= PAUSE), "clients of {SERVICE:?} waited for {pauses:?}");
    }
    Ok(())
}

/// First line of a lease of a later version, and what a program says that does not know it.
const LATER: &str = "cellar node lease 2";
const SAID: &str = "it has version 2 of its format, and this program knows version 1: use a newer program";

/// A node whose lease is of a later version does not join with this program, and says why. The others go on.
fn refused(cluster: &mut Cluster) -> Result<()> {
    let index = 2;
    cluster.create_volume("refused")?;
    cluster.nodes[index].end_cellar("TERM")?;
    // SeaweedFS's filer shows the objects as files.
    let lease = format!(
        "http://127.0.0.1:8888/buckets/{BUCKET}/{}/nodes/{}",
        PLACE.rsplit('/').next().unwrap_or_default(),
        cluster.nodes[index].name
    );
    let present = cluster.host.scratch()?.join("lease");
    let fetch = format!("curl -sSf -o {} {lease}", present.display());
    cluster.host.shell(&fetch)?.ok().context(fetch)?;
    let put = |file: &str| {
        let put = format!("curl -sSf -X PUT --data-binary @{file} -H 'Content-Type: text/plain' {lease}");
        cluster.host.shell(&put)?.ok().context(put).map(drop)
    };
    let later = cluster.host.scratch()?.join("later");
    std::fs::write(&later, format!("{LATER}\nsomething new\n"))?;
    put(&later.display().to_string())?;
    cluster.nodes[index].start_cellar_alone()?;
    let log = cluster.nodes[index].path().join("cellar.log");
    wait_for(LIMIT, || Ok(std::fs::read_to_string(&log)?.contains(SAID)))
        .with_context(|| cluster.nodes[index].cellar_log())?;
    let pulse = Series::pulse(&cluster.host, cluster.nodes[0].address, "refused")?;
    pulse.more(CHANGES)?;
    ensure!(cluster.address_of(index).is_err(), "a node without a lease has a service address");
    // As soon as the object is one that it knows, it is a node again.
    put(&present.display().to_string())?;
    wait_for(LIMIT, || Ok(cluster.address_of(index).is_ok())).context("it does not go on")?;
    ensure!(pulse.failures()?.is_empty(), "{:?}", pulse.failures()?);
    Ok(())
}
