//! Messages, opcodes, server traits and client stubs of AFS's services, generated from idl/.
//!
//! One module per service. For a procedure `Foo` it has `FooRequest` and `FooReply`, the opcode
//! `FOO`, a method `foo` of the trait `Server`, and a client stub `foo`. A service's `dispatch`
//! serves one call over a [`CallStream`]. Nothing here knows sockets: calls come and go through the
//! traits of [`stream`].

pub mod client;
pub mod server;
pub mod stream;

pub use stream::{CallStream, ClientCall, ClientConnection, MemoryStream, StreamSource};
