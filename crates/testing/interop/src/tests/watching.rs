//! `cellar sniff` and tshark read the same capture of real clients and servers.

mod dissected;

use crate::Test;
use anyhow::{Context, Result, bail, ensure};
use dissected::{Dissected, FIELDS, Figures};
use interop::cell::{Cell, Server};
use interop::means::Means;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Commands to capture: calls to every service, a larger file in both directions, a call that fails.
const WORK: &str = "
vos listvol $ADDR -localauth
vos examine work.1 -localauth
pts examine admin -localauth
pts membership system:administrators -localauth
bos status $ADDR -localauth
xstat_fs_test $ADDR -once -collID 2
rxdebug $ADDR 7000 -version
vos listvol $ADDR
vos remove $ADDR a no.such.volume -localauth
vos dump work.1 -file $SCRATCH/work.dump -localauth
vos restore $ADDR a work.2 -file $SCRATCH/work.dump -localauth
true";

/// Size of the file that is copied in both directions, in addition to small ones.
const BIG_FILE_BYTES: &str = "2000000";

/// Copies files and folders of many and few packets in both directions, new and overwritten, with the cell's
/// key and unauthenticated.
const FILES: &str = "
set -e
mkdir -p $SCRATCH/out/folder
for n in $(seq 20); do head -c $((n * n * 40)) /dev/urandom >$SCRATCH/out/folder/$n; done
head -c $BYTES /dev/urandom >$SCRATCH/out/big
cellar cp --jobs 1 --noauth --server $ADDR $SCRATCH/out/ cell:work.1/$TO/
cellar cp --jobs 1 --noauth --server $ADDR cell:work.1/$TO/ $SCRATCH/back.$TO/
diff -r $SCRATCH/out $SCRATCH/back.$TO
cellar cp --jobs 1 $SCRATCH/out/ cell:work.1/$TO.mine/
cellar cp --jobs 1 cell:work.1/$TO.mine/big $SCRATCH/out/big
diff -r $SCRATCH/out $SCRATCH/back.$TO";

/// Loses one packet in thirty, half of them before the capture and half after it: one in sixty of each. The
/// classic BPF program compares a random number with a limit; 2 drops, 0 passes. Some kernels have no netem.
const LOSSES: &str = "
tc qdisc add dev lo clsact
for side in ingress egress; do
    tc filter add dev lo $side bpf direct-action bytecode '4,32 0 0 4294963256,37 0 1 4223384507,6 0 0 2,6 0 0 0'
done";

/// Maximum number of captures on a lossy network.
const LOSSY_MAX: usize = 8;

pub(crate) fn tests() -> Vec<Test> {
    let openafs = || watch(Server::OpenAfs, "afs1", "10.99.0.1");
    let cellar = || watch(Server::Cellar, "cellar1", "10.99.0.4");
    vec![
        Test { name: "sniff-openafs", needs: &[Means::Netns, Means::Tshark], run: openafs },
        Test { name: "sniff-cellar", needs: &[Means::Netns, Means::Tshark], run: cellar },
    ]
}

fn watch(server: Server, name: &'static str, address: &'static str) -> Result<()> {
    let cell = Cell::start(server, name, address)?;
    cell.open_volume(server, "work.1")?;
    let calm = see(&cell, "calm", &format!("{WORK}\n{FILES}"))?;
    let (packets, calls) = calm.compare()?;
    for kind in ["data", "ack", "abort", "challenge", "response", "version"] {
        ensure!(calm.theirs.packets.contains_key(kind), "the work has no {kind} packet");
    }
    for kind in ["fs.GetXStats", "vl.GetEntryByNameN", "bos.EnumerateInstance"].iter().chain(&[
        "fs.FetchStatus",
        "fs.FetchData64",
        "fs.StoreData64",
        "fs.CreateFile",
        "fs.MakeDir",
    ]) {
        let ours = calm.live["calls"].as_array().context("calls")?.iter().any(|row| row["kind"] == *kind);
        ensure!(ours, "no {kind} was seen: {}", calm.live["calls"]);
    }
    println!(
        "interop: {name}: cellar sniff and tshark see the same {packets} packets and {calls} named calls"
    );

    cell.shell(LOSSES)?.ok().context("losing packets with tc, by the kernel's cls_bpf")?;
    // The losses are random: a few runs of packets, and sometimes none before the capture.
    for number in 0..LOSSY_MAX {
        let lossy = see(&cell, &format!("lossy{number}"), FILES)?;
        let (packets, calls) = lossy.compare()?;
        let [again, late, gaps] = ["retransmitted", "late", "gaps"].map(|what| lossy.sum(what));
        println!(
            "interop: {name}: the same on a lossy network: {packets} packets, {again} sent again, {gaps} gaps, {late} \
             that filled them, {calls} named calls"
        );
        if again > 0 && late > 0 && gaps > 0 {
            return Ok(());
        }
    }
    bail!("nothing was lost in {LOSSY_MAX} captures")
}

/// The results of both programs for the same packets.
struct Both {
    live: Value,
    theirs: Dissected,
}

/// Runs `work` while `cellar sniff` captures, and has tshark read the capture.
fn see(cell: &Cell, what: &str, work: &str) -> Result<Both> {
    let scratch = cell.scratch()?.join(what);
    std::fs::create_dir(&scratch)?;
    let scratch = scratch.to_str().context("path")?;
    let work = [("$ADDR", cell.address), ("$SCRATCH", scratch), ("$TO", what), ("$BYTES", BIG_FILE_BYTES)]
        .iter()
        .fold(work.to_owned(), |work, (name, value)| work.replace(name, value));
    // The sniffer is ready when its packet socket is bound.
    cell.shell(&format!(
        "cellar sniff -i lo --write {scratch}/seen.pcap --json >{scratch}/live.json & watcher=$!
         until awk 'NR > 1 && $5 > 0 {{ found = 1 }} END {{ exit !found }}' /proc/net/packet
         do kill -0 $watcher || exit 1; sleep 0.05; done
         ( {work}
         ) >{scratch}/work.log 2>&1; did=$?
         kill -INT $watcher && wait $watcher && test $did = 0 || {{ cat {scratch}/work.log; exit 1; }}"
    ))?
    .ok()?;
    let live: Value = serde_json::from_str(&std::fs::read_to_string(format!("{scratch}/live.json"))?)?;
    let again = cell.shell(&format!("cellar sniff {scratch}/seen.pcap --json"))?.ok()?;
    compare_reports(&live, &serde_json::from_str(&again)?)?;
    let fields = FIELDS.map(|field| format!("-e {field}")).join(" ");
    let ports = [7000, 7001, 7002, 7003, 7005, 7007].map(|port| format!("-d udp.port=={port},rx")).join(" ");
    let listed = cell.shell(&format!(
        "tshark -n -r {scratch}/seen.pcap {ports} -Y rx -T fields -E occurrence=f {fields} 2>/dev/null"
    ))?;
    Ok(Both { live, theirs: Dissected::read(&listed.ok()?)? })
}

/// Compares the live report with the one made from the file.
fn compare_reports(live: &Value, again: &Value) -> Result<()> {
    for part in ["packets", "calls", "clients", "volumes", "aborts", "total", "open"] {
        ensure!(live[part] == again[part], "{part}: live {}\nfrom the file {}", live[part], again[part]);
    }
    ensure!(live["captured"]["dropped"] == 0, "the kernel dropped packets: {}", live["captured"]);
    Ok(())
}

impl Both {
    /// Returns tshark's count for both directions.
    fn sum(&self, what: &str) -> u64 {
        let sides = ["/from_client/", "/from_server/"].map(|side| format!("{side}{what}"));
        sides.iter().filter_map(|place| self.theirs.total.get(place)).sum()
    }

    /// Compares everything that both programs report. Returns the number of packets, and of calls whose type
    /// tshark can decode.
    fn compare(&self) -> Result<(u64, u64)> {
        let packets = self.compare_packets()?;
        let (live, theirs) = (&self.live, &self.theirs);
        dissected::compare("all", &[&live["total"]], &theirs.total)?;
        // A server has a row for each of its services.
        self.compare_hosts("server", &theirs.servers)?;
        self.compare_hosts("client", &theirs.clients)?;
        Ok((packets, self.compare_calls()?))
    }

    /// Compares packets by type, and acknowledgements by reason.
    fn compare_packets(&self) -> Result<u64> {
        let theirs = &self.theirs;
        let ours = self.live["packets"].as_object().context("packets")?;
        let ours: BTreeMap<&str, u64> =
            ours.iter().map(|(name, count)| (name.as_str(), number(count))).collect();
        ensure!(ours == theirs.packets, "packets: cellar sniff {ours:?}, tshark {:?}", theirs.packets);
        for (reason, field) in [
            (2, "acks_duplicate"),
            (3, "acks_out_of_sequence"),
            (4, "acks_exceeds_window"),
            (5, "acks_no_space"),
        ] {
            let ours = ["from_client", "from_server"].map(|side| number(&self.live["total"][side][field]));
            let theirs = theirs.reasons.get(&reason).copied().unwrap_or(0);
            ensure!(ours.iter().sum::<u64>() == theirs, "{field}: cellar sniff {ours:?}, tshark {theirs}");
        }
        Ok(ours.values().sum())
    }

    fn compare_hosts(&self, side: &str, theirs: &BTreeMap<String, Figures>) -> Result<()> {
        let rows = self.live[format!("{side}s")].as_array().context("hosts")?;
        let ours: BTreeSet<&str> = rows.iter().filter_map(|row| row[side].as_str()).collect();
        let names: BTreeSet<&str> = theirs.keys().map(String::as_str).collect();
        ensure!(ours == names, "{side}s: cellar sniff {ours:?}, tshark {names:?}");
        for (host, theirs) in theirs {
            let rows: Vec<&Value> = rows.iter().filter(|row| row[side] == **host).collect();
            dissected::compare(host, &rows, theirs)?;
        }
        Ok(())
    }

    /// Compares the calls whose type tshark can decode, with their bytes and times.
    fn compare_calls(&self) -> Result<u64> {
        let rows = self.live["calls"].as_array().context("calls")?;
        let (mut calls, mut more) = (0, 0);
        for (kind, theirs) in &self.theirs.calls {
            let ours = rows.iter().find(|row| row["kind"] == **kind);
            let ours =
                ours.with_context(|| format!("cellar sniff sees no {kind}, tshark {:?}", theirs.figures))?;
            let of_kind = theirs.figures["/calls"];
            calls += of_kind;
            let beyond = number(&ours["calls"]).saturating_sub(of_kind);
            if beyond > 0 && more + beyond <= self.theirs.misread {
                more += beyond;
                continue;
            }
            dissected::compare(kind, &[ours], &theirs.figures)?;
            for (name, times) in ["first", "last"].into_iter().zip(&theirs.times) {
                dissected::compare_times(&format!("{kind}, {name}"), &ours[name], times)?;
            }
        }
        Ok(calls)
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
