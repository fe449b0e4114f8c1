//! `cellar sniff` beside tshark: both read the same capture of real clients and servers.

use crate::Test;
use anyhow::{Context, Result, bail, ensure};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// What is captured: calls to every service, a file of some size both ways, a call that fails.
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

/// Types of packets by their numbers (rx_packet.h), as `cellar sniff` names them.
const TYPES: [(u32, &str); 8] = [
    (1, "data"),
    (2, "ack"),
    (3, "busy"),
    (4, "abort"),
    (6, "challenge"),
    (7, "response"),
    (8, "debug"),
    (13, "version"),
];

/// What tshark is asked about each packet: first what Rx says, then the opcodes of [`SERVICES`].
const FIELDS: [&str; 12] = [
    "rx.type",
    "rx.flags.client_init",
    "rx.seq",
    "rx.cid",
    "rx.callnumber",
    "rx.reason",
    "afs.fs.opcode",
    "afs.cb.opcode",
    "afs.prot.opcode",
    "afs.vldb.opcode",
    "afs.vol.opcode",
    "afs.bos.opcode",
];

/// The name of an opcode.
type Name = fn(u32) -> Option<&'static str>;

/// Services as `cellar sniff` names them, and their opcodes.
const SERVICES: [(&str, Name); 6] = [
    ("fs", afs_idl::fs::procedure_name),
    ("cb", afs_idl::cb::procedure_name),
    ("pt", afs_idl::pr::procedure_name),
    ("vl", afs_idl::vl::procedure_name),
    ("vol", afs_idl::vol::procedure_name),
    ("bos", afs_idl::bozo::procedure_name),
];

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
    let scratch = cell.scratch()?;
    let scratch = scratch.to_str().context("path")?;
    let cellar = cellar_program()?;
    let cellar = cellar.to_str().context("path")?;
    let work = WORK.replace("$ADDR", address).replace("$SCRATCH", scratch);
    // The watcher is ready when its packet socket is bound.
    cell.shell(&format!(
        "{cellar} sniff -i lo --write {scratch}/seen.pcap --json >{scratch}/live.json & watcher=$!
         until awk 'NR > 1 && $5 > 0 {{ found = 1 }} END {{ exit !found }}' /proc/net/packet
         do kill -0 $watcher || exit 1; sleep 0.05; done
         {{ {work}; }} >{scratch}/work.log 2>&1
         kill -INT $watcher && wait $watcher"
    ))?
    .ok()?;
    let live: Value = serde_json::from_str(&std::fs::read_to_string(format!("{scratch}/live.json"))?)?;
    let again = cell.shell(&format!("{cellar} sniff {scratch}/seen.pcap --json"))?.ok()?;
    compare_reports(&live, &serde_json::from_str(&again)?)?;
    let fields = FIELDS.map(|field| format!("-e {field}")).join(" ");
    let ports = [7000, 7001, 7002, 7003, 7005, 7007].map(|port| format!("-d udp.port=={port},rx")).join(" ");
    let listed = cell.shell(&format!(
        "tshark -n -r {scratch}/seen.pcap {ports} -Y rx -T fields -E occurrence=f {fields} 2>/dev/null"
    ))?;
    let theirs = Theirs::read(&listed.ok()?)?;
    let packets = compare_packets(&live, &theirs)?;
    let calls = compare_calls(&live, &theirs)?;
    println!(
        "interop: {name}: cellar sniff and tshark see the same {packets} packets and {calls} named calls"
    );
    Ok(())
}

/// What tshark counts.
#[derive(Default)]
struct Theirs {
    /// Packets by type.
    packets: BTreeMap<&'static str, u64>,
    /// ACK packets by reason.
    reasons: BTreeMap<u32, u64>,
    /// Calls by kind, as far as it can be read and has a name.
    calls: BTreeMap<String, u64>,
}

impl Theirs {
    fn read(listed: &str) -> Result<Theirs> {
        let mut theirs = Theirs::default();
        let mut known = HashSet::new();
        for line in listed.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [kind, client, sequence, cid, call, reason, opcodes @ ..] = &fields[..] else {
                bail!("tshark printed {line:?}");
            };
            let kind: u32 = kind.parse().with_context(|| line.to_owned())?;
            let name = TYPES.iter().find(|(number, _)| *number == kind).map_or("others", |(_, name)| name);
            *theirs.packets.entry(name).or_default() += 1;
            if name == "ack" {
                *theirs.reasons.entry(reason.parse().with_context(|| line.to_owned())?).or_default() += 1;
            }
            let is_request = name == "data" && matches!(*client, "1" | "True") && *sequence == "1";
            if is_request && known.insert((cid.to_string(), call.to_string())) {
                theirs.calls(opcodes);
            }
        }
        Ok(theirs)
    }

    fn calls(&mut self, opcodes: &[&str]) {
        for ((service, name), opcode) in SERVICES.iter().zip(opcodes) {
            if let Some(name) = opcode.parse().ok().and_then(name) {
                *self.calls.entry(format!("{service}.{name}")).or_default() += 1;
            }
        }
    }
}

/// What was seen live is what the file tells.
fn compare_reports(live: &Value, again: &Value) -> Result<()> {
    for part in ["packets", "calls", "clients", "volumes", "aborts", "total", "open"] {
        ensure!(live[part] == again[part], "{part}: live {}\nfrom the file {}", live[part], again[part]);
    }
    ensure!(live["captured"]["dropped"] == 0, "the kernel dropped packets: {}", live["captured"]);
    Ok(())
}

/// Packets by type, and acknowledgements by reason. Tells how many packets there were.
fn compare_packets(live: &Value, theirs: &Theirs) -> Result<u64> {
    let ours = live["packets"].as_object().context("packets")?;
    let ours: BTreeMap<&str, u64> = ours.iter().map(|(name, count)| (name.as_str(), number(count))).collect();
    ensure!(ours == theirs.packets, "packets: cellar sniff {ours:?}, tshark {:?}", theirs.packets);
    for kind in ["data", "ack", "abort", "challenge", "response", "version"] {
        ensure!(ours.contains_key(kind), "the work has no {kind} packet: {ours:?}");
    }
    for (reason, field) in
        [(2, "acks_duplicate"), (3, "acks_out_of_sequence"), (4, "acks_exceeds_window"), (5, "acks_no_space")]
    {
        let ours = ["from_client", "from_server"].map(|side| number(&live["total"][side][field]));
        let theirs = theirs.reasons.get(&reason).copied().unwrap_or(0);
        ensure!(ours.iter().sum::<u64>() == theirs, "{field}: cellar sniff {ours:?}, tshark {theirs}");
    }
    Ok(ours.values().sum())
}

/// Calls whose kind tshark can read. Tells how many there were.
fn compare_calls(live: &Value, theirs: &Theirs) -> Result<u64> {
    let rows = live["calls"].as_array().context("calls")?;
    let ours: BTreeMap<&str, u64> =
        rows.iter().filter_map(|row| Some((row["kind"].as_str()?, number(&row["calls"])))).collect();
    for (kind, count) in &theirs.calls {
        ensure!(ours.get(kind.as_str()) == Some(count), "{kind}: tshark {count}, cellar sniff {ours:?}");
    }
    for kind in ["fs.GetXStats", "vl.GetEntryByNameN", "bos.EnumerateInstance"] {
        ensure!(ours.contains_key(kind), "no {kind} was seen: {ours:?}");
    }
    Ok(theirs.calls.values().sum())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
