//! Rx on real sockets.
//!
//! [`rx_proto::Endpoint`] implements the protocol. This crate adds sockets, threads and clocks, and presents
//! calls as byte streams that a thread can wait on.
//!
//! * [`Server`]: lanes (one thread, one socket, one endpoint each) that share a port, and a pool of
//!   workers that run [`Service`]s. [`ServerCall`] is an [`afs_idl::CallStream`].
//! * [`Client`]: a port without services. Its connections, and those of [`Server::connect`], are
//!   [`afs_idl::ClientConnection`]s, which the generated stubs take.
//! * [`Swarm`]: thousands of ports with an endpoint each and one thread, for load generators.
//! * [`Tap`]: passive capture of the datagrams that pass an interface.
//! * [`Frames`]: frames that are sent to an interface as they are.
//!
//! Datagrams are received in batches, with runs merged by the kernel, and sent as gather lists, with runs
//! segmented by the kernel. Payload is not copied between the socket and the service or caller. Kernels and
//! devices without these features are supported.

mod call;
mod client;
mod clock;
mod connector;
mod fairness;
mod frames;
mod gather;
mod idle;
mod inherited;
mod lane;
mod lanes;
mod notice;
mod pool;
pub mod ports;
mod priority;
mod queue;
mod server;
mod server_call;
mod socket;
mod stall;
mod statistics;
mod steering;
mod swarm;
mod sys;
mod tap;
mod waker;
mod workers;

pub use client::{Client, ClientConfig};
pub use clock::now;
pub use connector::Connector;
pub use fair_queue::{Class, Demand};
pub use fairness::Fairness;
pub use frames::Frames;
pub use inherited::{Inherited, KeptSocket};
pub use rx_proto::{
    ConnectOptions, EndpointConfig, Path, PeerCounters, PeerReport, RoundTrips, ServiceConfig,
};
pub use server::{BoundServer, Server, ServerConfig, ServiceEntry};
pub use server_call::{Conclusion, Departure, ServerCall, Service};
pub use socket::SocketOptions;
pub use stall::{pause, waiting};
pub use statistics::{CallStatistics, LaneStatistics, ServerStatistics};
pub use swarm::{Swarm, SwarmConfig};
pub use tap::{Passed, TAP_PORTS_MAX, Tap};
