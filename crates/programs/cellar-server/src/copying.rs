//! Copies the cell's databases into the bucket of a cluster, while no server has them open.

use crate::buckets::open_databases_offline;
use crate::stores::FAMILIES;
use anyhow::{Context, Result, bail};
use cellar_config::Settings;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{Batch, Database, Family, KeyRange, MetaStore};

/// Number of records in one batch.
const BATCH_RECORDS: usize = 1000;

/// Copies the databases on this server's disk into the bucket of its cluster; returns the number of their records. A copy
/// that was interrupted is continued.
///
/// # Errors
/// If a server has them open, or there are other databases in the bucket.
pub fn copy_databases(settings: &Settings) -> Result<u64> {
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
    copy(&*local.meta(), &*shared.partition.meta())
        .with_context(|| format!("cannot copy the databases to {}", place.address))
}

/// Copies all records that the other database lacks; returns how many there are.
fn copy(from: &dyn MetaStore, to: &dyn MetaStore) -> Result<u64> {
    let mut count = 0;
    for family in [vldb::FAMILY, ptdb::FAMILY] {
        let (mut missing, there) = (records(from, family)?, records(to, family)?);
        count += missing.len() as u64;
        for (key, value) in there {
            if missing.remove(&key) != Some(value) {
                bail!("there are other databases already");
            }
        }
        let missing: Vec<_> = missing.into_iter().collect();
        for some in missing.chunks(BATCH_RECORDS) {
            let mut batch = Batch::new();
            for (key, value) in some {
                batch.put(family, key.clone(), value.clone());
            }
            to.sync(to.commit(batch)?)?;
        }
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

    #[test]
    fn other_databases_are_kept() {
        let (from, to) = (with_contents(), Arc::new(MemoryMeta::new()));
        drop(Protection::open(to.clone(), Policy::default(), UnixTime(7)).unwrap());
        let error = copy(&*from, &*to).unwrap_err().to_string();
        assert!(error.contains("other databases"), "{error}");
    }
}
