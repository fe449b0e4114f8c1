//! Places of promises by the numbers of their hosts.

use super::{Renewal, Table};
use crate::host::HostId;

/// Nobody.
const NONE: u32 = u32::MAX;

/// Promises on one file of a good part of all hosts. A promise that lasts long enough is renewed here alone: with
/// thousands of holders each other piece of memory, as of a hash table or the promise itself, would be waited for,
/// one after the other.
///
/// When a promise was made last stands here, and not in its place, which is told by [`Array::hand_over`].
#[derive(Debug)]
pub(super) struct Array {
    holders: Vec<Holder>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// The other fields mean nothing if there is none.
    place: u32,
    /// As in the place.
    step: u32,
    sequence: u64,
}

const NOBODY: Holder = Holder { place: NONE, step: 0, sequence: 0 };

/// The lower half of a number tells a host from all others that there are now.
fn index_of(host: HostId) -> usize {
    host.0 as u32 as usize
}

impl Array {
    /// Of these holders, unless they are too few for that among so many hosts.
    pub(super) fn of(table: &Table, holders: impl Iterator<Item = (HostId, u32)> + Clone) -> Option<Array> {
        // So it takes 48 bytes a holder at most; a hash table takes 19 to 39.
        const SPREAD_MAX: usize = 3;
        let end = holders.clone().map(|(host, _)| index_of(host) + 1).max()?;
        if end > SPREAD_MAX * holders.clone().count() {
            return None;
        }
        let mut array = Array { holders: vec![NOBODY; end], len: 0 };
        holders.into_iter().all(|(host, place)| array.add(table, host, place)).then_some(array)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether so many have left that it takes too much memory.
    pub(super) fn is_sparse(&self) -> bool {
        const SPREAD_MAX: usize = 8;
        self.holders.len() > SPREAD_MAX * self.len
    }

    fn get(&self, host: HostId) -> Option<&Holder> {
        self.holders.get(index_of(host)).filter(|holder| holder.place != NONE)
    }

    /// Where the promise to this host is.
    pub(super) fn find(&self, table: &Table, host: HostId) -> Option<u32> {
        // Who asks may mean a host that is gone, in whose stead another came.
        self.get(host).map(|holder| holder.place).filter(|place| table[*place].host == host)
    }

    /// When the promise to this host, who holds one, was made.
    pub(super) fn sequence(&self, host: HostId) -> Option<u64> {
        self.get(host).map(|holder| holder.sequence)
    }

    /// Renews the promise to a host that there is, and which lost all promises of those who were there in its stead.
    pub(super) fn renew(&mut self, table: &Table, host: HostId, sequence: u64, step: u32) -> Renewal {
        let holder = self.holders.get_mut(index_of(host)).filter(|holder| holder.place != NONE);
        let Some(holder) = holder else { return Renewal::Unknown };
        debug_assert_eq!(table[holder.place].host, host, "a host that is gone holds nothing");
        holder.sequence = sequence;
        if step <= holder.step {
            return Renewal::Done;
        }
        holder.step = step;
        Renewal::Later(holder.place)
    }

    /// Adds one that is not there; `false` if it is too far from the others.
    pub(super) fn add(&mut self, table: &Table, host: HostId, place: u32) -> bool {
        const SPREAD_MAX: usize = 4;
        let index = index_of(host);
        if index >= self.holders.len() {
            if index >= SPREAD_MAX * (self.len + 1) {
                return false;
            }
            self.holders.resize(index + 1, NOBODY);
        }
        let promise = &table[place];
        self.holders[index] = Holder { place, step: promise.step, sequence: promise.sequence };
        self.len += 1;
        true
    }

    /// Takes out one that is there.
    pub(super) fn remove(&mut self, host: HostId) {
        self.holders[index_of(host)] = NOBODY;
        self.len -= 1;
    }

    /// All places.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.present().map(|holder| holder.place)
    }

    fn present(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| holder.place != NONE)
    }

    /// All holders, for whom the places know everything from now on.
    pub(super) fn hand_over(&mut self, table: &mut Table) -> Vec<(HostId, u32)> {
        let mut known = Vec::with_capacity(self.len);
        for holder in self.present() {
            let promise = &mut table[holder.place];
            promise.sequence = holder.sequence;
            known.push((promise.host, holder.place));
        }
        known
    }
}
