//! The audit: a line for each call that matters, in JSON or as OpenAFS's servers write them.
//!
//! [`Trail`] is what the configuration asks for: sinks, each with a [`Form`], a [`Filter`] and a [`Policy`].
//! [`ServiceTrail`] is a service's way to it: [`ServiceTrail::begin`] when a call's opcode is known,
//! [`Draft`] gathers the first bytes of its messages, [`Trail::record`] when it has ended. What a call did is
//! decoded and written by a thread of each sink; the thread that served the call only copies some bytes and
//! puts them into a bounded lock-free queue. docs/audit.md has the events and both forms.

mod argument;
mod class;
mod draft;
mod event;
mod form;
mod json;
mod kept;
mod put;
mod queue;
mod record;
mod sink;
mod tables;
mod text;
mod trail;
mod writer;

pub use class::{CLASSES, Class, Filter};
pub use draft::{Draft, Outline};
pub use form::{Form, Program};
pub use queue::Policy;
pub use record::Record;
pub use sink::Target;
pub use trail::{ServiceTrail, SinkSettings, Trail};

#[cfg(test)]
mod tests;
