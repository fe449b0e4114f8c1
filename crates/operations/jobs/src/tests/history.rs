//! A simulated cell and the events in it.

use super::locations::Database;
use super::servers::Server;
use super::wire::{Recipient, connect};
use crate::{
    Control, Copy, End, Job, JobError, Move, Operation, Outlook, Overwrite, Place, Release, Restore, Stage,
    World, entry, preflight, run,
};
use afs_idl::vl::{NVldbEntry, entry_flags, site_flags};
use afs_idl::vol::{self, RestoreRequest, attach_mode, volume_type};
use afs_idl::{CallStream, ClientConnection};
use base::{AbortCode, UnixTime};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Id of the volume in all histories; its other ids follow.
pub(super) const VOLUME: u32 = 100;
/// Id of a volume family that is only read-only.
pub(super) const COPIES: u32 = 200;
/// Idle time after which the servers end transactions.
const IDLE_SECONDS_MAX: u32 = 600;
/// Number of faults after which the cell works normally.
const FAULTS_MAX: u32 = 12;
/// Contents of the dump file.
pub(super) const DUMP: &[u8] = b"a dump";
/// Upper bound of a job's duration, in seconds.
const SECONDS_MAX: u32 = 400_000;

/// Size of each volume.
pub(super) const SIZE_KIB: i32 = 1000;

pub(super) fn server(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

pub(super) fn place(number: u8) -> Place {
    Place { server: server(number), partition: 0 }
}

/// Panic payload that simulates the death of the process running the job.
pub(super) struct Killed;

/// Outcome of a call.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Dice {
    Well,
    Lost,
    AnswerLost,
    KilledBefore,
    KilledAfter,
    CrashBefore,
    CrashAfter,
    /// The server is killed before it replies, and restarts soon. The transport sends the call again, the new
    /// server executes it as a new call, and that reply arrives.
    Twice,
}

/// The part of a volume that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Everything,
    Changes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Volume {
    pub(super) partition: i32,
    pub(super) kind: i32,
    /// Values of files, and their modification times.
    pub(super) files: BTreeMap<u8, (u64, u32)>,
    pub(super) created: u32,
    pub(super) updated: u32,
    /// Number of changes.
    pub(super) changes: u32,
    /// Date of the latest clone.
    pub(super) dated: u32,
    /// Ids of the read-only and the backup volume in its header.
    pub(super) family: [u32; 2],
    pub(super) in_service: bool,
    pub(super) is_doomed: bool,
    /// Number of directories split off from it, and whether it was itself split off.
    pub(super) split_off: u32,
    pub(super) is_split_off: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Open {
    pub(super) volume: u32,
    pub(super) partition: i32,
    pub(super) attach: i32,
    pub(super) used: u32,
    pub(super) has_moved: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Host {
    /// Volumes by id and partition.
    pub(super) volumes: BTreeMap<(u32, i32), Volume>,
    pub(super) open: BTreeMap<i32, Open>,
    pub(super) next: i32,
    /// Whether it is a Cellar server: volumes marked for deletion are deleted at a restart, and restores are
    /// atomic.
    pub(super) is_cellar: bool,
    /// Free space on each partition.
    pub(super) free_kib: i64,
    /// Time until which it rejects all changes.
    pub(super) refuses_until: u32,
    pub(super) down_until: u32,
}

impl Host {
    fn restart(&mut self) {
        self.open.clear();
        if self.is_cellar {
            self.volumes.retain(|_, volume| !volume.is_doomed);
        }
    }

    /// Returns the partitions on which clients may write to the volume.
    fn served(&self) -> Vec<i32> {
        let is_free = |partition: i32| {
            let is_taken = |open: &Open| {
                (open.volume, open.partition) == (VOLUME, partition)
                    && open.attach & attach_mode::READ_ONLY == 0
            };
            !self.open.values().any(is_taken)
        };
        let all = self.volumes.iter().filter(|((id, _), volume)| *id == VOLUME && volume.in_service);
        all.map(|((_, partition), _)| *partition).filter(|&partition| is_free(partition)).collect()
    }
}

pub(super) struct State {
    random: StdRng,
    pub(super) now: u32,
    /// Number of seconds by which the servers' clocks are ahead.
    pub(super) clock_ahead: u32,
    pub(super) hosts: BTreeMap<Ipv4Addr, Host>,
    pub(super) entries: BTreeMap<u32, NVldbEntry>,
    /// Contents of a location server that was down and is out of date, if there is one; queries may reach it.
    behind: Option<BTreeMap<u32, NVldbEntry>>,
    /// Start time of the location server that accepts changes.
    pub(super) locations_began: u32,
    pub(super) next_volume: u32,
    /// Whether the location servers reject all changes.
    pub(super) takes_no_changes: bool,
    /// Whether the volume was out of service before the job.
    pub(super) is_taken_off: bool,
    /// Number of the next listings of a volume at OpenAFS's servers that find another call at it.
    pub(super) busy_listings: u32,
    pub(super) forwards: u32,
    /// What each call that sent to several sites read, and the number of sites.
    pub(super) reads: Vec<(Extent, usize)>,
    /// Number of dumps sent from files; `refusal` is the error returned for them.
    pub(super) restores: u32,
    pub(super) refusal: Option<AbortCode>,
    /// Writes acknowledged to clients.
    pub(super) acknowledged: BTreeMap<u8, u64>,
    written: u64,
    faults_left: u32,
    /// Probability of a fault in a call.
    fault_rate: f64,
    journal: Option<Job>,
    cancel_at: u32,
}

pub(super) struct Cell {
    pub(super) state: Mutex<State>,
    myself: std::sync::Weak<Cell>,
}

impl Cell {
    pub(super) fn server(&self, address: Ipv4Addr) -> Server {
        Server { cell: self.myself.upgrade().unwrap(), address }
    }

    /// Returns the database for a call. Without `is_newest` it may be that of an outdated server.
    pub(super) fn database(&self, is_newest: bool) -> Database {
        let mut state = self.state.lock();
        let is_other = !is_newest && state.random.random_bool(0.5);
        let behind = state.behind.clone().filter(|_| is_other);
        drop(state);
        Database { cell: self.myself.upgrade().unwrap(), behind }
    }

    /// Sometimes makes a location server fall behind, or brings it up to date.
    fn fall_behind(&self) {
        let mut state = self.state.lock();
        if state.fault_rate > 0.0 && state.random.random_bool(0.1) {
            let entries = state.entries.clone();
            state.behind = state.random.random_bool(0.5).then_some(entries);
        }
    }

    pub(super) fn is_up(&self, server: Ipv4Addr) -> bool {
        let state = self.state.lock();
        state.hosts[&server].down_until <= state.now
    }

    /// Kills a server, which restarts some time later. Location servers are replicated and keep running.
    pub(super) fn crash(&self, server: Option<Ipv4Addr>) {
        let Some(server) = server else { return };
        let mut state = self.state.lock();
        let seconds = state.random.random_range(1..2000);
        let until = state.now + seconds;
        let host = state.hosts.get_mut(&server).unwrap();
        host.restart();
        host.down_until = until;
    }

    /// Kills a server that restarts immediately.
    pub(super) fn restart(&self, server: Option<Ipv4Addr>) {
        let mut state = self.state.lock();
        match server.and_then(|server| state.hosts.get_mut(&server)) {
            Some(host) => host.restart(),
            None => state.locations_began += 1,
        }
    }

    /// Advances the time; clients write, and idle transactions end.
    pub(super) fn pass(&self, seconds: u32) {
        let mut state = self.state.lock();
        state.now += seconds;
        assert!(state.now < SECONDS_MAX, "the job does not end");
        let now = state.now;
        // Sets the clocks forward or back. OpenAFS misses changes then.
        if state.fault_rate > 0.0 && state.hosts[&server(1)].is_cellar && state.random.random_bool(0.05) {
            state.clock_ahead = state.random.random_range(0..2000);
        }
        for host in state.hosts.values_mut() {
            let idle: Vec<i32> = host
                .open
                .iter()
                .filter(|(_, open)| open.used + IDLE_SECONDS_MAX < now)
                .map(|(&id, _)| id)
                .collect();
            for id in idle {
                let open = host.open.remove(&id).unwrap();
                let place = (open.volume, open.partition);
                let is_doomed = host.volumes.get(&place).is_some_and(|volume| volume.is_doomed);
                if host.is_cellar && is_doomed {
                    host.volumes.remove(&place);
                }
            }
        }
        if state.random.random_bool(0.3) && state.fault_rate > 0.0 {
            let place = entry::read_write_place(&state.entries[&VOLUME]).unwrap();
            state.write(place.server);
            // A client with outdated location information.
            state.write(server(1));
        }
        drop(state);
        self.fall_behind();
        self.check();
    }

    fn asks_another(&self) -> bool {
        self.state.lock().random.random_bool(0.5)
    }

    pub(super) fn throw(&self) -> Dice {
        let mut state = self.state.lock();
        let rate = state.fault_rate;
        if state.faults_left == 0 || !state.random.random_bool(rate) {
            return Dice::Well;
        }
        state.faults_left -= 1;
        let faults = [
            Dice::Lost,
            Dice::AnswerLost,
            Dice::KilledBefore,
            Dice::KilledAfter,
            Dice::CrashBefore,
            Dice::CrashAfter,
            Dice::Twice,
        ];
        faults[state.random.random_range(0..faults.len())]
    }

    /// Checks that the volume to which the database points exists and has all acknowledged writes, and that
    /// no server has it in service on two partitions.
    pub(super) fn check(&self) {
        let state = self.state.lock();
        let place = entry::read_write_place(&state.entries[&VOLUME]).unwrap();
        let host = &state.hosts[&place.server];
        let volume = host.volumes.get(&(VOLUME, place.partition));
        let volume = volume.expect("the entry points to where the volume is");
        assert!(!volume.is_doomed, "the volume that the entry points to is doomed");
        state.check_files(volume);
        for host in state.hosts.values() {
            assert!(host.served().len() < 2, "a server has the volume in service on two partitions");
        }
    }
}

impl State {
    fn check_files(&self, volume: &Volume) {
        for (file, value) in &self.acknowledged {
            assert_eq!(volume.files.get(file).map(|(value, _)| value), Some(value), "a write is lost");
        }
    }

    /// Returns the time according to the servers' clocks.
    pub(super) fn wall(&self) -> u32 {
        self.now + self.clock_ahead
    }

    /// Writes a file of the volume as a client, if the server permits it.
    fn write(&mut self, server: Ipv4Addr) {
        let (now, wall, written) = (self.now, self.wall(), self.written + 1);
        let file = self.random.random_range(0..20);
        let Some(host) = self.hosts.get_mut(&server).filter(|host| host.down_until <= now) else { return };
        let [partition] = host.served()[..] else { return };
        let is_cellar = host.is_cellar;
        let Some(volume) = host.volumes.get_mut(&(VOLUME, partition)) else { return };
        self.written = written;
        let date = if is_cellar { wall.max(volume.updated).max(volume.dated) } else { wall };
        volume.files.insert(file, (written, date));
        volume.updated = date;
        volume.changes += 1;
        self.acknowledged.insert(file, written);
    }
}

impl World for Arc<Cell> {
    fn volumes(&self, server: Ipv4Addr) -> Arc<dyn ClientConnection> {
        Arc::new(connect(self.clone(), Recipient::Volumes(server)))
    }

    fn locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        match call(&connect(self.clone(), Recipient::Locations)) {
            // Another server of the database is tried, and may already have the effect of the silent one.
            Err(code) if code.is_of_rx() && self.asks_another() => {
                call(&connect(self.clone(), Recipient::Locations))
            }
            answer => answer,
        }
    }

    fn newest_locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        call(&connect(self.clone(), Recipient::NewestLocations))
    }

    fn send_file(&self, server: Ipv4Addr, request: &RestoreRequest, file: &str) -> Result<u64, JobError> {
        assert_eq!(file, "/dump");
        match self.control() {
            Control::Suspend => return Err(JobError::Stopped("the program ends".into())),
            Control::Cancel => return Err(JobError::Cancelled),
            Control::Continue => {}
        }
        let send = |stream: &mut dyn CallStream| stream.write(Bytes::from_static(DUMP));
        let sent = vol::restore(&*self.volumes(server), request, send);
        let doing = || "restore the file".into();
        sent.map(|_| DUMP.len() as u64).map_err(|code| JobError::Call { doing: doing(), code })
    }

    fn restores_atomically(&self, server: Ipv4Addr) -> bool {
        self.state.lock().hosts[&server].is_cellar
    }

    fn now(&self) -> UnixTime {
        UnixTime(self.state.lock().now)
    }

    fn pause(&self, seconds: u32) {
        self.pass(seconds);
    }

    fn control(&self) -> Control {
        let state = self.state.lock();
        if state.now >= state.cancel_at { Control::Cancel } else { Control::Continue }
    }

    fn record(&self, job: &Job) -> Result<(), String> {
        let dice = self.throw();
        if dice == Dice::KilledBefore {
            std::panic::resume_unwind(Box::new(Killed));
        }
        self.state.lock().journal = Some(job.clone());
        if dice == Dice::KilledAfter {
            std::panic::resume_unwind(Box::new(Killed));
        }
        Ok(())
    }
}

/// Creates a job that has not started.
fn job_of(operation: Operation) -> Job {
    match operation.clone() {
        Operation::Restore(Restore { name, to, .. }) => Job::new(1, operation, 0, &name, to),
        Operation::Overwrite(Overwrite { readonly: true, .. }) => {
            Job::new(1, operation, COPIES, "copies", place(1))
        }
        _ => Job::new(1, operation, VOLUME, "data", place(1)),
    }
}

/// Returns a job as the next process reads it from the journal.
fn reloaded(recorded: &Job) -> Job {
    let text = serde_json::to_string(recorded).unwrap();
    let job: Job = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(job, *recorded, "the journal loses something");
    job
}

/// A cell and a job in it.
pub(super) struct History {
    seed: u64,
    cell: Arc<Cell>,
    job: Job,
}

impl History {
    /// Creates a history with many faults.
    pub(super) fn new(seed: u64, operation: Operation) -> History {
        let mut random = StdRng::seed_from_u64(seed);
        let rate = [0.01, 0.03, 0.1][random.random_range(0..3)];
        let cancel_at = if random.random_bool(0.2) { random.random_range(1000..1300) } else { u32::MAX };
        History::with(seed, operation, random, (rate, cancel_at))
    }

    /// Creates a history without faults and without writes.
    pub(super) fn quiet(operation: Operation) -> History {
        History::with(0, operation, StdRng::seed_from_u64(0), (0.0, u32::MAX))
    }

    /// Creates a history without faults, with the cell of a seed.
    pub(super) fn calm(seed: u64, operation: Operation) -> History {
        History::with(seed, operation, StdRng::seed_from_u64(seed), (0.0, u32::MAX))
    }

    /// Creates a history without faults that resumes a job, with the cell of a seed.
    pub(super) fn of(seed: u64, job: &Job) -> History {
        History { job: job.clone(), ..History::calm(seed, job.operation()) }
    }

    pub(super) fn world(&self) -> &Arc<Cell> {
        &self.cell
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.cell.state.lock()
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Performs the dry run of the job, and checks that it changes nothing.
    pub(super) fn preflight(&self) -> Result<Outlook, JobError> {
        let kept = |state: &State| (state.hosts.clone(), state.entries.clone(), state.next_volume);
        let before = kept(&self.state());
        let predicted = preflight(&self.job, &self.cell);
        let state = self.state();
        assert_eq!(kept(&state), before);
        assert!(state.journal.as_ref().is_none_or(|job| job.id != self.job.id), "it was begun");
        predicted
    }

    /// Creates a fault-free history of a release to three other servers, which are either all Cellar or all
    /// OpenAFS servers.
    pub(super) fn quiet_release(are_cellars: bool) -> History {
        let history = History::quiet(Operation::Release(Release { all: false }));
        let mut state = history.cell.state.lock();
        state.hosts.values_mut().for_each(|host| host.is_cellar = are_cellars);
        let entry = state.entries.get_mut(&VOLUME).unwrap();
        entry.server_count = 4;
        for (site, number) in (1..).zip(2..=4) {
            (entry.server_number[site], entry.server_flags[site]) =
                (server(number).into(), site_flags::READ_ONLY);
        }
        drop(state);
        history
    }

    fn with(
        seed: u64,
        operation: Operation,
        mut random: StdRng,
        (fault_rate, cancel_at): (f64, u32),
    ) -> History {
        let mut hosts: BTreeMap<Ipv4Addr, Host> = BTreeMap::new();
        for number in 1..=4 {
            let is_cellar = random.random_bool(0.5);
            hosts
                .insert(server(number), Host { is_cellar, free_kib: i64::from(SIZE_KIB), ..Host::default() });
        }
        if matches!(operation, Operation::Move(Move { to }) if to.server == server(1)) {
            // OpenAFS would have both volumes in service if it restarted at the wrong moment.
            hosts.get_mut(&server(1)).unwrap().is_cellar = true;
        }
        if matches!(operation, Operation::Split(_)) {
            hosts.get_mut(&server(1)).unwrap().is_cellar = true;
        }
        let volume = Volume {
            kind: volume_type::READ_WRITE,
            files: BTreeMap::from([(0, (0, 500))]),
            created: 10,
            updated: 500,
            in_service: true,
            ..Volume::default()
        };
        let first = hosts.get_mut(&server(1)).unwrap();
        first.volumes.insert((VOLUME, 0), volume.clone());
        let mut entry = NVldbEntry {
            name: "data".into(),
            server_count: 1,
            volume_id: [VOLUME, VOLUME + 1, VOLUME + 2],
            flags: entry_flags::READ_WRITE_EXISTS,
            ..NVldbEntry::default()
        };
        entry.server_number[0] = server(1).into();
        entry.server_flags[0] = site_flags::READ_WRITE;
        if random.random_bool(0.5) {
            first.volumes.insert((VOLUME + 2, 0), Volume { kind: volume_type::BACKUP, ..volume });
            entry.flags |= entry_flags::BACKUP_EXISTS;
        }
        if matches!(operation, Operation::Release(_)) {
            for number in [1, 2, 3, 4].into_iter().filter(|&n| n == 2 || random.random_bool(0.7)) {
                let site = usize::try_from(entry.server_count).unwrap();
                entry.server_number[site] = server(number).into();
                entry.server_flags[site] = site_flags::READ_ONLY;
                entry.server_count += 1;
            }
        }
        let mut entries = BTreeMap::from([(VOLUME, entry)]);
        if matches!(operation, Operation::Overwrite(Overwrite { readonly: true, .. })) {
            let sites: &[u8] = if random.random_bool(0.5) { &[1, 3, 4] } else { &[1] };
            add_read_only(&mut hosts, &mut entries, sites);
        }
        let state = State {
            random,
            now: 1000,
            clock_ahead: 0,
            hosts,
            entries,
            behind: None,
            locations_began: 1,
            next_volume: 1000,
            takes_no_changes: false,
            is_taken_off: false,
            busy_listings: 0,
            forwards: 0,
            reads: Vec::new(),
            restores: 0,
            refusal: None,
            acknowledged: BTreeMap::from([(0, 0)]),
            written: 0,
            faults_left: FAULTS_MAX,
            fault_rate,
            journal: None,
            cancel_at,
        };
        let cell = Arc::new_cyclic(|myself| Cell { state: Mutex::new(state), myself: myself.clone() });
        let job = job_of(operation);
        History { seed, cell, job }
    }

    /// Runs the job to its end, restarting it whenever its process is killed.
    pub(super) fn run_to_the_end(&mut self) {
        while !self.job.is_over() {
            let ran = std::panic::catch_unwind(AssertUnwindSafe(|| run(&mut self.job, &self.cell)));
            match ran {
                Ok(end) => assert_eq!(end, End::Over),
                Err(panic) if panic.is::<Killed>() => {
                    let mut state = self.cell.state.lock();
                    let pause = state.random.random_range(0..1000);
                    let recorded = state.journal.clone();
                    drop(state);
                    // A job that was never recorded has not started.
                    let fresh = || job_of(self.job.operation());
                    self.job = recorded.as_ref().map_or_else(fresh, reloaded);
                    self.cell.pass(pause);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }

    /// Runs the whole history; a failure prints the seed.
    pub(super) fn play(mut self) {
        let seed = self.seed;
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            self.run_to_the_end();
            self.check_end();
            assert_eq!(self.job.failure().is_some(), self.job.stage() == Stage::Failed);
        }));
        if let Err(panic) = outcome {
            let job = &self.job;
            println!("seed {seed}: {job:#?}");
            std::panic::resume_unwind(panic);
        }
    }

    pub(super) fn again(&mut self, operation: Operation) {
        self.job = Job::new(2, operation, VOLUME, "data", place(1));
        self.cell.pass(100);
    }

    pub(super) fn forwards(&self) -> u32 {
        self.cell.state.lock().forwards
    }

    /// Returns the reads since the last call, one for each call that sent.
    pub(super) fn reads(&self) -> Vec<(Extent, usize)> {
        std::mem::take(&mut self.cell.state.lock().reads)
    }

    /// Deletes the read-only volume of a server.
    pub(super) fn lose_site(&self, number: u8) {
        let mut state = self.cell.state.lock();
        state.hosts.get_mut(&server(number)).unwrap().volumes.remove(&(VOLUME + 1, 0)).unwrap();
    }

    pub(super) fn files_sent(&self) -> u32 {
        self.cell.state.lock().restores
    }

    /// Returns how often a dump is sent if every server rejects it with this code.
    pub(super) fn sent_if_refused(mut self, code: AbortCode) -> u32 {
        self.cell.state.lock().refusal = Some(code);
        self.run_to_the_end();
        assert_eq!((self.job.stage(), self.job.abort_code()), (Stage::Failed, Some(code)));
        self.cell.state.lock().restores
    }

    /// Sets the clocks of all servers ahead.
    pub(super) fn set_clock_ahead(&self, seconds: u32) {
        self.cell.state.lock().clock_ahead = seconds;
    }

    /// Checks that all sites have the contents of the read-write volume.
    pub(super) fn check_released(&self) {
        let state = self.cell.state.lock();
        let files = &state.hosts[&server(1)].volumes[&(VOLUME, 0)].files;
        assert_eq!(check_sites(&state, &state.entries[&VOLUME]), files, "a site misses changes");
    }

    pub(super) fn write(&self) {
        self.cell.state.lock().write(server(1));
        self.cell.pass(10);
    }

    /// Returns whether the job was cancelled before all sites of a restored volume had it.
    fn is_left_behind(&self) -> bool {
        let has_sites =
            matches!(self.job.operation(), Operation::Restore(Restore { also, .. }) if !also.is_empty());
        has_sites && self.job.failure().is_some_and(|why| why.contains("some sites"))
    }

    /// Returns whether a volume is out of service as requested, or because it may contain only part of the
    /// dump.
    fn is_left_off(&self, state: &State, volume: u32) -> bool {
        let is_done = self.job.stage() == Stage::Done;
        match self.job.operation() {
            Operation::Restore(Restore { offline, .. }) => offline && volume == self.job.restored(),
            Operation::Overwrite(Overwrite { offline, .. }) => {
                volume == self.job.restored()
                    && (is_done && offline || !is_done && self.job.may_have_overwritten())
            }
            _ => volume == VOLUME && state.is_taken_off,
        }
    }

    /// Checks that the restored contents are there, and that the creation date was set.
    fn check_overwritten(&self, state: &State) {
        let Operation::Overwrite(Overwrite { offline, readonly, .. }) = self.job.operation() else { return };
        let (family, kind) = if readonly { (COPIES, 1) } else { (VOLUME, 0) };
        let entry = &state.entries[&family];
        assert_eq!(entry::operation(entry), 0, "the entry stays locked");
        let volume = &state.hosts[&server(1)].volumes[&(entry.volume_id[kind], 0)];
        assert_eq!(volume.kind, if readonly { volume_type::READ_ONLY } else { volume_type::READ_WRITE });
        let has_dump = volume.files.get(&77) == restored_files().get(&77);
        if self.job.stage() == Stage::Done {
            assert!(has_dump && volume.created >= 1000, "not the contents of the file");
            assert_eq!(volume.in_service, !offline);
        } else {
            assert!(
                !has_dump || self.job.may_have_overwritten(),
                "the job does not report that it may be overwritten"
            );
        }
    }

    /// Checks that the header of the read-write volume has the same clone ids as the entry.
    fn check_family(&self, state: &State, entry: &NVldbEntry, place: Place) {
        let changes_it = match self.job.operation() {
            Operation::Move(_) | Operation::Copy(_) => true,
            Operation::Overwrite(Overwrite { readonly, .. }) => !readonly,
            _ => false,
        };
        let named = state.hosts[&place.server].volumes[&(VOLUME, place.partition)].family;
        if self.job.stage() == Stage::Done && changes_it {
            assert_eq!(named, entry.volume_id[1..], "the numbers in the header");
        }
        let is_there = |id: u32| state.hosts.values().any(|host| host.volumes.keys().any(|key| key.0 == id));
        assert!(
            self.job.stage() != Stage::Done || named[0] <= VOLUME + 2 || is_there(named[0]),
            "a deleted clone"
        );
    }

    /// Checks that a new volume has the contents of the file and matches its entry.
    fn check_restored(&self, state: &State) {
        let Operation::Restore(Restore { readonly, .. }) = self.job.operation() else { return };
        if self.job.stage() != Stage::Done {
            return;
        }
        let restored = &state.hosts[&server(2)].volumes[&(self.job.restored(), 0)];
        assert_eq!(restored.files, restored_files(), "not the contents of the file");
        let entry = &state.entries[&self.job.volume()];
        assert_eq!(entry.volume_id[usize::from(readonly)], self.job.restored());
        let (kind, flags) = if readonly {
            (volume_type::READ_ONLY, (entry_flags::READ_ONLY_EXISTS, site_flags::READ_ONLY))
        } else {
            (volume_type::READ_WRITE, (entry_flags::READ_WRITE_EXISTS, site_flags::READ_WRITE))
        };
        assert_eq!((restored.kind, (entry.flags, entry.server_flags[0])), (kind, flags));
    }

    /// Checks the final state.
    pub(super) fn check_end(&self) {
        if self.job.waits() > 0 {
            // Transactions left open on a server that was down have timed out.
            self.cell.pass(IDLE_SECONDS_MAX + 1);
        }
        self.cell.check();
        let waited = self.job.events.iter().find(|event| event.what.contains("VOLSERVOLBUSY"));
        assert!(waited.is_none(), "no other client opens volumes, so the job waits for itself: {waited:?}");
        let state = self.cell.state.lock();
        let entry = &state.entries[&VOLUME];
        assert_eq!(entry::operation(entry), 0, "the entry stays locked");
        let is_done = self.job.stage() == Stage::Done;
        let mut wanted: Vec<(Place, u32)> = Vec::new();
        let place_now = entry::read_write_place(entry).unwrap();
        wanted.push((place_now, VOLUME));
        let moved_to = match self.job.operation() {
            Operation::Move(Move { to }) if is_done => to,
            _ => place(1),
        };
        assert_eq!(place_now, moved_to);
        if entry.flags & entry_flags::BACKUP_EXISTS != 0 {
            wanted.push((place(1), VOLUME + 2));
        }
        if let Operation::Copy(Copy { to, .. }) | Operation::Restore(Restore { to, .. }) =
            self.job.operation()
        {
            assert_eq!(state.entries.len(), if is_done || self.is_left_behind() { 2 } else { 1 });
            let is_new = |id: &&u32| **id != VOLUME;
            let made = u32::from(self.job.is_read_only());
            wanted.extend(state.entries.keys().filter(is_new).map(|&id| (to, id + made)));
        }
        if let Some(entry) = state.entries.get(&COPIES) {
            let sites = entry::read_only_sites(entry);
            wanted.extend(sites.into_iter().map(|site| (entry::place(entry, site), entry.volume_id[1])));
        }
        if let (Operation::Restore(Restore { also, .. }), true) = (&self.job.operation(), is_done) {
            wanted.extend(also.iter().map(|place| (*place, self.job.restored())));
        }
        if let Operation::Split(_) = self.job.operation() {
            let new = state.entries.keys().find(|&&id| id != VOLUME).copied();
            assert_eq!(new.is_some(), is_done);
            let volumes = &state.hosts[&server(1)].volumes;
            assert_eq!(volumes[&(VOLUME, 0)].split_off, u32::from(is_done));
            assert!(new.is_none_or(|id| volumes[&(id, 0)].is_split_off));
            wanted.extend(new.map(|id| (place(1), id)));
        }
        let mut there: Vec<(Place, u32)> = Vec::new();
        for (address, host) in &state.hosts {
            assert!(host.open.is_empty(), "a transaction is left on {address}");
            for (&(id, partition), volume) in &host.volumes {
                let place = Place { server: *address, partition };
                let is_read_only = id == VOLUME + 1;
                let is_behind = id == self.job.restored() && place != self.job.from && self.is_left_behind();
                if !is_read_only && !is_behind {
                    there.push((place, id));
                }
                let is_failed_site = is_behind || is_read_only && !is_done;
                let may_be_off = is_failed_site || self.is_left_off(&state, id);
                assert!(volume.in_service || may_be_off, "{id} on {address} is out of service");
            }
        }
        let order = |(place, id): &(Place, u32)| (place.server, place.partition, *id);
        wanted.sort_unstable_by_key(order);
        there.sort_unstable_by_key(order);
        assert!(wanted == there, "expected {wanted:?}, found {there:?}");
        self.check_overwritten(&state);
        self.check_restored(&state);
        self.check_family(&state, entry, place_now);
        if is_done && matches!(self.job.operation(), Operation::Release(_)) {
            assert!(check_sites(&state, entry).contains_key(&0));
        }
        if is_done && self.job.is_read_only() {
            assert_eq!(check_sites(&state, &state.entries[&self.job.volume()]), &restored_files());
        }
    }
}

/// Returns the files of a volume after a restore.
pub(super) fn restored_files() -> BTreeMap<u8, (u64, u32)> {
    BTreeMap::from([(77, (DUMP.len() as u64, 1))])
}

/// Adds a volume without a read-write volume, with ids as OpenAFS's `vos` gives them.
fn add_read_only(
    hosts: &mut BTreeMap<Ipv4Addr, Host>,
    entries: &mut BTreeMap<u32, NVldbEntry>,
    sites: &[u8],
) {
    let id = COPIES + 5;
    let mut entry = NVldbEntry {
        name: "copies".into(),
        volume_id: [COPIES, id, 0],
        flags: entry_flags::READ_ONLY_EXISTS,
        ..NVldbEntry::default()
    };
    for (site, &number) in sites.iter().enumerate() {
        let files = BTreeMap::from([(0, (0, 500))]);
        let (kind, created, updated, in_service) = (volume_type::READ_ONLY, 10, 500, true);
        let volume = Volume { kind, files, created, updated, in_service, ..Volume::default() };
        hosts.get_mut(&server(number)).unwrap().volumes.insert((id, 0), volume);
        entry.server_number[site] = server(number).into();
        entry.server_flags[site] = site_flags::READ_ONLY;
        entry.server_count += 1;
    }
    entries.insert(COPIES, entry);
}

/// Checks that all read-only sites have the same files, and returns those.
fn check_sites<'a>(state: &'a State, entry: &NVldbEntry) -> &'a BTreeMap<u8, (u64, u32)> {
    let (sites, volume) = (entry::read_only_sites(entry), entry.volume_id[entry::READ_ONLY]);
    let files = |site: &usize| &state.hosts[&entry::place(entry, *site).server].volumes[&(volume, 0)].files;
    for site in &sites {
        assert_eq!(files(site), files(&sites[0]), "the sites differ");
        assert!(!entry::is_new(entry, *site), "the site is marked");
    }
    files(&sites[0])
}
