//! What a server counts and measures, declared once.
//!
//! [`figures!`] declares figures that belong together: names, meaning, units, labels of small closed sets.
//! From that one declaration come the structure that counts them, sums and differences, columns, metrics.
//! The declarations of this server's figures are in [`catalogue`]. [`event!`] declares single events: from it come the
//! way to count one in its figures and the line that a log has of it, if somebody wants such [`lines`].
//!
//! Counting must not make threads wait for each other: [`Sharded`] gives each thread a copy of its own, and
//! only who reads visits all. Tables with a row for each volume or client are [`Table`]s: bounded, with a
//! row for all others, so that sums are exact whatever is invented by whoever calls.
//!
//! The crate knows no clock: durations come in as nanoseconds.

pub mod catalogue;
pub mod current;
mod declare;
mod event;
mod histogram;
pub mod lines;
mod longest;
mod refusal;
mod sharded;
pub mod table;

pub use declare::{Declaration, Declared, FromNumbers, Kind, Unit, Value};
pub use event::{Happened, Told};
pub use histogram::{BUCKETS, Histogram, bucket_of, upper_bound};
pub use lines::{EVENTS, Event, LINES};
pub use longest::Longest;
pub use refusal::Refusal;
pub use sharded::{SHARDS, Sharded};
pub use table::{Figures, Table};
