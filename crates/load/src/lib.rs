//! Load generators that are part of the product: they say how fast a server is, Cellar's or
//! OpenAFS's, and what kept it from being faster.
//!
//! * [`rxperf`]: OpenAFS's program of that name, client and server: Rx alone.
//! * [`fs`]: many clients of a file server, and mixes of what they do.
//! * [`station`] and [`files`]: one client, a call at a time.
//! * [`cpu`] and [`watch`]: what processes used meanwhile, and which of them was the limit.
#![allow(clippy::cast_precision_loss, reason = "rates and shares are printed with three digits")]

pub mod cpu;
pub mod files;
pub mod fs;
pub mod progress;
pub mod rxperf;
pub mod station;
pub mod watch;
