//! A database that is open only for reading, in the state that it had at the open.

use crate::reads::Reads;
use bytes::Bytes;
use slatedb::DbReader;
use std::sync::Arc;
use store::{
    Batch, CommitNumber, Family, Health, KeyRange, MetaDatabase, MetaStatistics, MetaStore, Snapshot,
    StoreError, Visit,
};

pub(crate) struct SlateReader {
    pub(crate) db: DbReader,
    pub(crate) reads: Reads,
}

impl SlateReader {
    fn refused(&self) -> StoreError {
        let refused = StoreError::Meta(format!("cannot write to {}: it is open read-only", self.reads.place));
        self.reads.health.fail(refused)
    }
}

impl Snapshot for &SlateReader {
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.reads.scan(&self.db, family, range, false, visit)
    }
}

impl MetaStore for SlateReader {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.reads.get(&self.db, family, key)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.reads.scan(&self.db, family, range, true, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(self)
    }

    fn commit(&self, _batch: Batch) -> Result<CommitNumber, StoreError> {
        Err(self.refused())
    }

    fn sync(&self, _number: CommitNumber) -> Result<(), StoreError> {
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        self.reads.health.failure()
    }
}

impl MetaDatabase for SlateReader {
    fn statistics(&self) -> MetaStatistics {
        MetaStatistics::default()
    }

    fn health(&self) -> &Arc<Health> {
        &self.reads.health
    }
}

impl Drop for SlateReader {
    fn drop(&mut self) {
        match self.reads.wait(self.db.close()) {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(place = %self.reads.place, %error, "a reader did not close"),
            None => tracing::debug!(place = %self.reads.place, "a reader did not close in time"),
        }
    }
}
