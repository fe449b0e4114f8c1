//! Tables of hosts, peers, callbacks, partitions and the process beside loads that are known: from clients that have
//! addresses of their own, so that no other counts among theirs.

mod support;

use afs_idl::{CallStream, ClientConnection, Forgetful, cb, fs as rxafs};
use base::{AbortCode, HostUuid};
use bytes::Bytes;
use cellar::client::{CellClient, Interface};
use cellar::commands::volume::{self, Create};
use cellar::config::{self, Settings};
use cellar::network::{AfsNetwork, local_authentication};
use cellar::serve::{self, Hindrances};
use load::files::{Fid, Files, volume_root};
use load::station::FILE_SERVICE;
use rx::{Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry};
use rx_security::Null;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is waited for comes sooner.
const PATIENCE: Duration = Duration::from_secs(60);

/// The service of locations, and its port.
const LOCATIONS: (u16, u16) = (7003, 52);

/// A second partition, which cannot be opened, and metrics, which can be asked for without a call.
const MORE: &str = "b = \"vicepb\"\n[metrics]\nport = 0\n";

struct Cell {
    address: Ipv4Addr,
    config: PathBuf,
    settings: Arc<Settings>,
    // Ends before the folder goes.
    running: serve::Running,
    folder: tempfile::TempDir,
}

impl Cell {
    fn start(hindrances: &Hindrances) -> Cell {
        let folder = tempfile::tempdir().unwrap();
        let address = support::address();
        let config = support::configure(folder.path(), address, MORE).unwrap();
        std::fs::write(folder.path().join("vicepb"), "no folder").unwrap();
        let settings = Arc::new(config::file::load(&config).unwrap());
        let running = serve::start_hindered(&settings, hindrances).unwrap();
        Cell { address, config, settings, running, folder }
    }

    fn restart(self) -> Cell {
        self.running.stop().unwrap();
        let running = serve::start(&self.settings).unwrap();
        Cell { running, ..self }
    }

    fn client(&self) -> CellClient {
        let network = AfsNetwork::start(Some(local_authentication(&self.settings.keys).unwrap())).unwrap();
        CellClient::new(Arc::new(network), vec![self.address]).unwrap()
    }

    /// Makes a volume for everybody; its root.
    fn volume(&self, name: &str) -> Fid {
        let client = self.client();
        let create = Create::with_acl(name.parse().unwrap(), 0, &["system:anyuser=rlidwk"]);
        volume::create_volume(&client, &create).unwrap();
        volume_root(&*client.connection(self.address, Interface::Locations), name).unwrap()
    }

    fn port(&self) -> SocketAddr {
        SocketAddr::from((self.address, 7000))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(arguments).args(["--json", "--config"]).arg(&self.config);
        command
    }

    /// Rows of a table.
    fn stat(&self, table: &str) -> Vec<Value> {
        let output = self.command(&["stat", table]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().clone()
    }

    /// Figures of what clients are told of changes, by the names of their metrics.
    fn callbacks<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let mut stream = TcpStream::connect(self.running.metrics_address().unwrap()).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        names.map(|name| {
            let start = format!("cellar_callbacks_{name}{{port=\"fileserver\"}} ");
            let number = text.lines().find_map(|line| line.strip_prefix(&start));
            number.unwrap_or_else(|| panic!("no {start}: {text}")).parse().unwrap()
        })
    }
}

/// What answers a client's callbacks.
struct Callbacks(Forgetful);

impl Service for Callbacks {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        cb::dispatch(&self.0, &caller, call)
    }
}

/// A client with an address of its own.
fn client_at(address: Ipv4Addr) -> Server {
    let config = ServerConfig {
        addresses: vec![address.into()],
        lanes: 1,
        workers_min: 1,
        workers_max: 4,
        ..ServerConfig::default()
    };
    let service = Arc::new(Callbacks(Forgetful::new(HostUuid(rand::random()))));
    let entry = ServiceConfig { id: FILE_SERVICE, name: "callbacks".into(), security: vec![Arc::new(Null)] };
    Server::start(&config, vec![ServiceEntry { config: entry, service }]).unwrap()
}

fn look(connection: &dyn ClientConnection, fid: Fid) {
    rxafs::fetch_status(connection, &rxafs::FetchStatusRequest { fid }).unwrap();
}

fn find<'a>(rows: &'a [Value], of: &[(&str, &str)]) -> &'a Value {
    let found = rows.iter().find(|row| of.iter().all(|(key, value)| row[*key] == *value));
    found.unwrap_or_else(|| panic!("no {of:?} in {rows:?}"))
}

fn numbers<const N: usize>(row: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| row[name].as_u64().unwrap_or_else(|| panic!("no {name} in {row}")))
}

/// Waits for what comes a moment later.
fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A client writes in the midst of a store for as long as this.
const PAUSE: Duration = Duration::from_millis(300);

/// Stores these bytes, and pauses in the midst of them.
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
    let cell = Cell::start(&Hindrances::default());
    let root = cell.volume("load");
    let begun = Instant::now();
    let host = support::address();
    let client = client_at(host);
    let connections: Vec<_> = (0..3).map(|_| client.connect(cell.port(), FILE_SERVICE, None)).collect();
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
    let told = row();
    // Those three, and one to the location server. The file server's own, on which it asks who the client is, are ended.
    let own = || client.peers().0.iter().map(|peer| peer.counters.connections).sum::<u64>();
    let made = own();
    assert!(made > 4);
    assert_eq!(numbers(&told, ["connections", "opened"]), [4, made], "{told}");
    let classes = numbers(&told["classes"], ["fetch", "store", "status", "change", "lock"]);
    assert_eq!(classes, [4, 1, 5, 1, 0], "{told}");
    let [calls, failed, data_calls] = numbers(&told, ["calls", "failed", "data_calls"]);
    let other = told["classes"]["other"].as_u64().unwrap();
    assert_eq!((calls, failed, data_calls), (4 + 1 + 5 + 1 + other, 0, 4 + 1), "{told}");
    let [time, longest] = numbers(&told, ["data_time_ns", "data_longest_ns"]);
    let all = begun.elapsed().as_nanos() as u64;
    let pause = PAUSE.as_nanos() as u64;
    assert!(pause <= longest && longest <= time && time <= 5 * all && longest <= all, "{told} of {all} ns");
    // What people are shown are these.
    let mut text = Command::new(env!("CARGO_BIN_EXE_cellar"));
    let text = text.args(["stat", "hosts", "--config"]).arg(&cell.config).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let cells = text.lines().find(|line| line.trim_start().starts_with(&host)).unwrap();
    assert!(cells.split("  ").any(|cell| cell.trim() == doctor::text::time(longest)), "{text}");
    assert!(cells.split("  ").any(|cell| cell.trim() == doctor::text::time(time / 5)), "{text}");

    // Two more, by second: how many came in all intervals since the first.
    let mut top = cell.command(&["top", "--interval", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut documents = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut opened = || {
        let document: Value = serde_json::from_str(&documents.next().unwrap().unwrap()).unwrap();
        let rows = document["hosts"].as_array().unwrap();
        let row = find(rows, &[("host", &host)]);
        (row["opened"].as_f64().unwrap() * document["seconds"].as_f64().unwrap(), row["connections"].clone())
    };
    assert!(opened().0 < 0.1, "there were none");
    let more: Vec<_> = (0..2).map(|_| client.connect(cell.port(), FILE_SERVICE, None)).collect();
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

/// What took long does not hide what comes after it.
#[test]
fn the_longest_call_between_two_looks_is_none_of_before() {
    let cell = Cell::start(&Hindrances::default());
    let root = cell.volume("load");
    let host = support::address();
    let client = client_at(host);
    let files = Files::new(client.connect(cell.port(), FILE_SERVICE, None));
    let fid = files.create(root, "f").unwrap();
    store_slowly(files.connection(), fid, &Bytes::from(vec![7; 40_000]));
    cell.running.recorder().next_period();

    let (host, volume) = (host.to_string(), root.volume.to_string());
    let longest = |arguments: &[&str]| {
        let printed = cell.command(arguments).output().unwrap().stdout;
        let document: Value = serde_json::from_slice(&printed).unwrap();
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
    assert!(ever.iter().all(|ns| *ns >= PAUSE.as_nanos() as u64), "{ever:?}");
}

#[test]
fn a_peer_is_told_of_as_it_tells_of_the_server() {
    let cell = Cell::start(&Hindrances::default());
    let root = cell.volume("load");
    let begun = Instant::now();
    let host = support::address();
    let client = client_at(host);
    let files = Files::new(client.connect(cell.port(), FILE_SERVICE, None));
    let fid = files.create(root, "f").unwrap();
    let data = Bytes::from(vec![7; 1_000_000]);
    files.store(fid, &data).unwrap();
    files.fetch_and_compare(fid, &data, 1 << 20).unwrap();
    (0..50).for_each(|_| look(files.connection(), fid));

    // The same packets, from both ends, when the last acknowledgement has arrived.
    let (told, own) = soon("both count the same", || {
        let peers = client.peers().0;
        let own = peers.into_iter().find(|peer| peer.address == cell.port())?;
        let rows = cell.stat("peers");
        let of_host = |row: &&Value| row["peer"].as_str().unwrap().starts_with(&format!("{host}:"));
        let told = rows.iter().find(of_host)?.clone();
        let [received, sent, opened] = numbers(&told, ["received_bytes", "sent_bytes", "opened"]);
        let counted = &own.counters;
        let is_same =
            (received, sent, opened) == (counted.bytes_sent, counted.bytes_received, counted.connections);
        is_same.then_some((told, own))
    });
    assert_eq!(told["port"], "fileserver");
    // What the server asked on one of its own, who the client is, is over.
    assert_eq!((numbers(&told, ["connections"]), own.counters.connections), ([1], 2), "{told}");
    // Nothing is lost here, but what is late may be sent again.
    let [sent, resent] = numbers(&told, ["data_sent", "data_resent"]);
    let [packet, window, congestion] = numbers(&told, ["packet_bytes", "window", "congestion_window"]);
    assert_eq!(packet, own.packet_bytes as u64, "both found the same path");
    assert!((sent - resent) * packet >= data.len() as u64, "{told}");
    // Both have the same limits of windows.
    assert!((1..=4096).contains(&window) && (1..=4096).contains(&congestion), "{told} {own:?}");
    assert!(own.window_packets >= 1 && u64::from(own.window_packets) <= 4096, "{own:?}");
    let all = begun.elapsed().as_nanos() as u64;
    let [trip, timeout] = numbers(&told, ["round_trip_ns", "timeout_ns"]);
    let trips = &told["round_trips_ns"];
    let [count, sum, p50, p99, max] = numbers(trips, ["count", "sum", "p50", "p99", "max"]);
    // What is told of the longest is at most twice and an eighth too great. How many are measured differs.
    assert!(0 < trip && trip <= timeout && trip <= all && max <= 3 * all, "{told}");
    assert!(count > 0 && sum <= count * max && p50 <= p99 && p99 <= max, "{told}");
    // The client measured the same way, both of which went over this machine's loopback only.
    assert!(!own.rtt.is_zero() && (own.rtt.as_nanos() as u64) <= all, "{own:?}");
}

#[test]
fn promises_are_those_that_were_made_and_not_taken_back() {
    let cell = Cell::start(&Hindrances::default());
    let root = cell.volume("load");
    let names = ["hosts", "promises", "delivered_total", "unanswered_total"];
    let maker = client_at(support::address());
    let making = Files::new(maker.connect(cell.port(), FILE_SERVICE, None));
    let fids: Vec<Fid> = (0..5).map(|number| making.create(root, &format!("f{number}")).unwrap()).collect();
    making.give_up_callbacks();
    let before = cell.callbacks(names);
    let since = || {
        let now = cell.callbacks(names);
        [0, 1, 2, 3].map(|at| now[at].cast_signed() - before[at].cast_signed())
    };

    let readers = [client_at(support::address()), client_at(support::address())];
    let reading =
        readers.each_ref().map(|reader| Files::new(reader.connect(cell.port(), FILE_SERVICE, None)));
    for _ in 0..2 {
        for (number, fid) in fids.iter().enumerate() {
            look(reading[0].connection(), *fid);
            if number < 3 {
                look(reading[1].connection(), *fid);
            }
        }
    }
    assert_eq!(since(), [2, 5 + 3, 0, 0], "asked again is not promised again");
    // Both had promises of the first, and are told once each. Who writes is promised nothing.
    making.store(fids[0], &Bytes::from_static(b"news")).unwrap();
    assert_eq!(since(), [2, 4 + 2, 2, 0]);
    reading[0].give_up_callbacks();
    assert_eq!(since(), [2, 2, 2, 0]);
    let rows = cell.stat("callbacks");
    let row = find(&rows, &[("port", "fileserver")]);
    let told = numbers(row, ["hosts", "promises", "delivered", "unanswered"]);
    assert_eq!(told, cell.callbacks(names), "the table is what the metrics are");
    assert_eq!(numbers(row, ["hosts_down", "evictions"]), [0, 0]);
}

#[test]
fn partitions_and_the_process_are_as_they_are() {
    let earliest = SystemTime::now();
    let never = Hindrances { reclaim_pause: Duration::from_secs(3600), ..Hindrances::default() };
    let cell = Cell::start(&never);
    let latest = SystemTime::now();
    let roots = ["one", "two", "three", "four", "five"].map(|name| cell.volume(name));
    for name in ["four", "five"] {
        let output = cell.command(&["volume", "remove", name]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let rows = cell.stat("partitions");
    let [open, broken] = ["/vicepa", "/vicepb"].map(|name| find(&rows, &[("partition", name)]));
    let space = rustix::fs::statvfs(cell.folder.path().join("vicepa")).unwrap();
    let [size, free, offline, damaged, reclaiming] =
        numbers(open, ["size_bytes", "free_bytes", "offline", "damaged", "reclaiming"]);
    assert_eq!(
        (size, offline, damaged, reclaiming),
        ((space.f_blocks * space.f_frsize) & !1023, 0, 0, 2),
        "{open}"
    );
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
    // It is this process, whose memory goes up and down, but not by much meanwhile.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let own = kib.unwrap().parse::<u64>().unwrap() << 10;
    assert!(resident > own / 4 && resident < own * 4, "{resident} of {own}");

    let cell = cell.restart();
    let client = client_at(support::address());
    let connection = client.connect(cell.port(), FILE_SERVICE, None);
    let before = process(&cell)[2];
    look(&*connection, roots[0]);
    look(&*connection, roots[1]);
    let now = process(&cell);
    assert_eq!((before, now[2]), (0, 2), "what was asked for is in memory");
    assert!(now[0] > started, "it is another start");
}
