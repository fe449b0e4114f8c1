//! A job: an operation in progress, and what all operations record.

use crate::journal::Record;
use crate::lock::Lock;
use crate::procedure::{AnyExecution, Operation};
use crate::traffic::Counted;
use crate::transaction::{Requested, Transaction};
use base::{AbortCode, PartitionId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// Maximum number of events kept for a job; beyond it the oldest but the first are dropped.
const EVENTS_MAX: usize = 200;

/// A partition of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Address of the server.
    pub server: Ipv4Addr,
    /// Index of the partition; 0 is /vicepa.
    pub partition: i32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partition = u32::try_from(self.partition).ok().and_then(PartitionId::from_index);
        match partition {
            Some(partition) => write!(f, "{} {partition}", self.server),
            None => write!(f, "{} partition {}", self.server, self.partition),
        }
    }
}

/// Stage of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing has been changed; the entry is being read and locked.
    Beginning,
    /// Work is in progress that only the servers involved can see.
    Working,
    /// The location database is being changed, or may have been changed.
    Switching,
    /// Leftovers are being removed.
    Cleaning,
    /// Partial work is being removed; the volume stays as it was before.
    Undoing,
    /// Waiting for sites that could not be reached.
    CatchingUp,
    /// Completed.
    Done,
    /// Not completed, and nothing is left of it.
    Failed,
}

impl Stage {
    /// Returns the name used in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Beginning => "beginning",
            Stage::Working => "working",
            Stage::Switching => "switching",
            Stage::Cleaning => "cleaning",
            Stage::Undoing => "undoing",
            Stage::CatchingUp => "catching_up",
            Stage::Done => "done",
            Stage::Failed => "failed",
        }
    }

    /// Returns whether no work remains.
    pub fn is_over(self) -> bool {
        matches!(self, Stage::Done | Stage::Failed)
    }

    /// Returns the stage with this name.
    pub fn named(name: &str) -> Option<Stage> {
        use Stage::{Beginning, CatchingUp, Cleaning, Done, Failed, Switching, Undoing, Working};
        let all = [Beginning, Working, Switching, Cleaning, Undoing, CatchingUp, Done, Failed];
        all.into_iter().find(|stage| stage.name() == name)
    }
}

/// An event in the course of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time in seconds since 1970.
    pub at: u32,
    /// Description.
    pub what: String,
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Description.
    pub(crate) description: String,
    /// Abort code, if a call failed.
    pub(crate) code: Option<AbortCode>,
}

/// An operation on a volume, with its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Job {
    /// Number of the job, unique in its journal.
    pub id: u32,
    /// Name of the volume.
    pub name: String,
    /// Site of the volume when the job started.
    pub from: Place,
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// The requested operation and its durable state.
    pub(crate) execution: AnyExecution,
    /// Id of the read-write volume when the job started; 0 if it did not exist.
    pub(crate) source: u32,
    pub(crate) failure: Option<Failure>,
    /// Number of attempts at the work.
    pub(crate) attempts: u32,
    pub(crate) waits: u32,
    pub(crate) lock: Lock,
    /// Transactions that may be open.
    pub(crate) transactions: Vec<Transaction>,
    /// Transactions that were requested, without a reply yet.
    pub(crate) requested: Vec<Requested>,
    /// Traffic of the job's transactions.
    pub(crate) sent: Vec<Counted>,
}

impl Job {
    /// Creates a job that has not started. `volume` is the id of the read-write volume; 0 if the job creates
    /// it.
    pub fn new(id: u32, operation: Operation, volume: u32, name: &str, from: Place) -> Job {
        Job {
            id,
            name: name.into(),
            from,
            events: Vec::new(),
            execution: AnyExecution::start(operation),
            source: volume,
            failure: None,
            attempts: 0,
            waits: 0,
            lock: Lock::Free,
            transactions: Vec::new(),
            requested: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Returns the requested operation.
    pub fn operation(&self) -> Operation {
        self.execution.facts().operation()
    }

    /// Returns a one-word description of the operation.
    pub fn verb(&self) -> &'static str {
        self.execution.facts().verb()
    }

    /// Returns the current stage.
    pub fn stage(&self) -> Stage {
        self.execution.facts().stage()
    }

    /// Returns the id of the read-write volume; 0 if it is still to be created and has no id yet.
    pub fn volume(&self) -> u32 {
        self.execution.facts().created_volume().unwrap_or(self.source)
    }

    /// Returns the id of the restored volume; 0 if it has none yet, or nothing is restored.
    pub fn restored(&self) -> u32 {
        self.execution.facts().restored(self.source)
    }

    /// Returns whether the volume's contents may have changed although the job failed.
    pub fn may_have_overwritten(&self) -> bool {
        self.execution.facts().may_have_overwritten()
    }

    /// Returns whether a read-only volume is being restored.
    pub fn is_read_only(&self) -> bool {
        self.execution.facts().is_read_only()
    }

    /// Returns whether no work remains.
    pub fn is_over(&self) -> bool {
        self.stage().is_over()
    }

    /// Returns a description like `move of projects from 10.0.0.1 /vicepa to 10.0.0.2 /vicepa`.
    pub fn title(&self) -> String {
        self.execution.facts().title(self)
    }

    /// Returns the number of unsuccessful retries for sites that were left behind.
    pub fn waits(&self) -> u32 {
        self.waits
    }

    /// Returns the latest event; empty if there is none.
    pub fn latest(&self) -> &str {
        self.events.last().map_or("", |event| event.what.as_str())
    }

    /// Returns why the job failed, or is being undone.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.description.as_str())
    }

    /// Returns the abort code of the call that made the job fail, if any.
    pub fn abort_code(&self) -> Option<AbortCode> {
        self.failure.as_ref()?.code
    }

    pub(crate) fn note(&mut self, at: u32, what: String) {
        if self.events.last().is_some_and(|last| last.what == what) {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.remove(1);
        }
        self.events.push(Event { at, what });
    }
}
