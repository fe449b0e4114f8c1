//! The share of the workers that users and volumes hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::Class;
use crate::numbers::ByUser;

/// The calls of one user.
#[derive(Debug, Default)]
pub(crate) struct User {
    pub(crate) waiting: usize,
    /// Calls being served, including stalled ones.
    pub(crate) served: usize,
}

/// Users that have calls.
#[derive(Debug, Default)]
pub(crate) struct Users(ByUser<User>);

impl Users {
    /// Returns the numbers of a user's waiting and served calls, 0 for an unknown user.
    pub(crate) fn of(&self, user: u64) -> (usize, usize) {
        self.0.get(&user).map_or((0, 0), |it| (it.waiting, it.served))
    }

    /// Updates a user's numbers, and removes the user when both are 0.
    pub(crate) fn change(&mut self, user: u64, change: impl FnOnce(&mut User)) {
        let entry = self.0.entry(user).or_default();
        change(entry);
        if entry.waiting == 0 && entry.served == 0 {
            self.0.remove(&user);
        }
    }
}

/// Position of a user's parked calls: the user's tag when they were parked, and a number that distinguishes
/// equal tags.
pub(crate) type Place = (u64, u64);

/// The calls for one volume.
#[derive(Debug, Default)]
struct Volume {
    served: usize,
    /// Users whose calls are parked until the volume is below its share, by class.
    parked: [BTreeMap<Place, u64>; 2],
}

/// Volumes that are being served or for which calls are parked.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    known: BTreeMap<u32, Volume>,
    /// Volumes below their share for which calls are parked, by class.
    loose: [BTreeSet<u32>; 2],
    parked: u64,
}

impl Volumes {
    /// Whether a volume has reached its share. Volume 0 means none.
    pub(crate) fn is_full(&self, volume: u32, share: usize) -> bool {
        volume != 0 && self.known.get(&volume).is_some_and(|it| it.served >= share)
    }

    /// Counts one more served call for the volume.
    pub(crate) fn begin(&mut self, volume: u32, share: usize) {
        if volume == 0 {
            return;
        }
        self.known.entry(volume).or_default().served += 1;
        self.settle(volume, share);
    }

    /// Counts one served call less for the volume.
    pub(crate) fn end(&mut self, volume: u32, share: usize) {
        if let Some(it) = self.known.get_mut(&volume) {
            it.served = it.served.saturating_sub(1);
            self.settle(volume, share);
        }
    }

    /// Parks a user's calls for a volume that has reached its share. Returns their position.
    pub(crate) fn park(&mut self, volume: u32, class: Class, tag: u64, user: u64) -> Place {
        self.parked += 1;
        let place = (tag, self.parked);
        self.known.entry(volume).or_default().parked[class as usize].insert(place, user);
        place
    }

    /// Removes a user's parked calls.
    pub(crate) fn forget(&mut self, volume: u32, class: Class, place: Place, share: usize) {
        if let Some(it) = self.known.get_mut(&volume) {
            it.parked[class as usize].remove(&place);
            self.settle(volume, share);
        }
    }

    /// Unparks the first user's calls for a volume that is below its share, if there are any.
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

    /// Unparks the first user's calls for any volume below its share.
    pub(crate) fn release_any(&mut self, class: Class, share: usize) -> Option<(u32, u64)> {
        let volume = *self.loose[class as usize].first()?;
        let (_, user) = self.known.get_mut(&volume)?.parked[class as usize].pop_first()?;
        self.settle(volume, share);
        Some((volume, user))
    }

    /// Forgets all parked calls.
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
