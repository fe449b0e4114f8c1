//! Objects that another process creates.

use super::*;
use crate::{ChunkPlace, NewObject, ObjectBuilder};
use std::collections::BTreeSet;

pub(super) fn shared(bucket: &MemoryBucket, meta: &Arc<MemoryMeta>, config: ObjectConfig) -> ObjectChunks {
    open_with(bucket, meta, config).shared_as([5; 16], "chunks")
}

pub(super) fn fresh_and_shared() -> (MemoryBucket, Arc<MemoryMeta>, ObjectChunks) {
    let (bucket, meta) = (MemoryBucket::default(), Arc::new(MemoryMeta::new()));
    let store = shared(&bucket, &meta, config());
    (bucket, meta, store)
}

/// Builds an object of three chunks.
fn build(id: u64) -> NewObject {
    let chunk = |seed| EncodedChunk::new(ChunkOwner([3; 24]), &[noise(seed, 1000)], Codec::Lz4).unwrap();
    let mut object = ObjectBuilder::new(id);
    [0, 1, 2].map(chunk).iter().for_each(|chunk| object.add(chunk));
    assert_eq!((object.count(), object.bytes()), (3, 32 + 3 * 1064));
    object.build()
}

/// Creates an object as another process does; returns the places of its chunks.
fn create(bucket: &MemoryBucket, id: u64) -> Vec<ChunkPlace> {
    let object = build(id);
    bucket.begin(&object.name, &object.contents);
    bucket.finish(std::slice::from_ref(&object.name)).unwrap();
    object.chunks.iter().map(|address| ChunkPlace { address: *address, origin: id }).collect()
}

/// Removes what is dead.
pub(super) fn clean(store: &ObjectChunks) {
    for _ in 0..3 {
        store.maintain().unwrap();
    }
    store.sweep(&mut || true).unwrap();
}

fn refusal(taken: Result<ChunkAddress, StoreError>) -> String {
    let error = taken.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    error.to_string()
}

#[test]
fn chunks_of_a_reserved_object_are_those_of_the_store() {
    let (bucket, meta, store) = fresh_and_shared();
    let own = append(&store, 9);
    store.sync().unwrap();
    let ids = store.reserve_objects(3).unwrap();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3);
    assert!(store.claim_objects(&ids) && !store.claim_objects(&ids[..1]), "one store has them");
    let places = create(&bucket, ids[1]);
    clean(&store);
    assert_eq!(bucket.names().len(), 2, "a sweep leaves it alone");
    let mut import = Import::default();
    for (seed, place) in (0..2).zip(&places) {
        assert_eq!(store.take_chunk(&mut import, *place).unwrap(), place.address);
        assert_eq!(store.read(place.address).unwrap(), noise(seed, 1000));
        store.verify(place.address).unwrap();
    }
    assert!(refusal(store.take_chunk(&mut import, places[0])).contains("taken already"));
    let before = store.statistics();
    store.end_import(import);
    let after = store.statistics();
    assert_eq!(after.dead_bytes - before.dead_bytes, 1064, "of the third chunk");
    assert_eq!(store.shared_at(places[0].address), Some(([5; 16], places[0])));
    let owners = store.records(ids[1], 0, 9).unwrap().found;
    assert_eq!(owners[2], (places[2].address, ChunkOwner([3; 24])));
    put(&meta, 1, places[0].address);
    put(&meta, 2, places[1].address);
    let segments = store.statistics().segments;
    store.give_up_objects(&ids, &ids[..2]);
    clean(&store);
    assert_eq!(store.read(places[1].address).unwrap(), noise(1, 1000), "what was taken is not given up");
    assert_eq!(store.statistics().segments, segments - 2);
    drop(store);
    let store = shared(&bucket, &meta, config());
    assert!(!store.needs_recount());
    clean(&store);
    for (seed, place) in (0..2).zip(&places) {
        assert_eq!(store.read(place.address).unwrap(), noise(seed, 1000));
        store.release(place.address);
    }
    clean(&store);
    assert_eq!(bucket.names(), [object_name(own.segment)]);
}

#[test]
fn only_reserved_objects_that_exist_are_taken() {
    let (bucket, _meta, store) = fresh_and_shared();
    let take = |place| {
        let mut import = Import::default();
        let taken = store.take_chunk(&mut import, place);
        store.end_import(import);
        taken
    };
    let place = |id| ChunkPlace { address: build(id).chunks[0], origin: id };
    let [missing, other, garbage, long, cut] = store.reserve_objects(5).unwrap()[..] else { panic!() };
    assert!(refusal(take(place(missing))).contains("no such object"));
    create(&bucket, missing);
    assert!(refusal(take(place(missing))).contains("not reserved"), "it was given up");
    // Under the name of another one.
    let contents = bucket.0.lock().objects[&object_name(missing)].clone();
    for (id, contents) in
        [(other, contents), (garbage, noise(1, 500)), (cut, build(cut).contents.slice(..31))]
    {
        bucket.0.lock().objects.insert(object_name(id), contents);
        assert!(refusal(take(place(id))).contains("does not begin"), "{id}");
    }
    create(&bucket, long);
    let ChunkPlace { address, origin } = place(long);
    let at = |address, origin| take(ChunkPlace { address, origin });
    assert!(refusal(at(ChunkAddress { offset: 1 << 20, ..address }, origin)).contains("ends before"));
    // Each attempt was another store, which has given the object up.
    assert!(refusal(at(address, origin)).contains("not reserved"));
    let own = append(&store, 9);
    store.sync().unwrap();
    for id in [own.segment, own.segment + 1, name::first_id(1), name::first_id(2), u64::MAX] {
        assert!(refusal(take(place(id))).contains("not reserved"), "{id}");
    }
    clean(&store);
    assert_eq!(bucket.names(), [object_name(own.segment)]);
    assert_eq!(store.read(own).unwrap(), noise(9, 1000));
}

#[test]
fn reservations_end() {
    let (bucket, meta, store) = fresh_and_shared();
    let take = |store: &ObjectChunks, place| store.take_chunk(&mut Import::default(), place);
    let ids = store.reserve_objects(6).unwrap();
    let places: Vec<_> = ids.iter().map(|id| create(&bucket, *id)[0]).collect();
    assert!(!store.claim_objects(&[ids[0], ids[5] + 1]), "one was not reserved");
    assert!(store.claim_objects(&ids[..4]));
    // The third one was not begun, as far as is known: a sweep finds it.
    store.give_up_objects(&ids[..3], &ids[..2]);
    for place in &places[..3] {
        assert!(refusal(take(&store, *place)).contains("not reserved"));
    }
    assert_eq!((store.maintain().unwrap(), store.maintain().unwrap()), (0, 2));
    assert_eq!(store.sweep(&mut || true).unwrap(), 1);
    store.end_reservations(Duration::from_secs(9));
    take(&store, places[4]).unwrap();
    store.end_reservations(Duration::ZERO);
    assert!(!store.claim_objects(&ids[5..]) && store.claim_objects(&[]));
    assert!(refusal(take(&store, places[5])).contains("not reserved"));
    take(&store, places[3]).unwrap();
    clean(&store);
    // Two were taken, and their stores have not ended.
    assert_eq!(bucket.names(), [3, 4].map(|number: usize| object_name(ids[number])));
    // A late request creates it again.
    create(&bucket, ids[2]);
    store.sweep(&mut || true).unwrap();
    assert_eq!(bucket.names().len(), 2);
    // Nothing outlives the process.
    let ids = store.reserve_objects(2).unwrap();
    assert!(store.claim_objects(&ids[..1]));
    let places: Vec<_> = ids.iter().map(|id| create(&bucket, *id)[0]).collect();
    store.maintain().unwrap();
    crash(store, &bucket);
    let store = shared(&bucket, &meta, config());
    assert!(refusal(take(&store, places[0])).contains("not reserved") && !store.claim_objects(&ids));
    let state = meta.snapshot();
    store.recount(&*state, names(), &mut || true).unwrap().unwrap();
    clean(&store);
    assert_eq!(bucket.names(), [""; 0]);
}

#[test]
fn nobody_else_writes_where_that_is_not_safe() {
    let (bucket, meta, store) = fresh();
    assert_eq!((store.object_terms(), store.reserve_objects(1).unwrap()), (None, Vec::new()));
    drop(store);
    let keys = Some(Arc::new(KeyRing::random()));
    let store = ObjectChunks::open(Arc::new(bucket.clone()), Arc::clone(&meta) as _, config(), keys).unwrap();
    let store = store.shared_as([5; 16], "chunks");
    assert_eq!((store.object_terms(), store.reserve_objects(1).unwrap()), (None, Vec::new()));
    drop(store);
    let store = shared(&bucket, &meta, ObjectConfig { size_bytes: 3000, ..config() });
    assert_eq!(store.object_terms().unwrap().object_bytes_max, 4096);
    let id = store.reserve_objects(1).unwrap()[0];
    let place = create(&bucket, id)[0];
    let taken = store.take_chunk(&mut Import::default(), place);
    assert!(matches!(taken, Err(StoreError::Full)), "{taken:?}");
    clean(&store);
    assert_eq!(bucket.names(), [""; 0]);
    // There is an end to what may be reserved.
    while !store.reserve_objects(1000).unwrap().is_empty() {}
    assert_eq!(store.reserve_objects(1000).unwrap(), []);
    bucket.fail(Some(away()));
    let id = store.reserve_objects(1).unwrap()[0];
    let place = ChunkPlace { address: build(id).chunks[0], origin: id };
    let taken = store.take_chunk(&mut Import::default(), place);
    assert!(matches!(taken, Err(StoreError::Unavailable { .. })), "{taken:?}");
    bucket.fail(None);
}
