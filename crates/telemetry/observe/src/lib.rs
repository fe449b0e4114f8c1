//! Figures of a server's calls, volumes, clients, disks and lanes: counted while it serves, collected and
//! displayed on request.
//!
//! [`Recorder`] receives every call when it ends, from any thread; [`ServiceMeter`] is its interface for a
//! service. [`Snapshot`] is the sum over all threads, in which calls, volumes and clients have the same
//! totals. [`Table`] lists all tables, and [`Sheet`] is any of them in the form in which it leaves the
//! process.

mod exposition;
mod hosts;
mod outcome;
mod pair;
mod recorder;
mod sheet;
mod slow;
mod tables;

pub use exposition::{CONTENT_TYPE, exposition, metrics};
pub use outcome::outcome;
pub use pair::PairFigures;
pub use recorder::{ClientKey, Ended, PERIOD, PairKey, Procedure, Recorder, ServiceMeter, Snapshot};
pub use sheet::{Observed, Sheet, SheetRow};
pub use slow::SlowCall;
pub use tables::{Table, Taker};
// Used by `with_table!`.
#[doc(hidden)]
pub use events::catalogue;

#[cfg(test)]
mod tests;
