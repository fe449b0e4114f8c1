//! Large tables are created in parts. Their parts, completions and ends fail like other requests, and what was acknowledged
//! is there afterwards.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use slate_meta::faulty::{Away, Faults, FaultyBucket};
use slate_meta::{SlateConfig, SlateEngine};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Batch, Family, MetaConfig, MetaDatabase, MetaEngine, MetaOptions, StoreError};
use tokio::runtime::{Builder, Runtime};

const ITEMS: Family = Family::new(2, "items");
const VALUE_BYTES: usize = 256 << 10;
/// Enough for two tables of 12 MiB.
const VALUES: u8 = 110;
/// SlateDB creates smaller tables by one request.
const PARTS_BYTES_MIN: u64 = 10 << 20;

struct Process {
    runtime: Arc<Runtime>,
    engine: SlateEngine,
    meta: Arc<dyn MetaDatabase>,
}

fn start(bucket: &FaultyBucket, seed: u64) -> Process {
    let runtime = Arc::new(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap());
    let config = SlateConfig {
        request_limit: Duration::from_secs(5),
        garbage_age: None,
        seed: Some(seed),
        ..SlateConfig::default()
    };
    let engine = SlateEngine::with_runtime(Arc::clone(&runtime), Arc::new(bucket.clone()), "p1", config);
    let config = MetaConfig { write_buffer_bytes: 48 << 20, ..MetaConfig::small() };
    let options = MetaOptions { families: &[ITEMS], config, ..MetaOptions::default() };
    let meta = engine.open(Path::new("/vicepa"), &options).unwrap();
    Process { runtime, engine, meta }
}

/// Repeats what had no answer in time.
fn done<T>(mut ask: impl FnMut() -> Result<T, StoreError>) -> T {
    for _ in 0..20 {
        match ask() {
            Ok(done) => return done,
            Err(StoreError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it has no answer any more");
}

/// Whether a table was created in parts.
fn has_large_table(process: &Process, bucket: &FaultyBucket) -> bool {
    use futures::TryStreamExt;
    use object_store::ObjectStore;
    let list = async { bucket.list(None).try_collect::<Vec<_>>().await };
    let found = process.runtime.block_on(list);
    found.is_ok_and(|found| found.iter().any(|object| object.size > PARTS_BYTES_MIN))
}

fn run(seed: u64) -> u64 {
    let bucket = FaultyBucket::new(seed, Faults::default());
    let process = start(&bucket, seed);
    bucket.set_faults(Faults { refused: 150, lost: 150, delayed: 50, ..Faults::default() });
    let mut rng = SmallRng::seed_from_u64(seed);
    let values: Vec<Bytes> = (0..VALUES)
        .map(|_| {
            let mut value = vec![0; VALUE_BYTES];
            rng.fill_bytes(&mut value);
            value.into()
        })
        .collect();
    for (key, value) in values.iter().enumerate() {
        let batch = || {
            let mut batch = Batch::new();
            batch.put(ITEMS, [key as u8], value.clone());
            batch
        };
        let number = done(|| process.meta.commit(batch()));
        done(|| process.meta.sync(number));
    }
    let written = (0..60).any(|turn| {
        // Some of the time, the key has expired.
        bucket.set_away((turn % 5 == 2).then_some(Away::Denied));
        process.runtime.block_on(async { tokio::time::sleep(Duration::from_secs(5)).await });
        bucket.set_away(None);
        has_large_table(&process, &bucket)
    });
    assert!(written, "no table was created in parts");
    bucket.set_faults(Faults::default());
    assert_eq!(process.meta.failure(), None);
    process.engine.abandon();
    drop(process);
    let process = start(&bucket, seed + 1);
    for (key, value) in values.iter().enumerate() {
        assert!(process.meta.get(ITEMS, &[key as u8]).unwrap().as_ref() == Some(value), "{key}");
    }
    bucket.met().uploads
}

#[test]
fn uploads_in_parts_fail_without_a_loss() {
    let mut failed = 0;
    seeds::play(6, |seed| failed += run(seed));
    println!("{failed} requests of uploads failed");
    assert!(failed > 6);
}
