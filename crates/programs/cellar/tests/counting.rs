//! Compares the tables of hosts, peers, callbacks, partitions and the process with known loads. Each client
//! has an address of its own, so that its figures are separate.

mod support;

use afs_idl::{CallStream, ClientConnection, Forgetful, cb, fs as rxafs};
use base::{AbortCode, CallContext, HostUuid};
use bytes::Bytes;
use cellar_server::FaultInjection;
use load::files::{Fid, Files, volume_root};
use load::station::FILE_SERVICE;
use rx::{Server, ServerCall, Service};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::cell::Cell;
use support::place::{Place, address};
use support::{PATIENCE, figure, look, serve, soon};

/// UDP port and service ID of the location service.
const LOCATIONS: (u16, u16) = (7003, 52);

/// A second partition, which cannot be opened, and metrics, which can be read without a call.
const MORE: &str = "b = \"vicepb\"\n[metrics]\nport = 0\n";

fn start(faults: &FaultInjection) -> Cell {
    let place = Place::new(MORE);
    std::fs::write(place.path("vicepb"), "no folder").unwrap();
    Cell::start_at(place, faults)
}

/// Returns callback figures, by the names of their metrics.
fn callbacks<const N: usize>(cell: &Cell, names: [&str; N]) -> [u64; N] {
    let metrics = cell.get("/metrics");
    names.map(|name| {
        let name = format!("cellar_callbacks_{name}{{port=\"fileserver\"}}");
        figure(&metrics, &name).unwrap_or_else(|| panic!("no {name}: {metrics}"))
    })
}

/// Answers a client's callbacks.
struct Callbacks(Forgetful);

impl Service for Callbacks {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        cb::dispatch(&self.0, &CallContext::new(&caller), call)
    }
}

/// Starts a client with an address of its own.
fn client_at(address: Ipv4Addr) -> Server {
    serve(address, 0, Callbacks(Forgetful::new(HostUuid(rand::random()))))
}

fn find<'a>(rows: &'a [Value], of: &[(&str, &str)]) -> &'a Value {
    let found = rows.iter().find(|row| of.iter().all(|(key, value)| row[*key] == *value));
    found.unwrap_or_else(|| panic!("no {of:?} in {rows:?}"))
}

fn numbers<const N: usize>(row: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| row[name].as_u64().unwrap_or_else(|| panic!("no {name} in {row}")))
}

/// Length of a client's pause in the middle of a store.
const PAUSE: Duration = Duration::from_millis(300);

/// Stores these bytes with a pause in the middle.
fn store_slowly(connection: &dyn ClientConnection, fid: Fid, data: &Bytes) {
    let length = data.len() as u64;
    let request = rxafs::StoreData64Request { fid, length, file_length: length, ..Default::default() };
    let write = |stream: &mut dyn CallStream| {
        stream.write(data.slice(..data.len() / 2))?;
        thread::sleep(PAUSE);
        stream.write(data.slice(data.len() / 2..))
    };
    rxafs::store_data64(connection, &request, write).unwrap();
}

#[test]
fn a_host_has_its_connections_its_calls_and_how_long_they_took() {
    let cell = start(&FaultInjection::default());
    let root = cell.volume("load");
    let begun = Instant::now();
    let host = address();
    let client = client_at(host);
    let connections: Vec<_> = (0..3).map(|_| client.connect(cell.files_port(), FILE_SERVICE, None)).collect();
    let files = Files::new(connections[0].clone());
    let fid = files.create(root, "f").unwrap();
    let data = Bytes::from(vec![7; 40_000]);
    store_slowly(&*connections[1], fid, &data);
    files.fetch_and_compare(fid, &data, 10_000).unwrap();
    (0..5).for_each(|_| look(&*connections[2], fid));
    volume_root(&*client.connect(SocketAddr::from((cell.address, LOCATIONS.0)), LOCATIONS.1, None), "load")
        .unwrap();

    let host = host.to_string();
    let row = || find(&cell.stat("hosts"), &[("host", &host)]).clone();
    let reported = row();
    // Those three, and one to the location server. The file server's own connections, with which it asked for
    // the client's identity, are closed.
    let own = || client.peers().0.iter().map(|peer| peer.counters.connections).sum::<u64>();
    let made = own();
    assert!(made > 4);
    assert_eq!(numbers(&reported, ["connections", "opened"]), [4, made], "{reported}");
    let classes = numbers(&reported["classes"], ["fetch", "store", "status", "change", "lock"]);
    assert_eq!(classes, [4, 1, 5, 1, 0], "{reported}");
    let [calls, failed, data_calls] = numbers(&reported, ["calls", "failed", "data_calls"]);
    let other = reported["classes"]["other"].as_u64().unwrap();
    assert_eq!((calls, failed, data_calls), (4 + 1 + 5 + 1 + other, 0, 4 + 1), "{reported}");
    let [time, longest] = numbers(&reported, ["data_time_ns", "data_longest_ns"]);
    let all = begun.elapsed().as_nanos() as u64;
    let pause = PAUSE.as_nanos() as u64;
    // A busy server starts a call later than its client.
    assert!(
        pause / 2 <= longest && longest <= time && time <= 5 * all && longest <= all,
        "{reported} of {all} ns"
    );
    // The text output shows the same figures.
    let text = cell.run(&["stat", "hosts"]);
    let cells = text.lines().find(|line| line.trim_start().starts_with(&host)).unwrap();
    assert!(cells.split("  ").any(|cell| cell.trim() == doctor::text::time(longest)), "{text}");
    assert!(cells.split("  ").any(|cell| cell.trim() == doctor::text::time(time / 5)), "{text}");

    // Two more connections, as rates per second: how many appeared in all intervals since the first.
    let mut top = cell.command(&["top", "--interval", "1", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut documents = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut opened = || {
        let document: Value = serde_json::from_str(&documents.next().unwrap().unwrap()).unwrap();
        let rows = document["hosts"].as_array().unwrap();
        let row = find(rows, &[("host", &host)]);
        (row["opened"].as_f64().unwrap() * document["seconds"].as_f64().unwrap(), row["connections"].clone())
    };
    assert!(opened().0 < 0.1, "there were none");
    let more: Vec<_> = (0..2).map(|_| client.connect(cell.files_port(), FILE_SERVICE, None)).collect();
    for connection in &more {
        look(&**connection, fid);
    }
    let (mut sum, least) = (0.0, f64::from((own() - made) as u32) - 0.5);
    let deadline = Instant::now() + PATIENCE;
    while sum < least {
        assert!(Instant::now() < deadline, "{sum} connections");
        let (came, present) = opened();
        sum += came;
        assert!(sum < least || present == 6, "{present}");
    }
    assert!((sum - least - 0.5).abs() < 0.2, "{sum}");
    top.kill().unwrap();
    top.wait().unwrap();
    assert_eq!(numbers(&row(), ["connections", "opened"]), [6, own()]);
}

/// An earlier long call does not hide later ones.
#[test]
fn the_longest_call_between_two_looks_is_none_of_before() {
    let cell = start(&FaultInjection::default());
    let root = cell.volume("load");
    let host = address();
    let client = client_at(host);
    let files = Files::new(client.connect(cell.files_port(), FILE_SERVICE, None));
    let fid = files.create(root, "f").unwrap();
    store_slowly(files.connection(), fid, &Bytes::from(vec![7; 40_000]));
    cell.running.recorder().next_period();

    let (host, volume) = (host.to_string(), root.volume.to_string());
    let longest = |arguments: &[&str]| {
        let document = cell.json(arguments);
        let of = |table: &str, labels: &[(&str, &str)], name: &str| {
            numbers(find(document[table].as_array().unwrap(), labels), [name])[0]
        };
        [
            of("volumes", &[("volume", &volume)], "longest_ns"),
            of("clients", &[("host", &host)], "longest_ns"),
            of("hosts", &[("host", &host)], "data_longest_ns"),
        ]
    };
    assert_eq!(longest(&["top", "--once", "--interval", "1"]), [0; 3], "nothing came");
    let ever = longest(&["top", "--once"]);
    // A busy server starts a call later than its client.
    assert!(ever.iter().all(|ns| *ns >= PAUSE.as_nanos() as u64 / 2), "{ever:?}");
}

#[test]
fn both_peers_report_the_same_figures() {
    let cell = start(&FaultInjection::default());
    let root = cell.volume("load");
    let begun = Instant::now();
    let host = address();
    let client = client_at(host);
    let files = Files::new(client.connect(cell.files_port(), FILE_SERVICE, None));
    let fid = files.create(root, "f").unwrap();
    let data = Bytes::from(vec![7; 1_000_000]);
    files.store(fid, &data).unwrap();
    files.fetch_and_compare(fid, &data, 1 << 20).unwrap();
    (0..50).for_each(|_| look(files.connection(), fid));

    // Both ends count the same packets once the last acknowledgement has arrived.
    let (reported, own) = soon("both count the same", || {
        let peers = client.peers().0;
        let own = peers.into_iter().find(|peer| peer.address == cell.files_port())?;
        let rows = cell.stat("peers");
        let of_host = |row: &&Value| row["peer"].as_str().unwrap().starts_with(&format!("{host}:"));
        let reported = rows.iter().find(of_host)?.clone();
        let [received, sent, opened] = numbers(&reported, ["received_bytes", "sent_bytes", "opened"]);
        let counted = &own.counters;
        let is_same =
            (received, sent, opened) == (counted.bytes_sent, counted.bytes_received, counted.connections);
        is_same.then_some((reported, own))
    });
    assert_eq!(reported["port"], "fileserver");
    // The server's own connection, with which it asked for the client's identity, is closed.
    assert_eq!((numbers(&reported, ["connections"]), own.counters.connections), ([1], 2), "{reported}");
    // Nothing is lost here, but late packets may be retransmitted.
    let [sent, resent] = numbers(&reported, ["data_sent", "data_resent"]);
    let [packet, window, congestion] = numbers(&reported, ["packet_bytes", "window", "congestion_window"]);
    assert_eq!(packet, own.packet_bytes as u64, "both found the same path");
    assert!((sent - resent) * packet >= data.len() as u64, "{reported}");
    // Both ends have the same window limits.
    assert!((1..=4096).contains(&window) && (1..=4096).contains(&congestion), "{reported} {own:?}");
    assert!(own.window_packets >= 1 && u64::from(own.window_packets) <= 4096, "{own:?}");
    let all = begun.elapsed().as_nanos() as u64;
    let [trip, timeout] = numbers(&reported, ["round_trip_ns", "timeout_ns"]);
    let trips = &reported["round_trips_ns"];
    let [count, sum, p50, p99, max] = numbers(trips, ["count", "sum", "p50", "p99", "max"]);
    // The reported maximum may be twice the true one plus an eighth. The number of measurements varies.
    assert!(0 < trip && trip <= timeout && trip <= all && max <= 3 * all, "{reported}");
    assert!(count > 0 && sum <= count * max && p50 <= p99 && p99 <= max, "{reported}");
    // The client measured the same way; both used only the loopback interface.
    assert!(!own.rtt.is_zero() && (own.rtt.as_nanos() as u64) <= all, "{own:?}");
}

#[test]
fn promises_are_those_that_were_made_and_not_taken_back() {
    let cell = start(&FaultInjection::default());
    let root = cell.volume("load");
    let names = ["hosts", "promises", "delivered_total", "unanswered_total"];
    let maker = client_at(address());
    let making = Files::new(maker.connect(cell.files_port(), FILE_SERVICE, None));
    let fids: Vec<Fid> = (0..5).map(|number| making.create(root, &format!("f{number}")).unwrap()).collect();
    making.give_up_callbacks();
    let before = callbacks(&cell, names);
    let since = || {
        let now = callbacks(&cell, names);
        [0, 1, 2, 3].map(|at| now[at].cast_signed() - before[at].cast_signed())
    };

    let readers = [client_at(address()), client_at(address())];
    let reading =
        readers.each_ref().map(|reader| Files::new(reader.connect(cell.files_port(), FILE_SERVICE, None)));
    for _ in 0..2 {
        for (number, fid) in fids.iter().enumerate() {
            look(reading[0].connection(), *fid);
            if number < 3 {
                look(reading[1].connection(), *fid);
            }
        }
    }
    assert_eq!(since(), [2, 5 + 3, 0, 0], "asked again is not promised again");
    // Both had callback promises for the first file, and receive one callback break each. The writer receives
    // no promise.
    making.store(fids[0], &Bytes::from_static(b"news")).unwrap();
    assert_eq!(since(), [2, 4 + 2, 2, 0]);
    reading[0].give_up_callbacks();
    assert_eq!(since(), [2, 2, 2, 0]);
    let rows = cell.stat("callbacks");
    let row = find(&rows, &[("port", "fileserver")]);
    let reported = numbers(row, ["hosts", "promises", "delivered", "unanswered"]);
    assert_eq!(reported, callbacks(&cell, names), "the table is what the metrics are");
    assert_eq!(numbers(row, ["hosts_down", "evictions"]), [0, 0]);
}

#[test]
fn partitions_and_the_process_are_as_they_are() {
    let earliest = SystemTime::now();
    let never = FaultInjection { reclaim_pause: Duration::from_secs(3600), ..FaultInjection::default() };
    let cell = start(&never);
    let latest = SystemTime::now();
    let roots = ["one", "two", "three", "four", "five"].map(|name| cell.volume(name));
    for name in ["four", "five"] {
        cell.run(&["volume", "remove", name]);
    }
    let rows = cell.stat("partitions");
    let [open, broken] = ["/vicepa", "/vicepb"].map(|name| find(&rows, &[("partition", name)]));
    let space = rustix::fs::statvfs(cell.path("vicepa")).unwrap();
    let [size, free, offline, damaged, reclaiming] =
        numbers(open, ["size_bytes", "free_bytes", "offline", "damaged", "reclaiming"]);
    assert_eq!((offline, damaged, reclaiming), (0, 0, 2), "{open}");
    // Without the blocks reserved for root and the store's reserve.
    let usable = (space.f_blocks - (space.f_bfree - space.f_bavail)) * space.f_frsize;
    assert!(size < usable && size > usable / 10 * 9, "{usable}: {open}");
    assert!(free > 0 && free < size, "{open}");
    assert_eq!(numbers(broken, ["size_bytes", "free_bytes", "offline"]), [0, 0, 1]);

    let process = |cell: &Cell| {
        let rows = cell.stat("process");
        let [row] = &rows[..] else { panic!("{rows:?}") };
        numbers(row, ["started_ns", "resident_bytes", "volumes_loaded"])
    };
    let [started, resident, loaded] = process(&cell);
    let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert!((since_1970(earliest)..=since_1970(latest)).contains(&started), "{started}");
    assert_eq!(loaded, 3, "those that are not removed");
    // This is the same process, whose memory use varies, but not by much in this time.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let own = kib.unwrap().parse::<u64>().unwrap() << 10;
    assert!(resident > own / 4 && resident < own * 4, "{resident} of {own}");

    let cell = cell.restart();
    let client = client_at(address());
    let connection = client.connect(cell.files_port(), FILE_SERVICE, None);
    let before = process(&cell)[2];
    look(&*connection, roots[0]);
    look(&*connection, roots[1]);
    let now = process(&cell);
    assert_eq!((before, now[2]), (0, 2), "what was asked for is in memory");
    assert!(now[0] > started, "it is another start");
}
