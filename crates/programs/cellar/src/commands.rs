//! The subcommands of `cellar` other than `serve`.

pub mod apply;
pub mod bench;
pub mod bucket;
pub mod cluster;
pub mod config;
pub mod context;
pub mod cp;
pub mod doctor;
pub mod du;
pub mod dump;
pub mod import;
pub(crate) mod owner_guard;
pub mod probe;
pub mod profile;
pub mod promote;
pub mod protection;
pub mod server;
pub mod slow;
pub mod snapshot;
pub mod sniff;
pub mod stat;
pub mod store;
pub mod top;
pub mod volume;
pub mod web;

pub use context::Context;
