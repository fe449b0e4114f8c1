//! What a server's calls, volumes, clients, disks and lanes did: counted while it serves, gathered and
//! shown when somebody asks.
//!
//! [`Recorder`] takes every call when it ends, from any thread; [`ServiceMeter`] is a service's way to it.
//! [`Snapshot`] is the sum over all threads, in which calls, volumes and clients add up to the same.
//! [`Sheet`] is any table in the form in which it leaves the process.

mod classes;
mod exposition;
mod hosts;
mod outcome;
mod pair;
mod recorder;
mod sheet;
mod slow;

pub use classes::class_of_file_call;
pub use exposition::{CONTENT_TYPE, exposition, metric_names};
pub use outcome::outcome;
pub use pair::PairFigures;
pub use recorder::{ClientKey, Ended, PairKey, Procedure, Recorder, ServiceMeter, Snapshot};
pub use sheet::{Observed, Sheet, SheetRow};
pub use slow::SlowCall;

#[cfg(test)]
mod tests;
