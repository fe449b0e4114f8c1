//! The job's lock on the entry in the location database.

use crate::engine::Run;
use crate::procedure::Procedure;
use crate::rpc::{Step, failed};
use crate::{JobError, World, entry};
use afs_idl::vl::{NVldbEntry, lock_release};
use base::AbortCode;
use serde::{Deserialize, Serialize};

/// ReleaseLock: releases all parts of the lock.
pub(crate) const WHOLE_LOCK: i32 = lock_release::TIMESTAMP | lock_release::OPCODE | lock_release::AFSID;

/// State of the job's lock on the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// Not held by this job.
    #[default]
    Free,
    /// Requested by this job, after the entry was found unlocked.
    #[serde(rename = "asked")]
    Requested,
    /// Held by this job.
    Held,
}

/// Why a lock could not be taken.
struct LockError {
    code: AbortCode,
    /// Whether the lock may be set nevertheless: a server did not respond, or was restarted during the call.
    may_be_set: bool,
}

impl<P: Procedure, W: World> Run<'_, P, W> {
    /// Takes the job's lock unless it is already held, and returns the entry.
    pub(crate) fn locked_entry(&mut self) -> Step<NVldbEntry> {
        let (wanted, entry) = (self.request().lock(), self.entry()?);
        let locked = entry::operation(&entry);
        if wanted == 0 {
            return Ok(entry);
        }
        match self.job.lock {
            Lock::Held | Lock::Requested if locked == wanted => {
                self.job.lock = Lock::Held;
                Ok(entry)
            }
            _ => {
                self.lock(wanted, locked)?;
                self.entry()
            }
        }
    }

    /// Like [`Run::locked_entry`], but returns `None` if the volume was removed meanwhile.
    pub(crate) fn locked_entry_if_any(&mut self) -> Step<Option<NVldbEntry>> {
        match self.locked_entry() {
            Err(JobError::Call { code: AbortCode::VL_NOENT, .. }) => {
                self.job.lock = Lock::Free;
                Ok(None)
            }
            entry => entry.map(Some),
        }
    }

    fn lock(&mut self, operation: i32, locked: i32) -> Step {
        self.job.lock = if locked == 0 { Lock::Requested } else { Lock::Free };
        self.save()?;
        match self.set_lock(operation) {
            Ok(()) => self.job.lock = Lock::Held,
            // An abandoned release left its mark, but no operation is in progress.
            Err(LockError { code: AbortCode::VL_RERELEASE, .. }) => {
                self.cell.release_lock(self.volume(), &self.job.name)?;
                self.job.lock = Lock::Requested;
                self.save()?;
                self.set_lock(operation).map_err(|refused| self.lock_refused(0, refused.code))?;
                self.job.lock = Lock::Held;
            }
            Err(LockError { code, may_be_set }) => {
                let is_requested = may_be_set && code == AbortCode::VL_ENTRYLOCKED;
                let set = if is_requested { entry::operation(&self.entry()?) } else { 0 };
                if set != operation {
                    if !may_be_set || set != 0 {
                        self.job.lock = Lock::Free;
                    }
                    self.save()?;
                    return Err(self.lock_refused(locked, code));
                }
                self.job.lock = Lock::Held;
            }
        }
        self.save()
    }

    /// Returns the error for a failed lock; `locked` are the operation flags of the current entry.
    pub(crate) fn lock_refused(&self, locked: i32, code: AbortCode) -> JobError {
        let why = entry::describe_lock(locked).filter(|_| code == AbortCode::VL_ENTRYLOCKED);
        let why = why.map(|why| format!(", which is locked for a {why}")).unwrap_or_default();
        failed(format!("lock the entry of {}{why}", self.job.name))(code)
    }

    /// Sets the lock. A server that does not respond may have set it, or may set it later; the next server
    /// then reports that the entry is locked, by this job. The same can happen if the server restarted during
    /// the call: the transport sends the call again, and the new server executes it as a new call.
    fn set_lock(&self, operation: i32) -> Result<(), LockError> {
        let not_requested = |code| LockError { code, may_be_set: false };
        let started = self.cell.locations_start_time().map_err(not_requested)?;
        let (answer, is_silent) = self.cell.set_lock(self.volume(), operation);
        answer.map_err(|code| {
            let is_restarted = || self.cell.locations_start_time() != Ok(started);
            LockError { code, may_be_set: is_silent || is_restarted() }
        })
    }

    /// Releases the lock, if the job holds it or may hold it.
    pub(crate) fn unlock(&mut self) -> Step {
        if self.job.lock == Lock::Free {
            return Ok(());
        }
        let locked = match self.entry() {
            Ok(entry) => entry::operation(&entry),
            Err(JobError::Call { code: AbortCode::VL_NOENT, .. }) => 0,
            Err(error) => return Err(error),
        };
        // A lock of another kind belongs to another operation.
        if locked == self.request().lock() {
            self.cell.release_lock(self.volume(), &self.job.name)?;
        }
        self.job.lock = Lock::Free;
        self.save()
    }
}
