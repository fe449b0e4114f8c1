//! What captured packets tell about Rx and the AFS services, without touching the servers.
//!
//! Frames go in, from a file ([`pcap::Reader`]) or from wherever they were captured; a [`Report`]
//! comes out: calls by kind with their latencies, servers, clients, volumes, aborts, and what is out of
//! the ordinary. Nothing here opens files or sockets, or asks a clock. [`Sniffer`] tells what to call.
//!
//! Nothing that is captured is trusted: every table has a limit ([`Limits`]), and what does not decode
//! is counted.

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
