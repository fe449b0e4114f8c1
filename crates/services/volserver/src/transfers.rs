//! Keeps track of transfers to other servers, for monitoring.

use crate::server::VolumeServer;
use afs_idl::cellar::{self, TransferInfo};
use base::{AbortCode, Caller, UnixTime, VolumeId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Maximum number of transfers remembered; beyond it the oldest completed ones are dropped.
const KEPT_MAX: usize = 128;
/// Maximum number of transfers in a listing.
const LISTED_MAX: usize = afs_idl::cellar::TRANSFERS_MAX;

impl VolumeServer {
    /// ListTransfers (410). Called every second while a job is being watched.
    pub(crate) fn list_transfers(
        &self,
        caller: &Caller,
        _: cellar::ListTransfersRequest,
    ) -> Result<cellar::ListTransfersReply, AbortCode> {
        self.administer_quietly(caller, "ListTransfers")?;
        Ok(cellar::ListTransfersReply { transfers: self.sent() })
    }
}

/// All running transfers, and the most recent completed ones.
#[derive(Default)]
pub(crate) struct Transfers(Mutex<VecDeque<Arc<Transfer>>>);

/// The transfer of a volume to one server.
pub(crate) struct Transfer {
    transaction: i32,
    volume: VolumeId,
    to: Ipv4Addr,
    began: UnixTime,
    total: u64,
    done: AtomicU64,
    sent: AtomicU64,
    /// End time in seconds since 1970; 0 while it is running.
    ended: AtomicU32,
    code: AtomicI32,
}

impl Transfers {
    /// Starts a transfer of a volume with `total` bytes.
    pub(crate) fn begin(
        &self,
        transaction: i32,
        volume: VolumeId,
        to: Ipv4Addr,
        total: u64,
        began: UnixTime,
    ) -> Arc<Transfer> {
        let (done, sent, ended, code) = Default::default();
        let transfer = Arc::new(Transfer { transaction, volume, to, began, total, done, sent, ended, code });
        let mut all = self.0.lock();
        while all.len() >= KEPT_MAX
            && let Some(over) = all.iter().position(|transfer| transfer.is_over())
        {
            all.remove(over);
        }
        all.push_back(Arc::clone(&transfer));
        transfer
    }

    /// Returns the transfers, oldest first.
    pub(crate) fn list(&self) -> Vec<TransferInfo> {
        let all = self.0.lock();
        all.iter().skip(all.len().saturating_sub(LISTED_MAX)).map(|transfer| transfer.info()).collect()
    }
}

impl Transfer {
    /// Counts bytes that the target now has.
    pub(crate) fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes sent over the network.
    pub(crate) fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Resets the progress, because the transfer starts again from the beginning of the volume.
    pub(crate) fn restart(&self) {
        self.done.store(0, Relaxed);
    }

    /// Marks the transfer as ended.
    pub(crate) fn end(&self, now: UnixTime, code: Option<AbortCode>) {
        self.code.store(code.map_or(0, |code| code.0), Relaxed);
        self.ended.store(now.0.max(1), Relaxed);
    }

    fn is_over(&self) -> bool {
        self.ended.load(Relaxed) != 0
    }

    fn info(&self) -> TransferInfo {
        let done = self.done();
        TransferInfo {
            transaction: self.transaction,
            volume: self.volume.0,
            to: self.to.into(),
            began: self.began.0,
            ended: self.ended.load(Relaxed),
            // Used blocks are only an estimate of the bytes sent.
            total: self.total.max(done),
            done,
            sent: self.sent(),
            code: self.code.load(Relaxed),
        }
    }
}
