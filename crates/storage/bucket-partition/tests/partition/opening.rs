//! Opening, creating and taking over partitions, and their keys.

use crate::support::{
    PLACE, Raw, bucket, config, get, master, open, open_encrypted, opener, opener_with, put, unasked,
};
use bucket::faulty::{Away, FaultyBucket};
use bucket_partition::BucketConfig;
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::{
    Batch, BucketVersion, ChunkAddress, ChunkNames, ChunkOwner, Codec, Family, MasterKey, Partition,
    PartitionConfig, StoreError, Tenure, UNLIMITED_BYTES,
};

fn complaint<T>(result: Result<T, StoreError>) -> String {
    let error = result.err().expect("it should be refused").to_string();
    assert!(error.contains(PLACE), "{error}");
    error
}

#[test]
fn it_opens_again_with_everything_in_it() {
    let bucket = bucket();
    assert!(!opener(&bucket).exists().unwrap());
    let partition = open(&bucket).unwrap();
    assert!(opener(&bucket).exists().unwrap());
    let (uuid, id) = (partition.uuid(), partition.ids().next().unwrap());
    put(&partition, "k", b"hello").unwrap();
    assert_eq!(partition.failure(), None);
    drop(partition);
    for _ in 0..3 {
        let partition = opener(&bucket).open(&unasked(), None).unwrap();
        assert_eq!(partition.uuid(), uuid);
        assert!(partition.ids().next().unwrap() > id && !partition.needs_recount());
        assert_eq!(get(&partition, "k").unwrap().unwrap(), "hello");
        assert_eq!(partition.statistics().chunks.segments, 1);
    }
}

#[test]
fn nothing_is_created_unasked() {
    let bucket = bucket();
    assert!(complaint(opener(&bucket).open(&unasked(), None)).contains("there is no partition yet"));
    assert!(complaint(opener(&bucket).inspect(None)).contains("there is no partition yet"));
    assert!(complaint(opener(&bucket).rekey((&master(1), &master(2)), false)).contains("no partition yet"));
    assert_eq!(Raw(bucket).list(""), []);
}

#[test]
fn an_object_that_is_no_version_is_refused() {
    let golden = BucketVersion::random().contents();
    let cases: [(Bytes, &str); 7] = [
        (
            golden.replace("format 2", "format 3").into(),
            "it has format 3; this program knows formats up to 2",
        ),
        (golden.replace("format 2", "format 1").into(), "partitions in buckets begin with 2"),
        (golden.replace("partition", "database").into(), "expected \"cellar partition\" in the first line"),
        (vec![0xff; 300].into(), "expected \"cellar partition\" in the first line"),
        (Bytes::new(), "expected \"cellar partition\" in the first line"),
        (format!("{golden}{}", " ".repeat(2000)).into(), "a version has at most 1024 bytes"),
        (vec![0; 9 << 20].into(), "a version has at most 1024 bytes"),
    ];
    for (contents, expected) in cases {
        let (bucket, raw) = {
            let bucket = bucket();
            (bucket.clone(), Raw(bucket))
        };
        let owner = open(&bucket).unwrap();
        raw.put("VERSION", contents.clone());
        let before = raw.list("");
        for error in [complaint(open(&bucket)), complaint(opener(&bucket).inspect(None))] {
            assert!(error.contains(expected) && error.contains("VERSION"), "{error}");
        }
        assert_eq!((raw.get("VERSION").unwrap(), raw.list("")), (contents, before), "nothing was written");
        put(&owner, "k", b"the owner goes on").unwrap();
    }
}

#[test]
fn data_without_a_version_is_not_taken_for_nothing() {
    let bucket = bucket();
    let raw = Raw(bucket.clone());
    put(&open_encrypted(&bucket, 1).unwrap(), "k", b"hello").unwrap();
    for (name, left) in [("VERSION", "VERSION.new"), ("VERSION.new", "VERSION")] {
        let contents = raw.get(name).unwrap();
        raw.delete(name);
        let opened = open_encrypted(&bucket, 1).unwrap();
        assert_eq!(get(&opened, "k").unwrap().unwrap(), "hello", "{left} has the UUID");
        drop(opened);
        raw.put(name, contents);
    }
    raw.delete("VERSION");
    raw.delete("VERSION.new");
    let error = complaint(open_encrypted(&bucket, 1));
    assert!(error.contains("there is meta/, but no VERSION object"), "{error}");
    for name in raw.list("meta") {
        // Their folders differ.
        for folder in ["compacted", "manifest", "wal", "compactions"] {
            raw.delete(&format!("meta/{folder}/{}", name.0));
        }
    }
    assert!(complaint(open_encrypted(&bucket, 1)).contains("there is chunks/"));
    for name in raw.list("chunks") {
        raw.delete(&format!("chunks/{}", name.0));
    }
    assert!(complaint(open_encrypted(&bucket, 1)).contains("there is KEYS"));
    raw.delete("KEYS");
    open_encrypted(&bucket, 1).unwrap();
}

/// The process that creates the partition ends after each of its requests.
#[test]
fn an_interrupted_creation_is_completed_by_the_next_open() {
    let (mut failed, mut completed) = (0, 0);
    for requests in 0..120 {
        let bucket = bucket();
        bucket.set_away_after(requests);
        let first = opener(&bucket);
        let created = first.open(&config(), Some(&master(1)));
        first.abandon();
        let uuid = created.as_ref().map(Partition::uuid).ok();
        assert!(matches!(created, Ok(_) | Err(StoreError::Unavailable { .. })), "after {requests} requests");
        drop(created);
        bucket.set_away(None);
        let begun = Raw(bucket.clone()).get("VERSION.new");
        let partition = open_encrypted(&bucket, 1).unwrap();
        assert!(uuid.is_none_or(|uuid| uuid == partition.uuid()), "after {requests} requests");
        let begun = begun.map(|contents| String::from_utf8(contents.to_vec()).unwrap());
        assert!(begun.is_none_or(|begun| begun.contains(&partition.uuid().to_string())), "it begins anew");
        put(&partition, "k", b"hello").unwrap();
        let uuid_now = partition.uuid();
        drop(partition);
        let again = opener(&bucket).open(&unasked(), Some(&master(1))).unwrap();
        assert_eq!((again.uuid(), get(&again, "k").unwrap().unwrap()), (uuid_now, "hello".into()));
        if uuid.is_none() { failed += 1 } else { completed += 1 }
    }
    assert!(failed > 10 && completed > 10, "{failed} {completed}");
}

#[test]
fn several_that_create_it_create_the_same_and_the_last_has_it() {
    // Where they meet is a matter of chance.
    for _ in 0..30 {
        create_at_once();
    }
}

fn create_at_once() {
    let bucket = bucket();
    let openers: Vec<_> = (0..3).map(|_| opener(&bucket)).collect();
    let opened: Vec<_> = thread::scope(|scope| {
        let opening: Vec<_> =
            openers.iter().map(|opener| scope.spawn(|| opener.open(&config(), Some(&master(1))))).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let last = open_encrypted(&bucket, 1).unwrap();
    for opened in opened {
        match opened {
            Ok(partition) => {
                assert_eq!(partition.uuid(), last.uuid());
                assert!(matches!(put(&partition, "k", b"late"), Err(StoreError::Fenced { .. })));
            }
            Err(error) => assert!(matches!(error, StoreError::Fenced { .. }), "{error}"),
        }
    }
    put(&last, "k", b"hello").unwrap();
}

#[test]
fn the_owner_before_is_fenced() {
    let bucket = bucket();
    let first = open(&bucket).unwrap();
    put(&first, "k", b"one").unwrap();
    let late = first.chunks().append(&[Bytes::from_static(b"late")], Codec::Raw).unwrap();
    let second = open(&bucket).unwrap();
    put(&second, "k", b"two").unwrap();
    // Its object can still be created, but nothing can refer to it.
    _ = first.chunks().sync();
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, "k", late.to_bytes());
    let meta = first.meta();
    let committed = meta.commit(batch).and_then(|number| meta.sync(number));
    assert!(matches!(committed, Err(StoreError::Fenced { .. })), "{committed:?}");
    assert!(first.failure().unwrap().contains("taken over"), "{:?}", first.failure());
    assert!(matches!(put(&first, "k", b"three"), Err(StoreError::Fenced { .. })));
    assert!(matches!(first.maintain(), Ok(0)));
    drop((meta, first));
    assert_eq!((get(&second, "k").unwrap().unwrap(), second.failure()), ("two".into(), None));
    assert_eq!(second.sweep().unwrap(), 1, "the late object is an orphan");
}

#[test]
fn an_owner_answers_nothing_after_its_tenure() {
    let bucket = bucket();
    let tenure = Tenure::until(Instant::now() + Duration::from_secs(3600));
    let options =
        BucketConfig { tenure: tenure.clone(), patience: Duration::from_secs(5), ..BucketConfig::default() };
    let partition = opener_with(&bucket, &options).open(&config(), None).unwrap();
    let address = put(&partition, "k", b"hello").unwrap();
    let unsaved = partition.chunks().append(&[Bytes::from_static(b"late")], Codec::Raw).unwrap();
    tenure.end();
    assert!(partition.failure().unwrap().contains("taken over"), "before any other call");
    let (meta, chunks) = (partition.meta(), partition.chunks());
    let results = [
        get(&partition, "k").err(),
        put(&partition, "k", b"late").err(),
        chunks.read(address).err(),
        chunks.read(unsaved).err(),
        chunks.verify(address).err(),
        chunks.sync().err(),
        chunks.copy(address, ChunkOwner::default()).err(),
        chunks.records(address.segment, 0, 1).err(),
        chunks.audit(&*meta).err(),
        partition.sweep().err(),
    ];
    assert!(results.iter().all(|error| matches!(error, Some(StoreError::Fenced { .. }))), "{results:?}");
    drop((meta, chunks, partition));
    let next = open(&bucket).unwrap();
    assert_eq!((get(&next, "k").unwrap().unwrap(), next.sweep().unwrap()), ("hello".into(), 0));
}

#[test]
fn an_outage_is_not_final() {
    let bucket = bucket();
    let partition = open(&bucket).unwrap();
    put(&partition, "k", b"one").unwrap();
    for away in [Away::Failing, Away::Silent] {
        bucket.set_away(Some(away));
        for result in
            [put(&partition, "k", b"two").err(), open(&bucket).err(), opener(&bucket).inspect(None).err()]
        {
            let error = result.unwrap();
            assert!(
                matches!(error, StoreError::Unavailable { .. }) && error.to_string().contains(PLACE),
                "{error}"
            );
        }
        bucket.set_away(None);
        assert_eq!(partition.failure(), None);
        assert_eq!(get(&partition, "k").unwrap().unwrap(), "one");
        put(&partition, "k", b"one").unwrap();
    }
}

#[test]
fn an_encrypted_partition_opens_only_with_its_key() {
    let bucket = bucket();
    let raw = Raw(bucket.clone());
    put(&open(&bucket).unwrap(), "clear", b"written in clear").unwrap();
    assert!(raw.get("KEYS").is_none());
    let partition = open_encrypted(&bucket, 1).unwrap();
    let first = put(&partition, "first", b"secret one").unwrap();
    // A wrong or missing key leaves the owner alone.
    let refused = [complaint(open(&bucket)), complaint(open_encrypted(&bucket, 2))];
    assert!(refused[0].contains("names no master key") && refused[1].contains("not the one"), "{refused:?}");
    assert!(complaint(opener(&bucket).inspect(Some(&master(2)))).contains("not the one"));
    put(&partition, "first", b"secret one").unwrap();
    let rekey = |old: u8, new: u8, adds| opener(&bucket).rekey((&master(old), &master(new)), adds);
    assert!(complaint(rekey(3, 4, true)).contains("not the one"));
    assert_eq!(rekey(1, 2, true).unwrap(), 2);
    put(&partition, "second", b"secret two").unwrap();
    drop(partition);
    assert!(complaint(open_encrypted(&bucket, 1)).contains("not the one"));
    let partition = open_encrypted(&bucket, 2).unwrap();
    put(&partition, "third", b"secret three").unwrap();
    for (key, text) in [
        ("clear", "written in clear"),
        ("first", "secret one"),
        ("second", "secret two"),
        ("third", "secret three"),
    ] {
        assert_eq!(get(&partition, key).unwrap().unwrap(), text);
    }
    drop(partition);
    assert!(raw.contains(b"written in clear") && !raw.contains(b"secret"));
    assert_eq!(rekey(2, 2, false).unwrap(), 2);
    // The checksums can be verified without the key.
    for key in [None, Some(&master(2))] {
        assert_eq!(opener(&bucket).inspect(key).unwrap().segments().verify(first).unwrap(), 10);
    }
    let ring = raw.get("KEYS").unwrap();
    for at in [0, 20, 40, ring.len() - 1] {
        let mut damaged = ring.to_vec();
        damaged[at] ^= 1;
        raw.put("KEYS", damaged);
        let error = complaint(open_encrypted(&bucket, 2));
        assert!(error.contains("KEYS"), "{error}");
    }
    raw.put("KEYS", vec![7; 1 << 20]);
    assert!(complaint(open_encrypted(&bucket, 2)).contains("not a key ring"));
}

/// Requests are lost, late and repeated; at the end exactly one ring is there, and everybody has its keys.
#[test]
fn a_ring_of_keys_is_created_and_replaced_once() {
    for seed in 0..60 {
        let faults = bucket::faulty::Faults {
            refused: 50,
            lost: 80,
            own_conflict: 50,
            late: 50,
            repeated: 80,
            delayed: 30,
            hung: 5,
        };
        let bucket = FaultyBucket::new(seed, faults);
        let first = open_encrypted(&bucket, 1).unwrap();
        let address = put(&first, "k", b"secret").unwrap();
        let rekeyed = opener(&bucket).rekey((&master(1), &master(2)), true).unwrap();
        drop(first);
        let second = open_encrypted(&bucket, 2).unwrap();
        assert_eq!((rekeyed, second.chunks().read(address).unwrap()), (2, "secret".into()), "seed {seed}");
        assert!(open_encrypted(&bucket, 1).is_err());
    }
}

#[test]
fn its_size_is_that_of_the_settings() {
    let bucket = bucket();
    let room = open(&bucket).unwrap().room().unwrap();
    assert_eq!((room.total_bytes, room.usable_bytes), (UNLIMITED_BYTES, UNLIMITED_BYTES));
    assert!(i32::try_from(UNLIMITED_BYTES >> 40).is_ok());
    let options = BucketConfig { size_bytes: Some(10_000), ..BucketConfig::default() };
    let partition = opener_with(&bucket, &options).open(&config(), None).unwrap();
    let append = |bytes: usize| partition.chunks().append(&[vec![7; bytes].into()], Codec::Raw);
    let first = append(6000).unwrap();
    let space = partition.space().unwrap();
    assert_eq!((space.total_bytes, space.free_bytes), (10_000, 10_000 - 32 - 64 - 6000));
    assert!(matches!(append(6000), Err(StoreError::Full)));
    assert_eq!(partition.usable_bytes().unwrap(), space.free_bytes, "nothing of it was kept");
    append(1000).unwrap();
    partition.chunks().sync().unwrap();
    partition.chunks().release(first);
    append(6000).unwrap();
}

#[allow(clippy::unnecessary_wraps, reason = "it must be a ChunkOf")]
fn chunk_of(_key: &[u8], value: &[u8]) -> Result<Option<ChunkAddress>, StoreError> {
    Ok(ChunkAddress::from_bytes(value))
}

/// On threads, by the machine's clock, with a client that the caller made.
#[test]
fn its_threads_find_and_remove_what_nothing_refers_to() {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let address = "s3://cellar/cells/b".parse().unwrap();
    let names = ChunkNames { family: Family::SYSTEM, chunk_of };
    let with_threads =
        PartitionConfig { maintenance: Some(Duration::from_millis(5)), chunk_names: Some(names), ..config() };
    let options = BucketConfig::default();
    let open = |config: &PartitionConfig| {
        bucket_partition::open(Arc::clone(&bucket), &address, config, &options, None).unwrap()
    };
    let partition = open(&config());
    let live = put(&partition, "k", b"hello").unwrap();
    let dead: Vec<_> = (0..5)
        .map(|_| {
            let address = partition.chunks().append(&[Bytes::from_static(b"orphan")], Codec::Raw).unwrap();
            partition.chunks().sync().unwrap();
            address
        })
        .collect();
    // A second open, so that the first is not closed in order.
    let next = open(&with_threads);
    let until = |done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", next.statistics());
            thread::sleep(Duration::from_millis(5));
        }
    };
    until(&|| !next.needs_recount() && next.statistics().chunks.segments == 1);
    assert_eq!(next.chunks().read(live).unwrap(), "hello");
    // The sweep comes with the first round.
    until(&|| dead.iter().all(|address| next.chunks().verify(*address).is_err()));
    assert!(bucket_partition::exists(Arc::clone(&bucket), &address, &options).unwrap());
    drop(partition);
}

#[test]
fn a_folder_with_fsync_is_a_bucket_too() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("file://{}", folder.path().display()).parse().unwrap();
    let client = || -> Arc<dyn ObjectStore> {
        Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap().with_fsync(true))
    };
    let options = BucketConfig::default();
    let key = |byte| master(byte);
    let open =
        |key: &MasterKey| bucket_partition::open(client(), &address, &config(), &options, Some(key)).unwrap();
    let partition = open(&key(1));
    put(&partition, "k", b"hello").unwrap();
    assert_eq!(bucket_partition::rekey(client(), &address, &options, (&key(1), &key(2)), true).unwrap(), 2);
    let second = open(&key(2));
    assert!(matches!(put(&partition, "k", b"late"), Err(StoreError::Fenced { .. })));
    assert_eq!(get(&second, "k").unwrap().unwrap(), "hello");
    assert_eq!(second.sweep().unwrap(), 1, "the late object is an orphan");
    drop((partition, second));
    let inspection = bucket_partition::inspect(client(), &address, &options, None).unwrap();
    assert_eq!(inspection.segments().segments().len(), 1);
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["KEYS", "VERSION", "VERSION.new", "chunks", "meta"]);
}
