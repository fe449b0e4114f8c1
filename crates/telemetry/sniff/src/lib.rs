//! Analyses captured Rx and AFS traffic without touching the servers.
//!
//! The input is frames, from a file ([`pcap::Reader`]) or a live capture; the output is a [`Report`] with
//! calls by kind and their latencies, servers, clients, volumes, aborts, and unusual observations. The crate
//! opens no files or sockets, and reads no clock. [`Sniffer`] documents the calling sequence.
//!
//! Captured data is not trusted: every table has a limit ([`Limits`]), and data that does not decode is
//! counted.

mod bounded;
mod call;
mod findings;
pub mod frame;
mod kind;
mod packet;
pub mod pcap;
mod report;
pub mod segments;
mod sequences;
mod sniffer;
mod traffic;

pub use frame::{Datagram, Frame, Link};
pub use kind::{Kind, Procedure, Service};
pub use report::{AbortRow, CallRow, ClientRow, Finding, Report, ServerRow, VolumeRow};
pub use sniffer::{Captured, Filter, Limits, Sniffer};
pub use traffic::{Calls, Flow, Percentiles, Traffic};

#[cfg(test)]
mod tests;
