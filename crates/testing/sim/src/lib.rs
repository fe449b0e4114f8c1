//! Cells on a virtual network with virtual time: seeded histories that test the protocol core.
//!
//! A [`World`] is a handful of hosts, each an [`rx_proto::Endpoint`] with an application that makes and
//! serves calls, joined by a [`Network`] that loses, repeats, delays, reorders and damages datagrams. Nothing
//! reads the real time, and all randomness comes from one seed, so a failure is replayed by its seed.

pub mod application;
pub mod client;
pub mod hijackers;
pub mod history;
pub mod network;
pub mod pattern;
pub mod security;
pub mod server;
pub mod world;

pub use history::{History, Mood, Report};
pub use network::{Conditions, Network};
pub use world::World;
