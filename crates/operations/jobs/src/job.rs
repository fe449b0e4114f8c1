//! A job and its state, as kept in the journal.

use crate::traffic::Counted;
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

/// Formats a list of sites.
pub(crate) fn places(first: Place, further: &[Place]) -> String {
    let all: Vec<String> = std::iter::once(&first).chain(further).map(Place::to_string).collect();
    all.join(" and ")
}

/// The operation that was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Move the read-write volume to another site.
    Move {
        /// Destination.
        to: Place,
    },
    /// Create a read-write volume with the same contents.
    Copy {
        /// Name of the new volume.
        name: String,
        /// Destination.
        to: Place,
    },
    /// Bring the read-only copies to the read-write volume's contents.
    Release {
        /// Whether to send everything to every site, even if the site already has it.
        all: bool,
    },
    /// Bring the backup volume to the read-write volume's current contents.
    Backup,
    /// Create a volume from a dump file.
    Restore {
        /// Absolute path of the file, on the machine that runs the job.
        file: String,
        /// Name of the new volume.
        name: String,
        /// Destination.
        to: Place,
        /// Whether the volume stays out of service. Missing in journals of older versions.
        #[serde(default)]
        offline: bool,
        /// Whether it is a read-only volume without a read-write volume. Missing in journals of older
        /// versions.
        #[serde(default)]
        readonly: bool,
        /// Further sites of the read-only volume. Missing in journals of older versions.
        #[serde(default)]
        also: Vec<Place>,
    },
    /// Restore a dump file over a volume.
    Overwrite {
        /// Absolute path of the file, on the machine that runs the job.
        file: String,
        /// Whether the dump is incremental: data that it does not contain stays.
        changes: bool,
        /// Whether the volume is out of service afterwards.
        offline: bool,
        /// Whether it is a read-only volume without a read-write volume; its other sites are restored too.
        /// Missing in journals of older versions.
        #[serde(default)]
        readonly: bool,
    },
    /// Turn a directory into a separate volume, next to the volume that contains it.
    Split {
        /// Vnode of the directory.
        directory: u32,
        /// Path of the directory, for display.
        path: String,
        /// Name of the new volume.
        name: String,
    },
}

impl Operation {
    /// Returns a one-word description.
    pub fn verb(&self) -> &'static str {
        match self {
            Operation::Move { .. } => "move",
            Operation::Copy { .. } => "copy",
            Operation::Release { .. } => "release",
            Operation::Backup => "backup",
            Operation::Restore { .. } | Operation::Overwrite { .. } => "restore",
            Operation::Split { .. } => "split",
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

/// A transaction on a volume server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    pub(crate) server: Ipv4Addr,
    pub(crate) id: i32,
    pub(crate) volume: u32,
    /// Missing in journals of older versions.
    #[serde(default)]
    pub(crate) partition: Option<i32>,
}

impl Transaction {
    /// Returns whether it is certainly a transaction on this volume at this site.
    pub(crate) fn is_on(self, place: Place, volume: u32) -> bool {
        self.server == place.server && self.partition == Some(place.partition) && self.volume == volume
    }
}

/// A transaction that was requested on a volume that had none before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) place: Place,
    pub(crate) volume: u32,
}

/// State of the job's lock on the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// Not held by this job.
    #[default]
    Free,
    /// Requested by this job, after the entry was found unlocked.
    Asked,
    /// Held by this job.
    Held,
}

/// An event in the course of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time in seconds since 1970.
    pub at: u32,
    /// Description.
    pub what: String,
}

/// An operation on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Number of the job, unique in its journal.
    pub id: u32,
    /// Requested operation.
    pub operation: Operation,
    /// Id of the read-write volume; 0 if it is still to be created and has no id yet.
    pub volume: u32,
    /// Name of the volume.
    pub name: String,
    /// Site of the volume when the job started.
    pub from: Place,
    /// Current stage.
    pub stage: Stage,
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Why the job failed.
    pub trouble: Option<String>,
    /// Abort code of the call that failed, if the cause was a call.
    pub code: Option<i32>,
    /// Number of attempts at the work.
    pub(crate) attempts: u32,
    pub(crate) waits: u32,
    pub(crate) lock: Lock,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) asked: Vec<Asked>,
    /// Id of the temporary clone; 0 if it has none yet.
    pub(crate) clone: u32,
    pub(crate) clone_begun: bool,
    /// Id of the volume at the destination.
    pub(crate) new_volume: u32,
    /// Whether the volume at the destination may exist. For a restore over a volume: whether it may have been
    /// changed.
    pub(crate) new_begun: bool,
    /// Whether the volume at the source is, or may be, out of service.
    pub(crate) source_off: bool,
    /// Whether a change of the location database was requested.
    pub(crate) switch_asked: bool,
    /// Whether the source has been removed.
    pub(crate) source_gone: bool,
    /// Traffic of the job's transactions.
    #[serde(default)]
    pub(crate) sent: Vec<Counted>,
}

impl Job {
    /// Creates a job that has not started.
    pub fn new(id: u32, operation: Operation, volume: u32, name: &str, from: Place) -> Job {
        Job {
            id,
            operation,
            volume,
            name: name.into(),
            from,
            stage: Stage::Beginning,
            events: Vec::new(),
            trouble: None,
            code: None,
            attempts: 0,
            waits: 0,
            lock: Lock::Free,
            transactions: Vec::new(),
            asked: Vec::new(),
            clone: 0,
            clone_begun: false,
            new_volume: 0,
            new_begun: false,
            source_off: false,
            switch_asked: false,
            source_gone: false,
            sent: Vec::new(),
        }
    }

    /// Returns whether the volume's contents may have changed although the job failed.
    pub fn may_have_overwritten(&self) -> bool {
        self.new_begun && matches!(self.operation, Operation::Overwrite { .. })
    }

    /// Returns whether a read-only volume is being restored.
    pub fn is_read_only(&self) -> bool {
        matches!(
            self.operation,
            Operation::Restore { readonly: true, .. } | Operation::Overwrite { readonly: true, .. }
        )
    }

    /// Returns the id of the restored volume; 0 if it has none yet.
    pub fn restored(&self) -> u32 {
        match self.operation {
            Operation::Restore { readonly: true, .. } if self.new_volume != 0 => self.new_volume + 1,
            Operation::Overwrite { readonly: false, .. } => self.volume,
            _ => self.new_volume,
        }
    }

    /// Returns whether no work remains.
    pub fn is_over(&self) -> bool {
        self.stage.is_over()
    }

    /// Returns a description like `move of projects from 10.0.0.1 /vicepa to 10.0.0.2 /vicepa`.
    pub fn title(&self) -> String {
        let name = &self.name;
        match &self.operation {
            Operation::Move { to } => format!("move of {name} from {} to {to}", self.from),
            Operation::Copy { name: new, to } => format!("copy of {name} to {new} on {to}"),
            Operation::Release { .. } => format!("release of {name}"),
            Operation::Backup => format!("backup of {name}"),
            Operation::Restore { file, name, to, also, .. } => {
                format!("restore of {file} to {name} on {}", places(*to, also))
            }
            Operation::Overwrite { file, .. } => format!("restore of {file} over {name} on {}", self.from),
            Operation::Split { path, name: new, .. } => format!("split of {path} to {new}"),
        }
    }

    /// Returns the number of unsuccessful retries for sites that were left behind.
    pub fn waits(&self) -> u32 {
        self.waits
    }

    /// Returns the latest event; empty if there is none.
    pub fn latest(&self) -> &str {
        self.events.last().map_or("", |event| event.what.as_str())
    }

    /// Returns the abort code of the call that made the job fail, if any.
    pub fn abort_code(&self) -> Option<AbortCode> {
        self.code.map(AbortCode)
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
