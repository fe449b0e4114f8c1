//! Receipts of transfers.

use base::{UnixTime, VolumeId};
use parking_lot::Mutex;
use std::sync::Arc;

/// Receipt for the received data of an interrupted or running transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// Number of the target volume, see [`crate::VolumeHeader::number`].
    pub(crate) volume: VolumeId,
    pub(crate) group: u64,
    pub(crate) epoch: u64,
    pub(crate) chunk_shift: u8,
    /// Bytes of files received; the next field counts vnodes.
    pub(crate) bytes: u64,
    pub(crate) vnodes: u64,
    /// Time at which data was last received.
    pub(crate) touched: UnixTime,
}

/// All receipts of a partition, oldest first.
#[derive(Default)]
pub(crate) struct Receipts(pub(crate) Mutex<Vec<Arc<Receipt>>>);

impl Receipts {
    /// Replaces the receipt of a group; `None` removes it.
    pub(crate) fn replace(&self, group: u64, receipt: Option<Receipt>) {
        let mut all = self.0.lock();
        all.retain(|other| other.group != group);
        all.extend(receipt.map(Arc::new));
    }
}
