//! The volume service (AFSVol), used by `vos` and other administration tools.
//!
//! [`VolumeServer`] implements the service over a [`Volumes`](volume::Volumes). Work on a volume goes through
//! *transactions*: TransCreate or CreateVolume opens one, which restricts file service for the volume as the
//! caller requested (not at all, busy, offline). Further calls refer to it by number, and EndTrans releases
//! the volume. There is at most one transaction on a volume, and one that is idle for [`IDLE_SECONDS_MAX`],
//! or a configured time, is ended by [`VolumeServer::expire_transactions`].
//!
//! Scripts rely on the replies of OpenAFS's volume server, so fields and codes are the same; comments mark
//! the exceptions. Plain errno values (ENOENT, ENODEV, ...) are sent unchanged on this service, because `vos`
//! compares with them.
//!
//! Without [`OtherServers`], procedures that make this server call another one (Forward, ForwardMultiple)
//! fail with RXGEN_OPCODE, which `vos` takes as unsupported.
//!
//! Between two Cellar servers Forward sends no dump, but offers the volume with calls of [`afs_idl::cellar`],
//! which are served next to AFSVol: chunks that the target has are not sent (`sending`, `taking`). Any other
//! server gets a dump.
//!
//! Servers that share their partitions ([`OtherOwners`]) are one server to clients. A call reaches the server that has the
//! partition; a transaction ends when the partition gets another server; a volume is parked while another server has one
//! with its id (`apart`).
//!
//! Protocol: OpenAFS 1.8 `volser/volint.xg`. Behaviour: `volser/volprocs.c`, `volser/voltrans.c`, and how
//! `vos(1)` interprets the replies in `volser/vsprocs.c`.

#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "handlers have the signatures that the interface gives them"
)]

mod apart;
mod changing;
mod cloning;
mod codes;
mod creating;
mod digesting;
mod dumping;
mod forwarding;
mod lending;
mod listing;
mod partitions;
mod queries;
mod reading;
mod references;
mod restoring;
mod sending;
mod server;
mod sharing;
mod splitting;
mod taking;
mod together;
mod transactions;
mod transfers;
mod unchanged;

pub use forwarding::OtherServers;
pub use server::{Administrators, FileService, VolumeServer, VolumeServerParts};
pub use sharing::OtherOwners;
pub use transactions::{IDLE_SECONDS_MAX, TRANSACTIONS_MAX};

#[cfg(test)]
mod tests;
