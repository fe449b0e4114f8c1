//! The five field stories of docs/guide/diagnose.md: each is reproduced in a cell with injected faults, and
//! `cellar doctor` and `cellar slow` must name its cause. They must also do so for slow clients, and find
//! nothing in a healthy cell.

mod support;

use afs_idl::{CallStream, Forgetful, cb, fs as rxafs};
use base::{AbortCode, CallContext, HostUuid, UnixTime, VolumeId, VolumeType};
use bytes::Bytes;
use cellar_server::FaultInjection;
use cellar_server::offline::OfflineStore;
use disk::{DiskStep, HookedDisk, RealDisk};
use load::files::{Fid, Files, read_exact};
use load::station::{FILE_SERVICE, Station};
use rx::{Server, ServerCall, Service};
use serde_json::Value;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use store::{HookedMeta, MetaStep};
use support::place::{Place, cellar, printed};
use support::shown::{self, Block, Sniffing, documented, headings, shortened};
use support::{look, noise, serve, soon};
use volume::{NewVolume, PartitionHandle, families};

/// A story and the directory of its cell.
struct Story {
    place: Place,
    name: String,
    /// The story's output in the documentation.
    block: RefCell<Block>,
}

/// The running cell.
struct Running {
    // Kept until the cell ends.
    _server: cellar_server::Running,
    _sniffing: Sniffing,
}

impl Deref for Story {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Story {
    fn new(name: &str, more: &str) -> Story {
        Story { place: Place::new(more), name: name.to_owned(), block: RefCell::new(Block::new(name)) }
    }

    fn start(&self, faults: &FaultInjection) -> Running {
        let server = support::cell::start_server(self, faults);
        Running { _server: server, _sniffing: Sniffing::start(&self.name) }
    }

    /// Creates volumes before the server starts, and returns their root directories.
    fn volumes_made_before(&self, count: u32) -> Vec<Fid> {
        let settings = self.settings();
        let store = OfflineStore::open(&settings).unwrap();
        let make = |number: u32| {
            let id = VolumeId(536_870_912 + 3 * number);
            let new = NewVolume {
                id,
                name: format!("volume.{number}").parse().unwrap(),
                kind: VolumeType::ReadWrite,
                parent: id,
                quota_max_kib: 0,
                with_root: true,
                in_service: true,
                destroy_me: 0,
                now: UnixTime(1),
            };
            store.volumes.create(settings.partitions[0].id, &new).unwrap();
            Fid { volume: id.0, vnode: 1, unique: 1 }
        };
        (0..count).map(make).collect()
    }

    /// Adds a command's first lines of output to the story's block in docs/guide/diagnose.md.
    fn show(&self, arguments: &[&str]) {
        let printed = shortened(&self.run(arguments), &[]);
        self.block.borrow_mut().add(&arguments.join(" "), &printed);
    }

    /// Returns the problems found by the doctor.
    fn doctor(&self, interval: &str) -> Vec<Value> {
        // This output has no headings to compare with the documentation.
        if shown::is_wanted() {
            self.show(&["slow"]);
            let shown = ["doctor", "--interval", interval];
            let printed = String::from_utf8(self.output(&shown).stdout).unwrap();
            self.block.borrow_mut().add(&shown.join(" "), &printed);
        }
        self.findings(interval)
    }

    /// Returns the slow calls with this cause.
    fn slow(&self, cause: &str) -> Vec<Value> {
        self.rows(&["slow"]).into_iter().filter(|call| call["cause"] == cause).collect()
    }

    /// Creates files with these contents.
    fn make_files(&self, root: Fid, count: usize, data: &Bytes) -> Vec<Fid> {
        let station = Station::start().unwrap();
        let files = Files::new(self.connect(&station));
        let make = |number: usize| {
            let fid = files.create(root, &format!("f{number}")).unwrap();
            files.store(fid, data).unwrap();
            fid
        };
        let made = (0..count).map(make).collect();
        files.give_up_callbacks();
        made
    }
}

/// Returns all texts of the finding of this name.
fn finding(findings: &[Value], problem: &str) -> String {
    let found = findings.iter().find(|finding| finding["problem"] == problem);
    found.unwrap_or_else(|| panic!("no {problem} in {findings:#?}")).to_string()
}

/// Threads that repeat an operation until this is dropped.
struct Load {
    ending: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn new() -> Load {
        Load { ending: Arc::default(), threads: Vec::new() }
    }

    fn add(&mut self, mut work: impl FnMut() + Send + 'static) {
        let ending = self.ending.clone();
        self.threads.push(thread::spawn(move || {
            while !ending.load(Relaxed) {
                work();
            }
        }));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ending.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// A client that is slow to answer callback breaks.
struct Dawdler(Forgetful);

impl Service for Dawdler {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        cb::dispatch(self, &CallContext::new(&caller), call)
    }
}

impl cb::Server for Dawdler {
    fn call_back(
        &self,
        caller: &CallContext<'_>,
        request: cb::CallBackRequest,
    ) -> Result<cb::CallBackReply, AbortCode> {
        thread::sleep(Duration::from_millis(1500));
        self.0.call_back(caller, request)
    }

    fn init_call_back_state3(
        &self,
        caller: &CallContext<'_>,
        request: cb::InitCallBackState3Request,
    ) -> Result<cb::InitCallBackState3Reply, AbortCode> {
        self.0.init_call_back_state3(caller, request)
    }

    fn tell_me_about_yourself(
        &self,
        caller: &CallContext<'_>,
        request: cb::TellMeAboutYourselfRequest,
    ) -> Result<cb::TellMeAboutYourselfReply, AbortCode> {
        self.0.tell_me_about_yourself(caller, request)
    }

    fn probe_uuid(
        &self,
        caller: &CallContext<'_>,
        request: cb::ProbeUuidRequest,
    ) -> Result<cb::ProbeUuidReply, AbortCode> {
        self.0.probe_uuid(caller, request)
    }
}

fn dawdling_client() -> Server {
    serve(Ipv4Addr::UNSPECIFIED, 0, Dawdler(Forgetful::new(HostUuid(rand::random()))))
}

/// Delays each read of volume metadata.
fn slow_meta(pause: Duration) -> FaultInjection {
    let partition = move |mut handle: PartitionHandle| {
        let hook = move |step| {
            if step == MetaStep::Get(families::VOLUMES) {
                thread::sleep(pause);
            }
        };
        handle.meta = Arc::new(HookedMeta::new(handle.meta, hook));
        handle
    };
    FaultInjection { partition: Box::new(partition), ..FaultInjection::default() }
}

/// Delays each disk read.
fn slow_disk(read: Duration) -> FaultInjection {
    let hook = move |step| {
        if step == DiskStep::Read {
            thread::sleep(read);
        }
    };
    FaultInjection { disk: Arc::new(HookedDisk::new(Arc::new(RealDisk), hook)), ..FaultInjection::default() }
}

/// Story 1. A volume removal waits for a client that is slow to acknowledge it, and the space of removed
/// volumes is not reclaimed.
#[test]
fn slow_volume_removal() {
    let story = Story::new("slow-removal", "");
    let faults = FaultInjection { reclaim_pause: Duration::from_secs(3600), ..FaultInjection::default() };
    let _running = story.start(&faults);
    let names = ["one", "two", "three", "four"];
    let roots: Vec<Fid> = names.iter().map(|name| story.volume(name)).collect();
    let dawdler = dawdling_client();
    look(&*dawdler.connect(story.files_port(), FILE_SERVICE, None), roots[0]);
    for name in names {
        story.run(&["volume", "remove", name]);
    }

    let slow = story.slow("callback");
    let removed = slow.iter().find(|call| call["procedure"] == "DeleteVolume");
    let is_notified = |call: &Value| call["service"] == "AFSVol" && call["volume"].as_u64() > Some(0);
    assert!(removed.is_some_and(is_notified), "{slow:?}");
    let findings = story.doctor("1");
    let removal = finding(&findings, "slow-removal");
    assert!(
        removal.contains("AFSVol DeleteVolume: 4 calls") && removal.contains("waits for clients"),
        "{removal}"
    );
    let reclaiming = finding(&findings, "slow-reclaiming");
    assert!(reclaiming.contains("/vicepa: 4 deleted volumes"), "{reclaiming}");
    // The client is slow, but not gone.
    let late = finding(&findings, "callbacks-late");
    assert!(
        late.contains("1 recent slow calls waited for clients") && late.contains("they did answer"),
        "{late}"
    );
    assert!(findings.iter().all(|finding| finding["problem"] != "callbacks-unanswered"), "{findings:?}");
}

/// Story 2. After a start, volumes come online slowly.
#[test]
fn slow_attach() {
    let story = Story::new("slow-attach", "");
    let roots = story.volumes_made_before(4);
    let _running = story.start(&slow_meta(Duration::from_millis(400)));
    let station = Station::start().unwrap();
    let connection = story.connect(&station);
    for root in &roots {
        look(&*connection, *root);
    }

    let slow = story.slow("load");
    assert!(slow.len() >= roots.len(), "{slow:?}");
    let attach = finding(&story.doctor("1"), "slow-attach");
    assert!(attach.contains("4 volumes were loaded") && attach.contains("on first use"), "{attach}");
    // Volumes in memory are served immediately.
    for root in &roots {
        look(&*connection, *root);
    }
    assert_eq!(story.slow("load").len(), slow.len());
}

/// Story 3. The only receiving thread is saturated, although no call waits for a worker.
#[test]
fn saturated_listener() {
    let story = Story::new("saturated-listener", "[rx]\nlanes = 1\n");
    let faults = FaultInjection { receive_pause: Duration::from_millis(100), ..FaultInjection::default() };
    let _running = story.start(&faults);
    let root = story.volume("busy");
    let mut load = Load::new();
    let station = Arc::new(Station::start().unwrap());
    for _ in 0..24 {
        let (station, connection) = (station.clone(), story.connect(&station));
        load.add(move || {
            let _ = (&station, rxafs::fetch_status(&*connection, &rxafs::FetchStatusRequest { fid: root }));
        });
    }

    story.show(&["stat", "lanes", "--interval", "2", "--count", "1"]);
    let findings = story.doctor("4");
    let saturated = finding(&findings, "saturated-lane");
    assert!(saturated.contains("fileserver lane 0: idle") && saturated.contains("rx.lanes"), "{saturated}");
    let exhausted = findings.iter().find(|finding| finding["problem"] == "threads-exhausted");
    assert_eq!(exhausted, None);
}

/// Story 4. A batch user occupies all threads, and others wait for them.
#[test]
fn thread_starvation() {
    let more = "[rx]\nworkers = 16\n[store]\nchunk_cache_mb = 1\nscrub_mb_per_s = \
        0\n[observe]\nslow_call_ms = 50\n[fairness]\nverified_calls_percent = 0\nanonymous_calls_percent = \
        12\nuser_percent = 100\nvolume_percent = 100\nsmall_calls_percent = 0\nstalled_calls = 0\n";
    let story = Story::new("thread-starvation", more);
    let (large, small) = (noise(300_000), Bytes::from_static(b"0123456789"));
    let _running = story.start(&slow_disk(Duration::from_secs(1)));
    let root = story.volume("shared");
    let larges = story.make_files(root, 24, &large);
    let other = story.volume("home");
    let smalls = story.make_files(other, 6, &small);
    let security = story.security();
    let stations = [Arc::new(Station::start().unwrap()), Arc::new(Station::start().unwrap())];
    let mut load = Load::new();
    for (fid, data, batch) in larges
        .into_iter()
        .map(|fid| (fid, large.clone(), true))
        .chain(smalls.into_iter().map(|fid| (fid, small.clone(), false)))
    {
        let station = stations[usize::from(batch)].clone();
        let security = batch.then(|| security.clone() as Arc<dyn rx_security::ClientSecurity>);
        let files = Files::new(station.connect(story.files_port(), FILE_SERVICE, security));
        load.add(move || {
            let _ = (&station, files.fetch_and_compare(fid, &data, 1 << 20));
        });
    }
    // Until the batch user occupies all threads.
    soon("it has them", || (story.slow("disk").len() >= 8).then_some(()));

    let top = shortened(&story.run(&["top", "--once"]), &["VOLUMES", "WORKERS", "DISKS"]);
    Block::new("thread-starvation-top").add("top --once", &top);
    story.show(&["stat", "clients", "--interval", "3", "--count", "1"]);
    let mut findings = story.doctor("5");
    // On a busy machine, threads that wait for clients may leave room for other calls for a while.
    for _ in 0..5 {
        if findings.iter().any(|finding| finding["problem"] == "threads-exhausted") {
            break;
        }
        findings = story.findings("5");
    }
    let exhausted = finding(&findings, "threads-exhausted");
    assert!(exhausted.contains("threads busy") && exhausted.contains("AFS FetchData64"), "{exhausted}");
    // The batch user reads from a single volume.
    let hot = finding(&findings, "hot-volume");
    assert!(hot.contains(&format!("Volume {} (shared) has most", root.volume)), "{hot}");
    assert!(hot.contains("Nearly all calls are reads"), "{hot}");
    let slow = story.slow("queue");
    let waits = |call: &Value| call["procedure"] == "FetchData64";
    assert!(slow.iter().any(waits), "{slow:?}");
}

/// Story 5. The cache is too small for the working set, so everything is read from disk.
#[test]
fn cold_cache() {
    let more = "[store]\nchunk_cache_mb = 1\nscrub_mb_per_s = 0\n[observe]\nslow_call_ms = 20\n";
    let story = Story::new("cold-cache", more);
    let _running = story.start(&slow_disk(Duration::from_millis(60)));
    let root = story.volume("cold");
    let data = noise(100_000);
    let fids = story.make_files(root, 64, &data);
    let station = Arc::new(Station::start().unwrap());
    let mut load = Load::new();
    for part in fids.chunks(8) {
        let (station, data, part) = (station.clone(), data.clone(), part.to_vec());
        let files = Files::new(story.connect(&station));
        load.add(move || {
            for fid in &part {
                let _ = (&station, files.fetch_and_compare(*fid, &data, 1 << 20));
            }
        });
    }
    soon("many calls wait for the disk", || (story.slow("disk").len() >= 64).then_some(()));

    story.show(&["stat", "caches", "--interval", "3", "--count", "1"]);
    let findings = story.doctor("5");
    let cache = finding(&findings, "cache-too-small");
    assert!(cache.contains("chunks: ") && cache.contains("store.chunk_cache_mb"), "{cache}");
    let disk = finding(&findings, "slow-disk");
    assert!(
        disk.contains("/vicepa read: ") && disk.contains("recent slow calls waited for the disk"),
        "{disk}"
    );
}

/// The `cellar sniff` output in the documentation has the headings that it prints today.
#[test]
fn packets_use_the_headings_of_the_page() {
    let capture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/corpus/corpus/capture/calls.pcap");
    let known = headings(&printed(cellar(&["sniff"]).arg(capture)));
    for story in ["slow-removal", "slow-attach", "saturated-listener", "thread-starvation", "cold-cache"] {
        let shown = headings(&documented(&format!("{story}-sniff")));
        assert!(!shown.is_empty(), "{story}");
        for heading in shown {
            assert!(known.contains(&heading), "{story}: {heading:?} is none of {known:?}");
        }
    }
}

/// More than a server and a client buffer between them for one call.
const LONG_BYTES: usize = 16 << 20;
/// Length of the clients' pauses.
const DAWDLING: Duration = Duration::from_secs(2);

/// Slow clients: one pauses while it receives a reply, one while it sends data to store. The server waits for
/// them, and reports it.
#[test]
fn clients_that_take_their_time() {
    let story = Story::new("", "[observe]\nslow_call_ms = 500\n");
    let _running = story.start(&FaultInjection::default());
    let root = story.volume("patience");
    let data = Bytes::from(vec![7; LONG_BYTES]);
    let fid = story.make_files(root, 1, &data)[0];
    let station = Station::start().unwrap();
    let connection = story.connect(&station);
    let length = LONG_BYTES as u64;
    let idle = |procedure: &str| {
        let calls = story.slow("client").into_iter().filter(|call| call["procedure"] == procedure);
        let is_idle =
            |call: &Value| call["parts_ns"]["client"].as_u64() >= Some(DAWDLING.as_nanos() as u64 / 2);
        calls.filter(is_idle).collect::<Vec<_>>()
    };
    assert_eq!(idle("FetchData64"), Vec::<Value>::new());

    let fetch = rxafs::FetchData64Request { fid, position: 0, length: LONG_BYTES as i64 };
    let take = |stream: &mut dyn CallStream| {
        read_exact(stream, &mut [0; 8])?;
        thread::sleep(DAWDLING);
        read_exact(stream, &mut vec![0; LONG_BYTES])
    };
    rxafs::fetch_data64(&*connection, &fetch, take).unwrap();
    let store = rxafs::StoreData64Request { fid, length, file_length: length, ..Default::default() };
    let send = |stream: &mut dyn CallStream| {
        stream.write(data.slice(..LONG_BYTES / 2))?;
        thread::sleep(DAWDLING);
        stream.write(data.slice(LONG_BYTES / 2..))
    };
    for _ in 0..2 {
        rxafs::store_data64(&*connection, &store, send).unwrap();
    }

    let [taken, sent] = ["FetchData64", "StoreData64"].map(idle);
    assert!(taken.len() == 1 && sent.len() >= 2, "{:#?}", story.run(&["slow"]));
    for call in &taken {
        assert_eq!((&call["volume"], &call["user"]), (&fid.volume.into(), &"anonymous".into()), "{call}");
    }
    let reported = story.run(&["slow"]);
    let why = "it waited for its own client to send or receive data (";
    assert!(reported.lines().filter(|line| line.contains(why)).count() >= 3, "{reported}");
    let slow = finding(&story.doctor("1"), "slow-clients");
    assert!(slow.contains("recent slow calls waited for their own client"), "{slow}");
}

/// Returns the findings that concern the cell. Others are about the machine, and locks are counted per process,
/// including the cells of other tests.
fn of_the_cell(reported: &Value) -> Vec<&Value> {
    let of_the_machine = [
        "small-buffers",
        "processors-busy",
        "datagrams-dropped-elsewhere",
        "slow-disk",
        "disk-full",
        "contended-lock",
    ];
    let is_of_the_cell = |finding: &&Value| !of_the_machine.contains(&finding["problem"].as_str().unwrap());
    reported["findings"].as_array().unwrap().iter().filter(is_of_the_cell).collect()
}

/// A healthy cell under light load has none of these problems, and a missing one cannot be examined.
#[test]
fn a_healthy_cell() {
    let story = Story::new("", "");
    let running = story.start(&FaultInjection::default());
    let root = story.volume("well");
    let fids = story.make_files(root, 3, &Bytes::from_static(b"data"));
    let station = Station::start().unwrap();
    let files = Files::new(story.connect(&station));
    for fid in &fids {
        files.fetch_and_compare(*fid, &Bytes::from_static(b"data"), 100).unwrap();
    }
    let examine = || {
        let output = story.output(&["doctor", "--interval", "1", "--json"]);
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let (mut code, mut reported) = examine();
    // On a busy machine, even few calls may be slow for a while.
    for _ in 0..4 {
        if of_the_cell(&reported).is_empty() {
            break;
        }
        (code, reported) = examine();
    }
    assert_eq!(of_the_cell(&reported), Vec::<&Value>::new());
    let has_findings = !reported["findings"].as_array().unwrap().is_empty();
    assert_eq!(code, Some(i32::from(has_findings)));
    assert_eq!(reported["not_checked"], serde_json::json!([]));
    drop(running);
    let output = story.output(&["doctor", "--on", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
