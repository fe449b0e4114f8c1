//! Copies the cell's databases into the bucket of a cluster, while no server has them open.

use crate::buckets::{OpenDatabases, open_databases_offline};
use crate::stores::FAMILIES;
use anyhow::{Context, Result, bail};
use cellar_config::Settings;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{Batch, Database, Family, KeyRange, MetaStore};

/// Number of records in one batch.
const BATCH_RECORDS: usize = 1000;

/// Key of a record that the copy has until it is finished and known to the cluster, so that no node has served it.
const UNFINISHED: &[u8] = b"copying";

/// A copy of the databases in the bucket. Neither can be opened by a server while this exists.
pub struct CopiedDatabases {
    records: u64,
    shared: OpenDatabases,
    _local: Database,
}

impl CopiedDatabases {
    /// Ends the copying; returns the number of records. Before, the command that copies may be repeated, also if the
    /// databases have changed since.
    ///
    /// # Errors
    /// If the bucket does not answer.
    pub fn finish(self) -> Result<u64> {
        unmark(&*self.shared.partition.meta()).context("cannot finish the copy of the databases")?;
        Ok(self.records)
    }
}

/// Copies the databases on this server's disk into the bucket of its cluster. A copy that was interrupted is continued.
///
/// # Errors
/// If a server has them open, or there are other databases in the bucket.
pub fn copy_databases(settings: &Settings) -> Result<CopiedDatabases> {
    let cluster = settings.cluster.as_ref().context("this server is no node")?;
    let place = cluster.databases.as_deref().context("the databases are not in the bucket")?;
    let path = &settings.database_path;
    let local = Database::open(path, &FAMILIES).with_context(|| {
        format!(
            "cannot open the cell's databases in {}; stop the server before they are moved",
            path.display()
        )
    })?;
    let shared = open_databases_offline(place)
        .with_context(|| format!("cannot open the databases in {}", place.address))?;
    let records = copy(&*local.meta(), &*shared.partition.meta())
        .with_context(|| format!("cannot copy the databases from {} to {}", path.display(), place.address))?;
    Ok(CopiedDatabases { records, shared, _local: local })
}

/// Notes that databases in a bucket are served: they are not replaced by a copy any more.
///
/// # Errors
/// If the bucket does not answer.
pub(crate) fn unmark(databases: &dyn MetaStore) -> Result<()> {
    if databases.get(Family::SYSTEM, UNFINISHED)?.is_none() {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.delete(Family::SYSTEM, UNFINISHED);
    Ok(databases.sync(databases.commit(batch)?)?)
}

/// Makes the other database a copy, which is marked as unfinished; returns the number of its records.
fn copy(from: &dyn MetaStore, to: &dyn MetaStore) -> Result<u64> {
    let is_unfinished = to.get(Family::SYSTEM, UNFINISHED)?.is_some();
    let (mut changes, mut count) = (Vec::new(), 0);
    for family in [vldb::FAMILY, ptdb::FAMILY] {
        let (mut missing, there) = (records(from, family)?, records(to, family)?);
        count += missing.len() as u64;
        for (key, value) in there {
            if missing.get(&key) == Some(&value) {
                missing.remove(&key);
            } else if !is_unfinished {
                bail!(
                    "there are other databases already; move those away that are not needed, or remove the folder in \
                     the bucket if nothing in it is needed"
                );
            } else if !missing.contains_key(&key) {
                changes.push((family, key, None));
            }
        }
        changes.extend(missing.into_iter().map(|(key, value)| (family, key, Some(value))));
    }
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, UNFINISHED, "");
    to.sync(to.commit(batch)?)?;
    for some in changes.chunks(BATCH_RECORDS) {
        let mut batch = Batch::new();
        for (family, key, value) in some {
            match value {
                Some(value) => batch.put(*family, key.clone(), value.clone()),
                None => batch.delete(*family, key.clone()),
            }
        }
        to.sync(to.commit(batch)?)?;
    }
    Ok(count)
}

/// Returns all records of a family.
fn records(meta: &dyn MetaStore, family: Family) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    // No key begins with this byte.
    let range = KeyRange::ascending(b"", &[0xff]);
    meta.scan(family, range, &mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{UnixTime, VolumeId};
    use cell_client::network::now;
    use ptdb::{Actor, Kind, NewEntry, Policy, Protection};
    use std::sync::Arc;
    use store::MemoryMeta;
    use vldb::Locations;

    fn with_contents() -> Arc<MemoryMeta> {
        let meta = Arc::new(MemoryMeta::new());
        let protection = Protection::open(meta.clone(), Policy::default(), now()).unwrap();
        for index in 0..3 {
            let name = format!("user{index}").into();
            let new = NewEntry { name, kind: Kind::User, owner: base::UserId(0), id: None };
            protection.create(&Actor::cell(), &new, UnixTime(1)).unwrap();
        }
        let locations = Locations::open(meta.clone()).unwrap();
        locations.new_ids(5).unwrap();
        meta
    }

    #[test]
    fn everything_is_copied_and_goes_on() {
        let (from, to) = (with_contents(), Arc::new(MemoryMeta::new()));
        let count = copy(&*from, &*to).unwrap();
        assert!(count > 10, "{count}");
        assert_eq!(copy(&*from, &*to).unwrap(), count, "it may be repeated");
        let next = |meta: &Arc<MemoryMeta>| Locations::open(meta.clone()).unwrap().new_ids(1).unwrap();
        let (old, new) = (next(&from), next(&to));
        assert_eq!(old, new, "volume ids go on");
        assert_ne!(new, VolumeId(0));
        let protection = Protection::open(to.clone(), Policy::default(), now()).unwrap();
        assert!(protection.id_of_name(b"user2").unwrap().is_some());
        unmark(&*to).unwrap();
        next(&to);
        assert!(copy(&*from, &*to).is_err(), "the copy has changed");
    }

    #[test]
    fn an_interrupted_copy_is_continued() {
        let (from, to) = (with_contents(), MemoryMeta::new());
        let mut batch = Batch::new();
        let some = records(&*from, ptdb::FAMILY).unwrap();
        let half = some.len() / 2;
        some.into_iter().take(half).for_each(|(key, value)| batch.put(ptdb::FAMILY, key, value));
        to.sync(to.commit(batch).unwrap()).unwrap();
        copy(&*from, &to).unwrap();
        for family in [vldb::FAMILY, ptdb::FAMILY] {
            assert_eq!(records(&to, family).unwrap(), records(&*from, family).unwrap());
        }
    }

    fn add_user(databases: &Arc<MemoryMeta>, name: &str) {
        let protection = Protection::open(databases.clone(), Policy::default(), now()).unwrap();
        let new = NewEntry { name: name.into(), kind: Kind::User, owner: base::UserId(0), id: None };
        protection.create(&Actor::cell(), &new, UnixTime(2)).unwrap();
    }

    /// The server was started again after the interruption, and its databases have changed.
    #[test]
    fn an_interrupted_copy_follows_the_databases() {
        let (from, to) = (with_contents(), Arc::new(MemoryMeta::new()));
        copy(&*from, &*to).unwrap();
        let mut batch = Batch::new();
        batch.put(ptdb::FAMILY, "\x01gone", "of a user who was deleted");
        to.sync(to.commit(batch).unwrap()).unwrap();
        add_user(&from, "later");
        copy(&*from, &*to).unwrap();
        for family in [vldb::FAMILY, ptdb::FAMILY] {
            assert_eq!(records(&*to, family).unwrap(), records(&*from, family).unwrap());
        }
        // From now on it is served.
        unmark(&*to).unwrap();
        assert_eq!(to.get(Family::SYSTEM, UNFINISHED).unwrap(), None);
        add_user(&to, "other");
        let served = records(&*to, ptdb::FAMILY).unwrap();
        assert!(copy(&*from, &*to).is_err());
        assert_eq!(records(&*to, ptdb::FAMILY).unwrap(), served);
        assert_eq!(to.get(Family::SYSTEM, UNFINISHED).unwrap(), None, "nothing was changed");
    }

    #[test]
    fn other_databases_are_kept() {
        for family in [vldb::FAMILY, ptdb::FAMILY] {
            let (from, to) = (with_contents(), MemoryMeta::new());
            let mut batch = Batch::new();
            batch.put(family, "\x01foreign", "1");
            to.sync(to.commit(batch).unwrap()).unwrap();
            let error = copy(&*from, &to).unwrap_err().to_string();
            assert!(error.contains("other databases"), "{error}");
            for all in [vldb::FAMILY, ptdb::FAMILY] {
                assert_eq!(records(&to, all).unwrap().len(), usize::from(all == family));
            }
        }
    }
}
