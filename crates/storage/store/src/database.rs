//! A database that holds only metadata: the location or the protection database.

use crate::home::{Home, Kind};
use crate::{
    Family, IdAllocator, MetaConfig, MetaDatabase, MetaEngine, MetaOptions, MetaStatistics, MetaStore,
    StoreError, engines,
};
use disk::RealDisk;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// An open database. Keep it as long as its [`MetaStore`] is used.
pub struct Database {
    meta: Arc<dyn MetaDatabase>,
    ids: Arc<IdAllocator>,
    home: Home,
}

impl Database {
    /// Opens the database in the folder `path` with [small](MetaConfig::small) limits, creating it if it does
    /// not exist. `families` are those of the crates above. Only one process can have it open.
    pub fn open(path: &Path, families: &[Family]) -> Result<Database, StoreError> {
        Database::open_with(&*engines::local(), path, families, &MetaConfig::small())
    }

    /// Opens the database as [`Database::open`] does, with the given engine and limits.
    pub fn open_with(
        engine: &dyn MetaEngine,
        path: &Path,
        families: &[Family],
        config: &MetaConfig,
    ) -> Result<Database, StoreError> {
        let home = Home::open(&RealDisk, path, Kind::Database, true)?;
        let options = MetaOptions { families, config: *config, create: home.is_new, defers_upkeep: false };
        let meta = engine.open(&home.path.join("meta"), &options)?;
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
    use crate::{Batch, MemoryEngine};

    const ITEMS: Family = Family::new(6, "items");

    fn reopen(engine: &dyn MetaEngine) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db/vl");
        let open = || Database::open_with(engine, &path, &[ITEMS], &MetaConfig::small());
        let database = open().unwrap();
        let (uuid, id) = (database.uuid(), database.ids().next().unwrap());
        let mut batch = Batch::new();
        batch.put(ITEMS, "k", "v");
        let meta = database.meta();
        meta.sync(meta.commit(batch).unwrap()).unwrap();
        assert!(open().err().unwrap().to_string().contains("already open"));
        assert!(database.statistics().commits >= 1);
        drop((meta, database));
        let database = open().unwrap();
        assert_eq!(database.uuid(), uuid);
        assert!(database.ids().next().unwrap() > id);
        assert_eq!(database.meta().get(ITEMS, b"k").unwrap().unwrap(), "v");
    }

    #[test]
    fn contents_survive_a_reopen() {
        reopen(&*engines::local());
    }

    #[test]
    fn contents_survive_a_reopen_in_memory() {
        reopen(&MemoryEngine::new());
    }
}
