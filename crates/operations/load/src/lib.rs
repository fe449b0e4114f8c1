//! Load generators, which are part of the product: they measure how fast a server is, Cellar's or OpenAFS's,
//! and identify the bottleneck.
//!
//! * [`rxperf`]: client and server of OpenAFS's program of this name, which measures Rx alone.
//! * [`fs`]: many clients of a file server, with mixes of operations.
//! * [`station`] and [`files`]: one client that makes one call at a time.
//! * [`cpu`] and [`watch`]: resource usage of processes, and the bottleneck.
#![allow(clippy::cast_precision_loss, reason = "rates and shares are printed with three digits")]

pub mod cpu;
pub mod files;
pub mod fs;
pub mod progress;
pub mod rxperf;
pub mod station;
pub mod watch;
