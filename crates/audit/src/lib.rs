//! The audit: a line for each call that matters, in JSON or as OpenAFS's servers write them.
//!
//! [`Trail`] is what the configuration asks for: sinks, each with a [`Form`], a [`Filter`] and a [`Policy`].
//! [`ServiceTrail`] is a service's way to it: [`ServiceTrail::begin`] when a call's opcode is known,
//! [`Draft`] gathers the first bytes of its messages if they are not at hand, [`ServiceTrail::record`] when it has ended.
//! What a call did is decoded and written by a thread of each sink; the thread that served the call only copies some
//! words to memory of its own, from where the sink's fetches them. docs/guide/audit.md has the events and both forms.

mod argument;
mod block;
mod class;
mod draft;
mod event;
mod form;
mod intake;
mod json;
mod kept;
mod outlines;
mod pen;
mod put;
mod queue;
mod record;
mod sink;
mod slip;
mod tables;
mod text;
mod trail;
mod writer;

pub use class::{CLASSES, Class, Filter};
pub use draft::{Draft, Messages, Outline};
pub use form::{Form, Program};
pub use queue::Policy;
pub use sink::Target;
pub use slip::Call;
pub use trail::{Clock, ServiceTrail, SinkSettings, Trail};

#[cfg(test)]
mod tests;
