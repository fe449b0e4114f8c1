//! Writers that tests of the store run as separate processes inside a cell.
//!
//! Every step of [`write`] is determined by its number, so the expected contents after any number of steps
//! are known. After the server was killed, the next writer first compares the contents with the acknowledged
//! steps, and then continues. [`fill`] fills a partition. All of them can go through one node of a cluster ([`Through`]).

use afs_idl::{ClientConnection, fs as rxafs};
use anyhow::{Context, Result, anyhow, bail, ensure};
use base::{AbortCode, Fid};
use cell_client::describe::widened;
use cell_client::files::{Attributes, Node};
use cell_client::network::AfsNetwork;
use cell_client::patience::Patience;
use cell_client::{CellClient, Interface, Network};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Number of file names per writer.
const FILES: u32 = 8;
/// Maximum length of a file: two chunks and a partial one.
const BYTES_MAX: usize = 600_000;
/// Maximum length of one file in ten. The data of long ones is written to the bucket by the node that a writer has called.
const LONG_BYTES_MAX: usize = 2_500_000;
const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: 1_000_000_000 };

type Files = BTreeMap<String, Vec<u8>>;

/// A directory of a volume, accessed without a cache.
struct Place {
    cell: CellClient,
    server: Ipv4Addr,
    directory: Node,
    /// How often a call was repeated after VRESTARTING, which is also the answer if its outcome is not known.
    restarts: Arc<AtomicU64>,
}

/// A change that a server has refused.
#[derive(Debug)]
struct Refused {
    what: String,
    code: AbortCode,
}

impl Refused {
    /// Returns a function that names the change that a code refuses.
    fn because(what: impl std::fmt::Display) -> impl FnOnce(AbortCode) -> anyhow::Error {
        move |code| Refused { what: what.to_string(), code }.into()
    }

    /// Whether the change is refused because it is made already.
    fn is_made(&self) -> bool {
        [AbortCode::UAEEXIST, AbortCode::UAENOENT].contains(&widened(self.code))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.what, self.code)
    }
}

impl std::error::Error for Refused {}

/// A network in which one node of a cluster is called in place of every file server.
pub(crate) struct Through {
    network: AfsNetwork,
    node: Ipv4Addr,
}

impl Through {
    /// Returns a client of a cell that uses one node.
    pub(crate) fn cell(databases: Ipv4Addr, node: Ipv4Addr) -> Result<CellClient> {
        let network = Through { network: AfsNetwork::start(None)?, node };
        CellClient::new(Arc::new(network), vec![databases])
    }
}

impl Network for Through {
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection> {
        let is_file_server = address.port() == FILE_PORT;
        let address = if is_file_server { (self.node, FILE_PORT).into() } else { address };
        self.network.connect(address, service)
    }
}

/// One step of a writer.
#[derive(Clone)]
enum Step {
    Create(String),
    Store(String, Vec<u8>),
    Remove(String),
    Rename(String, String),
}

/// Returns the step with this number, given the files before it.
fn step(writer: u32, number: u64, files: &Files) -> Step {
    let mut rng = SmallRng::seed_from_u64(number << 8 | u64::from(writer));
    let mut name = || format!("file-{}", rng.random_range(0..FILES));
    let (name, other) = (name(), name());
    if !files.contains_key(&name) {
        return Step::Create(name);
    }
    match rng.random_range(0..10) {
        0 => Step::Remove(name),
        1 if name != other => Step::Rename(name, other),
        kind => {
            let most = match kind {
                ..7 => 5000,
                7 | 8 => BYTES_MAX,
                _ => LONG_BYTES_MAX,
            };
            let length = rng.random_range(0..most);
            Step::Store(name, noise(&mut rng, length))
        }
    }
}

fn noise(rng: &mut SmallRng, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    rng.fill_bytes(&mut data);
    data
}

fn imagine(step: Step, files: &mut Files) {
    match step {
        Step::Create(name) => _ = files.insert(name, vec![]),
        Step::Store(name, data) => _ = files.insert(name, data),
        Step::Remove(name) => _ = files.remove(&name),
        Step::Rename(from, to) => {
            let moved = files.remove(&from).unwrap_or_default();
            files.insert(to, moved);
        }
    }
}

impl Place {
    /// Opens the directory `name` in the root of a volume; creates it if it does not exist.
    fn open(cell: CellClient, volume: &str, name: &str) -> Result<Place> {
        let restarts = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&restarts);
        let patience = Patience { report_after: Duration::ZERO, ..Patience::default() };
        let cell = cell.with_patience(patience, move |delay| {
            counter.fetch_add(u64::from(delay.code == AbortCode::VRESTARTING), Ordering::Relaxed);
        });
        let root = cell.root_of(volume)?;
        // The databases may be on another server than the volume.
        let server = cell.locate(volume)?.readable_site(volume)?.0.server;
        let directory = if let Some(directory) = cell.child(&root, name.as_bytes())? {
            directory
        } else {
            let attributes = Attributes { mode: 0o755, ..ATTRIBUTES };
            let made = cell.make_directory(&root, name.as_bytes(), attributes);
            made.map_err(|code| anyhow!("MakeDir: {code:?}"))?
        };
        Ok(Place { cell, server, directory, restarts })
    }

    fn file(&self, name: &str) -> Result<Node> {
        self.cell.child(&self.directory, name.as_bytes())?.with_context(|| format!("{name} is gone"))
    }

    fn create(&self, name: &str) -> Result<Node> {
        let made = self.cell.create(&self.directory, name.as_bytes(), ATTRIBUTES);
        made.map_err(Refused::because(format_args!("CreateFile {name}")))
    }

    /// Stores a file; truncates it to the new length.
    fn store(&self, file: &Node, data: &[u8]) -> Result<()> {
        self.cell.store(file, ATTRIBUTES, &mut Cursor::new(&data), data.len() as u64, &mut |_| ())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let removed = self.cell.remove(&self.directory, name.as_bytes());
        removed.map_err(Refused::because(format_args!("RemoveFile {name}")))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let directory = self.directory.fid.into();
        let request = rxafs::RenameRequest {
            old_directory: directory,
            old_name: from.into(),
            new_directory: directory,
            new_name: to.into(),
        };
        let files = self.cell.connection(self.server, Interface::Files);
        let renamed = rxafs::rename(&*files, &request);
        renamed.map(drop).map_err(Refused::because(format_args!("Rename {from} to {to}")))
    }

    fn really_do(&self, step: &Step) -> Result<()> {
        match step {
            Step::Create(name) => self.create(name).map(drop),
            Step::Store(name, data) => self.store(&self.file(name)?, data),
            Step::Remove(name) => self.remove(name),
            Step::Rename(from, to) => self.rename(from, to),
        }
    }

    /// Makes a step, before which there are these files. If a call of unknown outcome is repeated, and refused because its
    /// change is made already, the files must show that it is.
    fn make(&self, step: &Step, files: &Files) -> Result<()> {
        let restarts = self.restarts.load(Ordering::Relaxed);
        let Err(error) = self.really_do(step) else { return Ok(()) };
        let is_made = error.downcast_ref().is_some_and(Refused::is_made);
        if !is_made || self.restarts.load(Ordering::Relaxed) == restarts {
            return Err(error);
        }
        let mut after = files.clone();
        imagine(step.clone(), &mut after);
        compare(&self.contents()?, &after).context(error)
    }

    /// Reads all files completely.
    fn contents(&self) -> Result<Files> {
        let mut files = Files::new();
        for entry in self.cell.list(&self.directory)? {
            let mut data = Vec::new();
            self.cell.fetch(&self.cell.open_entry(&self.directory, &entry)?, &mut data, &mut |_| ())?;
            files.insert(String::from_utf8_lossy(&entry.name).into_owned(), data);
        }
        Ok(files)
    }
}

/// Returns a client of a cell that calls the file servers that the databases name.
pub(crate) fn client(databases: Ipv4Addr) -> Result<CellClient> {
    CellClient::new(Arc::new(AfsNetwork::start(None)?), vec![databases])
}

fn compare(found: &Files, expected: &Files) -> Result<()> {
    let lengths = |files: &Files| -> Vec<(String, usize)> {
        files.iter().map(|(name, data)| (name.clone(), data.len())).collect()
    };
    let (got, wanted) = (lengths(found), lengths(expected));
    ensure!(got == wanted, "there are {got:?}, but {wanted:?} were acknowledged");
    for (name, data) in found {
        ensure!(expected.get(name) == Some(data), "{name} has other bytes than were acknowledged");
    }
    Ok(())
}

/// Compares the files with the result of `done` steps, or of one more, and continues up to `until` steps.
/// Prints the number of completed steps on a separate line, after the comparison and after each step.
pub(crate) fn write(cell: CellClient, volume: &str, writer: u32, done: u64, until: u64) -> Result<()> {
    let place = Place::open(cell, volume, &format!("writer-{writer}"))?;
    let (mut files, mut done_now) = (Files::new(), 0);
    while done_now < done {
        imagine(step(writer, done_now, &files), &mut files);
        done_now += 1;
    }
    let found = place.contents()?;
    if found != files {
        imagine(step(writer, done_now, &files), &mut files);
        done_now += 1;
    }
    compare(&found, &files).with_context(|| format!("writer {writer} after {done} steps"))?;
    say(done_now)?;
    while done_now < until {
        let next = step(writer, done_now, &files);
        place.make(&next, &files)?;
        imagine(next, &mut files);
        done_now += 1;
        say(done_now)?;
    }
    Ok(())
}

/// Asks a server again and again for the status of the root directory of a volume, which it need not have yet. Each call
/// fails after `patience_ms` without a packet of the server. Prints a line for each answer: the time in milliseconds since
/// 1970, and the version of the directory.
pub(crate) fn peek(databases: Ipv4Addr, server: Ipv4Addr, volume: &str, patience_ms: u64) -> Result<()> {
    let network = AfsNetwork::start(None)?;
    let cell = client(databases)?;
    // The server that has it need not answer.
    let fid = Fid::root(cell.locate(volume)?.readable_site(volume)?.1).into();
    let patience = Duration::from_millis(patience_ms);
    let mut out = std::io::stdout().lock();
    loop {
        let files = network.connect_within((server, FILE_PORT).into(), FILE_SERVICE, patience);
        if let Ok(reply) = rxafs::fetch_status(&*files, &rxafs::FetchStatusRequest { fid }) {
            writeln!(out, "{} {}", since_1970()?, reply.status.data_version)?;
            out.flush()?;
        }
        std::thread::sleep(PEEK_PAUSE);
    }
}

/// Creates the files `pulse-0`, `pulse-1` and so on in the root directory of a volume, through one server, which need not
/// have the volume. Prints a line for each: the time of its acknowledgement in milliseconds since 1970, and how many
/// milliseconds it took. A failed call is repeated, after a line with the time and its code.
pub(crate) fn pulse(databases: Ipv4Addr, server: Ipv4Addr, volume: &str) -> Result<()> {
    let network = AfsNetwork::start(None)?;
    let cell = client(databases)?;
    let directory = Fid::root(cell.locate(volume)?.readable_site(volume)?.1).into();
    let files = network.connect((server, FILE_PORT).into(), FILE_SERVICE);
    let mut out = std::io::stdout().lock();
    for number in 0_u64.. {
        let begun = Instant::now();
        let request = rxafs::CreateFileRequest {
            directory,
            name: format!("pulse-{number}").as_str().into(),
            status: rxafs::StoreStatus::default(),
        };
        let mut is_repeated = false;
        loop {
            match rxafs::create_file(&*files, &request) {
                Ok(_) => break,
                Err(code) if is_repeated && exists(code) => break,
                Err(code) => {
                    is_repeated = true;
                    writeln!(out, "{} failed {code}", since_1970()?)?;
                    out.flush()?;
                    std::thread::sleep(PEEK_PAUSE);
                }
            }
        }
        writeln!(out, "{} {}", since_1970()?, begun.elapsed().as_millis())?;
        out.flush()?;
        std::thread::sleep(PEEK_PAUSE);
    }
    Ok(())
}

/// Whether a repeated creation fails because an earlier attempt, whose answer was lost, has made the file. Servers send
/// their system's error number to a client without capabilities, as these programs are.
fn exists(code: AbortCode) -> bool {
    widened(code) == AbortCode::UAEEXIST
}

/// Returns the time in milliseconds.
fn since_1970() -> Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())
}

/// Pause between two calls of [`peek`].
const PEEK_PAUSE: Duration = Duration::from_millis(50);

const FILE_PORT: u16 = 7000;
const FILE_SERVICE: u16 = 1;

fn say(done: u64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "done {done}")?;
    Ok(out.flush()?)
}

const FILL_BYTES: usize = 1 << 20;
/// Time limit for deleted data to become free space.
const REGAIN: Duration = Duration::from_secs(60);

/// Fills the partition of a volume several times. Data that does not fit must be rejected with VDISKFULL and
/// change nothing; existing data must remain; deletions must work, and their space must become free again.
pub(crate) fn fill(server: Ipv4Addr, volume: &str, rounds: u64) -> Result<()> {
    let place = Place::open(client(server)?, volume, "fill")?;
    let (mut files, mut most) = (Files::new(), 0);
    for round in 0..rounds {
        let stored = fill_once(&place, round, &mut files)?;
        println!("round {round}: {stored} files of 1 MiB until VDISKFULL");
        ensure!(stored * 10 >= most * 8, "space is lost: {stored} files fit, {most} did before");
        most = most.max(stored);
        refuse_overwrite(&place, &files)?;
        compare(&place.contents()?, &files)?;
        remove_half(&place, &mut files)?;
        compare(&place.contents()?, &files)?;
        for name in std::mem::take(&mut files).into_keys() {
            place.remove(&name)?;
        }
        regain(&place, most)?;
    }
    Ok(())
}

fn fill_once(place: &Place, round: u64, files: &mut Files) -> Result<usize> {
    for number in 0.. {
        let name = format!("fill-{round}-{number}");
        let data = noise(&mut SmallRng::seed_from_u64(round << 32 | number), FILL_BYTES);
        // A name is metadata, for which space is reserved.
        let file = place.create(&name)?;
        match place.store(&file, &data) {
            Ok(()) => _ = files.insert(name, data),
            Err(error) => {
                check_full(&error)?;
                place.remove(&name).context("a deletion on a full partition")?;
                break;
            }
        }
    }
    Ok(files.len())
}

fn check_full(error: &anyhow::Error) -> Result<()> {
    let text = format!("{error:#}");
    ensure!(text.contains(FULL), "refused, but not because the partition is full: {text}");
    Ok(())
}

/// The client's message for VDISKFULL.
const FULL: &str = "the partition is full";

fn refuse_overwrite(place: &Place, files: &Files) -> Result<()> {
    let name = files.keys().next().context("nothing was stored")?;
    let data = vec![7; 256 * FILL_BYTES];
    match place.store(&place.file(name)?, &data) {
        Ok(()) => bail!("256 MiB found room on a full partition"),
        Err(error) => check_full(&error),
    }
}

fn remove_half(place: &Place, files: &mut Files) -> Result<()> {
    for name in files.keys().step_by(2).cloned().collect::<Vec<_>>() {
        place.remove(&name)?;
        files.remove(&name);
    }
    Ok(())
}

/// Waits until at least 80 percent of the former space is free.
fn regain(place: &Place, files: usize) -> Result<()> {
    let deadline = Instant::now() + REGAIN;
    let request = rxafs::GetVolumeStatusRequest { volume_id: place.directory.fid.volume.0 };
    let connection = place.cell.connection(place.server, Interface::Files);
    loop {
        let status = rxafs::get_volume_status(&*connection, &request);
        let free =
            status.map_err(|code| anyhow!("GetVolumeStatus: {code:?}"))?.status.partition_blocks_available;
        if usize::try_from(free).unwrap_or(0) * 1024 >= files * FILL_BYTES / 10 * 8 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{free} KiB are free {REGAIN:?} after everything was deleted");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_has_one_of_two_codes() {
        assert!(exists(AbortCode::UAEEXIST) && exists(AbortCode(17)));
        assert!(!exists(AbortCode::VRESTARTING) && !exists(AbortCode::RX_CALL_DEAD));
    }
}
