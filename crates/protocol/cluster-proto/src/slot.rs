//! One object of the bucket, as this node knows it: its newest known contents, at most one request, and pauses after
//! requests that failed.

use crate::names::Tag;
use crate::records::RecordError;
use crate::request::{Answer, Operation, Request, RequestId};
use crate::timing::Timing;
use base::Monotonic;
use std::time::Duration;

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known<R> {
    /// Nothing.
    Unread,
    /// It does not exist.
    Missing,
    /// Its version and contents.
    Found(Tag, R),
    /// It cannot be used.
    Unusable,
}

impl<R> Known<R> {
    /// Returns the contents.
    pub(crate) fn record(&self) -> Option<&R> {
        match self {
            Known::Found(_, record) => Some(record),
            _ => None,
        }
    }

    /// Returns the write that makes the contents these, if nothing has changed since.
    pub(crate) fn write(&self, bytes: Vec<u8>) -> Option<Operation> {
        match self {
            Known::Found(tag, _) => Some(Operation::Replace(tag.clone(), bytes)),
            Known::Missing => Some(Operation::Create(bytes)),
            Known::Unread | Known::Unusable => None,
        }
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Asked<R> {
    id: RequestId,
    sent: Monotonic,
    /// What it writes.
    written: Option<R>,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settled<R> {
    /// The object was read.
    Read,
    /// This was written by a request sent then. It is what is known now.
    Written(R, Monotonic),
    /// The outcome is unknown, or the object has changed: it is read next.
    Unsettled,
    /// The object cannot be used, or the bucket refuses the request.
    Trouble(String),
}

/// An object.
#[derive(Debug)]
pub(crate) struct Slot<R> {
    pub(crate) name: String,
    pub(crate) known: Known<R>,
    /// When the object was seen to change last.
    pub(crate) changed_at: Monotonic,
    /// When the last read that was answered was sent.
    pub(crate) read_sent: Option<Monotonic>,
    /// When it is read next, if it is watched.
    read_at: Monotonic,
    /// Whether it has to be read before anything is written.
    must_read: bool,
    asked: Option<Asked<R>>,
    /// No request before.
    paused_until: Monotonic,
    pause: Duration,
}

impl<R: Clone + PartialEq> Slot<R> {
    pub(crate) fn new(name: String, now: Monotonic) -> Slot<R> {
        Slot {
            name,
            known: Known::Unread,
            changed_at: now,
            read_sent: None,
            read_at: now,
            must_read: true,
            asked: None,
            paused_until: now,
            pause: Duration::ZERO,
        }
    }

    /// Whether the contents are known well enough to write others on condition that these have not changed.
    pub(crate) fn may_write(&self) -> bool {
        !self.must_read && matches!(self.known, Known::Found(..) | Known::Missing)
    }

    /// Lets the object be read before it is written.
    pub(crate) fn read_first(&mut self) {
        self.must_read = true;
    }

    /// Returns when a request may be sent that is due at `due`; `None` while one is not answered.
    pub(crate) fn free_at(&self, due: Monotonic) -> Option<Monotonic> {
        self.asked.is_none().then(|| due.max(self.paused_until))
    }

    /// Returns when the object is read next: at once if it has to be, else when its watch is due.
    pub(crate) fn next_read(&self, is_watched: bool) -> Option<Monotonic> {
        match (self.must_read, is_watched) {
            (true, _) => self.free_at(self.paused_until),
            (false, true) => self.free_at(self.read_at),
            (false, false) => None,
        }
    }

    pub(crate) fn read(&mut self, now: Monotonic, id: RequestId) -> Request {
        self.ask(now, id, Operation::Read, None)
    }

    pub(crate) fn write(
        &mut self,
        now: Monotonic,
        id: RequestId,
        operation: Operation,
        record: R,
    ) -> Request {
        self.ask(now, id, operation, Some(record))
    }

    fn ask(&mut self, sent: Monotonic, id: RequestId, operation: Operation, written: Option<R>) -> Request {
        self.asked = Some(Asked { id, sent, written });
        Request { id, object: self.name.clone(), operation }
    }

    /// Whether the request is the one that was sent last.
    pub(crate) fn has_asked(&self, id: RequestId) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.id == id)
    }

    /// Takes the answer to the request that was sent last.
    pub(crate) fn settle(
        &mut self,
        now: Monotonic,
        timing: Timing,
        answer: Answer,
        decode: impl FnOnce(&[u8]) -> Result<R, RecordError>,
    ) -> Settled<R> {
        let Some(Asked { sent, written, .. }) = self.asked.take() else { return Settled::Unsettled };
        match (answer, written) {
            (Answer::Found(tag, bytes), None) => match decode(&bytes) {
                Ok(record) => self.found(now, sent, timing, Known::Found(tag, record)),
                Err(error) => self.trouble(now, timing, error.to_string()),
            },
            (Answer::Missing, None) => self.found(now, sent, timing, Known::Missing),
            (Answer::Written(tag), Some(record)) => {
                self.pause = Duration::ZERO;
                self.set(now, Known::Found(tag, record.clone()));
                self.read_at = now + timing.renewal();
                Settled::Written(record, sent)
            }
            (Answer::Refused(why), _) => {
                self.pause_now(now, timing.renewal());
                self.must_read = true;
                Settled::Trouble(why)
            }
            (Answer::Conflict, Some(_)) => {
                self.must_read = true;
                Settled::Unsettled
            }
            // An answer that does not fit its request settles nothing either.
            _ => {
                self.must_read = true;
                let pause = (self.pause * 2).clamp(timing.retry(), timing.renewal());
                self.pause_now(now, pause);
                Settled::Unsettled
            }
        }
    }

    fn found(&mut self, now: Monotonic, sent: Monotonic, timing: Timing, known: Known<R>) -> Settled<R> {
        self.pause = Duration::ZERO;
        self.read_sent = Some(sent);
        self.read_at = now + timing.renewal();
        self.set(now, known);
        Settled::Read
    }

    fn set(&mut self, now: Monotonic, known: Known<R>) {
        self.must_read = false;
        if known != self.known {
            self.known = known;
            self.changed_at = now;
        }
    }

    fn trouble(&mut self, now: Monotonic, timing: Timing, why: String) -> Settled<R> {
        self.set(now, Known::Unusable);
        self.must_read = true;
        self.pause_now(now, timing.renewal());
        Settled::Trouble(why)
    }

    fn pause_now(&mut self, now: Monotonic, pause: Duration) {
        self.pause = pause;
        self.paused_until = now + pause;
    }
}
