//! Objects that a partition has borrowed: damage, loans of them, and how other processes read them.

use crate::crossing::{HOME, PREFIXES, Side, data_objects, delete_all, fill, is_clean, places, send};
use crate::support::runtime;
use crate::writers::{self, contents};
use base::{Fid, VolumeType};
use bucket::faulty::{Faults, FaultyBucket};
use bucket_partition::{BucketConfig, Foreign, LoadKey};
use futures::TryStreamExt;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, ChunkOwner, ChunkPlace, Family, KeyRange, StoreError};
use volume::{Place, Volume};

/// Damages all values of a family whose keys begin like this.
fn damage(side: &Side, family: Family, prefix: &[u8]) -> u64 {
    let (meta, mut batch, mut count) = (side.partition.meta(), Batch::new(), 0);
    let range = KeyRange::ascending(prefix, &[0xff; 20]);
    meta.scan(family, range, &mut |key, value| {
        if key.starts_with(prefix) {
            batch.put(family, key, &value[1..]);
            count += 1;
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    meta.sync(meta.commit(batch).unwrap()).unwrap();
    count
}

/// Whatever is damaged of what the borrower knows of its objects, nothing is lost that can still be read.
#[test]
fn borrowed_objects_outlive_damaged_accounts_and_rows() {
    for (family, prefix) in [(Family::SEGMENTS, &b""[..]), (Family::SYSTEM, b"objects/borrowed/")] {
        let bucket = FaultyBucket::new(1, Faults::default());
        let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
        let files = fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
        send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
        assert!(damage(&to, family, prefix) > 3);
        to.crash();
        let to = Side::open(&bucket, 1);
        from.volumes.delete(HOME).unwrap();
        for _ in 0..3 {
            from.keep_up();
            from.end_loans(&to);
            from.keep_up();
            to.keep_up();
            to.sweep();
        }
        if family == Family::SEGMENTS {
            assert_eq!(contents(&to.get(HOME)), files);
            assert!(data_objects(&bucket).iter().all(|name| name.starts_with(PREFIXES[1])));
            drop(to);
            assert_eq!(contents(&Side::open(&bucket, 1).get(HOME)), files);
        } else {
            // Where they are is not known any more, but the source has them.
            assert!(data_objects(&bucket).iter().filter(|name| name.starts_with(PREFIXES[0])).count() > 3);
        }
    }
}

/// A lender is deleted, against all advice, and another partition is created in its place. Its objects have the same names, and their
/// records the same ids.
#[test]
fn objects_of_another_partition_are_not_taken_for_the_lenders() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    let (lent, lender) = (data_objects(&bucket), from.identity());
    let loan = from.partition.chunks().lent(false).remove(0);
    from.crash();
    drop(to);
    runtime().block_on(async {
        let folder = Name::from(PREFIXES[0]);
        let all: Vec<_> = bucket.list(Some(&folder)).try_collect().await.unwrap();
        for object in all {
            bucket.delete(&object.location).await.unwrap();
        }
    });
    let (other, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&other, HOME, &mut SmallRng::seed_from_u64(2));
    assert!(lent.iter().all(|name| data_objects(&bucket).contains(name)), "the names are the same");
    let volume = to.get(HOME);
    let found = volume.lookup(volume.root(), b"longer").unwrap();
    let fid = Fid { volume: HOME, vnode: found.vnode, unique: found.unique };
    let error = volume.read(fid, 0, 5000).unwrap_err().to_string();
    assert!(error.contains("no such object"), "{error}");
    // Nothing of it becomes the borrower's own.
    let used = to.partition.chunks().used_of_loan((lender, loan.loan), &loan.objects, true);
    assert_eq!(used.unwrap(), loan.objects);
    to.keep_up();
    assert!(data_objects(&bucket).iter().all(|name| name.starts_with(PREFIXES[0])));
}

/// A volume goes on to a third place, or back, while its objects are borrowed.
#[test]
fn borrowed_objects_become_own_ones_before_they_are_lent() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    let files = fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    from.volumes.delete(HOME).unwrap();
    from.keep_up();
    assert!(send(&to, HOME, &from, HOME, VolumeType::ReadWrite).unwrap() > 30);
    let own = data_objects(&bucket).iter().filter(|name| name.starts_with(PREFIXES[1])).count();
    assert!(own > 0);
    for (one, two) in [(&from, &to), (&to, &from)] {
        one.end_loans(two);
        one.keep_up();
    }
    assert_eq!([&from, &to].map(|side| contents(&side.get(HOME))), [files.clone(), files]);
    drop((from, to));
    assert!(is_clean(&bucket, 0) > 30 && is_clean(&bucket, 1) > 30);
    delete_all(&bucket);
}

/// Reads a whole file as a node does that does not own the volume.
fn read_as_front(volume: &Arc<Volume>, name: &str, readers: &[Foreign; 2]) -> (Vec<u8>, [u64; 2]) {
    let found = volume.lookup(volume.root(), name.as_bytes()).unwrap();
    let fid = Fid { volume: volume.id(), vnode: found.vnode, unique: found.unique };
    let (mut data, mut counts) = (Vec::new(), [0; 2]);
    let mut reader = volume.reader(fid, 0, u64::MAX).unwrap();
    while reader.remaining() > 0 {
        let places = reader.next_places((10, 1 << 20), true).unwrap();
        let named = |place: &Place| match place {
            Place::Shared { partition, .. } => Some(*partition),
            _ => None,
        };
        let identities: BTreeSet<[u8; 16]> = places.iter().filter_map(named).collect();
        assert!(identities.len() <= 1, "all are in one partition");
        for place in places {
            match place {
                Place::Here(bytes) => data.extend_from_slice(&bytes),
                Place::Hole(length) => data.resize(data.len() + length as usize, 0),
                Place::Shared { partition, chunk, skipped, length } => {
                    let side =
                        readers.iter().position(|reader| reader.is_of(partition) == Some(true)).unwrap();
                    assert!(readers[side].is_known_as(partition));
                    assert_eq!(readers[1 - side].is_of(partition), Some(false));
                    let read = readers[side].read(partition, chunk).unwrap();
                    data.extend_from_slice(&read[skipped as usize..][..length as usize]);
                    counts[side] += 1;
                }
            }
        }
    }
    (data, counts)
}

/// Chunks in borrowed objects are read where they are, and then where they come to be.
#[test]
fn other_processes_read_chunks_in_borrowed_objects() {
    let bucket = FaultyBucket::new(1, Faults::default());
    drop(Side::open(&bucket, 1));
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    let files = fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let readers = PREFIXES.map(|place| {
        let key = (Box::new(|| Ok(None)) as LoadKey, 1 << 20);
        Foreign::new(&runtime(), &store, (place, place), &BucketConfig::default(), key)
    });
    // A part of the file is the target's own.
    let volume = to.get(HOME);
    let found = volume.lookup(volume.root(), b"longer").unwrap();
    let fid = Fid { volume: HOME, vnode: found.vnode, unique: found.unique };
    let mut wanted = files["longer"].clone();
    wanted[20_000..30_000].fill(7);
    writers::store(&volume, fid, u64::MAX, 20_000, &wanted[20_000..30_000]).unwrap();
    let read = || read_as_front(&volume, "longer", &readers);
    let (data, [borrowed, own]) = read();
    assert_eq!(data, wanted);
    assert!(borrowed > 10 && own > 1, "{borrowed} {own}");
    from.volumes.delete(HOME).unwrap();
    for _ in 0..2 {
        from.keep_up();
        from.end_loans(&to);
        to.keep_up();
    }
    let (data, [borrowed, own]) = read();
    assert_eq!((data, borrowed), (wanted, 0));
    assert!(own > 12, "{own}");
}

/// Another process reads the chunks of copies by their origins, and those that compaction has moved.
#[test]
fn chunks_of_copies_are_read_by_other_processes() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    from.volumes.delete(HOME).unwrap();
    from.keep_up();
    from.end_loans(&to);
    to.keep_up();
    let store: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let (place, key) = (PREFIXES[1], (Box::new(|| Ok(None)) as LoadKey, 1 << 20));
    let reader = Foreign::new(&runtime(), &store, (place, place), &BucketConfig::default(), key);
    let chunks = to.partition.chunks();
    let found = places(&to, "longer");
    assert!(found.len() > 20 && found.iter().all(|chunk| chunk.origin != chunk.address.segment), "{found:?}");
    for chunk in found {
        let (identity, place) = chunks.shared_at(chunk.address).unwrap();
        assert_eq!((identity, place), (to.identity(), chunk));
        let own = ChunkPlace { origin: chunk.address.segment, ..chunk };
        assert!(matches!(reader.read(identity, own), Err(StoreError::Damaged { .. })));
        let data = chunks.read(chunk.address).unwrap();
        assert_eq!(reader.read(identity, chunk).unwrap(), data);
        let moved = chunks.copy(chunk.address, ChunkOwner::default()).unwrap();
        chunks.sync().unwrap();
        let moved = chunks.shared_at(moved).unwrap().1;
        assert_eq!(moved.origin, moved.address.segment);
        assert_eq!(reader.read(identity, moved).unwrap(), data);
        chunks.release(moved.address);
    }
}
