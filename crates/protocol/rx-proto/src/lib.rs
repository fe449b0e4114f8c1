//! The Rx protocol as a pure state machine.
//!
//! Its inputs are datagrams and the time; its outputs are datagrams, deadlines and events. It uses no
//! sockets, threads, clock or ambient randomness, so the same code runs behind real sockets and in a
//! simulator with virtual time. [`Endpoint`] documents the order of calls.
//!
//! Protocol sources: "The Rx Specification" (OpenAFS doc/txt/rx-spec.txt), the Rx debug protocol
//! (doc/txt/rx-debug.txt), and the behaviour of OpenAFS 1.8 and Linux rxrpc, with which this endpoint has to
//! interoperate.

pub mod ack;
pub mod answers;
mod bucket;
mod call;
mod calls;
pub mod config;
mod congestion;
mod connection;
mod connection_ids;
mod cookie;
pub mod debug;
pub mod endpoint;
pub mod event;
mod hash;
pub mod header;
pub mod inquiry;
pub mod limits;
pub mod packet_length;
mod path;
mod peer;
mod rtt;
mod seed;
mod slab;
pub mod standing;
pub mod statistics;
mod timers;
pub mod transmit;
mod unproven;

pub use config::{ConnectOptions, DebugAudience, EndpointConfig, ServiceConfig};
pub use endpoint::Endpoint;
pub use event::{CallId, ConnectionId, Event, Filled, Read, Write};
pub use header::{Flags, Header, PacketType};
pub use inquiry::Inquiry;
pub use path::Path;
pub use peer::{PeerCounters, PeerReport, RoundTrips};
pub use seed::Seed;
pub use standing::Standing;
pub use statistics::Statistics;
pub use transmit::{Bodies, Outgoing, Transmit};
