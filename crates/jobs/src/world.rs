//! What a job needs of the world around it.

use crate::{Job, Operation, Traffic};
use afs_idl::ClientConnection;
use afs_idl::vol::RestoreRequest;
use base::{AbortCode, UnixTime};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What the person, or the program that is ending, wants of a job that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To go on.
    GoOn,
    /// To undo it, if that is still possible.
    Cancel,
    /// To leave it as it is, for somebody to go on later.
    Stop,
}

/// Servers, clock and journal.
pub trait World {
    /// The volume server at an address (AFSVol).
    fn volumes(&self, server: Ipv4Addr) -> Arc<dyn ClientConnection>;

    /// Makes a call that changes something to the cell's location servers (VL), to whichever can answer it.
    ///
    /// # Errors
    /// The call's abort code.
    fn locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode>;

    /// Asks the location server that takes changes: what the others answer may be behind, and what a job believes of an
    /// entry decides what it removes.
    ///
    /// # Errors
    /// The call's abort code; UNOQUORUM if no server takes changes now.
    fn newest_locations<T>(
        &self,
        call: impl Fn(&dyn ClientConnection) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode>;

    /// Whether a restore on this server takes effect at once when it is whole, so that a read-only volume
    /// can stay online meanwhile. Cellar's servers do that, OpenAFS's do not.
    fn restores_at_once(&self, server: Ipv4Addr) -> bool;

    /// Makes the call Restore (AFSVol) to a server with what is in a file. Returns its length in bytes.
    ///
    /// # Errors
    /// How the call ended; that the file cannot be read; `Cancelled` or `Stopped` if that was wished.
    fn send_file(&self, server: Ipv4Addr, request: &RestoreRequest, file: &str) -> Result<u64, Trouble>;

    /// What a volume server has sent so far within one of its transactions, if it tells.
    fn traffic(&self, server: Ipv4Addr, transaction: i32) -> Option<Traffic> {
        let _ = (server, transaction);
        None
    }

    /// The time of day.
    fn now(&self) -> UnixTime;

    /// Lets some seconds pass; may return earlier when the wish changes.
    fn pause(&self, seconds: u32);

    /// What is wanted of the job.
    fn wish(&self) -> Wish;

    /// Writes the job into the journal, durably.
    ///
    /// # Errors
    /// In words; the job stops as it is.
    fn record(&self, job: &Job) -> Result<(), String>;
}

/// Why a step did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A call failed.
    Call {
        /// What was attempted, like `clone the volume 536870912`.
        doing: String,
        /// How the call ended.
        code: AbortCode,
    },
    /// It cannot be done as things are, in words.
    Refused(String),
    /// The person wants it undone.
    Cancelled,
    /// The journal cannot be written, or the program ends.
    Stopped(String),
}

impl Trouble {
    /// Whether the call may have been executed, or will be when the server is back.
    pub fn is_silence(&self) -> bool {
        matches!(self, Trouble::Call { code, .. } if is_silence(*code))
    }

    /// Whether doing the same again later may succeed.
    pub(crate) fn may_pass(&self, operation: &Operation) -> bool {
        match self {
            // A file stays what it is. What servers send each other is made anew, of what they then have.
            Trouble::Call { code: AbortCode::VOLSERREAD_DUMPERROR, .. } => {
                !matches!(operation, Operation::Restore { .. } | Operation::Overwrite { .. })
            }
            Trouble::Call { code, .. } => !LASTING.contains(code),
            Trouble::Refused(_) | Trouble::Cancelled | Trouble::Stopped(_) => false,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Call { doing, code } => write!(f, "cannot {doing}: {code}"),
            Trouble::Refused(why) => f.write_str(why),
            Trouble::Cancelled => f.write_str("cancelled"),
            Trouble::Stopped(why) => write!(f, "stopped: {why}"),
        }
    }
}

/// Whether a code comes from the transport: then nobody knows whether the call was executed.
pub(crate) fn is_silence(code: AbortCode) -> bool {
    (AbortCode::RX_RESTARTING.0..0).contains(&code.0)
}

/// What does not go away by waiting.
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
