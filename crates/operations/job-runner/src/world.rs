//! The servers of a cell as seen by jobs.

use super::journal::Journal;
use super::traffic::traffic;
use afs_idl::vol::{self, RestoreRequest};
use afs_idl::{CallStream, ClientConnection, cellar};
use base::{AbortCode, UnixTime};
use cell_client::network::now;
use cell_client::{CellClient, Interface};
use jobs::{Control, Job, JobError, Traffic, World};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Interval at which a pause checks for a changed control.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of a file sent at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The control of a job, which any thread may set.
#[derive(Debug, Default)]
pub struct SharedControl(AtomicU8);

impl SharedControl {
    /// Sets the control. A suspended job does not continue.
    pub fn set(&self, control: Control) {
        let level = match control {
            Control::Continue => 0,
            Control::Cancel => 1,
            Control::Suspend => 2,
        };
        self.0.fetch_max(level, Ordering::Relaxed);
    }

    /// Returns the current control.
    pub fn get(&self) -> Control {
        match self.0.load(Ordering::Relaxed) {
            0 => Control::Continue,
            1 => Control::Cancel,
            _ => Control::Suspend,
        }
    }
}

/// A cell, a journal, and a progress callback.
pub struct CellWorld<'a> {
    cell: &'a CellClient,
    /// `None` for a preflight.
    journal: Option<&'a Journal>,
    job: u32,
    control: Arc<SharedControl>,
    watch: &'a (dyn Fn(&Job) + Sync),
    /// Called with the bytes of a file sent so far, and its length.
    watch_file: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    /// Which servers are Cellar's, as far as known. No call is made under the lock.
    cellars: Mutex<HashMap<Ipv4Addr, bool>>,
}

impl<'a> CellWorld<'a> {
    /// Creates the world of a job; `watch` is called whenever the job has changed.
    pub fn new(
        cell: &'a CellClient,
        journal: &'a Journal,
        job: u32,
        control: Arc<SharedControl>,
        watch: &'a (dyn Fn(&Job) + Sync),
    ) -> CellWorld<'a> {
        let journal = Some(journal);
        CellWorld { cell, journal, job, control, watch, watch_file: None, cellars: Mutex::default() }
    }

    /// Creates a world for a preflight: no job is run, and nothing is recorded.
    pub fn for_preflight(cell: &'a CellClient) -> CellWorld<'a> {
        let (control, watch) = (Arc::default(), &|_: &Job| ());
        CellWorld { cell, journal: None, job: 0, control, watch, watch_file: None, cellars: Mutex::default() }
    }

    fn is_resumed(&self) -> bool {
        self.journal.is_some_and(|journal| journal.take_resume_request(self.job))
    }

    /// Adds `watch_file`, which is called with the bytes of a file sent so far, and its length.
    #[must_use]
    pub fn watching_files(self, watch_file: &'a (dyn Fn(u64, u64) + Sync)) -> CellWorld<'a> {
        CellWorld { watch_file: Some(watch_file), ..self }
    }

    /// Sends a whole file unless the control changes.
    fn send_contents(
        &self,
        file: &mut File,
        length: u64,
        stream: &mut dyn CallStream,
    ) -> Result<u64, SendError> {
        let mut sent = 0;
        loop {
            match self.control() {
                Control::Continue => {}
                Control::Cancel => return Err(JobError::Cancelled.into()),
                Control::Suspend => return Err(JobError::Stopped("the program ends".into()).into()),
            }
            let mut piece = vec![0; PIECE_BYTES];
            let read = file.read(&mut piece);
            let count = read.map_err(|error| JobError::Refused(format!("cannot read the dump: {error}")))?;
            if count == 0 {
                return Ok(sent);
            }
            piece.truncate(count);
            stream.write(piece.into()).map_err(SendError::Call)?;
            sent += count as u64;
            if let Some(watch) = self.watch_file {
                watch(sent, length.max(sent));
            }
        }
    }
}

/// Why a file was not sent.
enum SendError {
    Call(AbortCode),
    JobError(JobError),
}

impl From<JobError> for SendError {
    fn from(error: JobError) -> SendError {
        SendError::JobError(error)
    }
}

impl World for CellWorld<'_> {
    fn volumes(&self, server: Ipv4Addr) -> Arc<dyn ClientConnection> {
        self.cell.connection(server, Interface::Volumes)
    }

    fn locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.cell.database(Interface::Locations, call)
    }

    fn newest_locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.cell.newest(Interface::Locations, call)
    }

    fn send_file(&self, server: Ipv4Addr, request: &RestoreRequest, path: &str) -> Result<u64, JobError> {
        let refused = |error| JobError::Refused(format!("cannot read {path}: {error}"));
        let mut file = File::open(path).map_err(refused)?;
        let length = file.metadata().map_err(refused)?.len();
        let mut sent = Ok(0);
        let call = vol::restore(&*self.volumes(server), request, |stream| {
            match self.send_contents(&mut file, length, stream) {
                Ok(bytes) => sent = Ok(bytes),
                Err(SendError::Call(code)) => return Err(code),
                Err(SendError::JobError(error)) => {
                    sent = Err(error);
                    return Err(AbortCode::RX_USER_ABORT);
                }
            }
            Ok(())
        });
        let bytes = sent?;
        call.map(|_| bytes).map_err(|code| JobError::Call { doing: format!("restore {path}"), code })
    }

    fn restores_atomically(&self, server: Ipv4Addr) -> bool {
        if let Some(known) = self.cellars.lock().get(&server) {
            return *known;
        }
        let connection = self.cell.connection(server, Interface::Cellar);
        match cellar::get_server_info(&*connection, &cellar::GetServerInfoRequest) {
            Err(AbortCode::RX_CALL_DEAD | AbortCode::RX_CALL_TIMEOUT | AbortCode::RX_RESTARTING) => false,
            answer => {
                self.cellars.lock().insert(server, answer.is_ok());
                answer.is_ok()
            }
        }
    }

    fn traffic(&self, server: Ipv4Addr, transaction: i32) -> Option<Traffic> {
        traffic(self.cell, server, transaction).ok().flatten().map(|transfers| transfers.traffic)
    }

    fn now(&self) -> UnixTime {
        now()
    }

    fn pause(&self, seconds: u32) {
        let (mut left, control) = (Duration::from_secs(seconds.into()), self.control());
        while !left.is_zero() && self.control() == control && !self.is_resumed() {
            let time = left.min(POLL_INTERVAL);
            std::thread::sleep(time);
            left -= time;
        }
    }

    fn control(&self) -> Control {
        match self.control.get() {
            Control::Continue if self.journal.is_some_and(|journal| journal.is_cancelled(self.job)) => {
                Control::Cancel
            }
            control => control,
        }
    }

    fn record(&self, job: &Job) -> Result<(), String> {
        (self.watch)(job);
        let journal = self.journal.ok_or("a dry run records nothing")?;
        journal.write(job).map_err(|error| format!("{error:#}"))
    }
}
