//! Objects of chunks over real runtimes: in memory, in a folder, and in a bucket with one fault at a time.

use bucket::faulty::{Away, Faults, FaultyBucket};
use bucket::{Objects, ObjectsConfig};
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::{Bucket, BucketError, ChunkStore, Codec, FileData, MemoryMeta, ObjectChunks, ObjectConfig};
use tokio::runtime::{Builder, Runtime};

const PATIENCE: Duration = Duration::from_secs(30);

fn runtime() -> Arc<Runtime> {
    Arc::new(Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

fn objects(bucket: impl ObjectStore, patience: Duration) -> Objects {
    let config = ObjectsConfig { patience, request_limit: Duration::from_secs(5) };
    Objects::new(runtime(), Arc::new(bucket), "/p1/chunks/", config)
}

fn names(objects: &Objects, after: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    objects
        .list(after, &mut |name, _| {
            names.insert(name.to_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
    names
}

fn create(objects: &Objects, name: &str, contents: &'static [u8]) -> Result<(), BucketError> {
    objects.begin(name, &Bytes::from_static(contents));
    objects.finish(&[name.to_owned()])
}

fn keeps_the_contract(objects: &Objects) {
    assert_eq!(names(objects, ""), BTreeSet::new());
    for name in ["1", "2", "3"] {
        create(objects, name, b"0123456789").unwrap();
    }
    assert_eq!(objects.read("2", 3..5).unwrap().bytes, "34");
    let part = objects.read("2", 8..20).unwrap();
    assert_eq!((part.bytes, part.object_bytes), ("89".into(), 10));
    assert!(matches!(objects.read("4", 0..1), Err(BucketError::Missing { .. })));
    assert_eq!(names(objects, "1"), BTreeSet::from(["2".to_owned(), "3".to_owned()]));
    // The same again is no error, other contents are.
    create(objects, "2", b"0123456789").unwrap();
    assert!(matches!(create(objects, "2", b"012345678_"), Err(BucketError::Differs { .. })));
    assert_eq!(objects.read("2", 0..10).unwrap().bytes, "0123456789");
    objects.remove(&["2".to_owned(), "4".to_owned()]).unwrap();
    assert_eq!(names(objects, "").len(), 2);
    create(objects, "2", b"new").unwrap();
    assert!(
        matches!(objects.finish(&["5".to_owned()]), Err(BucketError::Missing { .. })),
        "it was not begun"
    );
    let mut visited = 0;
    objects
        .list("", &mut |_, bytes| {
            visited += 1;
            assert!(bytes == 10 || bytes == 3);
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(visited, 1);
}

#[test]
fn buckets_in_memory_and_in_a_folder_keep_the_contract() {
    keeps_the_contract(&objects(InMemory::new(), PATIENCE));
    let folder = tempfile::tempdir().unwrap();
    keeps_the_contract(&objects(LocalFileSystem::new_with_prefix(folder.path()).unwrap(), PATIENCE));
}

#[test]
fn a_conflict_with_an_own_request_is_none() {
    let faults = Faults { own_conflict: 1000, ..Faults::default() };
    let objects = objects(FaultyBucket::new(1, faults), PATIENCE);
    create(&objects, "1", b"contents").unwrap();
    assert!(matches!(create(&objects, "1", b"other contents"), Err(BucketError::Differs { .. })));
    assert_eq!(objects.read("1", 0..8).unwrap().bytes, "contents");
}

#[test]
fn calls_end_in_time_and_creation_goes_on() {
    for away in [Away::Failing, Away::Silent] {
        let bucket = FaultyBucket::new(1, Faults::default());
        let patient = self::objects(bucket.clone(), PATIENCE);
        let objects = self::objects(bucket.clone(), Duration::from_secs(3));
        create(&patient, "1", b"contents").unwrap();
        bucket.set_away(Some(away));
        let begun = Instant::now();
        let failures = [
            create(&objects, "2", b"contents").unwrap_err(),
            objects.read("1", 0..8).unwrap_err(),
            objects.remove(&["1".to_owned()]).unwrap_err(),
            objects.list("", &mut |_, _| ControlFlow::Continue(())).unwrap_err(),
        ];
        assert!(begun.elapsed() < Duration::from_secs(60));
        for error in failures {
            let BucketError::Unavailable(text) = &error else { panic!("{error}") };
            assert!(text.contains("within 3s"), "{text}");
            assert!(away == Away::Silent || text.contains("503 Slow Down"), "{text}");
        }
        bucket.set_away(None);
        // No call asks for it again.
        let until = Instant::now() + Duration::from_secs(60);
        while !names(&patient, "").contains("2") {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(20));
        }
        objects.finish(&["2".to_owned()]).unwrap();
    }
}

#[test]
fn an_abandoned_process_does_nothing_more() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let objects = objects(bucket.clone(), PATIENCE);
    bucket.set_away(Some(Away::Failing));
    objects.begin("1", &Bytes::from_static(b"contents"));
    objects.abandon();
    bucket.set_away(None);
    objects.begin("2", &Bytes::from_static(b"contents"));
    assert!(objects.finish(&["1".to_owned()]).is_err());
    assert!(objects.list("", &mut |_, _| ControlFlow::Continue(())).is_err());
    thread::sleep(Duration::from_millis(200));
    let successor = self::objects(bucket, PATIENCE);
    assert_eq!(names(&successor, ""), BTreeSet::new());
}

#[test]
fn threads_share_objects() {
    let folder = tempfile::tempdir().unwrap();
    let bucket: Arc<dyn Bucket> =
        Arc::new(objects(LocalFileSystem::new_with_prefix(folder.path()).unwrap(), PATIENCE));
    let meta = Arc::new(MemoryMeta::new());
    let (object_bytes_max, unsaved_bytes_max, cache_bytes) = (100_000, 300_000, 0);
    let config = ObjectConfig { object_bytes_max, unsaved_bytes_max, cache_bytes, ..ObjectConfig::default() };
    let open = || ObjectChunks::open(Arc::clone(&bucket), Arc::clone(&meta) as _, config, None).unwrap();
    let contents = |thread: u8, number: u8| Bytes::from([vec![thread; 3000], vec![number; 3000]].concat());
    let store = open();
    let addresses: Vec<_> = thread::scope(|scope| {
        let write = |thread: u8| {
            let store = &store;
            move || {
                let write = |number: u8| {
                    let address = store.append(&[contents(thread, number)], Codec::Raw).unwrap();
                    if number.is_multiple_of(4) {
                        store.sync().unwrap();
                    }
                    assert_eq!(store.read(address).unwrap(), contents(thread, number));
                    (thread, number, address)
                };
                (0..40).map(write).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(write(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    store.sync().unwrap();
    let statistics = store.statistics();
    assert!(statistics.syncs <= statistics.sync_requests && statistics.chunks_appended == 320);
    drop(store);
    let store = open();
    for (thread, number, address) in addresses {
        assert_eq!(store.read(address).unwrap(), contents(thread, number));
    }
}
