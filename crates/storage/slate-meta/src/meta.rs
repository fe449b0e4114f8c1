//! A database that is open for reading and writing.

use crate::cache::BlockCache;
use crate::keys;
use crate::reads::Reads;
use crate::unflushed::{CHANGE_BYTES, Unflushed};
use bytes::Bytes;
use events::parts::Part;
use parking_lot::Mutex;
use slatedb::admin::Admin;
use slatedb::config::{CloseOptions, FlushOptions, FlushType};
use slatedb::manifest::SsTableView;
use slatedb::{CloseReason, Db, DbSnapshot, DbStatus, Error, ErrorKind, WriteBatch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use store::{
    Batch, Change, CommitNumber, Family, Health, KeyRange, MetaDatabase, MetaStatistics, MetaStore, Snapshot,
    StoreError, Visit,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A database that this process has.
pub(crate) struct SlateMeta {
    db: Db,
    admin: Admin,
    /// The number of this owner among all.
    epoch: u64,
    reads: Reads,
    cache: Arc<BlockCache>,
    status: watch::Receiver<DbStatus>,
    log: Flusher,
    tables: Flusher,
    /// Guards the count of bytes that are not in tables yet.
    unflushed: Mutex<Unflushed>,
    unflushed_bytes_max: usize,
    /// Number of the newest commit.
    newest: AtomicU64,
    commits: AtomicU64,
    log_bytes: AtomicU64,
    sync_requests: AtomicU64,
    /// Whether the process is to be as if it had crashed.
    is_abandoned: Arc<AtomicBool>,
}

impl SlateMeta {
    pub(crate) fn new(
        db: Db,
        admin: Admin,
        reads: Reads,
        cache: Arc<BlockCache>,
        unflushed_bytes_max: usize,
        is_abandoned: Arc<AtomicBool>,
    ) -> SlateMeta {
        let start = |kind| reads.runtime.block_on(async { Flusher::start(db.clone(), kind) });
        let (log, tables) = (start(FlushType::Wal), start(FlushType::MemTable));
        SlateMeta {
            status: db.subscribe(),
            newest: AtomicU64::new(db.status().durable_seq),
            epoch: db.manifest().writer_epoch(),
            db,
            admin,
            reads,
            cache,
            log,
            tables,
            unflushed: Mutex::default(),
            unflushed_bytes_max,
            commits: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            sync_requests: AtomicU64::new(0),
            is_abandoned,
        }
    }

    /// Records why the database takes no more changes, and returns the error of this call.
    fn fail(&self, kind: ErrorKind, why: &str) -> StoreError {
        let health = &self.reads.health;
        if let Err(known) = health.check() {
            return known;
        }
        health.fail(match kind {
            ErrorKind::Closed(CloseReason::Fenced) => health.fenced(),
            _ if self.is_superseded() => health.fenced(),
            _ => StoreError::Meta(format!("SlateDB closed {}: {why}", self.reads.place)),
        })
    }

    /// Whether another process has taken over. It may be the cause of any failure, since what this process finds in
    /// the bucket is then not what it wrote.
    fn is_superseded(&self) -> bool {
        let newest = self.reads.wait(self.admin.read_manifest(None));
        matches!(newest, Some(Ok(Some(manifest))) if manifest.writer_epoch() > self.epoch)
    }

    fn closed(&self, reason: CloseReason) -> StoreError {
        let why = self.log.error().or(self.tables.error());
        self.fail(ErrorKind::Closed(reason), why.unwrap_or("a background task failed"))
    }

    /// Waits until the status is as `wanted`; `None` if that takes longer than a call may.
    fn wait_for(&self, mut wanted: impl FnMut(&DbStatus) -> bool) -> Option<Result<(), StoreError>> {
        let mut status = self.status.clone();
        let ended = async {
            let state = status.wait_for(|state| wanted(state) || state.close_reason.is_some()).await;
            state.map_or(Some(CloseReason::Clean), |state| {
                // What became true counts, also if the database was closed afterwards.
                if wanted(&state) { None } else { state.close_reason }
            })
        };
        Some(match self.reads.wait(ended)? {
            None => Ok(()),
            Some(reason) => Err(self.closed(reason)),
        })
    }

    /// Waits until there is memory for another commit.
    fn admit(&self) -> Result<(), StoreError> {
        let has_room = |state: &DbStatus| {
            let mut unflushed = self.unflushed.lock();
            if unflushed.bytes() >= self.unflushed_bytes_max {
                unflushed.settle(state.current_manifest.last_l0_seq());
            }
            unflushed.bytes() < self.unflushed_bytes_max
        };
        if has_room(&self.status.borrow()) {
            return Ok(());
        }
        self.tables.want();
        self.wait_for(has_room).unwrap_or_else(|| {
            Err(self.reads.unavailable(format_args!(
                "{} bytes of changes are in memory, as many as may be, and their tables cannot be written",
                self.unflushed_bytes_max
            )))
        })
    }
}

impl MetaStore for SlateMeta {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.reads.get(&self.db, family, key)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.reads.scan(&self.db, family, range, true, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(SlateSnapshot { meta: self, state: self.db.snapshot() })
    }

    /// Concurrent commits are in the order of their numbers.
    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        self.reads.health.check()?;
        if self.is_abandoned.load(Relaxed) {
            return Err(self.reads.unavailable("write: the process has ended"));
        }
        if batch.is_empty() {
            return Ok(CommitNumber(self.newest.load(Acquire)));
        }
        self.admit()?;
        let (batch, bytes) = write_batch(&batch);
        // It waits for the thread of writes only: the room was checked, and SlateDB's own limit is not reached.
        let written = self.reads.runtime.block_on(self.db.write(batch));
        let number = written.map_err(|error| self.fail(error.kind(), &error.to_string()))?.seqnum();
        self.unflushed.lock().add(number, bytes.memory);
        self.newest.fetch_max(number, AcqRel);
        self.commits.fetch_add(1, Relaxed);
        self.log_bytes.fetch_add(bytes.log, Relaxed);
        Ok(CommitNumber(number))
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.sync_requests.fetch_add(1, Relaxed);
        if self.status.borrow().durable_seq >= number.0 {
            return Ok(());
        }
        self.reads.health.check()?;
        let (span, begun) = (waits::enter(Part::Disk), Instant::now());
        self.log.want();
        let waited = self.wait_for(|state| state.durable_seq >= number.0);
        span.leave(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        waited.unwrap_or_else(|| Err(self.reads.unavailable("write the log")))
    }

    fn failure(&self) -> Option<String> {
        // Without asking the bucket why, which the next commit or sync does.
        let reason = self.status.borrow().close_reason;
        match reason {
            Some(CloseReason::Fenced) => _ = self.closed(CloseReason::Fenced),
            Some(reason) if !self.reads.health.is_failed() => {
                return Some(format!("SlateDB closed {}: {reason:?}", self.reads.place));
            }
            _ => {}
        }
        self.reads.health.failure()
    }
}

impl MetaDatabase for SlateMeta {
    fn statistics(&self) -> MetaStatistics {
        let (table_bytes, flushed) = {
            let status = self.status.borrow();
            let tables = &status.current_manifest;
            (tables.all_sst_views().map(SsTableView::estimate_size).sum(), tables.last_l0_seq())
        };
        let mut unflushed = self.unflushed.lock();
        unflushed.settle(flushed);
        MetaStatistics {
            commits: self.commits.load(Relaxed),
            log_bytes: self.log_bytes.load(Relaxed),
            sync_requests: self.sync_requests.load(Relaxed),
            syncs: self.log.rounds(),
            table_bytes,
            write_buffer_bytes: unflushed.bytes() as u64,
            cache_bytes: self.cache.bytes(),
        }
    }

    fn health(&self) -> &Arc<Health> {
        &self.reads.health
    }
}

impl Drop for SlateMeta {
    fn drop(&mut self) {
        self.log.stop();
        self.tables.stop();
        if self.is_abandoned.load(Relaxed) {
            return;
        }
        let flush = self.failure().is_none().then_some(FlushType::MemTable);
        let closed =
            self.reads.wait(self.db.close_with_options(CloseOptions::default().with_flush_type(flush)));
        let place = &self.reads.place;
        match closed {
            Some(Ok(())) => {}
            Some(Err(error)) if self.reads.health.is_failed() => {
                tracing::debug!(%place, %error, "a failed database did not close");
            }
            Some(Err(error)) => {
                tracing::error!(%place, %error, "cannot make everything durable while closing");
            }
            None => {
                tracing::error!(%place, "no answer from the bucket while closing: what was not synced may be lost");
            }
        }
    }
}

struct SlateSnapshot<'a> {
    meta: &'a SlateMeta,
    state: Result<Arc<DbSnapshot>, Error>,
}

impl Snapshot for SlateSnapshot<'_> {
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        let reads = &self.meta.reads;
        let state = self.state.as_ref().map_err(|error| reads.failed("take a snapshot", error))?;
        // Snapshots serve long scans, which must not evict cached blocks that other readers use.
        reads.scan(&**state, family, range, false, visit)
    }
}

/// A task that writes the log, or tables, when asked to. Requests during a round are served together by the next.
struct Flusher {
    shared: Arc<Requests>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Requests {
    wanted: Notify,
    rounds: AtomicU64,
    error: OnceLock<String>,
}

impl Flusher {
    fn start(db: Db, flush_type: FlushType) -> Flusher {
        let shared = Arc::new(Requests::default());
        let flush = {
            let shared = Arc::clone(&shared);
            async move {
                loop {
                    shared.wanted.notified().await;
                    shared.rounds.fetch_add(1, Relaxed);
                    if let Err(error) =
                        db.flush_with_options(FlushOptions { flush_type: flush_type.clone() }).await
                    {
                        // Only a closed database fails here; the status has the reason.
                        _ = shared.error.set(error.to_string());
                        return;
                    }
                }
            }
        };
        Flusher { shared, task: tokio::spawn(flush) }
    }

    fn want(&self) {
        self.shared.wanted.notify_one();
    }

    fn rounds(&self) -> u64 {
        self.shared.rounds.load(Relaxed)
    }

    fn error(&self) -> Option<&str> {
        self.shared.error.get().map(String::as_str)
    }

    fn stop(&self) {
        self.task.abort();
    }
}

/// Size of a batch.
struct Sizes {
    log: u64,
    memory: usize,
}

fn write_batch(batch: &Batch) -> (WriteBatch, Sizes) {
    let mut out = WriteBatch::new();
    let mut bytes = Sizes { log: 0, memory: 0 };
    for change in batch.changes() {
        let length = match change {
            Change::Put(family, key, value) => {
                out.put(keys::key(*family, key), value);
                key.len() + value.len()
            }
            Change::Delete(family, key) => {
                out.delete(keys::key(*family, key));
                key.len()
            }
        };
        bytes.log += length as u64;
        bytes.memory += length + CHANGE_BYTES;
    }
    (out, bytes)
}
