//! Reads of a database, with the error of each.

use crate::keys;
use bytes::Bytes;
use slatedb::config::{ReadOptions, ScanOptions};
use slatedb::{CloseReason, DbIterator, DbReadOps, Error, ErrorKind, IterationOrder, KeyValue};
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use store::{Family, Health, KeyRange, StoreError, Visit};
use tokio::runtime::Runtime;

/// Bytes that a scan reads from the bucket ahead of its place in a table.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// Maximum number of rows that a scan takes from a table at a time.
const ROWS_MAX: usize = 128;

/// What reads of one database need besides the database.
pub(crate) struct Reads {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) patience: Duration,
    /// The bucket and the database's name in it.
    pub(crate) place: String,
    pub(crate) health: Arc<Health>,
}

impl Reads {
    /// Waits for `future` on this thread; `None` if it takes longer than a call may.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        // The timer is made inside, where the runtime is known.
        self.runtime.block_on(async { tokio::time::timeout(self.patience, future).await.ok() })
    }

    /// Returns the error for a call that had no answer.
    pub(crate) fn unavailable(&self, doing: impl Display) -> StoreError {
        unavailable(
            &self.place,
            format_args!("{doing}: no answer from the bucket within {:?}", self.patience),
        )
    }

    /// Returns the error of a read, having recorded that another process has the database.
    pub(crate) fn failed(&self, doing: impl Display, error: &Error) -> StoreError {
        match error.kind() {
            ErrorKind::Closed(CloseReason::Fenced) => self.health.fail(self.health.fenced()),
            ErrorKind::Closed(_) => match self.health.check() {
                Err(known) => known,
                Ok(()) => StoreError::Meta(format!("cannot {doing} in {}: {error}", self.place)),
            },
            ErrorKind::Unavailable => unavailable(&self.place, format_args!("{doing}: {error}")),
            ErrorKind::Data => {
                StoreError::Damaged { place: self.place.clone(), what: format!("cannot {doing}: {error}") }
            }
            _ => StoreError::Meta(format!("cannot {doing} in {}: {error}", self.place)),
        }
    }

    fn read<T>(
        &self,
        doing: impl Display,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        match self.wait(read) {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => Err(self.failed(doing, &error)),
            None => Err(self.unavailable(doing)),
        }
    }

    /// Returns the value of a key.
    pub(crate) fn get(
        &self,
        from: &impl DbReadOps,
        family: Family,
        key: &[u8],
    ) -> Result<Option<Bytes>, StoreError> {
        let options = ReadOptions::default().with_cache_blocks(true);
        let found = self.read(Reading(family), from.get_with_options(keys::key(family, key), &options))?;
        // A copy: the value found is a part of a block and would keep all of it in memory.
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// Visits a range. Blocks that are not in the cache get there if `caches` is set.
    pub(crate) fn scan(
        &self,
        from: &impl DbReadOps,
        family: Family,
        range: KeyRange<'_>,
        caches: bool,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        if range.from >= range.to {
            return Ok(());
        }
        let order = if range.reverse { IterationOrder::Descending } else { IterationOrder::Ascending };
        let options = ScanOptions::default()
            .with_order(order)
            .with_cache_blocks(caches)
            .with_read_ahead_bytes(READ_AHEAD_BYTES);
        let doing = Reading(family);
        let mut rows = self.read(doing, from.scan_with_options(keys::range(family, range), &options))?;
        // Waiting costs as much as several rows, but many scans end after the first.
        let (mut many, mut taken) = (1, Vec::new());
        loop {
            self.read(doing, take(&mut rows, many, &mut taken))?;
            let is_over = taken.len() < many;
            for row in taken.drain(..) {
                if visit(&row.key[1..], &row.value).is_break() {
                    return Ok(());
                }
            }
            if is_over {
                return Ok(());
            }
            many = ROWS_MAX.min(4 * many);
        }
    }
}

/// Appends the next rows, `many` unless the scan ends before.
async fn take(rows: &mut DbIterator, many: usize, taken: &mut Vec<KeyValue>) -> Result<(), Error> {
    while taken.len() < many {
        let Some(row) = rows.next().await? else { break };
        taken.push(row);
    }
    Ok(())
}

/// The error of a bucket that did not answer.
pub(crate) fn unavailable(place: &str, what: impl Display) -> StoreError {
    StoreError::Unavailable { place: place.to_owned(), what: what.to_string() }
}

/// Formats what a read does, for its error.
#[derive(Clone, Copy)]
struct Reading(Family);

impl Display for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "read family {}", self.0.name())
    }
}
