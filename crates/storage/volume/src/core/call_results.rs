//! The durable results of changes that other nodes have forwarded to this one.
//!
//! A node that forwards a call and gets no reply repeats it to the partition's next owner, with the same identity. So the
//! result of each such change is a record in the batch of the change itself: the next owner finds both or neither.
//!
//! A node repeats a call for some seconds only, so results are deleted after [`KEPT`], or earlier if there are too many.
//! It can be too late all the same, for example because its process stood still. So for each process the highest number
//! of a deleted result is kept: a call with that number or a lower one, and without a result, may have been executed.

use crate::VolumeError;
use crate::core::host_list::origin;
use crate::interface::error::damage;
use base::{CallId, Monotonic};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use store::{Batch, Family, KeyRange, MetaStore, StoreError};
use volume_records::{RecordedCall, codec, keys};

/// Maximum number of results of a partition, of about 250 bytes each at most.
pub(crate) const RESULTS_MAX: usize = 16_384;

/// Maximum number of results of the calls from one IPv4 address, or one /64 network of IPv6.
pub(crate) const RESULTS_PER_ORIGIN_MAX: usize = 2_048;

/// How long a result is kept, at least, unless there are too many. No node repeats a call for that long.
const KEPT: Duration = Duration::from_secs(60);

/// Maximum number of processes whose highest deleted number is kept.
const PROCESSES_MAX: usize = 256;

/// Maximum number of results that one commit deletes.
const DELETED_AT_ONCE: usize = 256;

/// Number of results that are deleted together when there are too many.
const SURPLUS: usize = 64;

/// Whether a call was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// It was not.
    Never,
    /// It was, with this result.
    Done(Box<RecordedCall>),
    /// It may have been: its result was deleted.
    Unknown,
}

/// A result that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    call: CallId,
    /// Where the call came from; `None` for a result of an earlier owner.
    origin: Option<IpAddr>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The results, oldest first, by a number that counts them.
    kept: BTreeMap<u64, Kept>,
    places: HashMap<CallId, u64>,
    /// The results of each origin, oldest first.
    origins: HashMap<IpAddr, VecDeque<u64>>,
    /// Number of the next result.
    next: u64,
    /// For each process the highest number of a deleted result, and when it was set last, as a number that grows.
    deleted: HashMap<u128, (u64, u64)>,
    /// The times of the last calls of `forget`, each with the number of the next result then.
    seen: VecDeque<(Monotonic, u64)>,
}

impl Entries {
    fn add(&mut self, call: CallId, origin: Option<IpAddr>) {
        let place = self.next;
        self.next += 1;
        self.kept.insert(place, Kept { call, origin });
        self.places.insert(call, place);
        if let Some(origin) = origin {
            self.origins.entry(origin).or_default().push_back(place);
        }
    }

    /// Removes a result. It is the oldest of its origin.
    fn remove(&mut self, place: u64) {
        let Some(Kept { call, origin }) = self.kept.remove(&place) else { return };
        self.places.remove(&call);
        if let Some(origin) = origin
            && let Some(places) = self.origins.get_mut(&origin)
        {
            places.pop_front();
            if places.is_empty() {
                self.origins.remove(&origin);
            }
        }
    }

    /// Returns the results to delete because there are too many.
    fn surplus(&self, origin: Option<IpAddr>) -> Vec<u64> {
        if self.kept.len() > RESULTS_MAX {
            return self.kept.keys().take(SURPLUS).copied().collect();
        }
        match origin.and_then(|origin| self.origins.get(&origin)) {
            Some(places) if places.len() > RESULTS_PER_ORIGIN_MAX => {
                places.iter().take(SURPLUS).copied().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the results that have been there for long enough.
    fn expired(&mut self, now: Monotonic) -> Vec<u64> {
        self.seen.push_back((now, self.next));
        let mut end = 0;
        while let Some(&(at, next)) = self.seen.front()
            && now.since(at) >= KEPT
        {
            end = next;
            self.seen.pop_front();
        }
        self.kept.range(..end).map(|(place, _)| *place).collect()
    }

    /// Deletes results. A number that is to be kept is in the same batch.
    fn delete(&mut self, meta: &dyn MetaStore, places: &[u64]) -> Result<(), StoreError> {
        let (mut batch, mut highest) = (Batch::new(), BTreeMap::<u128, u64>::new());
        for kept in places.iter().filter_map(|place| self.kept.get(place)) {
            batch.delete(Family::SYSTEM, keys::recorded_call(kept.call));
            let highest = highest.entry(kept.call.process).or_default();
            *highest = kept.call.number.max(*highest);
        }
        for (process, number) in highest {
            let number = self.deleted.get(&process).map_or(number, |(known, _)| number.max(*known));
            self.deleted.insert(process, (number, self.next));
            batch.put(Family::SYSTEM, keys::deleted_results(process), codec::put_deleted_results(number));
        }
        while self.deleted.len() > PROCESSES_MAX
            && let Some((&process, _)) = self.deleted.iter().min_by_key(|(_, (_, set))| *set)
        {
            self.deleted.remove(&process);
            batch.delete(Family::SYSTEM, keys::deleted_results(process));
        }
        if !batch.is_empty() {
            meta.commit(batch)?;
        }
        for place in places {
            self.remove(*place);
        }
        Ok(())
    }
}

/// The results of one partition.
pub(crate) struct CallResults {
    meta: Arc<dyn MetaStore>,
    /// Which results there are. Held while deletions are committed, which does not wait, so that they have an order.
    entries: Mutex<Entries>,
}

impl CallResults {
    /// Reads which results there are. Records that cannot be read are logged and left out.
    pub(crate) fn load(meta: Arc<dyn MetaStore>) -> Result<CallResults, VolumeError> {
        let mut entries = Entries::default();
        let (from, to) = keys::results();
        meta.scan(Family::SYSTEM, KeyRange::ascending(&from, &to), &mut |key, value| {
            if let Some(call) = keys::recorded_call_of(key) {
                entries.add(call, None);
            } else if let Some(process) = keys::deleted_results_of(key)
                && let Some(number) = codec::get_deleted_results(value)
            {
                entries.deleted.insert(process, (number, 0));
            } else {
                tracing::error!(key = %key.escape_ascii(), "a record of the results of calls cannot be read");
            }
            ControlFlow::Continue(())
        })?;
        Ok(CallResults { meta, entries: Mutex::new(entries) })
    }

    /// Returns whether a call was executed, and its result. To be called before it is executed, while no other attempt is.
    ///
    /// # Errors
    /// `Store`, or `Damaged` if the result cannot be read.
    pub(crate) fn find(&self, call: CallId) -> Result<Earlier, VolumeError> {
        {
            let entries = self.entries.lock();
            if !entries.places.contains_key(&call) {
                let deleted = entries.deleted.get(&call.process).map_or(0, |(number, _)| *number);
                return Ok(if call.number > deleted { Earlier::Never } else { Earlier::Unknown });
            }
        }
        let key = keys::recorded_call(call);
        // It may be deleted at this moment.
        let Some(value) = self.meta.get(Family::SYSTEM, &key)? else { return Ok(Earlier::Unknown) };
        let recorded = codec::get_recorded_call(&value);
        recorded
            .map(|recorded| Earlier::Done(Box::new(recorded)))
            .ok_or_else(|| damage(Family::SYSTEM, &key, "the result of a call"))
    }

    /// Whether there is a result of a call.
    pub(crate) fn contains(&self, call: CallId) -> bool {
        self.entries.lock().places.contains_key(&call)
    }

    /// Adds the record of a call to the batch of its change. Call [`CallResults::committed`] after its commit.
    pub(crate) fn record(batch: &mut Batch, call: CallId, recorded: &RecordedCall) {
        batch.put(Family::SYSTEM, keys::recorded_call(call), codec::put_recorded_call(recorded));
    }

    /// A record was committed, for a call from this address. Deletes the oldest if there are too many.
    pub(crate) fn committed(&self, call: CallId, client: IpAddr) {
        let origin = Some(origin(client));
        let mut entries = self.entries.lock();
        entries.add(call, origin);
        let surplus = entries.surplus(origin);
        if !surplus.is_empty()
            && let Err(error) = entries.delete(&*self.meta, &surplus)
        {
            tracing::warn!(%error, "the oldest results of calls stay in the partition");
        }
    }

    /// Deletes results that no node asks for any more. To be called every few minutes or more often.
    ///
    /// # Errors
    /// Those of [`MetaStore::commit`]. The results stay.
    pub(crate) fn forget(&self, now: Monotonic) -> Result<(), StoreError> {
        let expired = self.entries.lock().expired(now);
        for some in expired.chunks(DELETED_AT_ONCE) {
            self.entries.lock().delete(&*self.meta, some)?;
        }
        Ok(())
    }

    /// Returns the number of results.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().kept.len()
    }
}

#[cfg(test)]
mod tests;
