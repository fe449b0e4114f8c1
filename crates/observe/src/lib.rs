//! What a server's calls, volumes, clients, disks and lanes did: counted while it serves, gathered and
//! shown when somebody asks.
//!
//! [`Recorder`] takes every call when it ends, from any thread; [`ServiceMeter`] is a service's way to it.
//! [`Snapshot`] is the sum over all threads, in which calls, volumes and clients add up to the same.
//! [`Table`] is the list of all tables, [`Sheet`] any of them in the form in which it leaves the process.

mod classes;
mod exposition;
mod hosts;
mod outcome;
mod pair;
mod recorder;
mod sheet;
mod slow;
mod tables;

pub use classes::class_of_file_call;
pub use exposition::{CONTENT_TYPE, exposition, metrics};
pub use outcome::outcome;
pub use pair::PairFigures;
pub use recorder::{ClientKey, Ended, PERIOD, PairKey, Procedure, Recorder, ServiceMeter, Snapshot};
pub use sheet::{Observed, Sheet, SheetRow};
pub use slow::SlowCall;
pub use tables::{Table, Taker};
// For `with_table!`.
#[doc(hidden)]
pub use events::catalogue;

#[cfg(test)]
mod tests;
