//! The figures and events of a server, declared once.
//!
//! [`figures!`] declares a group of figures: names, meaning, units, and labels with small closed sets of
//! values. The one declaration generates the structure that counts them, sums and differences, columns, and
//! metrics. [`catalogue`] has the declarations of this server. [`event!`] declares single events: it
//! generates the method that counts one and the fields of its log line, if such [`lines`] are enabled.
//!
//! Counting must not make threads wait for each other: [`Sharded`] gives each thread its own copy, and only
//! readers visit all of them. Tables with a row for each volume or client are [`Table`]s. They are bounded
//! and have a row for everything that has no row of its own, so that sums are exact whatever clients send.
//!
//! The crate does not read a clock: callers pass durations in nanoseconds.

pub mod catalogue;
mod declare;
mod event;
mod histogram;
pub mod lines;
mod longest;
pub mod parts;
mod refusal;
mod sharded;
pub mod table;

pub use declare::{Declaration, Declared, FromNumbers, Kind, Unit, Value};
pub use event::{FieldValue, LoggedEvent};
pub use histogram::{BUCKETS, Histogram, bucket_of, upper_bound};
pub use lines::{EVENTS, Event, LINES};
pub use longest::Longest;
pub use refusal::Refusal;
pub use sharded::{SHARDS, Sharded};
pub use table::{Figures, Table};
