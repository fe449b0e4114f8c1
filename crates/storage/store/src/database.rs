//! A database that holds only metadata: the location or the protection database.

use crate::home::{Home, Kind};
use crate::{IdAllocator, MetaConfig, MetaStatistics, MetaStore, RocksMeta, StoreError};
use disk::RealDisk;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// An open database. Keep it as long as its [`MetaStore`] is used.
pub struct Database {
    meta: Arc<RocksMeta>,
    ids: Arc<IdAllocator>,
    home: Home,
}

impl Database {
    /// Opens the database in the folder `path` with [small](MetaConfig::small) limits, creating it if it does
    /// not exist. Only one process can have it open.
    pub fn open(path: &Path) -> Result<Database, StoreError> {
        Database::open_with(path, &MetaConfig::small())
    }

    /// Opens the database as [`Database::open`] does, with the given limits.
    pub fn open_with(path: &Path, config: &MetaConfig) -> Result<Database, StoreError> {
        let home = Home::open(&RealDisk, path, Kind::Database, true)?;
        let meta = Arc::new(RocksMeta::open(&home.path.join("meta"), config, home.is_new)?);
        home.finish(&RealDisk)?;
        let ids = Arc::new(IdAllocator::open(Arc::clone(&meta) as Arc<dyn MetaStore>, "any")?);
        Ok(Database { meta, ids, home })
    }

    /// Returns the metadata store.
    pub fn meta(&self) -> Arc<dyn MetaStore> {
        Arc::clone(&self.meta) as Arc<dyn MetaStore>
    }

    /// Returns the allocator of ids that are never reused in this database.
    pub fn ids(&self) -> Arc<IdAllocator> {
        Arc::clone(&self.ids)
    }

    /// Returns the UUID generated when the database was created.
    pub fn uuid(&self) -> Uuid {
        self.home.uuid
    }

    /// Returns the statistics of this database.
    pub fn statistics(&self) -> MetaStatistics {
        self.meta.statistics()
    }

    /// Returns the error that made the database read-only, if any.
    pub fn failure(&self) -> Option<String> {
        self.meta.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Family};

    #[test]
    fn what_was_stored_is_there_after_the_next_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db/vl");
        let database = Database::open(&path).unwrap();
        let (uuid, id) = (database.uuid(), database.ids().next().unwrap());
        let mut batch = Batch::new();
        batch.put(Family::Locations, "k", "v");
        let meta = database.meta();
        meta.sync(meta.commit(batch).unwrap()).unwrap();
        assert!(Database::open(&path).err().unwrap().to_string().contains("already open"));
        drop((meta, database));
        let database = Database::open(&path).unwrap();
        assert_eq!(database.uuid(), uuid);
        assert!(database.ids().next().unwrap() > id);
        assert_eq!(database.meta().get(Family::Locations, b"k").unwrap().unwrap(), "v");
    }
}
