//! Contention between calls of a running cell, as shown in the table of locks and in profiles. A separate
//! test program, because locks are counted and profiles taken per process.

mod support;

use afs_idl::ClientConnection;
use bytes::Bytes;
use cellar_server::FaultInjection;
use disk::{DiskStep, HookedDisk, RealDisk};
use load::files::{Fid, Files};
use load::station::Station;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use store::{HookedMeta, MetaStep};
use support::cell::Cell;
use support::place::Place;
use support::{PATIENCE, profiles};
use volume::PartitionHandle;

/// Serialises the tests, because locks are counted for all cells of a process.
static ALONE: Mutex<()> = Mutex::new(());
/// Time for which a lock is held once all others wait for it.
const HOLD: Duration = Duration::from_millis(500);
/// Number of concurrent calls.
const CALLS: usize = 4;

/// Stops the next thread that passes it, while the thread holds a lock.
#[derive(Clone)]
struct Gate {
    /// Whether the next thread is to be stopped.
    is_next: Arc<AtomicBool>,
    /// Signals that a thread has arrived, and when it may continue.
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

/// Injects a gate before each commit, passed with the volume's locks, and one before the creation of a
/// segment, passed with the partition's lock.
fn faults() -> (FaultInjection, Keeper, Keeper) {
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
    (
        FaultInjection { disk, partition: Box::new(partition), ..FaultInjection::default() },
        of_commits,
        of_segments,
    )
}

/// Records even short waits as slow calls, and enables metrics, which can be read without a call.
const MORE: &str = "[metrics]\nport = 0\n[observe]\nslow_call_ms = 1\n\
    [store]\nscrub_mb_per_s = 0\ncompaction_mb_per_s = 0\n";

/// A cell with a volume in which all callers have all rights, and clients.
struct Contended {
    connections: Vec<Arc<dyn ClientConnection>>,
    root: Fid,
    commits: Keeper,
    segments: Keeper,
    cell: Cell,
    _stations: Vec<Station>,
}

/// Number of waits for a lock, and the count and sum of their histogram.
type Waits = [u64; 3];

impl Contended {
    fn start() -> Contended {
        let (faults, commits, segments) = faults();
        let cell = Cell::start_at(Place::new(MORE), &faults);
        let root = cell.volume("load");
        let stations: Vec<Station> = (0..CALLS).map(|_| Station::start().unwrap()).collect();
        let connections = stations.iter().map(|station| cell.connect(station)).collect();
        Contended { connections, root, commits, segments, cell, _stations: stations }
    }

    fn files(&self, client: usize) -> Files {
        Files::new(self.connections[client].clone())
    }

    /// Returns the waits for each lock.
    fn locks(&self) -> BTreeMap<String, Waits> {
        let of = |row: &Value| {
            [&row["waits"], &row["wait_ns"]["count"], &row["wait_ns"]["sum"]].map(|it| it.as_u64().unwrap())
        };
        let rows = self.cell.stat("locks");
        rows.iter().map(|row| (row["lock"].as_str().unwrap().to_owned(), of(row))).collect()
    }

    /// Returns the number of finished calls of a procedure.
    fn calls(&self, procedure: &str) -> u64 {
        let name = format!("cellar_call_calls_total{{service=\"AFS\",procedure=\"{procedure}\"}}");
        self.cell.figure(&name).unwrap_or(0)
    }

    /// Has each client create a file concurrently, so that all but one wait for the volume. Returns once the
    /// server has counted the calls.
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

    /// Has one client do `hold`, which stops at the keeper's gate until all others wait for this lock in
    /// `wait`. Returns the waits for the lock in that time.
    fn contend(
        &self,
        lock: &str,
        keeper: &Keeper,
        hold: impl FnOnce(Files) + Send,
        wait: impl Fn(usize, Files) + Sync,
    ) -> Waits {
        let (before, mut files) = (self.locks()[lock], (0..CALLS).map(|client| self.files(client)));
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
            while !self.cell.get("/metrics").contains(&waiting) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let reported = self.cell.get("/metrics");
            // The calls themselves take less time, so that they are slow only because of the lock.
            thread::sleep(HOLD);
            keeper.go.send(()).unwrap();
            assert!(reported.contains(&waiting), "not all wait for {lock}: {reported}");
        });
        let now = self.locks()[lock];
        [0, 1, 2].map(|at| now[at] - before[at])
    }
}

#[test]
fn the_table_of_locks_has_every_wait_of_calls_to_the_nanosecond() {
    let _alone = ALONE.lock();
    let contended = Contended::start();
    let cell = &contended.cell;
    let files: Vec<Fid> = (0..CALLS)
        .map(|client| contended.files(client).create(contended.root, &format!("before.{client}")).unwrap())
        .collect();
    let root = contended.root;
    let slow_before = cell.rows(&["slow"]).len();

    // One client changes the volume and is stopped; the others try to change it too.
    let create = |client: usize, files: Files| {
        files.create(root, &format!("f.{client}")).unwrap();
    };
    let [waits, count, sum] =
        contended.contend("volume", &contended.commits, |files| create(0, files), create);
    let waited: Vec<u64> = cell
        .rows(&["slow"])
        .iter()
        .skip(slow_before)
        .filter(|call| call["procedure"] == "CreateFile")
        .filter_map(|call| call["parts_ns"]["lock"].as_u64().filter(|ns| *ns > 0))
        .collect();
    let others = CALLS as u64 - 1;
    assert_eq!((waits, count, sum), (others, others, waited.iter().sum()), "of calls: {waited:?}");
    assert_eq!(waited.len() as u64, others, "{waited:?}");
    // The doctor reports it.
    let finding = cell.finding("contended-lock");
    let volume = format!("Changes of volume {} wait for each other.", root.volume);
    assert_eq!(finding["what"], volume.as_str(), "{finding}");
    let evidence = finding["evidence"].to_string();
    assert!(
        evidence
            .contains(&format!("{others} recent slow calls waited for another change of the same volume")),
        "{finding}"
    );

    // One client changes the root directory and is stopped before the change takes effect; the others request
    // a file's status, which depends on its rights.
    let remove = |files: Files| files.remove(root, "f.0").unwrap();
    let look = |_: usize, asking: Files| support::look(asking.connection(), files[0]);
    let [waits, count, sum] = contended.contend("publish", &contended.commits, remove, look);
    assert_eq!((waits, count), (others, others));
    assert!(sum > 0);

    // One client writes data that needs a new segment and is stopped; the others write too.
    let data = Bytes::from(vec![7; 100_000]);
    let store = |client: usize, owner: Files| owner.store(files[client], &data).unwrap();
    let [waits, count, sum] =
        contended.contend("segment", &contended.segments, |owner| store(0, owner), store);
    // A waiting thread may find that another was faster, and wait again.
    assert!(waits == count && waits >= others, "{waits} {count}");
    assert!(sum > 0);
    contended.cell.running.stop().unwrap();
}

/// Returns the source line that a site names.
fn source_line(site: &str) -> String {
    let (file, line) = site.rsplit_once(':').unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap().to_owned()
}

#[test]
fn profiles_name_the_lock_holder_and_waiter() {
    let _alone = ALONE.lock();
    let contended = Contended::start();
    let cell = &contended.cell;
    let (others, mut round) = (CALLS as u64 - 1, 0);
    let mut contend = || {
        round += 1;
        contended.contend_for_the_volume(round)
    };
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();

    let (locks, [waits, _, ns]) = profiles::during(cell, &["locks"], &mut contend);
    let of_volume: Vec<&Value> = locks.iter().filter(|row| row["lock"] == "volume").collect();
    let [row] = of_volume[..] else { panic!("{locks:#?}") };
    assert_eq!((number(row, "waits"), number(row, "total_ns")), (waits, ns), "{row}");
    assert_eq!(row["waiter"], "AFS CreateFile");
    let holder = row["holder"].as_str().unwrap();
    assert!(holder.starts_with("crates/storage/volume/src/"), "{holder}");
    assert!(source_line(holder).contains("writer.lock()"), "{holder}");

    let stacks = cell.path("off-cpu.folded");
    let arguments = ["off-cpu", "--table", "--folded", stacks.to_str().unwrap()];
    let (functions, [_, _, ns]) = profiles::during(cell, &arguments, &mut contend);
    let stacks = std::fs::read_to_string(stacks).unwrap();
    let prefix = format!("AFS;CreateFile;volume {};[lock];", contended.root.volume);
    let waited = stacks.lines().filter_map(|line| line.strip_prefix(&prefix)?.rsplit_once(' '));
    // Calls also wait for other locks, such as that of the hosts.
    let is_of_volume =
        |frames: &str| frames.rsplit(';').next().is_some_and(|last| last.starts_with("volume::"));
    let waited: Vec<u64> =
        waited.filter(|(frames, _)| is_of_volume(frames)).map(|(_, us)| us.parse().unwrap()).collect();
    let us: u64 = waited.iter().sum();
    assert!(us > 0, "{stacks}");
    assert!((ns / 1000).abs_diff(us) <= waited.len() as u64, "{us} us, not {ns} ns: {stacks}");
    let shown = functions.iter().find(|row| row["function"] == "[lock]");
    assert!(shown.is_some_and(|row| number(row, "total_us") >= us), "{functions:#?}");

    let (latencies, _) = profiles::during(cell, &["latency"], &mut contend);
    let creations = latencies.iter().filter(|row| row["procedure"] == "AFS CreateFile");
    let (waited, free): (Vec<&Value>, Vec<&Value>) =
        creations.partition(|row| row["path"].as_str().unwrap().contains("lock"));
    let calls = |rows: &[&Value]| rows.iter().map(|row| number(row, "calls")).sum::<u64>();
    assert_eq!((calls(&waited), calls(&free)), (others, 1), "{latencies:#?}");
    contended.cell.running.stop().unwrap();
}
