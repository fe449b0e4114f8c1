//! Calls of a running cell that wait for each other, and what the table of locks and profiles say of that. Alone in its
//! process, for which locks are counted and of which profiles are taken.

#[path = "support/profiles.rs"]
mod profiles;

use ::volume::PartitionHandle;
use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use afs_idl::{ClientConnection, fs as rxafs};
use bytes::Bytes;
use cellar::client::{CellClient, Interface};
use cellar::commands::volume::{self, Create};
use cellar::config;
use cellar::network::{AfsNetwork, local_authentication};
use cellar::serve::{self, Hindrances, Running};
use disk::{DiskStep, HookedDisk, RealDisk};
use load::files::{Fid, Files, volume_root};
use load::station::{FILE_SERVICE, Station};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use store::{HookedMeta, MetaStep};
use tempfile::TempDir;

/// Locks are counted for all cells of a process.
static ALONE: Mutex<()> = Mutex::new(());
/// What is waited for comes sooner.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a lock is held once all wait for it.
const HOLD: Duration = Duration::from_millis(500);
/// Calls at a time.
const CALLS: usize = 4;

/// Holds up whoever comes next to where it is asked, while he has a lock.
#[derive(Clone)]
struct Gate {
    /// The next is to wait.
    is_next: Arc<AtomicBool>,
    /// He has come; he may go on.
    come: SyncSender<()>,
    may_go: Arc<Mutex<Receiver<()>>>,
}

/// The other side of a [`Gate`].
struct Keeper {
    is_next: Arc<AtomicBool>,
    has_come: Receiver<()>,
    go: SyncSender<()>,
}

fn gate() -> (Gate, Keeper) {
    let (come, has_come) = sync_channel(1);
    let (go, may_go) = sync_channel(1);
    let is_next = Arc::<AtomicBool>::default();
    let gate = Gate { is_next: is_next.clone(), come, may_go: Arc::new(Mutex::new(may_go)) };
    (gate, Keeper { is_next, has_come, go })
}

impl Gate {
    fn pass(&self) {
        if self.is_next.swap(false, SeqCst) {
            self.come.send(()).unwrap();
            self.may_go.lock().unwrap().recv().unwrap();
        }
    }
}

/// A change of metadata stands at one gate, with its volume's locks; who makes a segment at the other, with the lock of the
/// partition's.
fn hindrances() -> (Hindrances, Keeper, Keeper) {
    let ((commits, of_commits), (segments, of_segments)) = (gate(), gate());
    let partition = move |mut handle: PartitionHandle| {
        let commits = commits.clone();
        let hook = move |step| {
            if step == MetaStep::Commit {
                commits.pass();
            }
        };
        handle.meta = Arc::new(HookedMeta::new(handle.meta, hook));
        handle
    };
    let hook = move |step| {
        if step == DiskStep::Create {
            segments.pass();
        }
    };
    let disk = Arc::new(HookedDisk::new(Arc::new(RealDisk), hook));
    (Hindrances { disk, partition: Box::new(partition), ..Hindrances::default() }, of_commits, of_segments)
}

/// All metrics. To ask for them takes no call.
fn metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// What the program prints, which ends with this status.
fn printed(config: &Path, arguments: &[&str], status: i32) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command.args(arguments).args(["--json", "--config"]).arg(config);
    let output = command.env("HOME", config.parent().unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Its rows.
fn json(config: &Path, arguments: &[&str]) -> Vec<Value> {
    printed(config, arguments, 0).as_array().unwrap().clone()
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

/// A cell with a volume in which everybody may do everything, and clients.
struct Contended {
    config: PathBuf,
    connections: Vec<Arc<dyn ClientConnection>>,
    root: Fid,
    commits: Keeper,
    segments: Keeper,
    running: Running,
    _stations: Vec<Station>,
    _folder: TempDir,
}

/// Waits of a lock, and their count and sum in the histogram.
type Waits = [u64; 3];

impl Contended {
    fn start() -> Contended {
        let folder = tempfile::tempdir().unwrap();
        let address = write_config(folder.path());
        let config = folder.path().join("cellar.toml");
        let settings = Arc::new(config::file::load(&config).unwrap());
        let (hindrances, commits, segments) = hindrances();
        let running = serve::start_hindered(&settings, &hindrances).unwrap();
        let network =
            Arc::new(AfsNetwork::start(Some(local_authentication(&settings.keys).unwrap())).unwrap());
        let client = CellClient::new(network, vec![address]).unwrap();
        let create = Create::with_acl("load".parse().unwrap(), 0, &["system:anyuser=rlidwk"]);
        volume::create_volume(&client, &create).unwrap();
        let root = volume_root(&*client.connection(address, Interface::Locations), "load").unwrap();
        let stations: Vec<Station> = (0..CALLS).map(|_| Station::start().unwrap()).collect();
        let connect =
            |station: &Station| station.connect(SocketAddr::from((address, 7000)), FILE_SERVICE, None);
        let connections: Vec<_> = stations.iter().map(connect).collect();
        Contended {
            config,
            connections,
            root,
            commits,
            segments,
            running,
            _stations: stations,
            _folder: folder,
        }
    }

    fn files(&self, client: usize) -> Files {
        Files::new(self.connections[client].clone())
    }

    /// What each lock was waited for.
    fn locks(&self) -> BTreeMap<String, Waits> {
        let of = |row: &Value| {
            [&row["waits"], &row["wait_ns"]["count"], &row["wait_ns"]["sum"]].map(|it| it.as_u64().unwrap())
        };
        let rows = json(&self.config, &["stat", "locks"]);
        rows.iter().map(|row| (row["lock"].as_str().unwrap().to_owned(), of(row))).collect()
    }

    /// How many calls of a procedure have ended.
    fn calls(&self, procedure: &str) -> u64 {
        let text = metrics(self.running.metrics_address().unwrap());
        let prefix = format!("cellar_call_calls_total{{service=\"AFS\",procedure=\"{procedure}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).map_or(0, |number| number.parse().unwrap())
    }

    /// All clients make a file at a time, and all but one wait for the volume. Until the server has counted them.
    fn contend_for_the_volume(&self, round: u32) -> Waits {
        let (before, root) = (self.calls("CreateFile"), self.root);
        let create = |client: usize, files: Files| {
            files.create(root, &format!("round.{round}.{client}")).unwrap();
        };
        let waits = self.contend("volume", &self.commits, |files| create(0, files), create);
        let deadline = Instant::now() + PATIENCE;
        while self.calls("CreateFile") < before + CALLS as u64 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        waits
    }

    /// Has one client do `hold`, which stands at the keeper's gate until all others wait for this lock with what they do;
    /// what was waited for it in that time.
    fn contend(
        &self,
        lock: &str,
        keeper: &Keeper,
        hold: impl FnOnce(Files) + Send,
        wait: impl Fn(usize, Files) + Sync,
    ) -> Waits {
        let (before, mut files) = (self.locks()[lock], (0..CALLS).map(|client| self.files(client)));
        let address = self.running.metrics_address().unwrap();
        let holding = files.next().unwrap();
        keeper.is_next.store(true, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| hold(holding));
            keeper.has_come.recv_timeout(PATIENCE).unwrap();
            for (files, client) in files.zip(1..) {
                let wait = &wait;
                scope.spawn(move || wait(client, files));
            }
            let waiting = format!("cellar_lock_waiting{{lock=\"{lock}\"}} {}\n", CALLS - 1);
            let deadline = Instant::now() + PATIENCE;
            while !metrics(address).contains(&waiting) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let told = metrics(address);
            // What they do takes less than that, so that they are slow for want of the lock.
            thread::sleep(HOLD);
            keeper.go.send(()).unwrap();
            assert!(told.contains(&waiting), "not all wait for {lock}: {told}");
        });
        let now = self.locks()[lock];
        [0, 1, 2].map(|at| now[at] - before[at])
    }
}

#[test]
fn the_table_of_locks_has_every_wait_of_calls_to_the_nanosecond() {
    let _alone = ALONE.lock();
    let cell = Contended::start();
    let files: Vec<Fid> = (0..CALLS)
        .map(|client| cell.files(client).create(cell.root, &format!("before.{client}")).unwrap())
        .collect();
    let root = cell.root;
    let slow_before = json(&cell.config, &["slow"]).len();

    // One changes the volume, and is held up; the others want to.
    let create = |client: usize, files: Files| {
        files.create(root, &format!("f.{client}")).unwrap();
    };
    let [waits, count, sum] = cell.contend("volume", &cell.commits, |files| create(0, files), create);
    let waited: Vec<u64> = json(&cell.config, &["slow"])
        .iter()
        .skip(slow_before)
        .filter(|call| call["procedure"] == "CreateFile")
        .filter_map(|call| call["parts_ns"]["lock"].as_u64().filter(|ns| *ns > 0))
        .collect();
    let others = CALLS as u64 - 1;
    assert_eq!((waits, count, sum), (others, others, waited.iter().sum()), "of calls: {waited:?}");
    assert_eq!(waited.len() as u64, others, "{waited:?}");
    // Who looks for what is wrong is told of it.
    let told = printed(&cell.config, &["doctor", "--interval", "1"], 1);
    let findings = told["findings"].as_array().unwrap();
    let contended = findings.iter().find(|finding| finding["problem"] == "contended-lock");
    let contended = contended.unwrap_or_else(|| panic!("{findings:#?}"));
    let volume = format!("Changes of volume {} wait for each other.", root.volume);
    assert_eq!(contended["what"], volume.as_str(), "{contended}");
    let evidence = contended["evidence"].to_string();
    assert!(
        evidence
            .contains(&format!("{others} slow calls lately waited for another change of the same volume")),
        "{contended}"
    );

    // One changes the root directory, and is held up before that takes effect; the others ask what they may do with a file.
    let remove = |files: Files| files.remove(root, "f.0").unwrap();
    let look = |_: usize, asking: Files| {
        rxafs::fetch_status(asking.connection(), &rxafs::FetchStatusRequest { fid: files[0] }).unwrap();
    };
    let [waits, count, sum] = cell.contend("publish", &cell.commits, remove, look);
    assert_eq!((waits, count), (others, others));
    assert!(sum > 0);

    // One writes what a new segment is begun for, and is held up; the others write, too.
    let data = Bytes::from(vec![7; 100_000]);
    let store = |client: usize, owner: Files| owner.store(files[client], &data).unwrap();
    let [waits, count, sum] = cell.contend("segment", &cell.segments, |owner| store(0, owner), store);
    assert_eq!((waits, count), (others, others));
    assert!(sum > 0);
    cell.running.stop().unwrap();
}

/// The line of the source that is named so.
fn source_line(site: &str) -> String {
    let (file, line) = site.rsplit_once(':').unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap().to_owned()
}

#[test]
fn profiles_name_the_lock_its_holder_and_who_waits() {
    let _alone = ALONE.lock();
    let cell = Contended::start();
    let (others, mut round) = (CALLS as u64 - 1, 0);
    let mut contend = || {
        round += 1;
        cell.contend_for_the_volume(round)
    };
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();

    let (locks, [waits, _, ns]) = profiles::during(&cell.config, &["locks"], &mut contend);
    let of_volume: Vec<&Value> = locks.iter().filter(|row| row["lock"] == "volume").collect();
    let [row] = of_volume[..] else { panic!("{locks:#?}") };
    assert_eq!((number(row, "waits"), number(row, "total_ns")), (waits, ns), "{row}");
    assert_eq!(row["waiter"], "AFS CreateFile");
    let holder = row["holder"].as_str().unwrap();
    assert!(holder.starts_with("crates/volume/src/"), "{holder}");
    assert!(source_line(holder).contains("writer.lock()"), "{holder}");

    let stacks = cell.config.with_file_name("off-cpu.folded");
    let arguments = ["off-cpu", "--table", "--folded", stacks.to_str().unwrap()];
    let (functions, [_, _, ns]) = profiles::during(&cell.config, &arguments, &mut contend);
    let stacks = std::fs::read_to_string(stacks).unwrap();
    let prefix = format!("AFS;CreateFile;volume {};[lock];", cell.root.volume);
    let waited = stacks.lines().filter_map(|line| line.strip_prefix(&prefix)?.rsplit_once(' '));
    let waited: Vec<(&str, u64)> = waited.map(|(frames, us)| (frames, us.parse().unwrap())).collect();
    assert!(waited.iter().all(|(frames, _)| frames.contains("volume::")), "{stacks}");
    let us: u64 = waited.iter().map(|(_, us)| us).sum();
    assert!((ns / 1000).abs_diff(us) <= waited.len() as u64, "{us} us, not {ns} ns: {stacks}");
    let shown = functions.iter().find(|row| row["function"] == "[lock]");
    assert!(shown.is_some_and(|row| number(row, "total_us") >= us), "{functions:#?}");

    let (latencies, _) = profiles::during(&cell.config, &["latency"], &mut contend);
    let creations = latencies.iter().filter(|row| row["procedure"] == "AFS CreateFile");
    let (waited, free): (Vec<&Value>, Vec<&Value>) =
        creations.partition(|row| row["path"].as_str().unwrap().contains("lock"));
    let calls = |rows: &[&Value]| rows.iter().map(|row| number(row, "calls")).sum::<u64>();
    assert_eq!((calls(&waited), calls(&free)), (others, 1), "{latencies:#?}");
    cell.running.stop().unwrap();
}
