//! What the service must know and be able to do; the program implements it.

use base::{AbortCode, Caller, CellName, Principal, UnixTime};
use std::io::Read;
use thiserror::Error;

/// The program as seen by its overseer.
pub trait Overseer: Send + Sync {
    /// Whether the caller may do what OpenAFS lets those in UserList and holders of the cell's key
    /// do.
    fn is_administrator(&self, caller: &Caller) -> bool;

    /// The roles that are configured, always in the same order.
    fn roles(&self) -> Vec<Role>;

    /// The cell's name and database servers.
    fn cell(&self) -> CellDescription;

    /// The administrators of UserList, in order.
    fn administrators(&self) -> Result<Vec<Principal>, OverseerError>;

    /// Adds an administrator; [`OverseerError::Exists`] if there.
    fn add_administrator(&self, who: &Principal) -> Result<(), OverseerError>;

    /// Removes an administrator; [`OverseerError::NotFound`] if not there.
    fn remove_administrator(&self, who: &Principal) -> Result<(), OverseerError>;

    /// The cell's DES keys, by version.
    fn keys(&self) -> Result<KeyList, OverseerError>;

    /// The text of a log. The name has no `/` in it; [`OverseerError::NotFound`] if there is none.
    fn log(&self, name: &str) -> Result<Box<dyn Read + Send>, OverseerError>;

    /// When a program was installed, by its whole path in the canonical form (`/usr/afs/bin/...`).
    fn file_dates(&self, _path: &str) -> FileDates {
        FileDates::default()
    }

    /// Brings a role to the wanted state, `permanent`ly or until the program starts again. Only
    /// asked for when it is in another state.
    fn set_goal(&self, _role: &str, _running: bool, _permanent: bool) -> Result<(), OverseerError> {
        Err(OverseerError::CannotNow)
    }

    /// Restarts a role, or all.
    fn restart(&self, _role: Option<&str>) -> Result<(), OverseerError> {
        Err(OverseerError::CannotNow)
    }
}

/// A role of the program: what BOZO calls an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Name of the instance: `fs`, `ptserver`, `vlserver`.
    pub name: String,
    /// Its type.
    pub kind: RoleKind,
    /// What it is doing.
    pub state: RoleState,
    /// Whether it is meant to run now.
    pub goal_running: bool,
    /// Whether it is configured to run.
    pub configured_running: bool,
    /// When it last started.
    pub started: UnixTime,
    /// How often it has started.
    pub starts: u32,
    /// How it last came to an end, if it did.
    pub last_exit: Option<LastExit>,
    /// Its command lines, as shown by `bos status -long`.
    pub commands: Vec<String>,
}

impl Role {
    /// A role that was configured to run, started at `started`, and runs.
    pub fn running(name: &str, kind: RoleKind, started: UnixTime, commands: &[&str]) -> Role {
        Role {
            name: name.to_owned(),
            kind,
            state: RoleState::Running,
            goal_running: true,
            configured_running: true,
            started,
            starts: 1,
            last_exit: None,
            commands: commands.iter().map(|&command| command.to_owned()).collect(),
        }
    }
}

/// Types of instances that Cellar has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// `simple`: one server.
    Simple,
    /// `fs`: file server and volume server together.
    FileServer,
}

/// What a role is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleState {
    /// Not running.
    Down,
    /// Serving.
    Running,
    /// Ending.
    Stopping,
    /// Not serving yet.
    Starting,
}

/// How a role last came to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastExit {
    /// When.
    pub at: UnixTime,
    /// Why, if it was an error.
    pub error: Option<String>,
}

/// The cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellDescription {
    /// Its name.
    pub name: CellName,
    /// Its database servers, in the order of CellServDB.
    pub hosts: Vec<DatabaseHost>,
}

/// A database server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHost {
    /// Its host name.
    pub name: String,
    /// Whether it has a copy but no vote.
    pub is_clone: bool,
}

/// The cell's DES keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    /// The keys.
    pub keys: Vec<KeyVersion>,
    /// When they last changed.
    pub changed: UnixTime,
}

/// What is told about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    /// Key version number.
    pub version: u32,
    /// [`key_checksum`](crate::key_checksum) of it; 0 is shown as none.
    pub checksum: u32,
}

/// When the versions of a program were installed; zero for those that do not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileDates {
    /// The version in use.
    pub current: UnixTime,
    /// The one before (`.BAK`).
    pub previous: UnixTime,
    /// The one before that (`.OLD`).
    pub oldest: UnixTime,
}

/// Why the overseer did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OverseerError {
    /// The thing named does not exist.
    #[error("there is no such thing")]
    NotFound,
    /// The thing to be added exists.
    #[error("it is there already")]
    Exists,
    /// Cellar cannot do it, now or ever.
    #[error("it cannot be done now")]
    CannotNow,
    /// Reading or writing failed; the overseer has logged why.
    #[error("input or output failed")]
    Io,
}

impl OverseerError {
    /// The wire code.
    pub fn abort_code(self) -> AbortCode {
        match self {
            OverseerError::NotFound => AbortCode::BZNOENT,
            OverseerError::Exists => AbortCode::BZEXISTS,
            OverseerError::CannotNow => AbortCode::BZBUSY,
            OverseerError::Io => AbortCode::BZIO,
        }
    }
}
