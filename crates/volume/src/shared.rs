//! What all volumes of a server, and all of a partition, share.

use crate::appending::Appenders;
use crate::cache::Caches;
use crate::compaction::Compactor;
use crate::group::Group;
use crate::owed::{self, Ends};
use crate::reading_ahead::ReadAhead;
use crate::received::Receipts;
use crate::scrubbing::Scrubber;
use crate::sharing::{Doomed, Sharing};
use crate::{PartitionHandle, VolumeError, VolumeOptions, keys};
use base::VolumeId;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use store::{Batch, CommitNumber, Family};

/// What all volumes of a server share.
pub(crate) struct Shared {
    pub(crate) options: VolumeOptions,
    pub(crate) caches: Caches,
    pub(crate) appenders: Appenders,
    pub(crate) read_ahead: ReadAhead,
    /// Volumes in memory whose directories' totals are to be counted.
    pub(crate) uncounted: Mutex<BTreeSet<VolumeId>>,
}

impl Shared {
    pub(crate) fn new(options: VolumeOptions) -> Shared {
        let (caches, appenders) = (Caches::new(&options), Appenders::new(options.append_threads));
        let read_ahead = ReadAhead::new(options.read_threads);
        Shared { options, caches, appenders, read_ahead, uncounted: Mutex::default() }
    }
}

/// Chunks to be released when a commit is durable.
struct Unsettled {
    number: CommitNumber,
    group: Arc<Group>,
    doomed: Doomed,
}

/// One partition.
pub(crate) struct Partition {
    pub(crate) handle: PartitionHandle,
    /// Held while a volume is made, cloned or deleted: guards the id counter.
    pub(crate) registry: Mutex<()>,
    /// The newest commit that was acknowledged before it was durable, and what waits for durability.
    unsettled: Mutex<(CommitNumber, Vec<Unsettled>)>,
    /// Calls that end when what they changed is durable.
    pub(crate) ends: Ends,
    /// Groups that are being built and that no volume has yet: the purger leaves them alone.
    staged: Mutex<HashSet<u64>>,
    /// What came of transfers that did not end. Taken before `staged`.
    pub(crate) receipts: Receipts,
    /// Held for a step of compaction, so that one runs at a time. Taken before all locks of groups.
    pub(crate) compactor: Mutex<Compactor>,
    /// Likewise for scrubbing.
    pub(crate) scrubber: Mutex<Scrubber>,
    pub(crate) sharing: Sharing,
}

impl Partition {
    pub(crate) fn new(handle: PartitionHandle) -> Partition {
        let sharing = Sharing::new(Arc::clone(&handle.chunks));
        Partition {
            handle,
            registry: Mutex::new(()),
            unsettled: Mutex::default(),
            ends: Ends::default(),
            staged: Mutex::default(),
            receipts: Receipts::default(),
            compactor: Mutex::default(),
            scrubber: Mutex::default(),
            sharing,
        }
    }

    /// Keeps the purger from a group.
    pub(crate) fn stage(&self, group: u64) {
        self.staged.lock().insert(group);
    }

    /// The opposite of [`Partition::stage`].
    pub(crate) fn unstage(&self, group: u64) {
        self.staged.lock().remove(&group);
    }

    pub(crate) fn is_staged(&self, group: u64) -> bool {
        self.staged.lock().contains(&group)
    }

    /// Waits, if `waits`, until a commit is durable, then lets go of the chunks that it made
    /// superfluous; within [`crate::Owed::collect`] that is left to the end of the call. Without waiting,
    /// [`Partition::sync`] does both later. Call it without any lock.
    pub(crate) fn settle(
        self: &Arc<Self>,
        waits: bool,
        group: &Arc<Group>,
        number: CommitNumber,
        doomed: Doomed,
    ) -> Result<(), VolumeError> {
        if waits {
            return owed::note(self, group, number, doomed).or_else(|doomed| self.pay(group, number, doomed));
        }
        let mut unsettled = self.unsettled.lock();
        unsettled.0 = unsettled.0.max(number);
        if !doomed.is_empty() {
            unsettled.1.push(Unsettled { number, group: Arc::clone(group), doomed });
        }
        Ok(())
    }

    /// Waits until a commit is durable, then lets go of the chunks that it made superfluous.
    pub(crate) fn pay(&self, group: &Group, number: CommitNumber, doomed: Doomed) -> Result<(), VolumeError> {
        self.handle.meta.sync(number)?;
        self.release(Some(&group.pins), doomed);
        Ok(())
    }

    /// Makes durable what [`Partition::settle`] did not wait for.
    pub(crate) fn sync(&self) -> Result<(), VolumeError> {
        let newest = self.unsettled.lock().0;
        self.handle.meta.sync(newest)?;
        let settled: Vec<Unsettled> =
            self.unsettled.lock().1.extract_if(.., |waiting| waiting.number <= newest).collect();
        for settled in settled {
            self.release(Some(&settled.group.pins), settled.doomed);
        }
        Ok(())
    }

    /// Ids that were never used on this partition; `batch` makes it so. Hold `registry` until the
    /// batch is committed.
    pub(crate) fn new_ids(&self, batch: &mut Batch, count: u64) -> Result<u64, VolumeError> {
        let key = keys::next_id();
        let stored = self.handle.meta.get(Family::System, &key)?;
        let next = match &stored {
            None => 1,
            Some(value) => u64::from_be_bytes(
                value[..]
                    .try_into()
                    .map_err(|_| crate::epochs::damage(Family::System, &key, "the length"))?,
            ),
        };
        batch.put(Family::System, key, (next + count).to_be_bytes());
        Ok(next)
    }
}
