//! State shared by all volumes of a server, or of a partition.

use crate::core::appenders::Appenders;
use crate::core::cache::Caches;
use crate::core::call_results::CallResults;
use crate::core::group::Group;
use crate::core::host_list::HostList;
use crate::core::pending::{Ends, Pending, PendingCommit, Unsynced};
use crate::core::permit::{Permit, ReplyKind};
use crate::core::read_ahead::ReadAhead;
use crate::core::receipt_list::Receipts;
use crate::core::recent::RecentChanges;
use crate::dedup::{Obsolete, Sharing};
use crate::interface::error::damage;
use crate::upkeep::compactor::Compactor;
use crate::upkeep::scrubber::Scrubber;
use crate::{PartitionHandle, VolumeError, VolumeOptions};
use base::VolumeId;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};
use store::{Batch, CommitNumber, Family, StoreError};
use volume_records::keys;

/// State shared by all volumes of a server.
pub(crate) struct Shared {
    pub(crate) options: VolumeOptions,
    pub(crate) caches: Caches,
    pub(crate) appenders: Appenders,
    pub(crate) read_ahead: ReadAhead,
    /// Volumes in memory whose directory totals have to be counted.
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
    obsolete: Obsolete,
}

/// What a partition has that another server can take over.
pub(crate) struct Limits {
    /// Whether replies may be sent.
    pub(crate) permit: Arc<dyn Permit>,
    /// The hosts that may hold promises.
    pub(crate) hosts: HostList,
    /// The results of calls that other nodes may repeat.
    pub(crate) results: CallResults,
    /// The last commit of records of locks. Held while the locks of a file change and are recorded, so that the records have
    /// the order of the changes.
    pub(crate) locking: Mutex<Option<CommitNumber>>,
}

pub(crate) struct Partition {
    pub(crate) handle: PartitionHandle,
    /// Held while a volume is created, cloned or deleted; guards the id counter.
    pub(crate) registry: Mutex<()>,
    /// Held while a group is loaded or unloaded. Taken after `Volumes::changes`, before `Volumes::index`. A changing
    /// operation loads its group first, so a group does not change while it is being loaded.
    pub(crate) loading: Mutex<()>,
    /// Unset if no other server can take the partition over.
    pub(crate) limits: OnceLock<Limits>,
    /// The newest commit without a waiter, and chunks to release once commits are durable.
    unsettled: Mutex<(CommitNumber, Vec<Unsettled>)>,
    /// Calls that complete when their changes are durable.
    pub(crate) ends: Ends,
    pub(crate) recent: RecentChanges,
    /// Groups under construction that no volume has yet; the purger leaves them alone.
    staged: Mutex<HashSet<u64>>,
    /// Receipts of interrupted transfers. Locked before `staged`.
    pub(crate) receipts: Receipts,
    /// Held for a step of compaction, so that only one runs. Locked before any lock of a group.
    pub(crate) compactor: Mutex<Compactor>,
    /// Held for a step of scrubbing, so that only one runs. Locked before any lock of a group.
    pub(crate) scrubber: Mutex<Scrubber>,
    pub(crate) sharing: Sharing,
    /// Whether its store had failed when this was created, so that reads show nothing but durable changes.
    pub(crate) is_reverted: bool,
}

impl Partition {
    pub(crate) fn new(handle: PartitionHandle) -> Partition {
        let sharing = Sharing::new(Arc::clone(&handle.chunks));
        let is_reverted = handle.meta.failure().is_some();
        Partition {
            handle,
            registry: Mutex::new(()),
            loading: Mutex::new(()),
            limits: OnceLock::new(),
            unsettled: Mutex::default(),
            ends: Ends::default(),
            recent: RecentChanges::default(),
            staged: Mutex::default(),
            receipts: Receipts::default(),
            compactor: Mutex::default(),
            scrubber: Mutex::default(),
            sharing,
            is_reverted,
        }
    }

    /// Makes replies about the partition depend on a permit, and reads its list of hosts and which results of calls it has.
    pub(crate) fn limit(&self, permit: Arc<dyn Permit>) -> Result<(), VolumeError> {
        let hosts = HostList::load(Arc::clone(&self.handle.meta))?;
        let results = CallResults::load(Arc::clone(&self.handle.meta))?;
        let limited = self.limits.set(Limits { permit, hosts, results, locking: Mutex::default() });
        limited.map_err(|_| VolumeError::Invalid("the partition has a permit already"))
    }

    /// Whether a reply may be sent about what was read or changed before.
    pub(crate) fn may_reply(&self, kind: ReplyKind) -> bool {
        self.limits.get().is_none_or(|limits| kind.is_permitted(&*limits.permit))
    }

    /// Waits until a reply may be sent.
    pub(crate) fn await_permit(&self, kind: ReplyKind) -> Result<(), StoreError> {
        self.limits.get().map_or(Ok(()), |limits| kind.wait(&*limits.permit, self.handle.id))
    }

    /// Protects a group from the purger.
    pub(crate) fn stage(&self, group: u64) {
        self.staged.lock().insert(group);
    }

    /// Reverses [`Partition::stage`].
    pub(crate) fn unstage(&self, group: u64) {
        self.staged.lock().remove(&group);
    }

    pub(crate) fn is_staged(&self, group: u64) -> bool {
        self.staged.lock().contains(&group)
    }

    /// Returns a commit whose change may be acknowledged when it is durable. Unless `waits`, it may be
    /// acknowledged at once, and [`Partition::sync`] makes it durable later.
    pub(crate) fn pending(
        self: &Arc<Self>,
        waits: bool,
        group: &Arc<Group>,
        number: CommitNumber,
        obsolete: Obsolete,
    ) -> Pending<()> {
        let (partition, group) = (Arc::clone(self), Some(Arc::clone(group)));
        let commit = PendingCommit { partition, number, group, obsolete };
        let mut unsynced = Unsynced::default();
        if waits {
            unsynced.push(commit);
        } else {
            Partition::sync_later(commit);
        }
        Pending::new((), unsynced)
    }

    /// Makes all commits up to this one durable.
    pub(crate) fn make_durable(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.handle.meta.sync(number)?;
        self.recent.synced(number);
        Ok(())
    }

    /// Leaves a commit to the next [`Partition::sync`], which also releases the chunks that it superseded.
    pub(crate) fn sync_later(commit: PendingCommit) {
        let PendingCommit { partition, number, group, obsolete } = commit;
        let mut unsettled = partition.unsettled.lock();
        unsettled.0 = unsettled.0.max(number);
        if !obsolete.is_empty()
            && let Some(group) = group
        {
            unsettled.1.push(Unsettled { number, group, obsolete });
        }
    }

    /// Makes commits without a waiter durable; see [`Partition::sync_later`].
    pub(crate) fn sync(&self) -> Result<(), VolumeError> {
        let newest = self.unsettled.lock().0;
        self.make_durable(newest)?;
        let settled: Vec<Unsettled> =
            self.unsettled.lock().1.extract_if(.., |waiting| waiting.number <= newest).collect();
        for settled in settled {
            self.release(Some(&settled.group.pins), settled.obsolete);
        }
        Ok(())
    }

    /// Allocates `count` ids that were never used on this partition and returns the first. The allocation
    /// takes effect with `batch`; hold `registry` until it is committed.
    pub(crate) fn new_ids(&self, batch: &mut Batch, count: u64) -> Result<u64, VolumeError> {
        let key = keys::next_id();
        let stored = self.handle.meta.get(Family::SYSTEM, &key)?;
        let next = match &stored {
            None => 1,
            Some(value) => u64::from_be_bytes(
                value[..].try_into().map_err(|_| damage(Family::SYSTEM, &key, "the length"))?,
            ),
        };
        batch.put(Family::SYSTEM, key, (next + count).to_be_bytes());
        Ok(next)
    }
}
