//! The interface that the program implements for this service.

use base::{AbortCode, Caller, CellName, Principal, UnixTime};
use std::io::Read;
use thiserror::Error;

/// The program that the service describes and controls.
pub trait Overseer: Send + Sync {
    /// Whether the caller has the rights that OpenAFS gives to the users in UserList and to holders of the
    /// cell's key.
    fn is_administrator(&self, caller: &Caller) -> bool;

    /// Returns the configured roles, always in the same order.
    fn roles(&self) -> Vec<Role>;

    /// Returns the cell's name and database servers.
    fn cell(&self) -> CellDescription;

    /// Returns the administrators of UserList, in order.
    fn administrators(&self) -> Result<Vec<Principal>, OverseerError>;

    /// Adds an administrator; fails with [`OverseerError::Exists`] if it exists.
    fn add_administrator(&self, who: &Principal) -> Result<(), OverseerError>;

    /// Removes an administrator; fails with [`OverseerError::NotFound`] if it does not exist.
    fn remove_administrator(&self, who: &Principal) -> Result<(), OverseerError>;

    /// Returns the cell's DES keys, by version.
    fn keys(&self) -> Result<KeyList, OverseerError>;

    /// Returns the text of a log; fails with [`OverseerError::NotFound`] if it does not exist. The name has
    /// no `/`.
    fn log(&self, name: &str) -> Result<Box<dyn Read + Send>, OverseerError>;

    /// Returns the installation times of a program, given its full canonical path (`/usr/afs/bin/...`).
    fn file_dates(&self, _path: &str) -> FileDates {
        FileDates::default()
    }

    /// Starts or stops a role, `permanent`ly or until the program restarts. Only called if the role has a
    /// different goal.
    fn set_goal(&self, _role: &str, _running: bool, _permanent: bool) -> Result<(), OverseerError> {
        Err(OverseerError::CannotNow)
    }

    /// Restarts a role, or all of them.
    fn restart(&self, _role: Option<&str>) -> Result<(), OverseerError> {
        Err(OverseerError::CannotNow)
    }
}

/// A role of the program, called an instance in BOZO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Name of the instance: `fs`, `ptserver` or `vlserver`.
    pub name: String,
    /// Type of the instance.
    pub kind: RoleKind,
    /// Current state.
    pub state: RoleState,
    /// Whether the role should run now.
    pub goal_running: bool,
    /// Whether the role is configured to run.
    pub configured_running: bool,
    /// Time of the last start.
    pub started: UnixTime,
    /// Number of starts.
    pub starts: u32,
    /// The last exit, if any.
    pub last_exit: Option<LastExit>,
    /// Command lines, as shown by `bos status -long`.
    pub commands: Vec<String>,
}

impl Role {
    /// Returns a role that is configured to run, was started at `started`, and is running.
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

/// Types of instances in Cellar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// `simple`: one server.
    Simple,
    /// `fs`: file server and volume server together.
    FileServer,
}

/// State of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleState {
    /// Not running.
    Down,
    /// Serving.
    Running,
    /// Shutting down.
    Stopping,
    /// Not serving yet.
    Starting,
}

/// The last exit of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastExit {
    /// Time of the exit.
    pub at: UnixTime,
    /// The error, if one caused the exit.
    pub error: Option<String>,
}

/// The cell's name and database servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellDescription {
    /// Name of the cell.
    pub name: CellName,
    /// Database servers, in the order of CellServDB.
    pub hosts: Vec<DatabaseHost>,
}

/// A database server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHost {
    /// Host name.
    pub name: String,
    /// Whether the server has a copy of the database but no vote.
    pub is_clone: bool,
}

/// The cell's DES keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    /// The keys.
    pub keys: Vec<KeyVersion>,
    /// Time of their last change.
    pub changed: UnixTime,
}

/// The public properties of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    /// Key version number.
    pub version: u32,
    /// The key's [`key_checksum`](crate::key_checksum); 0 is shown as none.
    pub checksum: u32,
}

/// Installation times of a program's versions; 0 for versions that do not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileDates {
    /// The version in use.
    pub current: UnixTime,
    /// The previous version (`.BAK`).
    pub previous: UnixTime,
    /// The version before that (`.OLD`).
    pub oldest: UnixTime,
}

/// Reason why a request to the overseer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OverseerError {
    /// The named object does not exist.
    #[error("it does not exist")]
    NotFound,
    /// The object to add already exists.
    #[error("it is there already")]
    Exists,
    /// Cellar does not support the operation.
    #[error("it cannot be done now")]
    CannotNow,
    /// Reading or writing failed; the overseer has logged the error.
    #[error("input or output failed")]
    Io,
}

impl OverseerError {
    /// Returns the abort code.
    pub fn abort_code(self) -> AbortCode {
        match self {
            OverseerError::NotFound => AbortCode::BZNOENT,
            OverseerError::Exists => AbortCode::BZEXISTS,
            OverseerError::CannotNow => AbortCode::BZBUSY,
            OverseerError::Io => AbortCode::BZIO,
        }
    }
}
