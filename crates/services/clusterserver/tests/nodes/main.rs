//! Two nodes over real sockets on loopback: one forwards, the other executes.

mod administration;
mod cut;
mod doubts;
mod failures;
mod files;
mod reading;
mod shelf;
mod strangers;
mod takeover;
mod world;
mod writing;
