//! Messages, opcodes, server traits and client stubs of AFS's services, generated from idl/.
//!
//! There is one module per service: [`fs`] and its callbacks [`cb`], [`vl`], [`pr`], [`vol`], [`bozo`],
//! [`rxstats`], and Cellar's own, [`cellar`] and [`cluster`]. For a procedure `Foo` it has `FooRequest` and `FooReply`, the
//! opcode `FOO`, a method `foo` of the trait `Server`, and a client stub `foo`. A service's `dispatch` serves
//! one call over a [`CallStream`]. A type that handles all procedures gets its implementation of `Server` from
//! the macro `impl_server`, so its handlers may be in any module. This crate does not use sockets: calls are made
//! and served through the traits of [`stream`].
//!
//! Messages are plain: the meaning of a number is up to the crates above. Numbers that belong together
//! (masks, types) are constants in a separate module.

pub mod client;
pub mod convert;
pub mod forgetful;
mod generated;
pub mod memory;
pub mod reply;
pub mod rxstats_off;
pub mod server;
pub mod stream;
pub mod uuid;
mod work;

pub use forgetful::Forgetful;
pub use generated::*;
pub use memory::{MemoryConnection, MemoryStream};
pub use reply::ReplyWriter;
pub use stream::{CallStream, ClientCall, ClientConnection, StreamSource};
pub use work::{Length, Work};

#[cfg(test)]
mod tests;
