//! Attackers, and honest clients that run at the same time.
//!
//! A [`Target`] is a Cellar cell with a network of 65,536 addresses at which no host answers. The process
//! that runs a test is the attacker: it is at the other end of the cell's link, so all traffic stays inside
//! the namespaces of one test.
//!
//! * [`packet`] builds single Rx datagrams, valid or not.
//! * [`Spoofer`] sends them from any address; [`Flood`] does so at a given rate.
//! * [`Listener`] counts what the server sends to these addresses.
//! * [`Load`] is the result of `cellar bench fs` for honest clients.
//! * [`Client`] is an honest client with a callback service and, optionally, the cell's key.

mod client;
mod flood;
mod listener;
mod load;
pub mod packet;
mod spoofer;
mod target;

pub use client::{Client, uuid};
pub use flood::{Flood, Flooded, Shape};
pub use listener::{Datagram, Listener};
pub use load::Load;
pub use spoofer::Spoofer;
pub use target::{ATTACKER, SERVER, STRANGERS, Target, at, stranger};
