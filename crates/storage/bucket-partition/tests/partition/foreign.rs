//! Chunks of a partition that another process has open.

use crate::support::{PLACE, PREFIX, Raw, bucket, config, master, opener_with, put, runtime};
use bucket::faulty::{Away, FaultyBucket};
use bucket_partition::{BucketConfig, Foreign, LocalCache};
use object_store::ObjectStore;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{ChunkAddress, ChunkPlace, ObjectBuilder, Partition, StoreError};

fn options(folder: Option<&Path>) -> BucketConfig {
    let cache = folder.map(|folder| LocalCache { folder: folder.to_owned(), bytes_max: 64 << 20 });
    BucketConfig { cache, patience: Duration::from_secs(3), ..BucketConfig::default() }
}

/// Reads a partition with this key, if any.
fn foreign(bucket: &FaultyBucket, folder: Option<&Path>, key: Option<u8>) -> Foreign {
    let bucket: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let load = Box::new(move || Ok(key.map(master)));
    Foreign::new(&runtime(), &bucket, (PREFIX, PLACE), &options(folder), (load, 1 << 20))
}

fn open(bucket: &FaultyBucket, folder: Option<&Path>, key: Option<u8>) -> Partition {
    let key = key.map(master);
    opener_with(bucket, &options(folder)).open(&config(), key.as_ref()).unwrap()
}

/// Stores a chunk; returns how another process finds it.
fn shared(partition: &Partition, byte: u8) -> ([u8; 16], ChunkPlace) {
    let address = put(partition, &format!("k{byte}"), &[byte; 5000]).unwrap();
    let chunks = partition.chunks();
    chunks.shared_at(address).unwrap()
}

fn why(read: Result<bytes::Bytes, StoreError>) -> String {
    read.unwrap_err().to_string()
}

#[test]
fn chunks_are_read_while_another_process_has_them() {
    for key in [None, Some(7)] {
        let bucket = bucket();
        let (owner, reader) = (open(&bucket, None, key), foreign(&bucket, None, key));
        for byte in 1..5 {
            let (identity, chunk) = shared(&owner, byte);
            assert!(!reader.is_at_hand(chunk.address));
            assert_eq!(reader.read(identity, chunk).unwrap(), [byte; 5000][..]);
            let before = bucket.met().requests;
            assert!(reader.is_at_hand(chunk.address));
            assert_eq!(reader.read(identity, chunk).unwrap(), [byte; 5000][..]);
            assert_eq!(bucket.met().requests, before, "it is in memory");
        }
    }
}

/// Chunks that are announced are read in the background, once each; wrong ones have no effect.
#[test]
fn announced_chunks_are_read_ahead() {
    let bucket = bucket();
    let (owner, reader) = (open(&bucket, None, None), foreign(&bucket, None, None));
    let stored: Vec<_> = (1..7).map(|byte| shared(&owner, byte)).collect();
    let (identity, first) = stored[0];
    let places: Vec<ChunkPlace> = stored.iter().map(|(_, place)| *place).collect();
    reader.expect(identity, &places);
    assert!(!reader.is_at_hand(first.address), "the partition is not open yet");
    assert!(reader.read(identity, first).is_ok());
    reader.expect([9; 16], &places);
    let before = bucket.met().requests;
    // A chunk that cannot be read comes last: the bucket may be left alone for a while after it.
    let missing = ChunkPlace { address: ChunkAddress { offset: 1 << 40, ..first.address }, ..first };
    reader.expect(identity, &[&places[..], &[missing]].concat());
    let all = || places.iter().all(|place| reader.is_at_hand(place.address));
    let begun = std::time::Instant::now();
    while !all() {
        assert!(begun.elapsed() < Duration::from_secs(30), "they are not read");
        std::thread::sleep(Duration::from_millis(1));
    }
    for (byte, (_, place)) in (1..7).zip(&stored) {
        assert_eq!(reader.read(identity, *place).unwrap(), [byte; 5000][..]);
    }
    // One for each, and one in vain.
    assert!(bucket.met().requests - before <= places.len() as u64);
    reader.suspend();
    reader.expect(identity, &places);
    assert!(!reader.is_at_hand(first.address));
}

/// What is not in the bucket yet is not offered to others.
#[test]
fn only_chunks_in_the_bucket_are_shared() {
    let bucket = bucket();
    let owner = open(&bucket, None, None);
    let chunks = owner.chunks();
    let address = chunks.append(&[vec![1; 5000].into()], store::Codec::Raw).unwrap();
    assert_eq!(chunks.shared_at(address), None);
    chunks.sync().unwrap();
    assert!(chunks.shared_at(address).is_some());
    // An object of an earlier epoch is there, too.
    drop((chunks, owner));
    let owner = open(&bucket, None, None);
    assert!(owner.chunks().shared_at(address).is_some());
}

#[test]
fn bytes_other_than_those_of_the_chunk_are_not_returned() {
    let bucket = bucket();
    let (owner, reader) = (open(&bucket, None, Some(7)), foreign(&bucket, None, Some(7)));
    let (identity, place) = shared(&owner, 1);
    let other = why(reader.read([1; 16], place));
    assert!(other.contains("expected the partition"), "{other}");
    let reader = foreign(&bucket, None, Some(7));
    let ChunkPlace { address, origin } = place;
    for wrong in [
        ChunkAddress { segment: address.segment + 5, ..address },
        ChunkAddress { offset: address.offset + 1, ..address },
        ChunkAddress { offset: u64::MAX - 8, ..address },
        ChunkAddress { stored_bytes: address.stored_bytes - 1, ..address },
        ChunkAddress { stored_bytes: address.stored_bytes + 1, ..address },
        ChunkAddress { stored_bytes: u32::MAX, ..address },
        ChunkAddress { stored_bytes: 0, ..address },
    ] {
        let wrong = ChunkPlace { address: wrong, origin };
        assert!(matches!(reader.read(identity, wrong), Err(StoreError::Damaged { .. })), "{wrong:?}");
    }
    for origin in [origin + 1, 0, u64::MAX] {
        let wrong = ChunkPlace { address, origin };
        assert!(matches!(reader.read(identity, wrong), Err(StoreError::Damaged { .. })), "{wrong:?}");
    }
    let chunk = place;
    assert_eq!(reader.read(identity, chunk).unwrap(), [1; 5000][..]);
    // Without its key, with another one, and if an object is changed or gone.
    for key in [None, Some(8)] {
        assert!(foreign(&bucket, None, key).read(identity, chunk).is_err(), "{key:?}");
    }
    let (raw, reader) = (Raw(bucket.clone()), foreign(&bucket, None, Some(7)));
    let name = raw.list("chunks").pop().unwrap().0;
    let object = format!("chunks/{name}");
    let good = raw.get(&object).unwrap();
    let mut bad = good.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    raw.put(&object, bad);
    assert!(matches!(reader.read(identity, chunk), Err(StoreError::Damaged { .. })));
    raw.delete(&object);
    assert!(why(reader.read(identity, chunk)).contains("no such object"));
    raw.put(&object, good);
    assert_eq!(reader.read(identity, chunk).unwrap(), [1; 5000][..], "errors are not remembered");
}

/// A bucket that does not answer is left alone for some seconds, in which only memory is read.
#[test]
fn a_bucket_that_is_away_is_not_waited_for_by_every_call() {
    let bucket = bucket();
    let (owner, reader) = (open(&bucket, None, None), foreign(&bucket, None, None));
    let ((identity, first), (_, second)) = (shared(&owner, 1), shared(&owner, 2));
    assert!(reader.read(identity, first).is_ok());
    bucket.set_away(Some(Away::Failing));
    assert!(matches!(reader.read(identity, second), Err(StoreError::Unavailable { .. })));
    let before = bucket.met().requests;
    assert!(why(reader.read(identity, second)).contains("lately"));
    assert!(reader.read(identity, first).is_ok());
    assert_eq!(bucket.met().requests, before);
    bucket.set_away(None);
}

/// The folder of local copies is the reader's while another process has the partition, and the partition's own otherwise. What
/// was read is warm then.
#[test]
fn a_partition_takes_the_copies_of_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (bucket, path) = (bucket(), folder.path().join("cache"));
    let owner = open(&bucket, None, None);
    let (identity, chunk) = shared(&owner, 1);
    let reader = foreign(&bucket, Some(&path), None);
    assert!(reader.read(identity, chunk).is_ok());
    drop(owner);
    // Another process finds the folder locked, and does without copies.
    assert!(opener_with(&bucket, &options(Some(&path))).open(&config(), None).is_err());
    assert!(foreign(&bucket, Some(&path), None).read(identity, chunk).is_ok());
    reader.suspend();
    assert!(why(reader.read(identity, chunk)).contains("itself"));
    assert!(!reader.is_at_hand(chunk.address));
    let owner = open(&bucket, Some(&path), None);
    assert_eq!(owner.chunks().read(chunk.address).unwrap(), [1; 5000][..]);
    assert_eq!(owner.disk_cache_statistics().unwrap().hits, 1);
    drop(owner);
    reader.resume();
    reader.resume();
    assert!(reader.read(identity, chunk).is_ok());
    drop(reader);
    // The copies are found by the next process, without a request for the object.
    let reader = foreign(&bucket, Some(&path), None);
    Raw(bucket.clone()).delete(&format!("chunks/{}", Raw(bucket.clone()).list("chunks").pop().unwrap().0));
    assert_eq!(reader.read(identity, chunk).unwrap(), [1; 5000][..]);
}

/// An object that is not created costs the next ones no time, and reads nothing.
#[test]
fn no_object_is_begun_soon_after_a_failure() {
    let bucket = bucket();
    let (owner, front) = (open(&bucket, None, None), foreign(&bucket, None, None));
    let (identity, chunk) = shared(&owner, 1);
    let [first, second, third] = [1, 2, 3].map(|id| ObjectBuilder::new((9 << 36) + id).build());
    front.begin(identity, &first).unwrap();
    front.finish(&first).unwrap();
    assert_eq!(Raw(bucket.clone()).list("chunks").len(), 2);
    front.begin(identity, &second).unwrap();
    bucket.set_away(Some(Away::Failing));
    assert!(front.finish(&second).unwrap_err().to_string().contains("cannot create"));
    bucket.set_away(None);
    assert!(front.begin(identity, &third).unwrap_err().to_string().contains("lately"));
    assert_eq!(front.read(identity, chunk).unwrap(), [1; 5000][..]);
    assert_eq!(Raw(bucket.clone()).list("chunks").len(), 2, "nothing goes on in the background");
    assert!(front.begin([8; 16], &third).is_err(), "another partition");
}
