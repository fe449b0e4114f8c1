//! Two nodes over real sockets on loopback: one forwards, the other executes.

mod cut;
mod failures;
mod files;
mod strangers;
mod takeover;
mod world;
