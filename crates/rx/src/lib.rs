//! Rx on real sockets.
//!
//! [`rx_proto::Endpoint`] decides all questions of protocol; this crate gives it sockets, threads
//! and clocks, and gives its calls the form of byte streams that a thread can wait on.
//!
//! * [`Server`]: lanes (one thread, one socket, one endpoint each) that share a port, and a pool of
//!   workers that run [`Service`]s. [`ServerCall`] is an [`afs_idl::CallStream`].
//! * [`Client`]: the same without services. Its connections, and those of [`Server::connect`], are
//!   [`afs_idl::ClientConnection`]s, which the generated stubs take.
//! * [`Swarm`]: thousands of ports with an endpoint each and one thread, for load generators.
//! * [`Tap`]: the datagrams that pass an interface, for who watches without taking part.
//!
//! Datagrams are received in batches with runs merged by the kernel, and sent as gather lists with
//! runs cut by it; payload is not copied between the socket and who reads or wrote it. Where kernel
//! or device lack these abilities, they are done without.

mod call;
mod client;
mod clock;
mod connector;
mod fairness;
mod gather;
mod idle;
mod inherited;
mod lane;
mod lanes;
mod notice;
mod pool;
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
pub use inherited::{Inherited, KeptSocket};
pub use rx_proto::{
    ConnectOptions, EndpointConfig, Path, PeerCounters, PeerReport, RoundTrips, ServiceConfig,
};
pub use server::{Server, ServerConfig, ServiceEntry};
pub use server_call::{Conclusion, Departure, ServerCall, Service};
pub use socket::SocketOptions;
pub use statistics::{CallStatistics, LaneStatistics, ServerStatistics};
pub use swarm::{Swarm, SwarmConfig};
pub use tap::{Passed, TAP_PORTS_MAX, Tap};
