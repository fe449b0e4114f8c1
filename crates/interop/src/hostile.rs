//! Attackers, and the honest clients that work beside them.
//!
//! A [`Target`] is a cell of Cellar's with a network of 65,536 addresses that nobody answers at. The process that runs a
//! test is the attacker: it stands on the other side of the cell's link, so everything here stays inside the
//! namespaces of one test.
//!
//! * [`packet`] builds single Rx datagrams, valid or not.
//! * [`Spoofer`] sends them from any address; [`Flood`] does so at a rate.
//! * [`Listener`] counts what the server sends to these addresses.
//! * [`Load`] is what `cellar bench fs` measured of honest clients.
//! * [`Client`] is an honest client with a callback service and, if wanted, the cell's key.

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
