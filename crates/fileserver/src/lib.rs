//! The file service (RXAFS): what cache managers call to use files.
//!
//! Every call takes the same way, laid down once in [`pipeline`](self): the caller's host is known
//! and owes no broken promise; who the caller is and which groups it is in is looked up; the volume
//! and vnode are found; rights are checked; the volume does the work; a promise is made, before what
//! it covers is read; everybody else's promises are broken before the change is acknowledged; the
//! call is counted. A handler holds only its middle.
//!
//! Rules of access, fields of replies and codes of errors are those of OpenAFS 1.8's file server
//! (`viced/afsfileprocs.c`), since clients depend on them. Sockets, clocks, volumes and the
//! protection database come in from outside ([`Environment`]).

mod access;
mod at_once;
mod bulk;
mod capabilities;
mod config;
mod counters;
mod demand;
mod directories;
mod environment;
mod errors;
mod fetch;
mod hosts;
mod locking;
mod moved;
mod obsolete;
mod pipeline;
mod promises;
mod server;
mod service;
mod statistics;
mod store;
mod stranger;
mod subject;
mod usage;
mod volumes;
mod waiting;
mod wire;
mod xstats;

pub use at_once::Answer;
pub use config::FileServerConfig;
pub use counters::{Operation, OperationCount, TransferCount};
pub use environment::{CallbackNetwork, Clock, Environment, TransportFigures, VolumeLocator};
pub use server::FileServer;
pub use subject::{LocalMembership, Membership, Subject};
pub use usage::Subdirectory;
