//! Kinds of callers, and the part of the queue that each has.

use crate::crowd::{Crowd, Waiting};
use crate::holders::Volumes;
use crate::limits::WEIGHT_ORDINARY;
use crate::line::Line;
use crate::{Class, SMALL_SHARE};

/// How much is known about a caller. Calls from unproven addresses never enter the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An anonymous caller at an address that has answered.
    Reachable,
    /// A caller whose identity a security class has proved.
    Verified,
}

impl Kind {
    /// The number of kinds.
    pub const COUNT: usize = 2;

    /// All kinds, in the order in which they are served.
    pub(crate) const SERVED: [Kind; Kind::COUNT] = [Kind::Verified, Kind::Reachable];

    /// Returns the index in arrays with an entry for each kind.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the other kind.
    pub(crate) fn other(self) -> Kind {
        match self {
            Kind::Reachable => Kind::Verified,
            Kind::Verified => Kind::Reachable,
        }
    }
}

/// The waiting and served calls of one kind.
#[derive(Debug)]
pub(crate) struct Part<T> {
    pub(crate) small: Line<Waiting<T>>,
    pub(crate) bulk: Line<Waiting<T>>,
    pub(crate) strangers: Line<Waiting<T>>,
    pub(crate) volumes: Volumes,
    /// Indexes of the calls that wait for workers, and of those of unidentified clients. Each exists from
    /// when its limit is reached until half of it is free.
    crowds: [Option<Crowd>; 2],
    /// Tag of the class that was served last.
    present: u64,
}

impl<T> Part<T> {
    pub(crate) fn new() -> Part<T> {
        Part {
            small: Line::new(),
            bulk: Line::new(),
            strangers: Line::new(),
            volumes: Volumes::default(),
            crowds: [None, None],
            present: 0,
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.small.waiting + self.bulk.waiting + self.strangers.waiting
    }

    /// Returns the number of waiting calls that share a limit with those of the class.
    pub(crate) fn waiting_with(&self, class: Class) -> usize {
        match class {
            Class::Stranger => self.strangers.waiting,
            Class::Small | Class::Bulk => self.small.waiting + self.bulk.waiting,
        }
    }

    pub(crate) fn served(&self) -> usize {
        self.small.served + self.bulk.served
    }

    pub(crate) fn stalled(&self) -> usize {
        self.small.stalled + self.bulk.stalled
    }

    pub(crate) fn working(&self) -> usize {
        self.served() - self.stalled()
    }

    pub(crate) fn bulk_working(&self) -> usize {
        self.bulk.served - self.bulk.stalled
    }

    pub(crate) fn line(&mut self, class: Class) -> &mut Line<Waiting<T>> {
        match class {
            Class::Small => &mut self.small,
            Class::Bulk => &mut self.bulk,
            Class::Stranger => &mut self.strangers,
        }
    }

    /// Adds a call.
    pub(crate) fn push(&mut self, waiting: Waiting<T>, is_free: bool) {
        let work = waiting.work;
        if let Some(crowd) = &mut self.crowds[room(work.class)] {
            crowd.add(&waiting);
        }
        let present = self.present;
        let line = self.line(work.class);
        if line.waiting == 0 {
            line.tag = line.tag.max(present);
        }
        line.push(work.user, waiting.volume(), waiting, is_free);
    }

    /// Updates the index after a call has left its queue. `room_size` is the limit on waiting calls.
    pub(crate) fn leave(&mut self, waiting: &Waiting<T>, room_size: usize) {
        let class = waiting.work.class;
        let is_crowded = self.waiting_with(class) >= room_size / 2;
        let place = &mut self.crowds[room(class)];
        match place {
            Some(crowd) if is_crowded => crowd.remove(waiting),
            Some(_) => *place = None,
            None => {}
        }
    }

    /// Returns the index that contains a class, and builds it if necessary.
    pub(crate) fn crowd(&mut self, class: Class) -> &mut Crowd {
        let lines = match class {
            Class::Stranger => [Some(&self.strangers), None],
            Class::Small | Class::Bulk => [Some(&self.small), Some(&self.bulk)],
        };
        self.crowds[room(class)].get_or_insert_with(|| {
            let mut crowd = Crowd::default();
            lines.into_iter().flatten().flat_map(Line::calls).for_each(|waiting| crowd.add(waiting));
            crowd
        })
    }

    /// Charges a class in the same way as users. Bulk calls that cannot be served at present lose their
    /// turns.
    pub(crate) fn charge_class(&mut self, class: Class, cost: u32, bulk_is_open: bool) {
        let weight = match class {
            Class::Small => SMALL_SHARE * WEIGHT_ORDINARY,
            Class::Bulk | Class::Stranger => WEIGHT_ORDINARY,
        };
        let line = self.line(class);
        let present = line.tag;
        line.tag = present.saturating_add(crate::line::charge(cost, weight));
        self.present = self.present.max(present);
        if !bulk_is_open {
            self.bulk.tag = self.bulk.tag.max(self.present);
        }
    }

    /// Returns the class whose turn it is, of those that have a suitable call.
    pub(crate) fn choose(
        &self,
        small: bool,
        bulk: bool,
        fits: impl Fn(&Line<Waiting<T>>) -> bool,
    ) -> Option<Class> {
        match (small && fits(&self.small), bulk && fits(&self.bulk)) {
            (true, true) if self.bulk.tag < self.small.tag => Some(Class::Bulk),
            (true, _) => Some(Class::Small),
            (false, true) => Some(Class::Bulk),
            (false, false) => None,
        }
    }

    /// Removes and returns all waiting calls.
    pub(crate) fn take_all(&mut self) -> Vec<Waiting<T>> {
        self.crowds = [None, None];
        self.volumes.forget_parked();
        let lines = [&mut self.small, &mut self.bulk, &mut self.strangers];
        lines.into_iter().flat_map(Line::take_all).collect()
    }
}

/// Returns the number of the limit that applies to a class.
fn room(class: Class) -> usize {
    usize::from(class == Class::Stranger)
}
