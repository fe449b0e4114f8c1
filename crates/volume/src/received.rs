//! What came of transfers that did not end, kept for the next one.
//!
//! A [`Restoration`] that [`Volumes::receive`] begins notes in the registry which group it builds in, of which
//! volume's number, and how far it is. The note is written in the batch that begins it; from then on, after
//! every [`crate::VolumeOptions::received_step_bytes`], and every [`STEP_SECONDS`] where they come slowly, what came is put on the medium and then the note that counts it. So whatever ends
//! it early, a crash too, the note names chunks that are there. At the next start the purger is kept from such
//! a group, and whoever sends to the volume again is told what of it is there.
//!
//! Who goes on with it builds in the same place (`continuing.rs`). So nothing of it is copied.
//!
//! What is kept is no volume and nobody's contents: chunks are looked up in it by vnode and place, and whoever
//! takes one compares it with the digest that he expects. So nothing can go wrong by keeping too much or too
//! little. It is kept for [`KEPT_SECONDS`], while there is room on the partition, and for [`KEPT_MAX`] transfers at
//! most; then the note is deleted, and the purge job that was stored at the beginning does the rest. That job is gone
//! when the contents were taken into use, and a note without one means nothing.

use crate::keys::{self, FileKey};
use crate::record::{self, Job};
use crate::restoring::Restoration;
use crate::shared::Partition;
use crate::sight::Sight;
use crate::volumes::Volumes;
use crate::{VolumeError, epochs};
use base::{PartitionId, UnixTime, VnodeId, VolumeId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, Family, KeyRange};

/// After this time what came is put on the medium, however little that is.
const STEP_SECONDS: u32 = 5;

/// How long what came is kept after the last of it, in seconds.
pub const KEPT_SECONDS: u32 = 6 * 3600;

/// Most transfers of which something is kept on a partition.
pub const KEPT_MAX: usize = 64;

/// Nothing is kept where less than this fraction of the partition is free, ...
const FREE_PARTS: u64 = 20;

/// ... unless this much is free, in KiB: a twentieth of a large partition is room for many transfers.
const FREE_KIB_ENOUGH: u64 = 4 << 20;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// What is kept of a transfer, or of one that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The number that it was sent to, see [`crate::VolumeHeader::number`].
    pub(crate) volume: VolumeId,
    pub(crate) group: u64,
    pub(crate) epoch: u64,
    pub(crate) chunk_shift: u8,
    /// Bytes of files, and vnodes, that had come.
    pub(crate) bytes: u64,
    pub(crate) vnodes: u64,
    /// When the last of it came.
    pub(crate) touched: UnixTime,
}

/// All that is kept on a partition, the oldest first.
#[derive(Default)]
pub(crate) struct Receipts(Mutex<Vec<Arc<Receipt>>>);

/// A restoration that is noted.
pub(crate) struct Noted {
    receipt: Receipt,
    clock: Clock,
    /// Bytes since it began.
    came_bytes: u64,
    /// Bytes since the last checkpoint.
    fresh_bytes: u64,
    /// Something of what was counted could not be stored.
    has_lost_any: bool,
    is_kept: bool,
}

/// What is left of a transfer. It is kept as long as this lives.
#[derive(Clone)]
pub struct Received {
    home: Arc<Partition>,
    receipt: Arc<Receipt>,
}

impl Receipt {
    fn key(&self) -> Vec<u8> {
        keys::received(self.volume, self.group)
    }

    fn put(&self, batch: &mut Batch) {
        batch.put(Family::Volumes, self.key(), record::put_receipt(self));
    }

    fn is_expired(&self, now: UnixTime) -> bool {
        // A clock that was far ahead is no reason to keep it for ever.
        now.0.abs_diff(self.touched.0) > KEPT_SECONDS
    }
}

impl Receipts {
    /// Of a group, this is kept or nothing.
    fn replace(&self, group: u64, receipt: Option<Receipt>) {
        let mut all = self.0.lock();
        all.retain(|other| other.group != group);
        all.extend(receipt.map(Arc::new));
    }
}

impl Received {
    /// How many vnodes it may have something of.
    pub fn vnodes(&self) -> u64 {
        // A file that was cut off counts too.
        self.receipt.vnodes + 1
    }

    /// Bytes of files that had come at least.
    pub fn bytes(&self) -> u64 {
        self.receipt.bytes
    }

    /// How many bytes of a file are stored together, as a power of two.
    pub fn chunk_shift(&self) -> u8 {
        self.receipt.chunk_shift
    }

    pub(crate) fn group(&self) -> u64 {
        self.receipt.group
    }

    /// Of its records, the latest are born in it.
    pub(crate) fn epoch(&self) -> u64 {
        self.receipt.epoch
    }

    /// A chunk of a file; none if it did not come or holds nothing but zeros.
    ///
    /// # Errors
    /// `Store`.
    pub fn chunk(&self, vnode: VnodeId, unique: u32, index: u64) -> Result<Option<Bytes>, VolumeError> {
        let Receipt { group, epoch, .. } = *self.receipt;
        let key = FileKey { group, vnode, unique }.extent(index);
        let found = epochs::get(&*self.home.handle.meta, Family::Extents, &key, &Sight::up_to(epoch))?;
        let Some((_, value)) = found else { return Ok(None) };
        let mut found = [(index, self.home.extent(&key, &value)?)];
        let _pin = self.home.resolve(&mut found)?;
        let [(_, extent)] = found;
        extent.read(&*self.home.handle.chunks, group).map(Some)
    }
}

impl Volumes {
    /// Begins to build new contents as [`Volumes::restore`] does, of which what has come is kept if it does not
    /// get to its end, for the next that is sent to `number` on this partition; goes on with what such a one left.
    /// [`Restoration::keep_for_later`] says that it was cut off; a restoration that is dropped without it leaves nothing, and nothing
    /// of what it went on with.
    ///
    /// # Errors
    /// Those of [`Volumes::restore`].
    pub fn receive(
        &self,
        volume: VolumeId,
        number: VolumeId,
        clock: &Clock,
    ) -> Result<Restoration, VolumeError> {
        let home = Arc::clone(&self.get_any_state(volume)?.home);
        home.keep_best(number)?;
        let chunk_shift = self.shared.options.chunk_shift;
        let received = self.received(number, home.handle.id)?;
        let received = received.filter(|received| received.chunk_shift() == chunk_shift);
        let receipt = Receipt {
            volume: number,
            group: 0,
            epoch: 0,
            chunk_shift,
            bytes: 0,
            vnodes: 0,
            touched: clock(),
        };
        let noted = Noted {
            receipt,
            clock: Arc::clone(clock),
            came_bytes: 0,
            fresh_bytes: 0,
            has_lost_any: false,
            is_kept: false,
        };
        self.begin_restoration(volume, Some(noted), received)
    }

    /// What is kept of transfers to a volume of this number; of several, that of which most had come.
    ///
    /// # Errors
    /// `NoPartition`.
    pub fn received(
        &self,
        number: VolumeId,
        partition: PartitionId,
    ) -> Result<Option<Received>, VolumeError> {
        let home = self.partition(partition)?;
        let all = home.receipts.0.lock();
        let of_it = all.iter().filter(|receipt| receipt.volume == number);
        let best = of_it.max_by_key(|receipt| receipt.bytes).cloned();
        Ok(best.map(|receipt| Received { home: Arc::clone(home), receipt }))
    }

    /// Forgets what is kept of transfers to a volume of this number, because it has been sent whole.
    ///
    /// # Errors
    /// `NoPartition`, `Store`.
    pub fn forget_received(&self, number: VolumeId, partition: PartitionId) -> Result<(), VolumeError> {
        self.partition(partition)?.forget(&|receipt| receipt.volume == number).map(drop)
    }

    /// Forgets what has been kept for too long, or where there is no room for it. What somebody holds stays. Tells
    /// how many transfers that were. Call it every now and then.
    ///
    /// # Errors
    /// `Store`.
    pub fn expire_received(&self, now: UnixTime) -> Result<usize, VolumeError> {
        let mut count = 0;
        for home in &self.partitions {
            let space = (home.handle.space)();
            let is_full = space.free_kib < (space.total_kib / FREE_PARTS).min(FREE_KIB_ENOUGH);
            count += home.forget(&|receipt| is_full || receipt.is_expired(now))?;
        }
        Ok(count)
    }
}

impl Partition {
    fn forget(&self, is_wanted: &dyn Fn(&Receipt) -> bool) -> Result<usize, VolumeError> {
        let mut all = self.receipts.0.lock();
        let (gone, kept): (Vec<_>, Vec<_>) =
            all.drain(..).partition(|receipt| is_wanted(receipt) && Arc::strong_count(receipt) == 1);
        *all = kept;
        if gone.is_empty() {
            return Ok(0);
        }
        let mut batch = Batch::new();
        for receipt in &gone {
            batch.delete(Family::Volumes, receipt.key());
        }
        if let Err(error) = self.handle.meta.commit(batch) {
            all.extend(gone);
            return Err(error.into());
        }
        drop(all);
        for receipt in &gone {
            self.unstage(receipt.group);
        }
        Ok(gone.len())
    }

    /// Of what is kept for a number only that stays of which most had come: transfers go the same way from the beginning.
    fn keep_best(&self, number: VolumeId) -> Result<(), VolumeError> {
        let best = {
            let all = self.receipts.0.lock();
            let of_it = all.iter().filter(|receipt| receipt.volume == number);
            of_it.max_by_key(|receipt| receipt.bytes).map(|receipt| receipt.group)
        };
        self.forget(&|receipt| receipt.volume == number && Some(receipt.group) != best).map(drop)
    }

    /// Keeps the purger from what came of a transfer.
    fn keep(&self, receipt: Receipt) -> Result<(), VolumeError> {
        self.stage(receipt.group);
        self.receipts.replace(receipt.group, Some(receipt));
        self.keep_best(receipt.volume)?;
        let oldest = {
            let all = self.receipts.0.lock();
            (all.len() > KEPT_MAX).then(|| all[0].group)
        };
        oldest.map_or(Ok(0), |oldest| self.forget(&|receipt| receipt.group == oldest)).map(drop)
    }

    /// What is noted, at the start.
    pub(crate) fn load_receipts(&self) -> Result<(), VolumeError> {
        let (mut sound, mut senseless) = (Vec::new(), Batch::new());
        let (from, to) = keys::registry_range(keys::Registry::Received);
        let mut found = Vec::new();
        self.handle.meta.scan(Family::Volumes, KeyRange::ascending(&from, &to), &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (key, value) in found {
            let receipt = keys::received_of(&key)
                .and_then(|(volume, group)| record::get_receipt(volume, group, &value));
            match receipt {
                Some(receipt) if self.is_unused(&receipt)? => sound.push(receipt),
                _ => senseless.delete(Family::Volumes, key),
            }
        }
        if !senseless.is_empty() {
            self.handle.meta.commit(senseless)?;
        }
        sound.sort_unstable_by_key(|receipt: &Receipt| receipt.touched);
        sound.into_iter().try_for_each(|receipt| self.keep(receipt))
    }

    /// Whether what a note names is to be purged: else it was taken into use.
    fn is_unused(&self, receipt: &Receipt) -> Result<bool, VolumeError> {
        let Receipt { group, epoch, .. } = *receipt;
        for job in [Job::Group { group }, Job::Versions { group, epoch }] {
            let key = keys::job(&record::put_job(&job));
            if self.handle.meta.get(Family::Volumes, &key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Noted {
    /// Notes the beginning in the batch that makes it, and what had come if it goes on with that.
    pub(crate) fn begin(
        mut self,
        batch: &mut Batch,
        group: u64,
        epoch: u64,
        received: Option<&Received>,
    ) -> Noted {
        (self.receipt.group, self.receipt.epoch) = (group, epoch);
        if let Some(received) = received {
            (self.receipt.bytes, self.receipt.vnodes) = (received.receipt.bytes, received.receipt.vnodes);
        }
        self.receipt.put(batch);
        self
    }

    /// Counts data; whether it is time for a checkpoint, which is after so many bytes.
    pub(crate) fn count(&mut self, bytes: u64, step_bytes: u64) -> bool {
        self.came_bytes += bytes;
        // What comes is what had come, from the beginning on.
        self.receipt.bytes = self.receipt.bytes.max(self.came_bytes);
        self.fresh_bytes += bytes;
        self.fresh_bytes >= step_bytes || (self.clock)().0.abs_diff(self.receipt.touched.0) >= STEP_SECONDS
    }

    /// Something of what was counted could not be stored.
    pub(crate) fn set_lost(&mut self) {
        self.has_lost_any = true;
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Deletes the note, and that which was kept before.
    pub(crate) fn forget(&self, home: &Partition) -> Result<(), VolumeError> {
        home.receipts.replace(self.receipt.group, None);
        let mut batch = Batch::new();
        batch.delete(Family::Volumes, self.receipt.key());
        home.handle.meta.commit(batch)?;
        Ok(())
    }
}

impl Restoration {
    /// The transfer was cut off: what came of it is kept.
    ///
    /// # Errors
    /// `Store`; then it is not.
    pub fn keep_for_later(mut self) -> Result<(), VolumeError> {
        self.checkpoint()?;
        if let Some(noted) = &mut self.noted {
            self.target.home.keep(noted.receipt)?;
            noted.is_kept = true;
        }
        Ok(())
    }

    /// What is noted of transfers to the volume means nothing when it has been sent whole.
    pub(crate) fn forgetting(&self) -> Batch {
        let mut batch = Batch::new();
        if let Some(Noted { receipt, .. }) = &self.noted {
            batch.delete(Family::Volumes, receipt.key());
            let all = self.target.home.receipts.0.lock();
            let of_it = all.iter().filter(|other| other.volume == receipt.volume);
            of_it.for_each(|other| batch.delete(Family::Volumes, other.key()));
        }
        batch
    }

    /// Puts what came on the medium, then the note that counts it.
    pub(crate) fn checkpoint(&mut self) -> Result<(), VolumeError> {
        let vnodes = self.vnodes();
        if self.noted.is_none() {
            return Ok(());
        }
        self.append_gathered()?;
        self.flush()?;
        let Some(noted) = &mut self.noted else { return Ok(()) };
        if noted.has_lost_any {
            return Err(VolumeError::Invalid("a part of what came could not be stored"));
        }
        noted.fresh_bytes = 0;
        noted.receipt.vnodes = noted.receipt.vnodes.max(vnodes);
        noted.receipt.touched = (noted.clock)();
        let mut batch = Batch::new();
        noted.receipt.put(&mut batch);
        let meta = &self.target.home.handle.meta;
        let number = meta.commit(batch)?;
        meta.sync(number)?;
        Ok(())
    }
}
