//! Numbers that stand for procedures in records.

use crate::draft::Outline;
use crate::event::Event;
use parking_lot::Mutex;
use std::sync::Arc;

/// The procedures of all services in the audit.
#[derive(Debug, Default)]
pub(crate) struct Outlines {
    /// Guards the list, which grows while services are started.
    known: Mutex<Vec<Outline>>,
}

/// A copy of the list for the reader of records.
#[derive(Debug)]
pub(crate) struct OutlinesRead {
    of: Arc<Outlines>,
    seen: Vec<Outline>,
}

impl Outlines {
    /// Adds a procedure and returns its outline; the number of a known procedure never changes.
    pub(crate) fn add(
        &self,
        event: &'static Event,
        service: &'static str,
        procedure: &'static str,
    ) -> Outline {
        let mut known = self.known.lock();
        let is_it = |outline: &&Outline| (outline.service, outline.procedure) == (service, procedure);
        let found = known.iter().find(is_it).copied();
        found.unwrap_or_else(|| {
            let number = u16::try_from(known.len()).expect("no program has so many procedures");
            let outline = Outline { event, service, procedure, number };
            known.push(outline);
            outline
        })
    }

    pub(crate) fn reader(self: &Arc<Self>) -> OutlinesRead {
        OutlinesRead { of: Arc::clone(self), seen: Vec::new() }
    }
}

impl OutlinesRead {
    /// Returns the outline with this number, taken from a record.
    #[inline]
    pub(crate) fn of(&mut self, number: u16) -> &Outline {
        let number = usize::from(number);
        if number >= self.seen.len() {
            self.look();
        }
        &self.seen[number]
    }

    #[cold]
    fn look(&mut self) {
        self.seen.clone_from(&self.of.known.lock());
    }
}
