//! The load generator: runs in a cell's namespaces and executes orders from its standard input.

use crate::cpu::Reading;
use crate::order::{Answer, CpuSeconds, Latency, Order, Outcome};
use crate::tree;
use crate::workload::{self, Kind, LIST_FILES, SMALL_FILE_BYTES, Unit, Workload};
use afs_idl::{ClientConnection, cellar};
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use load::files::{Fid, Files, volume_root};
use load::station::{FILE_SERVICE, Station, encrypted};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::io::{BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What a generator needs before its first order.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GeneratorOptions {
    /// The server's address
    #[arg(long)]
    address: IpAddr,
    /// Volumes that anyone may write to; all workloads but the mixes use the first
    #[arg(long, required = true)]
    volume: Vec<String>,
    /// The cell's keys
    #[arg(long)]
    key_file: PathBuf,
    /// A file in the file system of the server's partition
    #[arg(long)]
    partition: PathBuf,
}

/// Executes orders until the end of the input.
pub(crate) fn serve(options: &GeneratorOptions) -> Result<()> {
    let mut generator = Generator::new(options)?;
    execute(|order| generator.obey(order))
}

/// Answers that the generator is ready, and then each order on the standard input.
///
/// # Errors
/// If the input is no order, or the output is closed. A failed order is answered, and others follow.
pub(crate) fn execute(mut obey: impl FnMut(&Order) -> Result<Outcome>) -> Result<()> {
    answer(&Answer::Ready)?;
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?).context("the line is not a valid order")?;
        let outcome = obey(&order);
        answer(&outcome.map_or_else(|error| Answer::Failed(format!("{error:#}")), Answer::Done))?;
    }
    Ok(())
}

fn answer(answer: &Answer) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(answer)?)?;
    Ok(output.flush()?)
}

struct Generator {
    options: GeneratorOptions,
    /// Clients, as many as a workload needed so far.
    stations: Vec<Station>,
    /// Root directories of the volumes.
    roots: Vec<Fid>,
    data: Bytes,
    runs: u32,
    /// State left by the last run of a read-only workload for the next one.
    kept: Option<Kept>,
    /// The directory of [`Kind::List`], once a run has created it.
    listed: Option<Fid>,
}

/// Files kept between runs.
struct Kept {
    workload: &'static str,
    bytes: u64,
    tasks: Vec<Task>,
}

/// What one thread of a workload operates on.
struct Task {
    files: Files,
    directory: Fid,
    file: Fid,
    data: Bytes,
    /// The directory to list.
    listed: Option<Fid>,
}

/// Results of one thread.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) amount: u64,
    pub(crate) latency: Option<Histogram<u64>>,
}

/// Name of each thread's file, in the thread's directory.
const FILE_NAME: &str = "file";

impl Generator {
    fn new(options: &GeneratorOptions) -> Result<Generator> {
        let stations = vec![Station::start()?];
        let locations = stations[0].connect(SocketAddr::new(options.address, 7003), 52, None);
        let roots =
            options.volume.iter().map(|volume| volume_root(&*locations, volume)).collect::<Result<_>>()?;
        let data = Bytes::new();
        Ok(Generator { options: options.clone(), stations, roots, data, runs: 0, kept: None, listed: None })
    }

    fn obey(&mut self, order: &Order) -> Result<Outcome> {
        let workload =
            workload::by_name(&order.workload).with_context(|| format!("no workload {}", order.workload))?;
        if let Kind::Mix { name, .. } = workload.kind {
            return self.run_mix(workload, name, Duration::from_millis(order.milliseconds));
        }
        let kept = self.kept.take().filter(|it| it.workload == workload.name && it.bytes == order.bytes);
        let is_new = kept.is_none();
        let tasks = match kept {
            Some(kept) => kept.tasks,
            None => self.make(workload, order.bytes)?,
        };
        // A profile's one-time work, done at its first samples, is finished before the measurement starts.
        let profile = order.profile_hz.map(|hz| self.begin_profile(hz)).transpose()?;
        greet(workload, &tasks)?;
        if is_new {
            self.settle()?;
        }
        let outcome = self.measure(workload, &tasks, Duration::from_millis(order.milliseconds))?;
        if let Some(profile) = profile {
            profile.end()?;
        }
        if order.keeps_files && begins_with_data(workload) {
            self.kept = Some(Kept { workload: workload.name, bytes: order.bytes, tasks });
        } else {
            finish(workload, &tasks)?;
        }
        Ok(outcome)
    }

    fn make(&mut self, workload: &Workload, bytes: u64) -> Result<Vec<Task>> {
        self.runs += 1;
        if (self.data.len() as u64) < bytes {
            self.data = noise(bytes);
        }
        self.start_stations(workload.clients)?;
        if workload.kind == Kind::List && self.listed.is_none() {
            self.start_stations(LIST_MAKERS)?;
            self.listed = Some(self.make_listed()?);
        }
        self.prepare(workload, bytes)
    }

    fn start_stations(&mut self, clients: usize) -> Result<()> {
        while self.stations.len() < clients {
            self.stations.push(Station::start()?);
        }
        Ok(())
    }

    /// Creates the directory of [`Kind::List`], with several clients.
    fn make_listed(&self) -> Result<Fid> {
        let clients = &self.stations[..LIST_MAKERS];
        let clients: Vec<Files> =
            clients.iter().map(|station| self.connect(station, false)).collect::<Result<_>>()?;
        let directory = clients[0].make_directory(self.roots[0], "listed")?;
        std::thread::scope(|scope| {
            let make = |(number, files): (u32, &Files)| {
                let files = files.clone();
                let mut names = (number..LIST_FILES).step_by(LIST_MAKERS);
                scope.spawn(move || {
                    names.try_for_each(|name| files.create(directory, &name.to_string()).map(drop))?;
                    Ok(Done::default())
                })
            };
            let threads: Vec<_> = (0..).zip(&clients).map(make).collect();
            threads.into_iter().try_for_each(|thread| join(thread).map(drop))
        })?;
        Ok(directory)
    }

    fn begin_profile(&self, hz: u32) -> Result<Profile> {
        let address = SocketAddr::new(self.options.address, 7000);
        let security = Some(encrypted(&self.options.key_file)?);
        let server = self.stations[0].connect(address, CELLAR_SERVICE, security);
        let request = cellar::StartProfileRequest { kind: ON_PROCESSORS, hz, seconds: PROFILE_SECONDS };
        let profile = cellar::start_profile(&*server, &request).context("cannot begin a profile")?.profile;
        Ok(Profile { server, profile })
    }

    fn run_mix(&self, workload: &Workload, name: &str, duration: Duration) -> Result<Outcome> {
        let mut mix = load::fs::Mix::find(name)?;
        mix.groups[0].clients = workload.clients;
        mix.check()?;
        self.settle()?;
        let options = load::fs::Options {
            server: SocketAddr::new(self.options.address, 7000),
            sources: Vec::new(),
            volumes: self.roots.clone(),
            security: None,
            duration,
            warm_up: None,
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            server_pid: None,
            receive_merging: true,
        };
        outcome_of_mix(workload, &load::fs::run(&mix, &options)?)
    }

    /// Creates one task per thread; every thread has its own directory and file.
    fn prepare(&self, workload: &Workload, bytes: u64) -> Result<Vec<Task>> {
        let share = share_bytes(workload, bytes) as usize;
        let mut tasks = Vec::new();
        for station in &self.stations[..workload.clients] {
            let files = self.connect(station, workload.is_encrypted)?;
            for _ in 0..workload.threads {
                let number = tasks.len();
                let directory = files.make_directory(self.roots[0], &format!("{}-{number}", self.runs))?;
                let file = files.create(directory, FILE_NAME)?;
                let from = if workload.unit() == Unit::Bytes { share * number } else { 0 };
                let data = self.data.slice(from..from + share);
                tasks.push(Task { files: files.clone(), directory, file, data, listed: self.listed });
            }
        }
        tasks.iter().try_for_each(|task| warm(workload, task))?;
        Ok(tasks)
    }

    fn connect(&self, station: &Station, is_encrypted: bool) -> Result<Files> {
        let security = is_encrypted.then(|| encrypted(&self.options.key_file)).transpose()?;
        let address = SocketAddr::new(self.options.address, 7000);
        Ok(Files::new(station.connect(address, FILE_SERVICE, security)))
    }

    /// Flushes earlier writes so that they do not continue during the measurement.
    fn settle(&self) -> Result<()> {
        rustix::fs::sync();
        self.sync_partition()
    }

    fn sync_partition(&self) -> Result<()> {
        let path = &self.options.partition;
        let partition = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        Ok(rustix::fs::syncfs(partition)?)
    }

    fn measure(&self, workload: &Workload, tasks: &[Task], time: Duration) -> Result<Outcome> {
        let start = Barrier::new(tasks.len() + 1);
        std::thread::scope(|scope| {
            let spawn = |task| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    work(workload, task, time)
                })
            };
            let threads: Vec<_> = tasks.iter().map(spawn).collect();
            let before = Reading::now();
            let begin = Instant::now();
            start.wait();
            let done: Vec<Done> = threads.into_iter().map(join).collect::<Result<_>>()?;
            if workload.kind == (Kind::Store { and_sync: true }) {
                self.sync_partition()?;
            }
            let seconds = begin.elapsed().as_secs_f64();
            let cpu = Reading::now()?.since(&before?);
            let amount = done.iter().map(|done| done.amount).sum::<u64>() as f64;
            Ok(Outcome { amount, seconds, cpu, latency: percentiles(&done)? })
        })
    }
}

/// A profile that the server takes of itself.
struct Profile {
    server: Arc<dyn ClientConnection>,
    profile: u64,
}

impl Profile {
    /// Ends the profile and waits until the server has processed it.
    fn end(self) -> Result<()> {
        let profile = self.profile;
        cellar::stop_profile(&*self.server, &cellar::StopProfileRequest { profile })
            .context("cannot end a profile")?;
        loop {
            let reply = cellar::get_profile(&*self.server, &cellar::GetProfileRequest { profile })?;
            match reply.stage {
                PROFILE_RUNS => std::thread::sleep(Duration::from_millis(5)),
                PROFILE_DONE => return Ok(()),
                _ => bail!("a profile failed: {}", reply.error),
            }
        }
    }
}

/// Numbers from `idl/cellar.idl`: the service, a kind of profile, its stages.
const CELLAR_SERVICE: u16 = 20011;
const ON_PROCESSORS: u32 = 1;
const PROFILE_RUNS: u32 = 1;
const PROFILE_DONE: u32 = 2;

/// Longer than any run.
const PROFILE_SECONDS: u32 = 600;

/// Converts the report of a mix. Latencies are those of the last group: in mixes with several groups, an
/// interactive user.
fn outcome_of_mix(workload: &Workload, report: &load::fs::Report) -> Result<Outcome> {
    ensure!(report.wrong() == 0, "{} replies were wrong", report.wrong());
    let latency = report.groups.last().context("no groups")?.latency;
    let used = report.used;
    let server = used.server_cpu.context("the server's process was not found")?;
    let amount = if workload.unit() == Unit::Bytes { report.bytes } else { report.calls };
    let cpu = CpuSeconds {
        server,
        generator: used.client_cpu,
        other: (used.machine_cpu - server - used.client_cpu).max(0.0),
        stolen: used.stolen_cpu,
    };
    // A group without completed calls has no latency.
    let latency =
        (latency.max_us > 0.0).then_some(Latency { p50_us: latency.p50_us, p99_us: latency.p99_us });
    Ok(Outcome { amount: amount as f64, seconds: used.seconds, cpu, latency })
}

pub(crate) fn join(thread: ScopedJoinHandle<'_, Result<Done>>) -> Result<Done> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))?
}

/// Returns the size of each thread's file in bytes.
pub(crate) fn share_bytes(workload: &Workload, bytes: u64) -> u64 {
    match workload.kind {
        Kind::Fetch { .. } | Kind::Store { .. } => {
            bytes / workload.bytes_divisor / (workload.clients * workload.threads) as u64
        }
        Kind::Status | Kind::Files | Kind::List | Kind::Mix { .. } => SMALL_FILE_BYTES.min(bytes),
    }
}

/// Whether a workload starts with files that have data.
fn begins_with_data(workload: &Workload) -> bool {
    matches!(workload.kind, Kind::Fetch { .. } | Kind::Status)
}

/// Creates the files of a workload and loads them into the server's memory.
fn warm(workload: &Workload, task: &Task) -> Result<()> {
    if begins_with_data(workload) {
        task.files.store(task.file, &task.data)?;
        task.files.fetch_and_compare(task.file, &task.data, u64::MAX)?;
    }
    Ok(())
}

/// Makes concurrent calls on all threads, so that the connections exist before the measurement starts.
fn greet(workload: &Workload, tasks: &[Task]) -> Result<()> {
    let length = |task: &Task| if begins_with_data(workload) { task.data.len() as u64 } else { 0 };
    let call = |task: &Task| {
        (0..GREETINGS).try_for_each(|_| task.files.check_status(task.file, length(task)))?;
        Ok(Done::default())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = tasks.iter().map(|task| scope.spawn(move || call(task))).collect();
        threads.into_iter().try_for_each(|thread| join(thread).map(drop))
    })
}

/// Number of clients that create the directory of [`Kind::List`].
const LIST_MAKERS: usize = 4;

/// Number of calls per thread before the measurement.
const GREETINGS: u32 = 50;

fn work(workload: &Workload, task: &Task, time: Duration) -> Result<Done> {
    let amount = task.data.len() as u64;
    match workload.kind {
        Kind::Fetch { call_bytes } => {
            task.files.fetch_and_compare(task.file, &task.data, call_bytes)?;
            Ok(Done { amount, latency: None })
        }
        Kind::Store { .. } => {
            task.files.store(task.file, &task.data)?;
            Ok(Done { amount, latency: None })
        }
        Kind::Status => repeat(time, |_| task.files.check_status(task.file, amount)),
        Kind::Files => repeat(time, |number| {
            let name = format!("f{number}");
            let file = task.files.create(task.directory, &name)?;
            task.files.store(file, &task.data)?;
            task.files.remove(task.directory, &name)
        }),
        Kind::List => {
            let directory = task.listed.context("the directory to list does not exist")?;
            let mut done = repeat(time, |_| {
                let found = tree::statuses(&task.files, directory)?.len();
                ensure!(
                    found == LIST_FILES as usize,
                    "the listing has {found} files instead of {LIST_FILES}"
                );
                Ok(())
            })?;
            done.amount *= u64::from(LIST_FILES);
            Ok(done)
        }
        Kind::Mix { .. } => bail!("a mix starts its own clients"),
    }
}

/// Repeats an operation for the given time and records the duration of each.
pub(crate) fn repeat(time: Duration, mut operation: impl FnMut(u64) -> Result<()>) -> Result<Done> {
    let mut latency = Histogram::new(3)?;
    let begin = Instant::now();
    let (mut amount, mut at) = (0, Duration::ZERO);
    while at < time {
        operation(amount)?;
        let now = begin.elapsed();
        latency.record(now.saturating_sub(at).as_nanos() as u64)?;
        (amount, at) = (amount + 1, now);
    }
    Ok(Done { amount, latency: Some(latency) })
}

/// Returns the latencies of all threads together, if any were recorded.
pub(crate) fn percentiles(done: &[Done]) -> Result<Option<Latency>> {
    let mut all = Histogram::<u64>::new(3)?;
    for histogram in done.iter().filter_map(|done| done.latency.as_ref()) {
        all.add(histogram)?;
    }
    Ok(Latency::of(&all))
}

/// After the measurement: compares the stored data with the expected data and removes it.
fn finish(workload: &Workload, tasks: &[Task]) -> Result<()> {
    for task in tasks {
        if matches!(workload.kind, Kind::Files | Kind::List) {
            task.files.store(task.file, &task.data)?;
        }
        task.files.fetch_and_compare(task.file, &task.data, u64::MAX)?;
        task.files.remove(task.directory, FILE_NAME)?;
    }
    Ok(())
}

/// Returns incompressible bytes, the same in every run.
pub(crate) fn noise(bytes: u64) -> Bytes {
    let mut data = vec![0; bytes as usize];
    SmallRng::seed_from_u64(1).fill_bytes(&mut data);
    data.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_bytes_of_bulk_workloads() {
        let share = |name| share_bytes(workload::by_name(name).unwrap(), 1 << 20);
        assert_eq!(share("fetch-1"), 1 << 20);
        assert_eq!(share("store-4"), 1 << 18);
        assert_eq!(share("fetch-crypt-1"), 1 << 18);
        assert_eq!(share("files-16"), SMALL_FILE_BYTES);
    }

    #[test]
    fn repeated_operations_are_counted_and_errors_end_them() {
        let mut calls = 0;
        let done = repeat(Duration::from_millis(1), |number| {
            assert_eq!(number, calls);
            calls += 1;
            Ok(())
        });
        let done = done.unwrap();
        assert_eq!((done.amount, done.latency.as_ref().unwrap().len()), (calls, calls));
        let latency = percentiles(&[done]).unwrap().unwrap();
        assert!(latency.p50_us <= latency.p99_us);
        assert!(repeat(Duration::from_secs(60), |_| bail!("no")).is_err());
        assert!(percentiles(&[Done::default()]).unwrap().is_none());
    }
}
