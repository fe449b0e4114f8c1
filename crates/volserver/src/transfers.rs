//! Volumes on their way to other servers, for whoever watches.

use afs_idl::cellar::TransferInfo;
use base::{AbortCode, UnixTime, VolumeId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Transfers that are remembered; the oldest that are over go.
const KEPT_MAX: usize = 128;
/// Transfers that are listed at a time.
const LISTED_MAX: usize = afs_idl::cellar::TRANSFERS_MAX;

/// All transfers that are going on, and the latest that were.
#[derive(Default)]
pub(crate) struct Transfers(Mutex<VecDeque<Arc<Transfer>>>);

/// A volume on its way to one server.
pub(crate) struct Transfer {
    transaction: i32,
    volume: VolumeId,
    to: Ipv4Addr,
    began: UnixTime,
    total: u64,
    done: AtomicU64,
    sent: AtomicU64,
    /// Seconds since 1970; 0 while it goes on.
    ended: AtomicU32,
    code: AtomicI32,
}

impl Transfers {
    /// A new transfer of a volume with `total` bytes.
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

    /// All of them, the oldest first.
    pub(crate) fn list(&self) -> Vec<TransferInfo> {
        let all = self.0.lock();
        all.iter().skip(all.len().saturating_sub(LISTED_MAX)).map(|transfer| transfer.info()).collect()
    }
}

impl Transfer {
    /// The target has so many bytes more.
    pub(crate) fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
    }

    /// So many bytes more went over the network.
    pub(crate) fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// It goes through the volume from its beginning.
    pub(crate) fn restart(&self) {
        self.done.store(0, Relaxed);
    }

    /// It is over.
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
            // Blocks in use are no exact measure of what is sent.
            total: self.total.max(done),
            done,
            sent: self.sent(),
            code: self.code.load(Relaxed),
        }
    }
}
