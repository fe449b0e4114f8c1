//! The volume service (AFSVol): what `vos` and other administration ask of a server's volumes.
//!
//! [`VolumeServer`] implements the service over a [`Volumes`](volume::Volumes). Work on a volume goes
//! through *transactions*: TransCreate or CreateVolume opens one, by which the volume is kept from
//! file service in the measure that the caller asked for (not at all, busy, offline), further calls
//! name its number, EndTrans gives the volume back. There is at most one transaction on a volume, and
//! one that is idle for [`IDLE_SECONDS_MAX`], or as long as is configured, is ended by
//! [`VolumeServer::expire_transactions`].
//!
//! What OpenAFS's volume server answers, field by field and code by code, is what scripts have learned
//! to read; where this one does something else a comment says so. Plain errno values (ENOENT, ENODEV,
//! ...) travel as they are on this service, since `vos` compares with them.
//!
//! Without [`OtherServers`] what makes this server call another one (Forward, ForwardMultiple) is answered
//! with RXGEN_OPCODE, by which `vos` knows a server that cannot.
//!
//! Between two Cellar servers Forward sends no dump, but offers the volume by calls of
//! [`afs_idl::cellar`], which are served beside AFSVol: chunks that the target has are not sent (`sending`,
//! `taking`). Whatever else the other side is gets a dump.
//!
//! Protocol: OpenAFS 1.8 `volser/volint.xg`; behaviour: `volser/volprocs.c`, `volser/voltrans.c`, and
//! what `vos(1)` does with the answers in `volser/vsprocs.c`.

mod apart;
mod changing;
mod cloning;
mod codes;
mod creating;
mod digesting;
mod dumping;
mod forwarding;
mod listing;
mod partitions;
mod reading;
mod restoring;
mod sending;
mod server;
mod service;
mod splitting;
mod taking;
mod together;
mod transactions;
mod transfers;

pub use forwarding::OtherServers;
pub use server::{Administrators, FileService, VolumeServer, VolumeServerParts};
pub use transactions::{IDLE_SECONDS_MAX, TRANSACTIONS_MAX};

#[cfg(test)]
mod tests;
