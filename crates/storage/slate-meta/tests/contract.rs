//! The contract of engines, over a bucket in memory and over a folder.

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use slate_meta::{SlateConfig, SlateEngine};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::engines::contract::CLAUSES;
use store::{MetaEngine, MetaOptions, StoreError};

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
