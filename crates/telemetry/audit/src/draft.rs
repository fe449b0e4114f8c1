//! Data gathered about a call while it runs.

use crate::event::Event;
use std::cell::Cell;

/// A draft's buffer is freed at the end of its call if it is larger than this.
const KEPT_BYTES_MAX: usize = 8192;

thread_local! {
    /// Buffer for the next draft, so that calls that are not recorded in the end cost no allocation.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How a service records calls of one procedure. Exists only while some sink may select them.
#[derive(Clone, Copy, Debug)]
pub struct Outline {
    pub(crate) event: &'static Event,
    pub(crate) service: &'static str,
    pub(crate) procedure: &'static str,
    /// Number of the procedure in this trail.
    pub(crate) number: u16,
}

/// The messages of a call, as far as they were kept; bytes beyond the outline's limits are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    /// Request, including the opcode.
    pub request: &'a [u8],
    /// Reply; empty if there was none.
    pub reply: &'a [u8],
}

/// The first bytes of a call's messages, up to the limits of its outline.
#[derive(Debug)]
pub struct Draft {
    outline: Outline,
    bytes: Vec<u8>,
    /// End of the request and start of the reply, once the reply has started.
    reply_from: Option<usize>,
}

impl Draft {
    /// Creates a draft for a call with this outline.
    pub fn new(outline: &Outline) -> Draft {
        Draft { outline: *outline, bytes: SPARE.take(), reply_from: None }
    }

    /// Appends request bytes from the client, starting with the opcode.
    pub fn received(&mut self, bytes: &[u8]) {
        if self.reply_from.is_none() {
            let room = self.outline.event.request_max.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// Appends reply bytes from the service.
    pub fn sent(&mut self, bytes: &[u8]) {
        let from = *self.reply_from.get_or_insert(self.bytes.len());
        let room = self.outline.event.reply_max.saturating_sub(self.bytes.len() - from);
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the outline of the call.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns the bytes gathered.
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
