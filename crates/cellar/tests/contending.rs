//! Calls of a running cell that wait for each other, and what the table of locks says of that. Alone in its process, for
//! which locks are counted.

use ::volume::PartitionHandle;
use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use bytes::Bytes;
use cellar::client::{CellClient, Interface};
use cellar::commands::volume::{self, Create};
use cellar::config;
use cellar::network::{AfsNetwork, local_authentication};
use cellar::serve::{self, Hindrances, Running};
use load::files::{Files, volume_root};
use load::station::{FILE_SERVICE, Station};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use store::{Batch, CommitNumber, Family, KeyRange, MetaStore, Snapshot, StoreError, Visit};

/// Calls at a time.
const CALLS: usize = 4;

/// Metadata of which one change can be held up.
struct HeldMeta {
    meta: Arc<dyn MetaStore>,
    /// The next change is to wait.
    is_next: Arc<AtomicBool>,
    /// It has come; it may go on.
    come: SyncSender<()>,
    may_go: Mutex<Receiver<()>>,
}

impl MetaStore for HeldMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.meta.get(family, key)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.meta.scan(family, range, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        if self.is_next.swap(false, SeqCst) {
            self.come.send(()).unwrap();
            self.may_go.lock().unwrap().recv().unwrap();
        }
        self.meta.commit(batch)
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.meta.sync(number)
    }
}

/// All metrics. To ask for them takes no call.
fn metrics(running: &Running) -> String {
    let mut stream = TcpStream::connect(running.metrics_address().unwrap()).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// What the program prints.
fn json(config: &Path, arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    let output = command.args(arguments).args(["--json", "--config"]).arg(config).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().clone()
}

fn write_config(folder: &Path) -> Ipv4Addr {
    let [_, a, b, c] = rand::random::<[u8; 4]>();
    let address = Ipv4Addr::new(127, a | 128, b, c.clamp(2, 250));
    std::fs::create_dir(folder.join("vicepa")).unwrap();
    let secret = Secret::new(&[7; 32]);
    let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret };
    std::fs::write(folder.join("KeyFileExt"), &*write_extended(&[key])).unwrap();
    let text = format!(
        "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n[server]\nbind = [\"{address}\"]\n\
         announce = [\"{address}\"]\n[partitions]\na = \"vicepa\"\n[metrics]\nport = 0\n\
         [observe]\nslow_call_ms = 1\n"
    );
    std::fs::write(folder.join("cellar.toml"), text).unwrap();
    address
}

#[test]
fn the_table_of_locks_has_every_wait_of_calls_to_the_nanosecond() {
    let folder = tempfile::tempdir().unwrap();
    let address = write_config(folder.path());
    let config = folder.path().join("cellar.toml");
    let settings = Arc::new(config::file::load(&config).unwrap());
    let (come, has_come) = sync_channel(1);
    let (go, may_go) = sync_channel(1);
    let is_next = Arc::<AtomicBool>::default();
    let (is_next_too, may_go) = (is_next.clone(), Mutex::new(Some(may_go)));
    let partition = move |mut handle: PartitionHandle| {
        let may_go = Mutex::new(may_go.lock().unwrap().take().unwrap());
        let is_next = is_next_too.clone();
        handle.meta = Arc::new(HeldMeta { meta: handle.meta, is_next, come: come.clone(), may_go });
        handle
    };
    let hindrances = Hindrances { partition: Box::new(partition), ..Hindrances::default() };
    let running = serve::start_hindered(&settings, &hindrances).unwrap();
    let network = Arc::new(AfsNetwork::start(Some(local_authentication(&settings.keys).unwrap())).unwrap());
    let client = CellClient::new(network, vec![address]).unwrap();
    let create = Create::with_acl("load".parse().unwrap(), 0, &["system:anyuser=rlidwk"]);
    volume::create_volume(&client, &create).unwrap();
    let root = volume_root(&*client.connection(address, Interface::Locations), "load").unwrap();
    let stations = [(); CALLS].map(|()| Station::start().unwrap());
    let connections = stations
        .each_ref()
        .map(|station| station.connect(SocketAddr::from((address, 7000)), FILE_SERVICE, None));
    for (number, connection) in connections.iter().enumerate() {
        Files::new(connection.clone()).create(root, &format!("before.{number}")).unwrap();
    }
    // Waits, and their count and sum in the histogram, of the locks of volumes; the sum of all locks' waits.
    let locks = || {
        let rows = json(&config, &["stat", "locks"]);
        let of = |row: &Value| {
            [&row["waits"], &row["wait_ns"]["count"], &row["wait_ns"]["sum"]].map(|it| it.as_u64().unwrap())
        };
        let volume = rows.iter().find(|row| row["lock"] == "volume").map(of).unwrap();
        (volume, rows.iter().map(|row| of(row)[2]).sum::<u64>())
    };
    let before = locks();
    let slow_before = json(&config, &["slow"]).len();

    // One changes the volume, and is held up; the others want to.
    is_next.store(true, SeqCst);
    thread::scope(|scope| {
        for (number, connection) in connections.iter().enumerate() {
            scope.spawn(move || Files::new(connection.clone()).create(root, &format!("f.{number}")).unwrap());
        }
        has_come.recv().unwrap();
        let busy = format!("cellar_workers_busy{{port=\"fileserver\"}} {CALLS}\n");
        while !metrics(&running).contains(&busy) {
            thread::sleep(Duration::from_millis(10));
        }
        // Until they are where they wait: who came later would not have waited, and is told by no call either.
        thread::sleep(Duration::from_millis(300));
        go.send(()).unwrap();
    });

    let waited: Vec<u64> = json(&config, &["slow"])
        .iter()
        .skip(slow_before)
        .filter(|call| call["procedure"] == "CreateFile")
        .filter_map(|call| call["parts_ns"]["lock"].as_u64().filter(|ns| *ns > 0))
        .collect();
    let (now, all) = locks();
    let [waits, count, sum] = [0, 1, 2].map(|at| now[at] - before.0[at]);
    let calls_sum: u64 = waited.iter().sum();
    // A call may have waited for another lock as well, and others than calls for others. If nobody did, these are equal.
    let told =
        format!("{waits} waits, {count} of {sum} ns; calls: {waited:?}; all locks: {} ns", all - before.1);
    assert_eq!(waits, count, "{told}");
    assert!(count <= waited.len() as u64 && sum <= calls_sum && calls_sum <= all - before.1, "{told}");
    assert!(count > 0 && count < CALLS as u64, "{told}");
    running.stop().unwrap();
}
