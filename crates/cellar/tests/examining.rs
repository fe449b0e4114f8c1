//! `cellar doctor` beside real cells that have a problem: what it is told of by rules alone elsewhere.

mod support;

use afs_idl::{fs as rxafs, vl};
use base::{AbortCode, Caller, HostUuid};
use bytes::Bytes;
use cellar::client::{CellClient, Interface};
use cellar::commands::volume::{self, Create};
use cellar::config;
use cellar::network::{AfsNetwork, local_authentication};
use cellar::serve::{self, Hindrances};
use load::files::{Fid, Files, volume_root};
use load::station::{FILE_SERVICE, Station};
use rx::{Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry};
use rx_security::Null;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A cell with a volume for everybody.
struct Cell {
    address: Ipv4Addr,
    config: PathBuf,
    client: CellClient,
    root: Fid,
    // Ends before the folder goes.
    _running: serve::Running,
    folder: tempfile::TempDir,
}

impl Cell {
    fn start(more: &str, hindrances: &Hindrances) -> Cell {
        let folder = tempfile::tempdir().unwrap();
        let address = support::address();
        let config = support::configure(folder.path(), address, more).unwrap();
        let settings = Arc::new(config::file::load(&config).unwrap());
        let running = serve::start_hindered(&settings, hindrances).unwrap();
        let network = AfsNetwork::start(Some(local_authentication(&settings.keys).unwrap())).unwrap();
        let client = CellClient::new(Arc::new(network), vec![address]).unwrap();
        let create = Create::with_acl("load".parse().unwrap(), 0, &["system:anyuser=rlidwk"]);
        volume::create_volume(&client, &create).unwrap();
        let root = volume_root(&*client.connection(address, Interface::Locations), "load").unwrap();
        Cell { address, config, client, root, _running: running, folder }
    }

    fn port(&self) -> SocketAddr {
        SocketAddr::from((self.address, 7000))
    }

    /// What the doctor says of this problem: one of its findings.
    fn finding(&self, problem: &str) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
        command.args(["doctor", "--interval", "1", "--json", "--config"]).arg(&self.config);
        let output = command.env("HOME", self.folder.path()).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}{}", String::from_utf8_lossy(&output.stderr));
        let told: Value = serde_json::from_str(&told).unwrap();
        let findings = told["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["problem"] == problem);
        found.unwrap_or_else(|| panic!("no {problem} in {findings:#?}")).clone()
    }
}

/// Does something again and again until this is dropped.
struct Again<'a>(&'a AtomicBool);

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Longer than the queue of a socket of [`BUFFER`]; what is left of it is soon received, and others' calls get through.
const BURST: usize = 4000;
const BUFFER: &str = "[rx]\nlanes = 1\nsocket_buffer_mb = 1\n";

#[test]
fn datagrams_that_the_kernel_drops_are_a_finding() {
    let hindrances = Hindrances { receive_pause: Duration::from_millis(10), ..Hindrances::default() };
    let cell = Cell::start(BUFFER, &hindrances);
    let is_over = AtomicBool::new(false);
    let finding = thread::scope(|scope| {
        let _again = Again(&is_over);
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !is_over.load(Relaxed) {
                (0..BURST).for_each(|_| drop(socket.send_to(&[0; 1400], cell.port())));
                thread::sleep(Duration::from_millis(700));
            }
        });
        cell.finding("datagrams-dropped")
    });
    let evidence = finding["evidence"].to_string();
    assert!(evidence.contains("fileserver lane 0: ") && evidence.contains(" datagrams dropped"), "{finding}");
    assert!(evidence.contains("receive buffers of "), "{finding}");
}

#[test]
fn a_client_that_is_gone_is_a_finding() {
    let cell = Cell::start("[observe]\nslow_call_ms = 1\n", &Hindrances::default());
    let station = Station::start().unwrap();
    let files = Files::new(station.connect(cell.port(), FILE_SERVICE, None));
    let fid = files.create(cell.root, "f").unwrap();
    let gone = Station::start().unwrap();
    let request = rxafs::FetchStatusRequest { fid };
    rxafs::fetch_status(&*gone.connect(cell.port(), FILE_SERVICE, None), &request).unwrap();
    drop(gone);
    files.store(fid, &Bytes::from_static(b"news")).unwrap();
    let finding = cell.finding("callbacks-unanswered");
    let evidence = finding["evidence"].to_string();
    assert!(evidence.contains("since the start 1 and "), "{finding}");
    assert!(evidence.contains("1 of ") && evidence.contains("hosts are down"), "{finding}");
}

/// A file server whose clock is wrong by as many seconds.
struct Ahead(u64);

impl Service for Ahead {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        rxafs::dispatch(self, &caller, call)
    }
}

impl rxafs::Server for Ahead {
    fn get_time(&self, _: &Caller, _: rxafs::GetTimeRequest) -> Result<rxafs::GetTimeReply, AbortCode> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seconds = (now.as_secs() + self.0) as u32;
        Ok(rxafs::GetTimeReply { seconds, microseconds: now.subsec_micros() })
    }
}

#[test]
fn a_server_of_the_cell_whose_clock_is_wrong_is_a_finding() {
    let cell = Cell::start("", &Hindrances::default());
    let other = support::address();
    let config =
        ServerConfig { addresses: vec![other.into()], port: 7000, lanes: 1, ..ServerConfig::default() };
    let entry = ServiceConfig { id: FILE_SERVICE, name: "files".into(), security: vec![Arc::new(Null)] };
    let service = Arc::new(Ahead(3600));
    let _other = Server::start(&config, vec![ServiceEntry { config: entry, service }]).unwrap();
    let locations = cell.client.connection(cell.address, Interface::Locations);
    let uuid = HostUuid(rand::random());
    let request = vl::RegisterAddrsRequest { uuid, spare1: 0, addresses: vec![other.into()] };
    vl::register_addrs(&*locations, &request).unwrap();
    let finding = cell.finding("clock-skew");
    // Seconds pass while the doctor asks; the wrong one is ahead of this machine's by an hour, less the way.
    let evidence = finding["evidence"].as_array().unwrap();
    let [clock] = &evidence[..] else { panic!("{finding}") };
    let clock = clock.as_str().unwrap();
    let ahead = clock.strip_prefix(&format!("{other}: ")).and_then(|rest| rest.split_once(" ms ahead of"));
    let ahead: u64 = ahead.unwrap_or_else(|| panic!("{finding}")).0.parse().unwrap();
    assert!(ahead.abs_diff(3_600_000) < 100_000, "{finding}");
}
