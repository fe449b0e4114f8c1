//! A whole cell under a known load: the figures of `cellar stat` must add up exactly.

mod support;

use afs_idl::{CallStream, ClientConnection, cellar as own, fs as rxafs};
use base::AbortCode;
use bytes::Bytes;
use cell_client::{Interface, Network};
use load::files::{Fid, Files, read_exact};
use load::station::{FILE_SERVICE, Station};
use observe::Table;
use serde_json::Value;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::cell::Cell;
use support::place::Place;
use support::{PATIENCE, noise};

/// Sizes of the files, and the number of bytes per fetch.
const SIZES: [usize; 3] = [10, 5_000, 300_000];
const CALL_BYTES: u64 = 100_000;

/// Additional configuration.
const MORE: &str = "[metrics]\nport = 0\nprobe_history = \"probes.jsonl\"\n";

/// Configuration without the reads of the scrubber, which are counted, too.
const NO_SCRUBBER: &str = "[store]\nscrub_mb_per_s = 0\n";

/// Returns the sum of a metric's rows with this label.
fn metric(cell: &Cell, name: &str, label: &str) -> u64 {
    let text = cell.get("/metrics");
    let rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    let mut numbers = rows.filter(|(labels, _)| labels.split(',').any(|of| of == label)).peekable();
    assert!(numbers.peek().is_some(), "no {name} with {label}: {text}");
    numbers.map(|(_, number)| number.parse::<u64>().unwrap()).sum()
}

/// A stopped cell closes its files, so that its database can be opened again in the same process.
#[test]
fn a_cell_is_started_twice_in_one_process() {
    Cell::start(MORE).restart().running.stop().unwrap();
}

#[test]
fn metrics_and_page_are_for_this_machine_unless_said_otherwise() {
    let place = Place::new(MORE);
    let text = std::fs::read_to_string(&place.config).unwrap();
    for (address, expected) in
        [("", Ipv4Addr::LOCALHOST), ("address = \"192.0.2.7\"", Ipv4Addr::new(192, 0, 2, 7))]
    {
        std::fs::write(&place.config, format!("{text}{address}\n[web]\n{address}\n")).unwrap();
        let settings = place.settings();
        let web = settings.web.as_ref().unwrap().address.ip();
        assert_eq!((settings.metrics.unwrap().ip(), web), (expected.into(), expected.into()));
    }
}

/// Expected figures by procedure: calls, failed calls, bytes of requests and of replies.
#[derive(Default)]
struct Expected(std::collections::BTreeMap<&'static str, [u64; 4]>);

impl Expected {
    fn add(&mut self, procedure: &'static str, numbers: [u64; 4]) {
        let sums = self.0.entry(procedure).or_default();
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }

    fn total(&self) -> [u64; 4] {
        let mut total = [0; 4];
        for numbers in self.0.values() {
            total.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        total
    }
}

/// Returns the size of a message, with the bytes before it.
fn size(before: usize, message: &impl xdr::Encode) -> u64 {
    (before + xdr::to_vec(message).len()) as u64
}

/// Size of the opcode.
const OPCODE: usize = 4;

fn store(connection: &dyn ClientConnection, fid: Fid, data: &Bytes, expected: &mut Expected) {
    let length = data.len() as u64;
    let request = rxafs::StoreData64Request { fid, length, file_length: length, ..Default::default() };
    rxafs::store_data64(connection, &request, |stream| stream.write(data.clone())).unwrap();
    let sizes = [size(OPCODE + data.len(), &request), size(0, &rxafs::StoreData64Reply::default())];
    expected.add("StoreData64", [1, 0, sizes[0], sizes[1]]);
}

fn fetch(connection: &dyn ClientConnection, fid: Fid, length: usize, expected: &mut Expected) {
    let mut position = 0;
    while position < length as u64 {
        let part = CALL_BYTES.min(length as u64 - position);
        let request = rxafs::FetchData64Request { fid, position: position as i64, length: part as i64 };
        rxafs::fetch_data64(connection, &request, |stream| receive(stream, part as usize)).unwrap();
        let sent = size(8 + part as usize, &rxafs::FetchData64Reply::default());
        expected.add("FetchData64", [1, 0, size(OPCODE, &request), sent]);
        position += part;
    }
}

fn receive(stream: &mut dyn CallStream, length: usize) -> Result<(), AbortCode> {
    read_exact(stream, &mut vec![0; 8 + length])
}

fn look(connection: &dyn ClientConnection, fid: Fid, is_there: bool, expected: &mut Expected) {
    let request = rxafs::FetchStatusRequest { fid };
    let result = rxafs::fetch_status(connection, &request);
    assert_eq!(result.is_ok(), is_there, "{result:?}");
    let sent = if is_there { size(0, &rxafs::FetchStatusReply::default()) } else { 0 };
    expected.add("FetchStatus", [1, u64::from(!is_there), size(OPCODE, &request), sent]);
}

fn number(row: &Value, path: &[&str]) -> u64 {
    let value = path.iter().fold(row, |value, name| &value[*name]);
    value.as_u64().unwrap_or_else(|| panic!("{path:?} of {row}"))
}

fn find<'a>(rows: &'a [Value], of: &[(&str, &str)]) -> Option<&'a Value> {
    rows.iter().find(|row| of.iter().all(|(key, value)| row[*key] == *value))
}

/// Returns calls, failed calls, bytes of requests and of replies in a row of users.
fn usage(row: &Value) -> [u64; 4] {
    [&["calls"][..], &["failed"], &["received_bytes"], &["sent_bytes"]].map(|path| number(row, path))
}

#[test]
fn a_known_load_adds_up_in_every_table() {
    let (cell, root) = cell_with_volume("");
    let volume = root.volume.to_string();
    let station = Station::start().unwrap();
    let anonymous = cell.connect(&station);
    let admin_network = cell.network();
    let admin = admin_network.connect(cell.files_port(), FILE_SERVICE);
    let fids: Vec<Fid> =
        ["a", "b", "c"].map(|name| Files::new(anonymous.clone()).create(root, name).unwrap()).to_vec();
    let before = [cell.stat("calls"), cell.stat(&format!("clients --volume {volume}"))];
    let disk_before = cell.stat("disk");
    // Expected figures of each of the two clients.
    let mut each = [Expected::default(), Expected::default()];
    for (fid, bytes) in fids.iter().zip(SIZES) {
        store(&*anonymous, *fid, &Bytes::from(vec![7; bytes]), &mut each[0]);
        fetch(&*anonymous, *fid, bytes, &mut each[0]);
        (0..20).for_each(|_| look(&*anonymous, *fid, true, &mut each[0]));
        (0..7).for_each(|_| look(&*admin, *fid, true, &mut each[1]));
    }
    let nothing = Fid { vnode: 999_999, ..fids[0] };
    (0..2).for_each(|_| look(&*admin, nothing, false, &mut each[1]));

    let mut all = Expected::default();
    for (procedure, numbers) in each.iter().flat_map(|of| &of.0) {
        all.add(procedure, *numbers);
    }
    let calls = cell.stat("calls");
    for (procedure, expected) in &all.0 {
        let of = [("service", "AFS"), ("procedure", *procedure)];
        let numbers = |rows: &[Value]| {
            let Some(row) = find(rows, &of) else { return [0; 4] };
            let (calls, good) = (number(row, &["calls"]), number(row, &["outcomes", "good"]));
            let outcomes: u64 = row["outcomes"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
            assert_eq!((calls, calls), (outcomes, number(row, &["run_ns", "count"])), "{row}");
            assert_eq!(calls, number(row, &["wait_ns", "count"]) + number(row, &["fast_path"]), "{row}");
            [calls, calls - good, number(row, &["received_bytes"]), number(row, &["sent_bytes"])]
        };
        let (now, then) = (numbers(&calls), numbers(&before[0]));
        let came: Vec<u64> = now.iter().zip(then).map(|(now, then)| now - then).collect();
        assert_eq!(came, expected, "{procedure}");
    }
    assert!(find(&calls, &[("service", "AFSVol"), ("procedure", "CreateVolume")]).is_some(), "{calls:?}");

    let clients = cell.stat(&format!("clients --volume {volume}"));
    let mut sum = [0; 4];
    for row in &clients {
        let then = find(&before[1], &[("user", row["user"].as_str().unwrap())]).map_or([0; 4], usage);
        let who = &each[usize::from(row["user"] != "anonymous")];
        let came: Vec<u64> = usage(row).iter().zip(then).map(|(now, then)| now - then).collect();
        assert_eq!(came, who.total(), "{row}");
        sum.iter_mut().zip(usage(row)).for_each(|(sum, number)| *sum += number);
    }
    assert_eq!(clients.len(), 2, "{clients:?}");
    // Continue from the volume's clients to their calls.
    let called = cell.stat(&format!("calls --volume {volume}"));
    for row in &clients {
        let is_its = |call: &&Value| call["user"] == row["user"] && call["host"] == row["host"];
        let mut of_calls = [0; 4];
        for call in called.iter().filter(is_its) {
            of_calls.iter_mut().zip(usage(call)).for_each(|(sum, number)| *sum += number);
        }
        assert_eq!(of_calls, usage(row), "{called:?}");
    }
    let looks = find(&called, &[("user", "anonymous"), ("procedure", "FetchStatus")]).unwrap();
    assert_eq!(number(looks, &["calls"]), 60);
    let volumes = cell.stat("volumes");
    let row = find(&volumes, &[("volume", &volume)]).unwrap();
    assert_eq!(usage(row), sum);
    assert_eq!(row["name"], "load");
    assert_eq!(number(row, &["classes", "store"]), 3);
    assert_eq!(number(row, &["classes", "fetch"]), 1 + 1 + 3);

    // Both clients, and the command itself, are on the same host.
    let hosts = cell.stat("hosts");
    let host = find(&hosts, &[("host", clients[0]["host"].as_str().unwrap())]).unwrap();
    assert_eq!(number(host, &["data_calls"]), 3 + 1 + 1 + 3);
    assert_eq!(number(host, &["classes", "store"]), 3);
    assert!(number(host, &["connections"]) > 1 && number(host, &["opened"]) > 1, "{host}");
    assert_eq!(number(host, &["classes", "fetch"]), 1 + 1 + 3);
    let of_data = ["StoreData64", "FetchData64"].map(|procedure| all.0[procedure][2] + all.0[procedure][3]);
    assert_eq!(number(host, &["data_bytes"]), of_data.iter().sum::<u64>(), "{host}");
    assert!(number(host, &["data_time_ns"]) >= number(host, &["data_longest_ns"]), "{host}");

    let written = |rows: &[Value]| number(find(rows, &[("access", "write")]).unwrap(), &["moved_bytes"]);
    assert!(written(&cell.stat("disk")) > written(&disk_before), "the largest file went to the disk");
    let locks = cell.stat("locks");
    let names: Vec<&str> = locks.iter().filter_map(|row| row["lock"].as_str()).collect();
    assert!(
        ["volume", "publish", "hosts", "lane", "segment"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    let lanes = cell.stat("lanes");
    let received: u64 = lanes.iter().map(|row| number(row, &["received_datagrams"])).sum();
    assert!(received >= all.total()[0], "{lanes:?}");
    assert_eq!(cell.stat("workers").len(), 5);

    // Lanes and peers count the same packets; the queries send some, so the sum is between two samples.
    let first_sent = |rows: &[Value]| -> u64 {
        let of_port = rows.iter().filter(|row| row["port"] == "fileserver" || row["port"] == "(others)");
        of_port
            .map(|row| {
                number(row, &["data_sent"]) - row.get("peer").map_or(0, |_| number(row, &["data_resent"]))
            })
            .sum()
    };
    let peers = cell.stat("peers");
    let sums = [first_sent(&lanes), first_sent(&peers), first_sent(&cell.stat("lanes"))];
    assert!(sums.is_sorted() && sums[0] > 0, "{sums:?} {peers:?}");
    let trips = |rows: &[Value], key: &[&str]| -> u64 {
        let of_port = rows.iter().filter(|row| row["port"] == "fileserver" || row["port"] == "(others)");
        of_port.map(|row| number(row, key)).sum()
    };
    let reported = trips(&peers, &["round_trips_ns", "count"]);
    let sums = [trips(&lanes, &["round_trips"]), reported, trips(&cell.stat("lanes"), &["round_trips"])];
    assert!(sums.is_sorted() && reported > 0, "{sums:?} {peers:?}");
    let of_load = peers.iter().map(|row| number(row, &["received_packets"])).max().unwrap();
    assert!(of_load >= all.total()[0] / 2, "one of the two did more than half: {peers:?}");
    assert!(peers.iter().any(|row| number(row, &["connections"]) > 0 && number(row, &["round_trip_ns"]) > 0));

    let top = cell.json(&["top", "--once"]);
    // The same tables are everywhere, and none is empty without reason.
    let shown = Table::ALL.iter().filter(|table| !table.is_of_cluster());
    let tables: Vec<&str> = shown.map(|table| table.name()).collect();
    let reported = top.as_object().unwrap();
    assert_eq!(reported.len(), tables.len());
    for table in tables {
        let rows = reported[table].as_array().unwrap();
        // No audit is configured, and no caller was rejected.
        let is_empty = ["audit", "buckets", "refusals"].contains(&table);
        assert_eq!(rows.is_empty(), is_empty, "{table}: {rows:?}");
        assert_eq!(cell.stat(table).is_empty(), is_empty, "{table}");
    }
    let same = |rows: &Value| find(rows.as_array().unwrap(), &[("procedure", "StoreData64")]).cloned();
    assert_eq!(same(&top["calls"]), same(&Value::Array(calls.clone())));
    let text = cell.run(&["top", "--once"]);
    assert!(text.starts_with("CALLS\n") && text.contains("StoreData64") && text.contains("DISKS"), "{text}");

    assert!(cell.get("/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
    let metrics = cell.get("/metrics");
    for procedure in all.0.keys() {
        let of = [("service", "AFS"), ("procedure", *procedure)];
        let calls = number(find(&calls, &of).unwrap(), &["calls"]);
        let line = format!("cellar_call_calls_total{{service=\"AFS\",procedure=\"{procedure}\"}} {calls}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

/// A cell with `more` configuration and an empty volume that all callers may use, and its root directory.
fn cell_with_volume(more: &str) -> (Cell, Fid) {
    let cell = Cell::start(&format!("{MORE}{more}"));
    let root = cell.volume("load");
    (cell, root)
}

/// Returns what the only client of the file service counted, in the order of the server's lane figures:
/// datagrams and bytes from it and to it, first transmissions of data packets in both directions, and calls,
/// which are in the workers' table.
fn counted_by(station: &Station, calls: u64) -> [u64; 7] {
    let statistics = station.statistics();
    let (lane, endpoint) = (statistics.total(), &statistics.endpoints[0]);
    let [received, sent] = [lane.datagrams_received, lane.datagrams_sent];
    let data = [endpoint.data_sent, endpoint.data_received];
    [sent, lane.bytes_sent, received, lane.bytes_received, data[0], data[1], calls]
}

const OF_PORT: [&str; 7] = [
    "cellar_lane_received_datagrams_total",
    "cellar_lane_received_bytes_total",
    "cellar_lane_sent_datagrams_total",
    "cellar_lane_sent_bytes_total",
    "cellar_lane_data_received_total",
    "cellar_lane_data_sent_total",
    "cellar_workers_arrived_total",
];

/// Returns the count once both sides agree, after the last acknowledgements have arrived.
fn when_quiet<T: PartialEq + std::fmt::Debug>(mut look: impl FnMut() -> (T, T)) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (server, client) = look();
        if server == client {
            return server;
        }
        assert!(Instant::now() < deadline, "the server counted {server:?}, its client {client:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn server_and_client_counts_agree() {
    let (cell, root) = cell_with_volume("");
    let (station, mut load) = (Station::start().unwrap(), Expected::default());
    let connection = cell.connect(&station);
    let of_port = || OF_PORT.map(|name| metric(&cell, name, "port=\"fileserver\""));
    let before = of_port();
    let fid = Files::new(connection.clone()).create(root, "f").unwrap();
    store(&*connection, fid, &Bytes::from(vec![7; 300_000]), &mut load);
    fetch(&*connection, fid, 300_000, &mut load);
    (0..50).for_each(|_| look(&*connection, fid, true, &mut load));
    let calls = 1 + load.total()[0];

    let came = |now: [u64; 7]| std::array::from_fn(|index| now[index] - before[index]);
    let counted = when_quiet(|| (came(of_port()), counted_by(&station, calls)));
    assert!(counted.iter().all(|number| *number > 0), "{counted:?}");
    // Datagrams and bytes from the client, bytes to it, and first transmissions of data packets to it, as in
    // its row.
    when_quiet(|| {
        let peers = cell.stat("peers");
        let of_port = peers.iter().filter(|row| row["port"] == "fileserver");
        let row = of_port.max_by_key(|row| number(row, &["received_packets"])).unwrap();
        let first_sent = number(row, &["data_sent"]) - number(row, &["data_resent"]);
        let of_peer =
            [&["received_packets"][..], &["received_bytes"], &["sent_bytes"]].map(|path| number(row, path));
        let [sent, sent_bytes, _, received_bytes, _, data, _] = counted_by(&station, calls);
        ((of_peer, first_sent), ([sent, sent_bytes, received_bytes], data))
    });
    // The tables agree with the metrics, plus the calls that queried them.
    let lanes = cell.stat("lanes");
    let received = lanes.iter().filter(|row| row["port"] == "fileserver");
    let received: u64 = received.map(|row| number(row, &["data_received"])).sum();
    assert!(received > before[4] + counted[4] && received <= of_port()[4], "{lanes:?}");
    let workers = cell.stat("workers");
    let arrived = number(find(&workers, &[("port", "fileserver")]).unwrap(), &["arrived"]);
    assert!(arrived > before[6] + calls && arrived <= of_port()[6], "{workers:?}");
}

/// Sizes of chunks, and of the header before incompressible ones: docs/reference/formats/segment.md. Chunks
/// of at least 64 KiB fill whole blocks.
const CHUNK_BYTES: usize = 256 << 10;
const HEADER_BYTES: usize = 64;
const SEGMENT_HEADER_BYTES: usize = 32;

#[test]
fn disks_and_caches_count_cold_and_warm_accesses() {
    const FILE_BYTES: usize = 300_000;
    let (cell, root) = cell_with_volume(NO_SCRUBBER);
    let station = Station::start().unwrap();
    let connection = cell.connect(&station);
    let files = Files::new(connection.clone());
    let [first, fid] = ["first", "f"].map(|name| files.create(root, name).unwrap());
    let data = noise(FILE_BYTES);
    // The first file creates the segments.
    store(&*connection, first, &data, &mut Expected::default());
    let disk = |cell: &Cell, access: &str| {
        let label = format!("access=\"{access}\"");
        let names =
            ["cellar_disk_accesses_total", "cellar_disk_moved_bytes_total", "cellar_disk_failed_total"];
        names.map(|name| metric(cell, name, &label))
    };
    let cache = |cell: &Cell| {
        let names = ["cellar_cache_hits_total", "cellar_cache_misses_total"];
        names.map(|name| metric(cell, name, "cache=\"chunks\""))
    };
    let before = disk(&cell, "write");
    store(&*connection, fid, &data, &mut Expected::default());
    let large = (HEADER_BYTES + CHUNK_BYTES).next_multiple_of(4096);
    let written = large + HEADER_BYTES + FILE_BYTES - CHUNK_BYTES;
    let since =
        |now: [u64; 3], before: [u64; 3]| [now[0] - before[0], now[1] - before[1], now[2] - before[2]];
    assert_eq!(since(disk(&cell, "write"), before), [2, written as u64, 0]);

    let cell = cell.restart();
    let connection = cell.connect(&station);
    // Two segments are opened, and their own headers are read too.
    let read = (FILE_BYTES + 2 * (HEADER_BYTES + SEGMENT_HEADER_BYTES)) as u64;
    for (what, reads, misses) in [("cold", [4, read, 0], 2), ("warm", [0; 3], 0)] {
        let before = (disk(&cell, "read"), cache(&cell));
        fetch(&*connection, fid, FILE_BYTES, &mut Expected::default());
        assert_eq!(since(disk(&cell, "read"), before.0), reads, "{what}");
        let now = cache(&cell);
        // Three calls, the last of which reads from both chunks.
        assert_eq!([now[0] - before.1[0], now[1] - before.1[1]], [4 - misses, misses], "{what}");
    }
    let disks = cell.stat("disk");
    let row = find(&disks, &[("access", "read")]).unwrap();
    let row = [&["accesses"][..], &["moved_bytes"], &["failed"], &["time_ns", "count"]]
        .map(|path| number(row, path));
    let [accesses, moved, failed] = disk(&cell, "read");
    assert_eq!(row, [accesses, moved, failed, accesses]);
    let caches = cell.stat("caches");
    let row = find(&caches, &[("name", "chunks")]).unwrap();
    assert_eq!([number(row, &["hits"]), number(row, &["misses"])], cache(&cell));
}

/// Counts metadata cache look-ups in a cold and in a warm cell: each object that a call needs is looked up
/// once, and is a miss only once.
#[test]
fn caches_count_lookups_cold_and_warm() {
    let (cell, root) = cell_with_volume(NO_SCRUBBER);
    let station = Station::start().unwrap();
    let connection = cell.connect(&station);
    let fid = Files::new(connection.clone()).create(root, "f").unwrap();
    let counted = |cell: &Cell, cache: &str| {
        let label = format!("cache=\"{cache}\"");
        ["cellar_cache_hits_total", "cellar_cache_misses_total"].map(|name| metric(cell, name, &label))
    };
    let since = |now: [u64; 2], before: [u64; 2]| [now[0] - before[0], now[1] - before[1]];
    let cell = cell.restart();
    let connection = cell.connect(&station);
    let own = cell.client();
    let own = own.connection(cell.address, Interface::Cellar);
    let status = || look(&*connection, fid, true, &mut Expected::default());
    let names = || {
        let request = rxafs::LookupRequest { directory: root, name: "f".into() };
        assert_eq!(rxafs::lookup(&*connection, &request).unwrap().fid, fid);
    };
    let totals = || {
        let request =
            own::GetDirectoryTotalsRequest { volume: root.volume, vnode: root.vnode, unique: root.unique };
        own::get_directory_totals(&*own, &request).unwrap();
    };
    // Number of objects that each call needs. A status call needs the file's status and that of its
    // directory, which has the rights.
    let of: [(&str, &dyn Fn(), u64); 3] =
        [("status", &status, 2), ("directories", &names, 1), ("totals", &totals, 1)];
    for (cache, call, things) in of {
        let count = |calls: u64| {
            let before = counted(&cell, cache);
            (0..calls).for_each(|_| call());
            since(counted(&cell, cache), before)
        };
        let [_, misses] = count(1);
        assert_eq!(misses, things, "{cache}, cold: each thing is missing once");
        let [hits, misses] = count(1);
        assert!(hits >= things && misses == 0, "{cache}, warm: {hits} hits, {misses} misses");
        assert_eq!(count(10), [10 * hits, 0], "{cache}");
    }
    let caches = cell.stat("caches");
    for (cache, ..) in of {
        let row = find(&caches, &[("name", cache)]).unwrap();
        assert_eq!([number(row, &["hits"]), number(row, &["misses"])], counted(&cell, cache), "{caches:?}");
        assert!(number(row, &["entries"]) > 0 && number(row, &["bytes"]) > 0, "{row}");
    }
}

/// Returns the output of Prometheus's own tool, which is empty on success; `None` if the tool is to be
/// skipped.
fn promtool(arguments: &[&str], input: &str) -> Option<String> {
    let skipped = std::env::var("CELLAR_TEST_SKIP").unwrap_or_default();
    if skipped.split([',', ' ']).any(|word| word == "promtool") {
        eprintln!("skipped: CELLAR_TEST_SKIP has `promtool`");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib/observe");
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!(
            "promtool: {error}; it is of the package `prometheus` (CELLAR_TEST_SKIP=promtool goes without)"
        )
    });
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    Some(said)
}

#[test]
fn prometheus_finds_no_fault_in_metrics_alerts_and_dashboard() {
    let cell = Cell::start(MORE);
    let probe = r#"{"time_ms":1795000000000,"volume":"probe.a","server":"10.0.0.1","total_us":1500}"#;
    std::fs::write(cell.path("probes.jsonl"), format!("{probe}\n")).unwrap();
    let metrics = cell.get("/metrics");
    let (_, metrics) = metrics.split_once("\r\n\r\n").unwrap();
    let line = "cellar_probe_time_seconds{volume=\"probe.a\",server=\"10.0.0.1\"} 0.001500000\n";
    assert!(metrics.contains(line), "{metrics}");
    let Some(said) = promtool(&["check", "metrics"], metrics) else { return };
    assert_eq!(said, "");
    promtool(&["check", "rules", "prometheus-alerts.yml"], "");
    promtool(&["test", "rules", "prometheus-alerts-test.yml"], "");
    let rules = include_str!("../../../../contrib/observe/prometheus-alerts.yml");
    let tests = include_str!("../../../../contrib/observe/prometheus-alerts-test.yml");
    for rule in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let is_tested = tests.contains(&format!("alertname: {rule}\n"))
            && tests.contains(&format!("alertname: {rule} }}"));
        assert!(is_tested, "{rule} has no test in which it fires, or none in which it does not");
    }

    // Convert each query of the dashboard to a rule, because the tool cannot check it otherwise.
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../../contrib/observe/grafana-dashboard.json")).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let rules = expressions.map(|text| text.replace("$instance", ".*").replace("$__rate_interval", "5m"));
    let rules: Vec<Value> = (0..)
        .zip(rules)
        .map(|(number, expr)| serde_json::json!({"record": format!("r{number}"), "expr": expr}))
        .collect();
    assert!(rules.len() > 20, "{rules:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string())
        .unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()], "");
}

/// In a mixed cell, the first database server may be a foreign one or down. A command on the machine of a
/// Cellar file server uses that one.
#[test]
fn the_configured_file_server_is_examined() {
    let cell = Cell::start(MORE);
    let text = std::fs::read_to_string(&cell.config).unwrap();
    let joining = text
        .replace("[server]\n", "database_servers = [\"192.0.2.1\"]\n[server]\nroles = [\"fs\", \"vol\"]\n");
    std::fs::write(&cell.config, joining).unwrap();
    assert!(cell.run(&["top", "--once"]).starts_with("CALLS\n"));
    let status = cell.json(&["server", "status"]);
    assert_eq!(status["server"], cell.address.to_string());
    assert!(!cell.stat("workers").is_empty());
    assert!(cell.run(&["slow"]).starts_with("No call took"));
    assert!(cell.json(&["volume", "list"]).is_array());
}
