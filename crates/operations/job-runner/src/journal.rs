//! The job journal: a directory with a file per job (`docs/reference/formats/jobs.md`).

use anyhow::{Context, Result, bail};
use cellar_config::files;
use jobs::Job;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Format version of written files.
const VERSION: u32 = 1;
/// Maximum size of a file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Name of a file that is created to test for write access to the directory.
const PROBE: &str = "probe";
/// Maximum number of jobs kept; beyond it, the oldest finished jobs are removed.
const KEPT_MAX: usize = 200;

/// A directory of jobs.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
}

/// Contents of a file.
#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    job: Job,
}

/// The exclusive right to run a job, until this is dropped or the program ends.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

impl Journal {
    /// Opens the journal in a directory, creating it if necessary.
    pub fn open(folder: PathBuf) -> Result<Journal> {
        files::make_folder(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Journal { folder })
    }

    /// Opens the user's own journal of a cell, in `$XDG_STATE_HOME` or `~/.local/state`.
    pub fn of_user(cell: &str) -> Result<Journal> {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        let state = state.context("HOME is not set; the journal of jobs needs a folder")?;
        Journal::open(state.join("cellar/jobs").join(cell))
    }

    /// Opens the journal of this machine's server, if there is one that the user may write to. The server
    /// takes over jobs that no process is running.
    pub fn of_server(folder: PathBuf) -> Option<Journal> {
        let journal = Journal { folder };
        let probe = journal.folder.join(PROBE);
        Self::create(&probe).is_ok().then_some(journal)
    }

    /// Creates a job with a new number, which is passed to `make`, and claims it.
    pub fn begin(&self, make: impl FnOnce(u32) -> Job) -> Result<(Job, Claim)> {
        let mut id = self.ids()?.last().map_or(1, |last| last.saturating_add(1));
        for _ in 0..1000 {
            let path = self.path(id);
            match files::create_new(&path).and_then(|_| files::give_to_owner(&path)) {
                Ok(()) => {
                    let claim = self.claim(id)?.context("another process runs the new job")?;
                    let job = make(id);
                    self.write(&job)?;
                    self.prune()?;
                    return Ok((job, claim));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => id = id.saturating_add(1),
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", path.display())),
            }
        }
        bail!("no number is free for a job in {}", self.folder.display())
    }

    /// Writes a job, durably.
    pub fn write(&self, job: &Job) -> Result<()> {
        let path = self.path(job.id);
        let text = serde_json::to_vec_pretty(&Record { version: VERSION, job: job.clone() })?;
        let written = files::replace(&path, &text).and_then(|()| files::give_to_owner(&path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a job.
    pub fn read(&self, id: u32) -> Result<Job> {
        let path = self.path(id);
        match read(&path)? {
            Some(job) if job.id == id => Ok(job),
            Some(_) => bail!("{} holds another job", path.display()),
            None => bail!("there is no job {id} in {}", self.folder.display()),
        }
    }

    /// Reads all jobs, oldest first. Reports unreadable ones on standard error and skips them.
    pub fn all(&self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for id in self.ids()? {
            match read(&self.path(id)) {
                Ok(job) => jobs.extend(job),
                Err(error) => eprintln!("cellar: {error:#}"),
            }
        }
        Ok(jobs)
    }

    /// Claims a job; `None` if another process runs it.
    pub fn claim(&self, id: u32) -> Result<Option<Claim>> {
        let path = self.folder.join(format!("{id}.lock"));
        let shown = || format!("cannot lock {}", path.display());
        let file = Self::create(&path).with_context(shown)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Claim { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(shown),
        }
    }

    /// Asks the process that runs a job to undo it.
    pub fn cancel(&self, id: u32) -> Result<()> {
        let path = self.cancel_path(id);
        Self::create(&path).map(drop).with_context(|| format!("cannot make {}", path.display()))
    }

    /// Returns whether undoing was requested.
    pub fn is_cancelled(&self, id: u32) -> bool {
        self.cancel_path(id).exists()
    }

    /// Asks the process that runs a job to stop waiting, or a process to take the job over.
    pub fn request_resume(&self, id: u32) -> Result<()> {
        let path = self.resume_path(id);
        Self::create(&path).map(drop).with_context(|| format!("cannot make {}", path.display()))
    }

    /// Returns whether that was requested since the last call.
    pub fn take_resume_request(&self, id: u32) -> bool {
        std::fs::remove_file(self.resume_path(id)).is_ok()
    }

    /// Creates or truncates a file. A file that root creates belongs to the owner of the folder.
    fn create(path: &Path) -> std::io::Result<File> {
        let file = files::create(path)?;
        files::give_to_owner(path)?;
        Ok(file)
    }

    fn resume_path(&self, id: u32) -> PathBuf {
        self.folder.join(format!("{id}.resume"))
    }

    fn cancel_path(&self, id: u32) -> PathBuf {
        self.folder.join(format!("{id}.cancel"))
    }

    fn path(&self, id: u32) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }

    fn ids(&self) -> Result<Vec<u32>> {
        let shown = || format!("cannot list {}", self.folder.display());
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(&self.folder).with_context(shown)? {
            let name = entry.with_context(shown)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".json"));
            ids.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Removes the oldest finished jobs beyond the limit.
    fn prune(&self) -> Result<()> {
        let over: Vec<Job> = self.all()?.into_iter().filter(Job::is_over).collect();
        for job in over.iter().take(over.len().saturating_sub(KEPT_MAX)) {
            for ending in ["json", "lock", "cancel", "resume"] {
                let _ = std::fs::remove_file(self.folder.join(format!("{}.{ending}", job.id)));
            }
        }
        Ok(())
    }
}

/// Reads the job in a file; `None` if the file is missing or was never written.
fn read(path: &Path) -> Result<Option<Job>> {
    let shown = || format!("cannot read {}", path.display());
    let length = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(shown),
    };
    if length == 0 {
        return Ok(None);
    }
    if length > FILE_BYTES_MAX {
        bail!("{} has {length} bytes; a job has at most {FILE_BYTES_MAX}", path.display());
    }
    let text = std::fs::read(path).with_context(shown)?;
    let record: Record = serde_json::from_slice(&text).with_context(shown)?;
    if record.version != VERSION {
        bail!("{} has version {}; this program knows {VERSION}", path.display(), record.version);
    }
    Ok(Some(record.job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::{Operation, Place};
    use std::net::Ipv4Addr;

    fn job(id: u32) -> Job {
        let place = Place { server: Ipv4Addr::LOCALHOST, partition: 0 };
        Job::new(id, Operation::Move(jobs::Move { to: place }), 100, "data", place)
    }

    #[test]
    fn files_of_root_belong_to_the_owner_of_the_journal() {
        use std::os::unix::fs::{MetadataExt, chown};
        const OWNER: u32 = 4711;
        let folder = tempfile::tempdir().unwrap();
        // Only root can change the owner.
        if chown(folder.path(), Some(OWNER), None).is_err() {
            return;
        }
        let journal = Journal::of_server(folder.path().to_owned()).unwrap();
        let (first, _claim) = journal.begin(job).unwrap();
        journal.write(&first).unwrap();
        journal.cancel(1).unwrap();
        journal.request_resume(1).unwrap();
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
        let owners: Vec<u32> = entries.map(|entry| entry.metadata().unwrap().uid()).collect();
        assert_eq!(owners, [OWNER; 5], "the probe, the job, its lock, and two requests");
    }

    #[test]
    fn each_job_has_its_own_number_and_one_runner() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("jobs")).unwrap();
        let (first, claim) = journal.begin(job).unwrap();
        let (second, _claim) = journal.begin(job).unwrap();
        assert_eq!((first.id, second.id), (1, 2));
        assert_eq!(journal.read(1).unwrap(), first);
        assert!(journal.claim(1).unwrap().is_none(), "it runs");
        drop(claim);
        assert!(journal.claim(1).unwrap().is_some());
        assert_eq!(journal.all().unwrap().len(), 2);
        assert!(!journal.take_resume_request(1));
        journal.request_resume(1).unwrap();
        assert!(journal.take_resume_request(1) && !journal.take_resume_request(1), "once");
    }

    #[test]
    fn invalid_files_are_refused_and_empty_ones_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().to_owned()).unwrap();
        std::fs::write(folder.path().join("1.json"), "").unwrap();
        std::fs::write(folder.path().join("2.json"), "{\"version\":1").unwrap();
        journal.write(&job(3)).unwrap();
        let path = folder.path().join("4.json");
        let text = std::fs::read_to_string(folder.path().join("3.json")).unwrap();
        std::fs::write(&path, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
        assert!(journal.read(1).is_err());
        assert!(journal.read(2).is_err());
        assert!(format!("{:#}", journal.read(4).unwrap_err()).contains("version 2"));
        assert_eq!(journal.all().unwrap(), [job(3)]);
    }
}
