//! Data of interrupted transfers, kept so that the next attempt can resume.
//!
//! A [`Restoration`] that [`Volumes::receive`] starts keeps a receipt in the registry, with the group it
//! builds in, the volume number and its progress. The receipt is first written in the batch that starts the
//! restoration. After every [`crate::VolumeOptions::received_step_bytes`], or every [`STEP_SECONDS`] for slow
//! transfers, the received data is made durable and then the receipt is updated. So however the transfer
//! ends, even by a crash, the chunks that the receipt covers exist. At the next start the purger is kept away
//! from such a group, and the next sender to the volume learns what is already there.
//!
//! A resumed transfer builds in the same group (`continuing.rs`), so nothing is copied.
//!
//! Kept data is not a volume and has no readers. Chunks in it are found by vnode and position, and the
//! sender's digest decides whether one is used, so keeping too much or too little is always safe. Data is
//! kept for [`KEPT_SECONDS`] while the partition has space, for at most [`KEPT_MAX`] transfers; then the
//! receipt is deleted, and the purge job stored at the start does the rest. That job is removed when the
//! contents are taken into use; a receipt without a job is ignored.

use crate::VolumeError;
use crate::core::shared::Partition;
use crate::core::volumes::Volumes;
use crate::read::reader::read_extent;
use crate::restore::restoration::Restoration;
use base::{PartitionId, UnixTime, VnodeId, VolumeId};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, KeyRange};
use volume_records::codec::{self, Job};
use volume_records::keys::{self, FileKey};
use volume_records::{ReadView, Receipt, epochs, families};

/// Maximum interval, in seconds, between checkpoints of the received data.
const STEP_SECONDS: u32 = 5;

/// Time for which received data is kept after the last of it arrived, in seconds.
pub const KEPT_SECONDS: u32 = 6 * 3600;

/// Maximum number of transfers on a partition whose data is kept.
pub const KEPT_MAX: usize = 64;

/// Received data is dropped if less than this fraction (1 / `FREE_PARTS`) of the partition is free, ...
const FREE_PARTS: u64 = 20;

/// ... unless this much is free, in KiB: a twentieth of a large partition is enough for many transfers.
const FREE_KIB_ENOUGH: u64 = 4 << 20;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// State of a restoration that has a receipt.
pub(crate) struct Noted {
    receipt: Receipt,
    clock: Clock,
    /// Bytes received since the restoration started.
    came_bytes: u64,
    /// Bytes since the last checkpoint.
    fresh_bytes: u64,
    /// Whether some counted data could not be stored.
    has_lost_any: bool,
    is_kept: bool,
}

/// Received data of an interrupted transfer. It is kept as long as this value exists.
#[derive(Clone)]
pub struct Received {
    home: Arc<Partition>,
    receipt: Arc<Receipt>,
}

fn key_of(receipt: &Receipt) -> Vec<u8> {
    keys::received(receipt.volume, receipt.group)
}

fn put(batch: &mut Batch, receipt: &Receipt) {
    batch.put(families::VOLUMES, key_of(receipt), codec::put_receipt(receipt));
}

fn is_expired(receipt: &Receipt, now: UnixTime) -> bool {
    // The absolute difference also expires a receipt written when the clock was far ahead.
    now.0.abs_diff(receipt.touched.0) > KEPT_SECONDS
}

impl Received {
    /// Returns the maximum number of vnodes of which data may be present.
    pub fn vnodes(&self) -> u64 {
        // Includes the file at which the transfer was cut off.
        self.receipt.vnodes + 1
    }

    /// Returns the minimum number of bytes of files received.
    pub fn bytes(&self) -> u64 {
        self.receipt.bytes
    }

    /// Returns the chunk size, as a power of two.
    pub fn chunk_shift(&self) -> u8 {
        self.receipt.chunk_shift
    }

    pub(crate) fn group(&self) -> u64 {
        self.receipt.group
    }

    /// Returns the epoch in which the newest records were born.
    pub(crate) fn epoch(&self) -> u64 {
        self.receipt.epoch
    }

    /// Returns a chunk of a file; `None` if it was not received or is all zeros.
    pub fn chunk(&self, vnode: VnodeId, unique: u32, index: u64) -> Result<Option<Bytes>, VolumeError> {
        let Receipt { group, epoch, .. } = *self.receipt;
        let key = FileKey { group, vnode, unique }.extent(index);
        let found = epochs::get(&*self.home.handle.meta, families::EXTENTS, &key, &ReadView::up_to(epoch))?;
        let Some((_, value)) = found else { return Ok(None) };
        let mut found = [(index, self.home.extent(&key, &value)?)];
        let _pin = self.home.resolve(&mut found)?;
        let [(_, extent)] = found;
        read_extent(&extent, &*self.home.handle.chunks, group).map(Some)
    }
}

impl Volumes {
    /// Starts building new contents as [`Volumes::restore`] does, resuming from data of an interrupted
    /// transfer to `number` on this partition, if any. If this transfer is interrupted too,
    /// [`Restoration::keep_for_later`] keeps its data for the next attempt. Dropping the restoration without
    /// that call discards its data, including the data that it resumed from.
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

    /// Returns the received data for a volume of this number; if there are several, the one with the most
    /// bytes.
    pub fn received(
        &self,
        number: VolumeId,
        partition: PartitionId,
    ) -> Result<Option<Received>, VolumeError> {
        let home = self.partition(partition)?;
        let all = home.receipts.0.lock();
        let of_it = all.iter().filter(|receipt| receipt.volume == number);
        let best = of_it.max_by_key(|receipt| receipt.bytes).cloned();
        Ok(best.map(|receipt| Received { home: Arc::clone(&home), receipt }))
    }

    /// Discards the received data for a volume of this number, because the volume has been sent completely.
    pub fn forget_received(&self, number: VolumeId, partition: PartitionId) -> Result<(), VolumeError> {
        self.partition(partition)?.forget(&|receipt| receipt.volume == number).map(drop)
    }

    /// Discards received data that is too old, or for which the partition lacks space, unless it is in use.
    /// Returns the number of transfers discarded. Call this periodically.
    pub fn expire_received(&self, now: UnixTime) -> Result<usize, VolumeError> {
        let mut count = 0;
        for home in self.homes() {
            let space = (home.handle.space)();
            let is_full = space.free_kib < (space.total_kib / FREE_PARTS).min(FREE_KIB_ENOUGH);
            count += home.forget(&|receipt| is_full || is_expired(receipt, now))?;
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
            batch.delete(families::VOLUMES, key_of(receipt));
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

    /// Keeps only the receipt with the most bytes for a number: every transfer follows the same order from
    /// the start.
    fn keep_best(&self, number: VolumeId) -> Result<(), VolumeError> {
        let best = {
            let all = self.receipts.0.lock();
            let of_it = all.iter().filter(|receipt| receipt.volume == number);
            of_it.max_by_key(|receipt| receipt.bytes).map(|receipt| receipt.group)
        };
        self.forget(&|receipt| receipt.volume == number && Some(receipt.group) != best).map(drop)
    }

    /// Keeps received data from being purged.
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

    /// Loads the receipts at startup.
    pub(crate) fn load_receipts(&self) -> Result<(), VolumeError> {
        let (mut sound, mut senseless) = (Vec::new(), Batch::new());
        let (from, to) = keys::registry_range(keys::Registry::Received);
        let mut found = Vec::new();
        self.handle.meta.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (key, value) in found {
            let receipt =
                keys::received_of(&key).and_then(|(volume, group)| codec::get_receipt(volume, group, &value));
            match receipt {
                Some(receipt) if self.is_unused(&receipt)? => sound.push(receipt),
                _ => senseless.delete(families::VOLUMES, key),
            }
        }
        if !senseless.is_empty() {
            self.handle.meta.commit(senseless)?;
        }
        sound.sort_unstable_by_key(|receipt: &Receipt| receipt.touched);
        sound.into_iter().try_for_each(|receipt| self.keep(receipt))
    }

    /// Returns whether the data of a receipt is still to be purged; otherwise it was taken into use.
    fn is_unused(&self, receipt: &Receipt) -> Result<bool, VolumeError> {
        let Receipt { group, epoch, .. } = *receipt;
        for job in [Job::Group { group }, Job::Versions { group, epoch }] {
            let key = keys::job(&codec::put_job(&job));
            if self.handle.meta.get(families::VOLUMES, &key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Noted {
    /// Writes the receipt in the batch that starts the restoration, with the progress of the transfer it
    /// resumes.
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
        put(batch, &self.receipt);
        self
    }

    /// Counts received data; returns whether a checkpoint is due, which is after `step_bytes` or
    /// [`STEP_SECONDS`].
    pub(crate) fn count(&mut self, bytes: u64, step_bytes: u64) -> bool {
        self.came_bytes += bytes;
        // A resumed transfer first receives again what was already there.
        self.receipt.bytes = self.receipt.bytes.max(self.came_bytes);
        self.fresh_bytes += bytes;
        self.fresh_bytes >= step_bytes || (self.clock)().0.abs_diff(self.receipt.touched.0) >= STEP_SECONDS
    }

    /// Records that some counted data could not be stored.
    pub(crate) fn set_lost(&mut self) {
        self.has_lost_any = true;
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Deletes the receipt, including the one this transfer resumed from.
    pub(crate) fn forget(&self, home: &Partition) -> Result<(), VolumeError> {
        home.receipts.replace(self.receipt.group, None);
        let mut batch = Batch::new();
        batch.delete(families::VOLUMES, key_of(&self.receipt));
        home.handle.meta.commit(batch)?;
        Ok(())
    }
}

impl Restoration {
    /// Keeps the received data of an interrupted transfer.
    ///
    /// # Errors
    /// `Store`; the data is not kept then.
    pub fn keep_for_later(mut self) -> Result<(), VolumeError> {
        self.checkpoint()?;
        if let Some(noted) = &mut self.noted {
            self.target.home.keep(noted.receipt)?;
            noted.is_kept = true;
        }
        Ok(())
    }

    /// Returns a batch that deletes the receipts for the volume, for use when it has been received
    /// completely.
    pub(crate) fn forgetting(&self) -> Batch {
        let mut batch = Batch::new();
        if let Some(Noted { receipt, .. }) = &self.noted {
            batch.delete(families::VOLUMES, key_of(receipt));
            let all = self.target.home.receipts.0.lock();
            let of_it = all.iter().filter(|other| other.volume == receipt.volume);
            of_it.for_each(|other| batch.delete(families::VOLUMES, key_of(other)));
        }
        batch
    }

    /// Makes the received data durable, then the receipt that covers it.
    pub(crate) fn checkpoint(&mut self) -> Result<(), VolumeError> {
        let vnodes = self.vnodes();
        if self.noted.is_none() {
            return Ok(());
        }
        self.append_gathered()?;
        self.flush()?;
        let Some(noted) = &mut self.noted else { return Ok(()) };
        if noted.has_lost_any {
            return Err(VolumeError::Invalid("a part of the received data could not be stored"));
        }
        noted.fresh_bytes = 0;
        noted.receipt.vnodes = noted.receipt.vnodes.max(vnodes);
        noted.receipt.touched = (noted.clock)();
        let mut batch = Batch::new();
        put(&mut batch, &noted.receipt);
        let meta = &self.target.home.handle.meta;
        let number = meta.commit(batch)?;
        meta.sync(number)?;
        Ok(())
    }
}
