//! Slots of promises indexed by the numbers of their hosts.

use super::{Renewal, Table};
use crate::host::HostId;

/// Marks an array element without a holder.
const NONE: u32 = u32::MAX;

/// Promises on one file held by a large share of all hosts. Renewing a promise that lasts long enough touches
/// only this array: with thousands of holders, any other memory, such as a hash table or the promise itself,
/// would be a series of cache misses.
///
/// The array, not the slot, has the sequence number of a promise's latest renewal, until [`Array::hand_over`]
/// writes it back.
#[derive(Debug)]
pub(super) struct Array {
    holders: Vec<Holder>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// Slot of the promise. The other fields are meaningless if this is [`NONE`].
    place: u32,
    /// Copy of the promise's `step`.
    step: u32,
    sequence: u64,
}

const NOBODY: Holder = Holder { place: NONE, step: 0, sequence: 0 };

/// Returns the lower half of a host's number, which is unique among all current hosts.
fn index_of(host: HostId) -> usize {
    host.0 as u32 as usize
}

impl Array {
    /// Creates an array of these holders. Returns `None` if they are too few for the range of their numbers.
    pub(super) fn of(table: &Table, holders: impl Iterator<Item = (HostId, u32)> + Clone) -> Option<Array> {
        // At most 48 bytes per holder; a hash table takes 19 to 39.
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

    /// Whether the array wastes memory because many holders have left.
    pub(super) fn is_sparse(&self) -> bool {
        const SPREAD_MAX: usize = 8;
        self.holders.len() > SPREAD_MAX * self.len
    }

    fn get(&self, host: HostId) -> Option<&Holder> {
        self.holders.get(index_of(host)).filter(|holder| holder.place != NONE)
    }

    /// Returns the slot of the promise to this host.
    pub(super) fn find(&self, table: &Table, host: HostId) -> Option<u32> {
        // `host` may be a removed host whose index another one has now.
        self.get(host).map(|holder| holder.place).filter(|place| table[*place].host == host)
    }

    /// Returns the sequence number of the promise to this host, which must hold one.
    pub(super) fn sequence(&self, host: HostId) -> Option<u64> {
        self.get(host).map(|holder| holder.sequence)
    }

    /// Renews the promise to an existing host. Previous hosts with the same index have lost all their
    /// promises.
    pub(super) fn renew(&mut self, table: &Table, host: HostId, sequence: u64, step: u32) -> Renewal {
        let holder = self.holders.get_mut(index_of(host)).filter(|holder| holder.place != NONE);
        let Some(holder) = holder else { return Renewal::Unknown };
        debug_assert_eq!(table[holder.place].host, host, "a removed host has no promises");
        holder.sequence = sequence;
        if step <= holder.step {
            return Renewal::Done;
        }
        holder.step = step;
        Renewal::Later(holder.place)
    }

    /// Adds a promise that is not in the array. Returns `false` if its index is too far from the others.
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

    /// Removes a promise that is in the array.
    pub(super) fn remove(&mut self, host: HostId) {
        self.holders[index_of(host)] = NOBODY;
        self.len -= 1;
    }

    /// Returns the slots of all promises.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.present().map(|holder| holder.place)
    }

    fn present(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| holder.place != NONE)
    }

    /// Returns all holders, and writes their sequence numbers back to their slots.
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
