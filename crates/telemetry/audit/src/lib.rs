//! The audit: a line for each relevant call, in JSON or in the format of OpenAFS's servers.
//!
//! [`Trail`] has the configured sinks, each with a [`Form`], a [`Filter`] and a [`Policy`]. [`ServiceTrail`]
//! is the interface for a service: [`ServiceTrail::begin`] when a call's opcode is known, [`Draft`] to gather
//! the first bytes of its messages if they are not in memory, [`ServiceTrail::record`] when the call has
//! ended. Each sink has a thread that decodes and writes its records; the thread that serves a call only
//! copies some words into its own buffers, which the sink's thread reads. docs/guide/audit.md describes the
//! events and both formats. [`Membership`] records what happens to a node of a cluster in the same form.

mod argument;
mod block;
mod class;
mod draft;
mod event;
mod form;
mod generated;
mod intake;
mod json;
mod kept;
mod membership;
mod outlines;
mod put;
mod queue;
mod raw_record;
mod record;
mod sink;
mod tables;
mod text;
mod thread_writer;
mod trail;
mod writer;

pub use class::{CLASSES, Class, Filter};
pub use draft::{Draft, Messages, Outline};
pub use form::{Form, Program};
pub use membership::{Change, Membership};
pub use queue::Policy;
pub use raw_record::Call;
pub use sink::Target;
pub use trail::{Clock, ServiceTrail, SinkSettings, Trail};

#[cfg(test)]
mod tests;
