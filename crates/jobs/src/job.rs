//! What is known about a job, and all that is kept of it in the journal.

use crate::traffic::Counted;
use base::{AbortCode, PartitionId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// Most events that are kept of a job; of more the oldest but the first go.
const EVENTS_MAX: usize = 200;

/// A partition of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The server's address.
    pub server: Ipv4Addr,
    /// 0 is /vicepa.
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

/// Some places, in words.
pub(crate) fn places(first: Place, further: &[Place]) -> String {
    let all: Vec<String> = std::iter::once(&first).chain(further).map(Place::to_string).collect();
    all.join(" and ")
}

/// What a person asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The read-write volume goes to another place.
    Move {
        /// Where to.
        to: Place,
    },
    /// A new read-write volume with the same contents.
    Copy {
        /// Its name.
        name: String,
        /// Where it is made.
        to: Place,
    },
    /// The read-only copies get the read-write volume's contents.
    Release {
        /// Send everything to every site, whether it has it or not.
        all: bool,
    },
    /// The backup volume shows the read-write volume as it is now.
    Backup,
    /// A new volume with what a dump in a file has.
    Restore {
        /// The file, with its whole path, where the job is run.
        file: String,
        /// The volume's name.
        name: String,
        /// Where it is made.
        to: Place,
        /// It stays out of service. Programs of before did not know that.
        #[serde(default)]
        offline: bool,
        /// It is a read-only volume, and there is no read-write one. Programs of before did not know that.
        #[serde(default)]
        readonly: bool,
        /// Further places of the read-only volume. Programs of before did not know that.
        #[serde(default)]
        also: Vec<Place>,
    },
    /// A volume gets what a dump in a file has.
    Overwrite {
        /// The file, with its whole path, where the job is run.
        file: String,
        /// The dump has changes only: what it leaves out stays.
        changes: bool,
        /// The volume is out of service afterwards.
        offline: bool,
        /// It is a read-only volume that has no read-write one; its other sites get it too. Programs of before did not know
        /// that.
        #[serde(default)]
        readonly: bool,
    },
    /// A directory becomes a volume of its own, beside the one that it lies in.
    Split {
        /// Its vnode.
        directory: u32,
        /// Where it is, for people.
        path: String,
        /// The new volume's name.
        name: String,
    },
}

impl Operation {
    /// In a word.
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

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing is done; the entry is looked at and locked.
    Beginning,
    /// Nobody but the servers that take part sees anything of it yet.
    Working,
    /// The location database is being changed, or may have been.
    Switching,
    /// What is left over is cleared away.
    Cleaning,
    /// What was begun is cleared away; the volume stays as it was.
    Undoing,
    /// Sites that could not be reached are waited for.
    CatchingUp,
    /// It is done.
    Done,
    /// It was not done, and nothing is left of it.
    Failed,
}

impl Stage {
    /// As the journal says it.
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

    /// Whether nothing is left to be done.
    pub fn is_over(self) -> bool {
        matches!(self, Stage::Done | Stage::Failed)
    }

    /// The stage of that name.
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
    /// Programs of before did not note it.
    #[serde(default)]
    pub(crate) partition: Option<i32>,
}

impl Transaction {
    /// Whether it is one on a volume at this place, as far as is known for certain.
    pub(crate) fn is_on(self, place: Place, volume: u32) -> bool {
        self.server == place.server && self.partition == Some(place.partition) && self.volume == volume
    }
}

/// A transaction that was asked for. There was none on the volume before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) place: Place,
    pub(crate) volume: u32,
}

/// Who has the lock of the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// Not this job.
    #[default]
    Free,
    /// It was not locked, and then this job asked for it.
    Asked,
    /// This job.
    Held,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since 1970.
    pub at: u32,
    /// In words.
    pub what: String,
}

/// An operation on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, unique in its journal.
    pub id: u32,
    /// What is to be done.
    pub operation: Operation,
    /// The read-write volume; 0 if it is to be made and has no number yet.
    pub volume: u32,
    /// Its name.
    pub name: String,
    /// Where the volume was when the job began.
    pub from: Place,
    /// How far it is.
    pub stage: Stage,
    /// What happened, the oldest first.
    pub events: Vec<Event>,
    /// Why it failed.
    pub trouble: Option<String>,
    /// The abort code of that, if a call failed.
    pub code: Option<i32>,
    /// Times that the work was begun.
    pub(crate) attempts: u32,
    pub(crate) waits: u32,
    pub(crate) lock: Lock,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) asked: Vec<Asked>,
    /// The temporary clone; 0 before it has a number.
    pub(crate) clone: u32,
    pub(crate) clone_begun: bool,
    /// The volume at the new place.
    pub(crate) new_volume: u32,
    /// The volume at the new place may be there; what is restored may have begun to replace what there was.
    pub(crate) new_begun: bool,
    /// The volume at the old place is, or may be, out of service.
    pub(crate) source_off: bool,
    /// The location database was asked to change.
    pub(crate) switch_asked: bool,
    /// The old place has been cleared.
    pub(crate) source_gone: bool,
    /// What was sent.
    #[serde(default)]
    pub(crate) sent: Vec<Counted>,
}

impl Job {
    /// A job that has not begun.
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

    /// Whether the volume may have other contents than before although the job failed.
    pub fn may_have_overwritten(&self) -> bool {
        self.new_begun && matches!(self.operation, Operation::Overwrite { .. })
    }

    /// Whether it is a read-only volume that is restored.
    pub fn is_read_only(&self) -> bool {
        matches!(
            self.operation,
            Operation::Restore { readonly: true, .. } | Operation::Overwrite { readonly: true, .. }
        )
    }

    /// The number of the volume that is restored; 0 if it has none yet.
    pub fn restored(&self) -> u32 {
        match self.operation {
            Operation::Restore { readonly: true, .. } if self.new_volume != 0 => self.new_volume + 1,
            Operation::Overwrite { readonly: false, .. } => self.volume,
            _ => self.new_volume,
        }
    }

    /// Whether nothing is left to be done.
    pub fn is_over(&self) -> bool {
        self.stage.is_over()
    }

    /// What is done, like `move of projects to 10.0.0.2 /vicepa`.
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

    /// How often a site that was left behind was tried again in vain.
    pub fn waits(&self) -> u32 {
        self.waits
    }

    /// The latest event, if anything has happened.
    pub fn latest(&self) -> &str {
        self.events.last().map_or("", |event| event.what.as_str())
    }

    /// The code that ended it, if it was a call's.
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
