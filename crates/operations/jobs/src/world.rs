//! The environment of a job.

use crate::{Job, Traffic};
use afs_idl::ClientConnection;
use afs_idl::vol::RestoreRequest;
use base::{AbortCode, UnixTime};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A request of the operator, or of a terminating program, to a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Continue.
    Continue,
    /// Undo the job, if that is still possible.
    Cancel,
    /// Leave the job as it is, to be resumed later.
    Suspend,
}

/// Access to servers, clock and journal.
pub trait World {
    /// Returns a connection to the volume server at an address (AFSVol).
    fn volumes(&self, server: Ipv4Addr) -> Arc<dyn ClientConnection>;

    /// Makes a changing call to the cell's location servers (VL), trying them until one can execute it.
    ///
    /// # Errors
    /// The call's abort code.
    fn locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode>;

    /// Queries the location server that accepts changes. Replies of the others may be out of date, and the
    /// job decides from an entry which volumes it removes.
    ///
    /// # Errors
    /// The call's abort code; UNOQUORUM if no server currently accepts changes.
    fn newest_locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode>;

    /// Returns whether a restore on this server takes effect atomically once complete, so that a read-only
    /// volume can stay online meanwhile. This is true for Cellar servers and false for OpenAFS.
    fn restores_atomically(&self, server: Ipv4Addr) -> bool;

    /// Calls Restore (AFSVol) on a server with the contents of a file. Returns the file's length in bytes.
    ///
    /// # Errors
    /// An error of the call or of reading the file; `Cancelled` or `Stopped` on request.
    fn send_file(&self, server: Ipv4Addr, request: &RestoreRequest, file: &str) -> Result<u64, JobError>;

    /// Returns what a volume server has sent so far within one of its transactions, if it reports that.
    fn traffic(&self, server: Ipv4Addr, transaction: i32) -> Option<Traffic> {
        let _ = (server, transaction);
        None
    }

    /// Returns the current time.
    fn now(&self) -> UnixTime;

    /// Waits for some seconds; may return earlier when the control changes.
    fn pause(&self, seconds: u32);

    /// Returns the current request to the job.
    fn control(&self) -> Control;

    /// Writes the job to the journal, durably.
    ///
    /// # Errors
    /// A description of the failure; the job then stops as it is.
    fn record(&self, job: &Job) -> Result<(), String>;
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// A call failed.
    Call {
        /// The attempted action, like `clone the volume 536870912`.
        doing: String,
        /// Abort code of the call.
        code: AbortCode,
    },
    /// Impossible in the current state, with a description.
    Refused(String),
    /// The operator asked to undo the job.
    Cancelled,
    /// The journal cannot be written, or the program is terminating.
    Stopped(String),
}

impl JobError {
    /// Returns whether the call may have been executed, or may still be when the server is back.
    pub fn is_silence(&self) -> bool {
        matches!(self, JobError::Call { code, .. } if code.is_of_rx())
    }

    /// Returns whether a later retry may succeed. `sends_file` says whether the contents come from a file.
    pub(crate) fn may_pass(&self, sends_file: bool) -> bool {
        match self {
            // A file does not change. Data sent between servers is generated again from their current
            // contents.
            JobError::Call { code: AbortCode::VOLSERREAD_DUMPERROR, .. } => !sends_file,
            JobError::Call { code, .. } => !LASTING.contains(code),
            JobError::Refused(_) | JobError::Cancelled | JobError::Stopped(_) => false,
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Call { doing, code } => write!(f, "cannot {doing}: {code}"),
            JobError::Refused(why) => f.write_str(why),
            JobError::Cancelled => f.write_str("cancelled"),
            JobError::Stopped(why) => write!(f, "stopped: {why}"),
        }
    }
}

/// Errors that waiting does not resolve.
const LASTING: [AbortCode; 15] = [
    AbortCode::VL_NOENT,
    AbortCode::VL_PERM,
    AbortCode::VL_NAMEEXIST,
    AbortCode::VL_IDEXIST,
    AbortCode::VL_BADNAME,
    AbortCode::VL_BADSERVER,
    AbortCode::VOLSERBAD_ACCESS,
    AbortCode::VOLSERILLEGAL_PARTITION,
    AbortCode::VOLSERBADNAME,
    AbortCode::VOLSERBADOP,
    AbortCode::VOLSERNO_OP,
    AbortCode::VVOLEXISTS,
    AbortCode::VDISKFULL,
    AbortCode::RX_INVALID_OPERATION,
    AbortCode::RXGEN_OPCODE,
];
