//! The file service (RXAFS), which cache managers use to access files.
//!
//! Every call follows the same steps, implemented once in [`pipeline`](self): the caller's host is identified
//! and has no undelivered callback breaks; the caller's user and groups are looked up; the volume and vnode
//! are found; rights are checked; the volume performs the operation; a promise is made before the data that
//! it covers is read; other clients' promises are broken before the change is acknowledged; the call is
//! counted. A handler contains only the operation itself.
//!
//! Access rules, reply fields and error codes are those of OpenAFS 1.8's file server
//! (`viced/afsfileprocs.c`), since clients depend on them. Sockets, clocks, volumes and the protection
//! database are provided by the caller ([`Environment`]).

#![allow(
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "handlers have the signatures that the interface gives them"
)]

mod access;
mod awaited;
mod bulk;
mod call;
mod capabilities;
mod config;
mod counters;
mod demand;
mod directories;
mod environment;
mod errors;
mod fast_path;
mod fetch;
mod hosts;
mod locking;
mod moved;
mod obsolete;
mod pipeline;
mod promises;
mod reports;
mod server;
mod statistics;
mod store;
mod stranger;
mod subject;
mod takeover;
mod usage;
mod volumes;
mod waiting;
mod wire;
mod xstats;

pub use call::FileCall;
pub use config::FileServerConfig;
pub use counters::{Operation, OperationCount, TransferCount};
pub use environment::{CallbackNetwork, Clock, Environment, Reports, TransportFigures, VolumeLocator};
pub use fast_path::Answer;
pub use hosts::OwedResets;
pub use server::FileServer;
pub use subject::{LocalMembership, Membership, Subject};
pub use usage::Subdirectory;
