//! What is gathered of a call while it runs.

use crate::event::Event;
use std::cell::Cell;

/// A draft's memory that is larger is given back when its call ends.
const KEPT_BYTES_MAX: usize = 8192;

thread_local! {
    /// Memory for the next draft, so that calls of which nothing is recorded in the end cost no allocation.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How a procedure's calls are recorded, by a service whose calls of it are wanted by some sink.
#[derive(Clone, Copy, Debug)]
pub struct Outline {
    pub(crate) event: &'static Event,
    pub(crate) service: &'static str,
    pub(crate) procedure: &'static str,
    /// By which the trail knows it.
    pub(crate) number: u16,
}

/// The messages of a call, as far as they were kept; more than the outline wants is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    /// With its opcode.
    pub request: &'a [u8],
    /// Empty if there was none.
    pub reply: &'a [u8],
}

/// The first bytes of a call's messages, as many as its outline wants.
#[derive(Debug)]
pub struct Draft {
    outline: Outline,
    bytes: Vec<u8>,
    /// Where the request ends and the reply begins, once it has.
    reply_from: Option<usize>,
}

impl Draft {
    /// Of a call with this outline.
    pub fn new(outline: &Outline) -> Draft {
        Draft { outline: *outline, bytes: SPARE.take(), reply_from: None }
    }

    /// The client sent this next, from the opcode on.
    pub fn received(&mut self, bytes: &[u8]) {
        if self.reply_from.is_none() {
            let room = self.outline.event.request_max.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// The service answered this next.
    pub fn sent(&mut self, bytes: &[u8]) {
        let from = *self.reply_from.get_or_insert(self.bytes.len());
        let room = self.outline.event.reply_max.saturating_sub(self.bytes.len() - from);
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// How the call is recorded.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// What was gathered.
    pub fn messages(&self) -> Messages<'_> {
        let (request, reply) = self.bytes.split_at(self.reply_from.unwrap_or(self.bytes.len()));
        Messages { request, reply }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() <= KEPT_BYTES_MAX {
            bytes.clear();
            SPARE.set(bytes);
        }
    }
}
