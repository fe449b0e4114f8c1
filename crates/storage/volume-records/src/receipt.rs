//! Receipts of transfers.

use base::{UnixTime, VolumeId};

/// Receipt for the received data of an interrupted or running transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Number of the target volume, see [`crate::VolumeHeader::number`].
    pub volume: VolumeId,
    /// Group that has the received records.
    pub group: u64,
    /// Epoch in which the newest of these records were born.
    pub epoch: u64,
    /// Chunk size of the received files, as a power of 2.
    pub chunk_shift: u8,
    /// Bytes of files received.
    pub bytes: u64,
    /// Number of vnodes received.
    pub vnodes: u64,
    /// Time at which data was last received.
    pub touched: UnixTime,
}
