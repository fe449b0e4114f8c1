//! What users and volumes hold of the workers.

use std::collections::{BTreeMap, BTreeSet};

use crate::Class;
use crate::numbers::ByUser;

/// What one user has.
#[derive(Debug, Default)]
pub(crate) struct User {
    pub(crate) waiting: usize,
    /// Calls being served, also those that wait for their client.
    pub(crate) served: usize,
}

/// Users that have anything.
#[derive(Debug, Default)]
pub(crate) struct Users(ByUser<User>);

impl Users {
    /// What a user has; nothing if it is not known.
    pub(crate) fn of(&self, user: u64) -> (usize, usize) {
        self.0.get(&user).map_or((0, 0), |it| (it.waiting, it.served))
    }

    /// Changes what a user has; forgets it when that is nothing.
    pub(crate) fn change(&mut self, user: u64, change: impl FnOnce(&mut User)) {
        let entry = self.0.entry(user).or_default();
        change(entry);
        if entry.waiting == 0 && entry.served == 0 {
            self.0.remove(&user);
        }
    }
}

/// Where a parked line stands: the user's tag when it was parked, and a number that tells equals apart.
pub(crate) type Place = (u64, u64);

/// What one volume has.
#[derive(Debug, Default)]
struct Volume {
    served: usize,
    /// Lines that wait until it is below its share, by class.
    parked: [BTreeMap<Place, u64>; 2],
}

/// Volumes that are being served or have parked lines.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    known: BTreeMap<u32, Volume>,
    /// Those below their share that have parked lines, by class.
    loose: [BTreeSet<u32>; 2],
    parked: u64,
}

impl Volumes {
    /// Whether a volume has its share or more. Volume 0 stands for none.
    pub(crate) fn is_full(&self, volume: u32, share: usize) -> bool {
        volume != 0 && self.known.get(&volume).is_some_and(|it| it.served >= share)
    }

    /// One more call for the volume is served.
    pub(crate) fn begin(&mut self, volume: u32, share: usize) {
        if volume == 0 {
            return;
        }
        self.known.entry(volume).or_default().served += 1;
        self.settle(volume, share);
    }

    /// One less is.
    pub(crate) fn end(&mut self, volume: u32, share: usize) {
        if let Some(it) = self.known.get_mut(&volume) {
            it.served = it.served.saturating_sub(1);
            self.settle(volume, share);
        }
    }

    /// Remembers a line of the full volume; gives its place.
    pub(crate) fn park(&mut self, volume: u32, class: Class, tag: u64, user: u64) -> Place {
        self.parked += 1;
        let place = (tag, self.parked);
        self.known.entry(volume).or_default().parked[class as usize].insert(place, user);
        place
    }

    /// Forgets a parked line.
    pub(crate) fn forget(&mut self, volume: u32, class: Class, place: Place, share: usize) {
        if let Some(it) = self.known.get_mut(&volume) {
            it.parked[class as usize].remove(&place);
            self.settle(volume, share);
        }
    }

    /// The first parked line of a volume that has become free; takes it out.
    pub(crate) fn release(&mut self, volume: u32, share: usize) -> Option<(Class, u64)> {
        if self.is_full(volume, share) {
            return None;
        }
        let it = self.known.get_mut(&volume)?;
        let class =
            [Class::Small, Class::Bulk].into_iter().find(|class| !it.parked[*class as usize].is_empty())?;
        let (_, user) = it.parked[class as usize].pop_first()?;
        self.settle(volume, share);
        Some((class, user))
    }

    /// The first parked line of any volume below its share; takes it out.
    pub(crate) fn release_any(&mut self, class: Class, share: usize) -> Option<(u32, u64)> {
        let volume = *self.loose[class as usize].first()?;
        let (_, user) = self.known.get_mut(&volume)?.parked[class as usize].pop_first()?;
        self.settle(volume, share);
        Some((volume, user))
    }

    /// Forgets all parked lines.
    pub(crate) fn forget_parked(&mut self) {
        self.loose.iter_mut().for_each(BTreeSet::clear);
        self.known.retain(|_, volume| {
            volume.parked.iter_mut().for_each(BTreeMap::clear);
            volume.served > 0
        });
    }

    fn settle(&mut self, volume: u32, share: usize) {
        let Some(it) = self.known.get(&volume) else { return };
        for (parked, loose) in it.parked.iter().zip(&mut self.loose) {
            if it.served < share && !parked.is_empty() {
                loose.insert(volume);
            } else {
                loose.remove(&volume);
            }
        }
        if it.served == 0 && it.parked.iter().all(BTreeMap::is_empty) {
            self.known.remove(&volume);
        }
    }
}
