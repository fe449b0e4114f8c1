//! Costs that must not grow with the database, and concurrent callers.

use super::{Fixture, NOW, by_id, by_name, code, volume};
use crate::{Locations, VolumeQuery};
use base::{AbortCode, VolumeId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use store::{HookedMeta, MemoryMeta, MetaStep};

/// Returns the number of records that each operation reads in a database of this many volumes.
fn reads(volumes: u32) -> Vec<usize> {
    let records_read = Arc::<AtomicUsize>::default();
    let counter = records_read.clone();
    let hook = move |step| {
        if matches!(step, MetaStep::Get(_) | MetaStep::Visit(_)) {
            counter.fetch_add(1, Relaxed);
        }
    };
    let meta = HookedMeta::new(Arc::new(MemoryMeta::default()), hook);
    let db = Locations::open(Arc::new(meta)).unwrap();
    let first = 0x2000_0000;
    for n in 0..volumes {
        db.create(&volume(&format!("v{n}"), first + n * 3)).unwrap();
    }
    db.new_ids(1).unwrap();
    let middle = first + volumes / 2 * 3;
    let operations: [&dyn Fn(); 7] = [
        &|| drop(db.find(&by_id(middle + 1), None).unwrap()),
        &|| drop(db.find(&by_name("v0"), None).unwrap()),
        &|| drop(db.find(&VolumeQuery::Id(VolumeId(1)), None).unwrap_err()),
        &|| drop(db.next(crate::EntryNumber(volumes / 2)).unwrap()),
        &|| db.lock(VolumeId(middle), None, 0x10, NOW).unwrap(),
        &|| assert!(db.create(&volume("new", 5)).is_ok()),
        &|| assert!(db.new_ids(1).is_ok()),
    ];
    let count = |operation: &dyn Fn()| {
        let before = records_read.load(Relaxed);
        operation();
        records_read.load(Relaxed) - before
    };
    operations.into_iter().map(count).collect()
}

#[test]
fn single_operations_cost_the_same_with_many_volumes() {
    let few = reads(10);
    assert_eq!(few, reads(1000));
    assert!(few.iter().all(|&count| count <= 5), "{few:?}");
}

#[test]
fn concurrent_creations_have_one_winner() {
    let f = Fixture::new();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let create = |n: u32| {
            let f = &f;
            scope.spawn(move || f.create(&volume("wanted", 100 * (n + 1))))
        };
        let threads: Vec<_> = (0..8).map(create).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(outcomes.iter().all(|o| o.is_ok() || *o == Err(AbortCode::VL_NAMEEXIST)), "{outcomes:?}");
}

#[test]
fn locks_have_one_winner_and_ids_never_overlap() {
    let f = Fixture::new();
    f.create(&volume("a", 100)).unwrap();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let work = || {
            let ids: Vec<_> = (0..20).map(|_| f.db.new_ids(2).unwrap().0).collect();
            (f.db.lock(VolumeId(100), None, 0x10, NOW).map_err(code).is_ok(), ids)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|(won, _)| *won).count(), 1);
    let ids: BTreeSet<_> = outcomes.iter().flat_map(|(_, ids)| ids).collect();
    assert_eq!(ids.len(), 80);
    assert!(ids.iter().all(|id| **id % 2 == 0));
}
