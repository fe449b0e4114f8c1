//! Calls of the service, made through its interface.

use crate::{
    AdminServer, AdminServerParts, Below, CALLS_OF_VOLUME, CLIENTS_OF_VOLUME, DirectoryUsage, JobKeeper,
    SnapshotEntry, SnapshotHost,
};
use afs_idl::cellar::{
    self, FigureRow, GetCacheStatisticsRequest, GetCheckDamagesRequest, GetCheckRequest,
    GetDeduplicationRequest, GetDirectoryTotalsRequest, GetFiguresRequest, GetJobReply, GetServerInfoRequest,
    GetSlowCallsRequest, GetVolumeDeduplicationRequest, GetVolumePolicyRequest, JobInfo,
    ListSubdirectoriesRequest, LoggedEvent, PurgeVolumeCacheRequest, SetLoggedEventsRequest,
    SetVolumeDeduplicationRequest, SetVolumePolicyRequest, StartCheckRequest, StopCheckRequest,
};
use base::{
    AbortCode, CallContext, Caller, Fid, Identity, LocalAuthority, PartitionId, Principal, SecurityLevel,
    UnixTime, VolumeId, VolumeType,
};
use events::catalogue::{CacheCounts, DiskFigures, LaneFigures, ProcessFigures, WorkerFigures};
use observe::{Observed, Recorder, Sheet, SlowCall, Table};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use store::{MemoryChunks, MemoryMeta};
use volume::{NewVolume, PartitionHandle, Space, Totals, VolumeOptions, Volumes};

/// An authority with `admin` as its superuser.
struct Authority;

impl LocalAuthority for Authority {
    fn is_superuser(&self, caller: &Caller) -> bool {
        matches!(&caller.identity, Identity::Known(principal) if principal.name == "admin")
    }

    fn is_local_realm(&self, _: &Principal) -> bool {
        true
    }
}

/// Three directories; no caller has rights on the last one.
struct Usage;

impl DirectoryUsage for Usage {
    fn totals(&self, _: &CallContext<'_>, directory: Fid) -> Result<Totals, AbortCode> {
        let kib = u64::from(directory.vnode.0);
        Ok(Totals { bytes: 1, kib, files: 3, directories: 4 })
    }

    fn below(
        &self,
        caller: &CallContext<'_>,
        directory: Fid,
        after: &[u8],
        most: usize,
    ) -> Result<(Vec<Below>, bool), AbortCode> {
        assert_eq!((after, most), (&b"a"[..], 1000));
        let reported = self.totals(caller, directory);
        Ok((
            vec![(b"b".to_vec(), directory, reported), (b"c".to_vec(), directory, Err(AbortCode::UAEACCES))],
            true,
        ))
    }
}

#[test]
fn directories_match_the_file_servers_view() {
    let (server, caller) = (server(), known("alice"));
    let request = GetDirectoryTotalsRequest { volume: 7, vnode: 5, unique: 9 };
    let totals = server.get_directory_totals(&CallContext::new(&caller), request).unwrap().totals;
    assert_eq!((totals.bytes, totals.kib, totals.files, totals.directories), (1, 5, 3, 4));
    let request = ListSubdirectoriesRequest { volume: 7, vnode: 5, unique: 9, after: b"a".to_vec() };
    let reply = server.list_subdirectories(&CallContext::new(&caller), request).unwrap();
    let [first, second] = &reply.subdirectories[..] else { panic!("{reply:?}") };
    assert_eq!((&first.name[..], first.vnode, first.unique, first.code), (&b"b"[..], 5, 9, 0));
    assert_eq!(first.totals, totals);
    assert_eq!((second.code, second.totals.kib, reply.more), (AbortCode::UAEACCES.0, 0, 1));
}

/// A journal with waiting jobs.
struct Jobs;

impl JobKeeper for Jobs {
    fn list(&self, after: u32, most: usize) -> Result<Vec<JobInfo>, AbortCode> {
        let job = |id| JobInfo { id, ..JobInfo::default() };
        Ok((after + 1..=3).map(job).take(most).collect())
    }

    fn get(&self, job: u32) -> Result<GetJobReply, AbortCode> {
        let info = self.list(job - 1, 1)?.pop().ok_or(AbortCode::UAENOENT)?;
        Ok(GetJobReply { info, events: Vec::new() })
    }

    fn cancel(&self, job: u32) -> Result<(), AbortCode> {
        self.get(job).map(drop)
    }

    fn resume(&self, job: Option<u32>) -> Result<u32, AbortCode> {
        job.map_or(Ok(3), |job| self.get(job).map(|_| 1))
    }
}

#[test]
fn jobs_are_shown_to_superusers_once_there_is_a_journal() {
    let (server, admin) = (server(), known("admin"));
    let list = |after| cellar::ListJobsRequest { after };
    assert_eq!(server.list_jobs(&admin, list(0)), Err(AbortCode::VBUSY));
    server.set_jobs(Box::new(Jobs));
    let denied = Err(AbortCode::UAEACCES);
    assert_eq!(server.list_jobs(&known("alice"), list(0)), denied);
    assert_eq!(
        server.cancel_job(&known("alice"), cellar::CancelJobRequest { job: 1 }).map(drop),
        Err(AbortCode::UAEACCES)
    );
    let jobs = server.list_jobs(&admin, list(1)).unwrap().jobs;
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(server.get_job(&admin, cellar::GetJobRequest { job: 4 }), Err(AbortCode::UAENOENT));
    assert_eq!(server.get_job(&admin, cellar::GetJobRequest { job: 3 }).unwrap().info.id, 3);
    let resume = |job| server.resume_job(&admin, cellar::ResumeJobRequest { job }).map(|reply| reply.resumed);
    assert_eq!((resume(0), resume(2), resume(9)), (Ok(3), Ok(1), Err(AbortCode::UAENOENT)));
}

/// A host that records the calls made to it.
#[derive(Default)]
pub(crate) struct FakeHost {
    state: Mutex<HostState>,
}

#[derive(Default)]
struct HostState {
    ids: u32,
    entries: Vec<SnapshotEntry>,
    taken: Vec<String>,
    changed: Vec<VolumeId>,
    failure: Option<AbortCode>,
    is_busy: bool,
}

impl FakeHost {
    pub(crate) fn entries(&self) -> Vec<SnapshotEntry> {
        self.state.lock().entries.clone()
    }

    pub(crate) fn changed(&self) -> Vec<VolumeId> {
        self.state.lock().changed.clone()
    }

    pub(crate) fn take_name(&self, name: &str) {
        self.state.lock().taken.push(name.into());
    }

    /// Sets the error that the location database returns.
    pub(crate) fn fail_with(&self, code: Option<AbortCode>) {
        self.state.lock().failure = code;
    }

    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.state.lock().is_busy = is_busy;
    }

    fn ask<T>(&self, answer: impl FnOnce(&mut HostState) -> T) -> Result<T, AbortCode> {
        let mut state = self.state.lock();
        state.failure.map_or_else(|| Ok(answer(&mut state)), Err)
    }
}

impl SnapshotHost for FakeHost {
    fn new_ids(&self) -> Result<VolumeId, AbortCode> {
        self.ask(|state| {
            state.ids += 2;
            VolumeId(536_871_000 + state.ids)
        })
    }

    fn is_name_taken(&self, name: &str) -> Result<bool, AbortCode> {
        self.ask(|state| state.taken.iter().any(|taken| taken == name))
    }

    fn register(&self, entry: &SnapshotEntry) -> Result<(), AbortCode> {
        self.ask(|state| state.entries.push(entry.clone()))
    }

    fn unregister(&self, id: VolumeId) -> Result<(), AbortCode> {
        self.ask(|state| state.entries.retain(|entry| entry.id != id))
    }

    fn exclusively(
        &self,
        _: VolumeId,
        _: PartitionId,
        work: &mut dyn FnMut() -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode> {
        let is_busy = self.state.lock().is_busy;
        if is_busy { Err(AbortCode::VOLSERVOLBUSY) } else { work() }
    }

    fn volume_changed(&self, volume: VolumeId) {
        self.state.lock().changed.push(volume);
    }
}

/// Counts calls, and has no other figures.
#[derive(Default)]
struct Counting(Arc<Recorder>);

impl Observed for Counting {
    fn snapshot(&self) -> observe::Snapshot {
        self.0.snapshot()
    }

    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>) {
        (5, self.0.slow_calls())
    }

    fn lanes(&self) -> Sheet<LaneFigures> {
        Sheet::new(&[])
    }

    fn workers(&self) -> Sheet<WorkerFigures> {
        Sheet::new(&[])
    }

    fn disks(&self) -> Sheet<DiskFigures> {
        Sheet::new(&[])
    }

    fn caches(&self) -> Sheet<CacheCounts> {
        Sheet::new(&[])
    }

    fn process(&self) -> Sheet<ProcessFigures> {
        Sheet::new(&[])
    }
}

pub(crate) fn anonymous() -> Caller {
    caller(Identity::Anonymous)
}

fn caller(identity: Identity) -> Caller {
    Caller {
        identity,
        level: SecurityLevel::Clear,
        peer: SocketAddr::from(([10, 0, 0, 1], 7001)),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

pub(crate) fn known(name: &str) -> Caller {
    let principal = Principal { name: name.into(), instance: String::new(), realm: String::new() };
    caller(Identity::Known(principal))
}

/// Returns a server with one partition, and a clock that advances by a second each time it is read.
pub(crate) fn server() -> AdminServer {
    let time = AtomicU32::new(1000);
    let clock = move || UnixTime(time.fetch_add(1, Relaxed));
    server_with(Arc::new(clock), Arc::new(FakeHost::default()))
}

/// Returns a server with one partition, and a clock that the test sets.
pub(crate) fn server_at(clock: Arc<AtomicU32>, host: Arc<FakeHost>) -> AdminServer {
    server_with(Arc::new(move || UnixTime(clock.load(Relaxed))), host)
}

fn server_with(clock: Arc<dyn Fn() -> UnixTime + Send + Sync>, host: Arc<FakeHost>) -> AdminServer {
    let partition = PartitionHandle {
        id: PartitionId::from_index(2).unwrap(),
        meta: Arc::new(MemoryMeta::default()),
        chunks: Arc::new(MemoryChunks::new()),
        space: Arc::new(|| Space { total_kib: 100, free_kib: 40 }),
    };
    AdminServer::new(AdminServerParts {
        volumes: Arc::new(Volumes::open(vec![partition], VolumeOptions::default()).unwrap()),
        authority: Arc::new(Authority),
        usage: Arc::new(Usage),
        clock,
        snapshots: host,
        observed: Arc::new(Counting::default()),
        version: "Cellar x".into(),
    })
}

#[test]
fn anonymous_callers_learn_only_the_version() {
    let server = server();
    let info = server.get_server_info(&anonymous(), GetServerInfoRequest).unwrap();
    assert_eq!((info.version.to_string(), info.partitions.len()), ("Cellar x".into(), 0));
    // The file service decides about directories, by their access lists.
    let decided = ["GetServerInfo", "GetDirectoryTotals", "ListSubdirectories"];
    for (opcode, name) in cellar::PROCEDURES.iter().filter(|(_, name)| !decided.contains(name)) {
        let mut request = opcode.to_be_bytes().to_vec();
        request.extend([0; 256]);
        let mut stream = afs_idl::MemoryStream::new(&request, 64);
        let code = cellar::dispatch(&server, &CallContext::new(&anonymous()), &mut stream).unwrap_err();
        assert!([AbortCode::UAEACCES, AbortCode::RXGEN_OPCODE].contains(&code), "{name}: {code:?}");
        assert!(stream.outgoing.is_empty(), "{name}");
    }
}

#[test]
fn authenticated_callers_see_the_partitions() {
    let info = server().get_server_info(&known("alice"), GetServerInfoRequest).unwrap();
    assert_eq!((info.started, info.now), (1000, 1001));
    assert_eq!(info.version.to_string(), "Cellar x");
    let [partition] = &info.partitions[..] else { panic!("{info:?}") };
    assert_eq!((partition.id, partition.total_kib, partition.free_kib), (2, 100, 40));
}

#[test]
fn the_port_is_shown_once_it_is_open() {
    let server = server();
    let ask = || server.get_transport(&known("alice"), cellar::GetTransportRequest);
    assert_eq!(ask().map(|reply| reply.waiting), Err(AbortCode::VBUSY));
    server.set_transport(Box::new(|| cellar::GetTransportReply { waiting: 7, ..Default::default() }));
    assert_eq!(ask().map(|reply| reply.waiting), Ok(7));
}

#[test]
fn only_superusers_administer() {
    let server = server();
    assert_eq!(server.administer(&known("admin"), "test"), Ok(()));
    assert_eq!(server.administer(&known("alice"), "test"), Err(AbortCode::UAEACCES));
    assert_eq!(server.administer(&caller(Identity::Anonymous), "test"), Err(AbortCode::UAEACCES));
}

#[test]
fn superusers_set_the_policy_of_a_volume() {
    let server = server();
    let new = NewVolume {
        id: VolumeId(7),
        name: "v".parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    server.parts.volumes.create(PartitionId::from_index(2).unwrap(), &new).unwrap();
    let policy = || {
        let request = GetVolumePolicyRequest { volume: 7 };
        let reply = server.get_volume_policy(&known("alice"), request).unwrap();
        (reply.compression.to_string(), reply.effective.to_string())
    };
    let set = |who: &str, text: &str| {
        let request = SetVolumePolicyRequest { volume: 7, compression: text.into() };
        server.set_volume_policy(&known(who), request).map(drop)
    };
    assert_eq!(policy(), (String::new(), "lz4".into()));
    assert_eq!(set("admin", "zstd:9"), Ok(()));
    assert_eq!(policy(), ("zstd:9".into(), "zstd:9".into()));
    assert_eq!(set("alice", "raw"), Err(AbortCode::UAEACCES));
    assert_eq!(set("admin", "gzip"), Err(AbortCode::UAEINVAL));
    assert_eq!(policy().0, "zstd:9");
    assert_eq!(set("admin", ""), Ok(()));
    assert_eq!(policy(), (String::new(), "lz4".into()));
    let shares = || {
        let request = GetVolumeDeduplicationRequest { volume: 7 };
        server.get_volume_deduplication(&known("alice"), request).unwrap().enabled
    };
    let share = |who: &str, volume, enabled| {
        let request = SetVolumeDeduplicationRequest { volume, enabled };
        server.set_volume_deduplication(&known(who), request).map(drop)
    };
    assert_eq!(shares(), 0);
    assert_eq!(share("alice", 7, 1), Err(AbortCode::UAEACCES));
    assert_eq!(share("admin", 7, 2), Err(AbortCode::UAEINVAL));
    assert_eq!(share("admin", 8, 1), Err(AbortCode::VNOVOL));
    assert_eq!((share("admin", 7, 1), shares()), (Ok(()), 1));
    let figures = server.get_deduplication(&known("alice"), GetDeduplicationRequest).unwrap();
    assert_eq!((figures.partitions.len(), figures.partitions[0].partition), (1, 2));
    assert_eq!((figures.partitions[0].chunks, figures.partitions[0].saved_bytes), (0, 0));
    assert_eq!((share("admin", 7, 0), shares()), (Ok(()), 0));
    let request = GetVolumePolicyRequest { volume: 8 };
    assert_eq!(server.get_volume_policy(&known("admin"), request), Err(AbortCode::VNOVOL));
}

#[test]
fn caches_are_shown_to_users_and_emptied_by_superusers() {
    let server = server();
    let anybody = known("alice");
    let figures = server.get_cache_statistics(&anybody, GetCacheStatisticsRequest).unwrap().caches;
    let names: Vec<String> = figures.iter().map(|cache| cache.name.to_string()).collect();
    assert_eq!(names, ["status", "directories", "totals", "chunks"]);
    assert!(figures[0].limit_bytes > 0);
    let purge = PurgeVolumeCacheRequest { volume: 5 };
    assert_eq!(server.purge_volume_cache(&anybody, purge).unwrap_err(), AbortCode::UAEACCES);
    assert_eq!(server.purge_volume_cache(&known("admin"), purge).unwrap_err(), AbortCode::VNOVOL);
}

#[test]
fn only_superusers_see_usage_by_user() {
    let server = server();
    let ask = |who: &Caller, table| server.get_figures(who, GetFiguresRequest { table, volume: 1 });
    let (admin, anybody) = (known("admin"), known("alice"));
    let private = [Table::Volumes, Table::Clients, Table::Hosts, Table::Peers];
    for table in Table::ALL.iter().filter(|table| !private.contains(table)) {
        assert!(!ask(&anybody, table.number()).unwrap().names.is_empty(), "{table:?}");
    }
    for table in private.map(Table::number).into_iter().chain([CLIENTS_OF_VOLUME, CALLS_OF_VOLUME]) {
        assert_eq!(ask(&anybody, table).unwrap_err(), AbortCode::UAEACCES, "{table}");
        assert!(ask(&admin, table).unwrap().rows.is_empty(), "{table}");
    }
    assert_eq!(ask(&admin, 99).unwrap_err(), AbortCode::UAEINVAL);
    let slow = |who| server.get_slow_calls(who, GetSlowCallsRequest { after: 0 });
    assert_eq!(slow(&anybody).unwrap_err(), AbortCode::UAEACCES);
    assert_eq!((slow(&admin).unwrap().from_ns, slow(&admin).unwrap().calls.len()), (5, 0));
}

#[test]
fn superusers_choose_the_logged_events() {
    let server = server();
    let (admin, anybody) = (known("admin"), known("alice"));
    let choose = |who: &Caller, words: &[&str], per_second| {
        let events = words.iter().map(|word| LoggedEvent { word: (*word).into() }).collect();
        server.set_logged_events(who, SetLoggedEventsRequest { events, per_second }).map(drop)
    };
    let on = || {
        let reply = server
            .get_figures(&anybody, GetFiguresRequest { table: Table::Events.number(), volume: 0 })
            .unwrap();
        let place = reply.names.iter().position(|name| name.text == "on").unwrap();
        let is_on = |row: &&FigureRow| row.values[place].numbers == [1];
        reply.rows.iter().filter(is_on).map(|row| row.labels[0].text.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(choose(&anybody, &["all"], 1), Err(AbortCode::UAEACCES));
    assert_eq!(choose(&admin, &["call", "disk=10ms"], 1_000_000), Ok(()));
    for (words, per_second) in [(&["lock", "disc"][..], 1), (&["lock"], 0), (&["lock"], 1_000_001)] {
        assert_eq!(choose(&admin, words, per_second), Err(AbortCode::UAEINVAL), "{words:?}");
        assert_eq!(on(), ["call", "disk"], "nothing has changed");
    }
    assert_eq!(choose(&admin, &[], 1), Ok(()));
    assert_eq!(on(), [""; 0]);
}

#[test]
fn an_online_check_reports_its_end() {
    let server = server();
    let (admin, anybody) = (known("admin"), caller(Identity::Anonymous));
    let ask = GetCheckRequest { partition: 2 };
    assert_eq!(server.get_check(&admin, ask).unwrap().state, 0, "there was none");
    let start = StartCheckRequest { partition: 2, percent: 100, ..StartCheckRequest::default() };
    assert_eq!(server.start_check(&anybody, start).unwrap_err(), AbortCode::UAEACCES);
    let elsewhere = StartCheckRequest { partition: 9, ..start };
    assert_eq!(server.start_check(&admin, elsewhere).unwrap_err(), AbortCode::UAENODEV);
    server.start_check(&admin, start).unwrap();
    let state = loop {
        let state = server.get_check(&admin, ask).unwrap();
        if state.state != 1 {
            break state;
        }
        std::thread::yield_now();
    };
    assert_eq!((state.state, state.records.volumes, state.found.damages), (2, 0, 0));
    let damages = GetCheckDamagesRequest { partition: 2, part: 0, from: 0 };
    assert!(server.get_check_damages(&admin, damages).unwrap().damages.is_empty());
    server.start_check(&admin, start).unwrap();
    server.stop_check(&admin, StopCheckRequest { partition: 2 }).unwrap();
    assert!(matches!(server.get_check(&admin, ask).unwrap().state, 2 | 3));
}
