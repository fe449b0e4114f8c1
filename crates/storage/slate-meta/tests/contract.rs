//! The contract of engines, over a bucket in memory and over a folder.

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use slate_meta::{SlateConfig, SlateEngine};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use store::engines::contract::CLAUSES;
use store::{Batch, Family, MetaDatabase, MetaEngine, MetaOptions, StoreError};

fn engine(bucket: Arc<dyn ObjectStore>, config: SlateConfig) -> SlateEngine {
    SlateEngine::new(bucket, "partitions/p1", config).unwrap()
}

#[test]
fn a_bucket_in_memory_keeps_every_clause() {
    let engine = engine(Arc::new(InMemory::new()), SlateConfig::default());
    for (number, (name, clause)) in CLAUSES.iter().enumerate() {
        println!("{name}");
        clause(&engine, Path::new(&format!("/vicepa/cellar/meta-{number}")));
    }
}

#[test]
fn a_folder_keeps_every_clause() {
    for (name, clause) in CLAUSES {
        println!("{name}");
        let folder = tempfile::tempdir().unwrap();
        let bucket = LocalFileSystem::new_with_prefix(folder.path()).unwrap().with_fsync(true);
        clause(&engine(Arc::new(bucket), SlateConfig::default()), Path::new("/vicepa/cellar/meta"));
    }
}

#[test]
fn an_open_that_cannot_succeed_says_what_was_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let missing = MetaOptions { create: false, ..MetaOptions::default() };
    let error =
        engine(Arc::new(bucket), SlateConfig::default()).open(Path::new("/vicepa"), &missing).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("partitions/p1/vicepa: there is none"), "{text}");
}

/// Each finds no database, so each creates it, and all but one find that it exists.
#[test]
fn several_that_create_a_database_at_once_share_it() {
    for round in 0..50 {
        let bucket = Arc::new(InMemory::new());
        let engines: [_; 4] = std::array::from_fn(|_| engine(bucket.clone(), SlateConfig::default()));
        let barrier = Barrier::new(engines.len());
        let open = |engine: &SlateEngine| {
            barrier.wait();
            engine.open(Path::new("/vicepa"), &MetaOptions::default())
        };
        let opened: Vec<_> = thread::scope(|scope| {
            let opening = engines.each_ref().map(|engine| scope.spawn(|| open(engine)));
            opening.into_iter().map(|opening| opening.join().unwrap()).collect()
        });
        let last = engines[0].open(Path::new("/vicepa"), &MetaOptions::default()).unwrap();
        for opened in opened {
            match opened {
                Ok(database) => assert!(matches!(write(&*database), Err(StoreError::Fenced { .. }))),
                Err(error) => {
                    assert!(matches!(error, StoreError::Fenced { .. }), "in round {round}: {error}");
                }
            }
        }
        write(&*last).unwrap();
    }
}

fn write(database: &dyn MetaDatabase) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, "k", "hello");
    database.commit(batch).and_then(|number| database.sync(number))
}

#[test]
fn an_open_of_a_bucket_that_is_away_ends_in_time() {
    use slate_meta::faulty::{Away, Faults, FaultyBucket};
    for away in [Away::Failing, Away::Silent] {
        let bucket = FaultyBucket::new(1, Faults::default());
        bucket.set_away(Some(away));
        let config = SlateConfig { patience: Duration::from_millis(300), ..SlateConfig::default() };
        let begun = Instant::now();
        let error =
            engine(Arc::new(bucket.clone()), config).open(Path::new("/vicepa"), &MetaOptions::default());
        let error = error.err().unwrap();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        let text = error.to_string();
        assert!(text.contains("faulty/partitions/p1/vicepa") && text.contains("300ms"), "{text}");
        assert!(away == Away::Silent || text.contains("503 Slow Down"), "{text}");
        bucket.set_away(None);
        engine(Arc::new(bucket), SlateConfig::default())
            .open(Path::new("/vicepa"), &MetaOptions::default())
            .unwrap();
    }
}
