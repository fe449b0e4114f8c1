//! Fronts that write file data to the bucket themselves.

use crate::files::{fetch_range, make, store};
use crate::reading::{ALL, MB, Scene, noise};
use crate::world::{Client, HOLD, cell, root};
use afs_idl::{CallStream, ClientConnection, fs};
use base::{AbortCode, SecurityLevel};
use bytes::Bytes;
use cluster_proto::Epoch;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::KeyRing;

const CHUNK: u64 = 256 * 1024;

/// Longer than a node may send nothing without being considered dead.
const PAUSE: Duration = Duration::from_secs(8);

fn write_at(
    connection: &dyn ClientConnection,
    fid: fs::Fid,
    position: u64,
    data: &[u8],
) -> Result<fs::FetchStatus, AbortCode> {
    let (status, length) = (fs::StoreStatus::default(), data.len() as u64);
    let request = fs::StoreData64Request { fid, status, position, length, file_length: u64::MAX >> 1 };
    let send = |stream: &mut dyn CallStream| {
        data.chunks(77_777).try_for_each(|piece| stream.write(Bytes::copy_from_slice(piece)))
    };
    fs::store_data64(connection, &request, send).map(|reply| reply.new_status)
}

/// The whole chunks go to the bucket, the rest to the owner, and the result is that of any store.
#[test]
fn a_front_writes_long_stores_to_the_bucket() {
    let scene = Scene::new(101);
    let (fid, _) = scene.file("f", 5);
    let before = scene.counters();
    let data = noise(3 * MB, 1);
    let status = store(&*scene.front(), fid, &data).unwrap();
    assert_eq!((status.length as usize, status.data_version), (data.len(), 2));
    let after = scene.counters();
    assert_eq!((after.writes - before.writes, after.forwarded - before.forwarded), (1, 1));
    assert_eq!((after.written_bytes, after.writes_failed), (11 * CHUNK, 0));
    let created = scene.view.creations();
    assert_eq!((created, scene.shelf.names().len()), (4, 5), "three chunks in each, and the owner's own");
    for connection in [scene.owner(), scene.front()] {
        let (got, reply) = fetch_range(&*connection, fid, 0, ALL).unwrap();
        assert!(got == data);
        assert_eq!((reply.status.data_version, reply.status.author), (2, status.author));
    }
    // The old call, and data that shrinks.
    let zeros = vec![0; 2 * MB];
    let request = fs::StoreDataRequest {
        fid,
        status: fs::StoreStatus::default(),
        position: 0,
        length: zeros.len() as u32,
        file_length: zeros.len() as u32,
    };
    let reply = fs::store_data(&*scene.front(), &request, |stream| stream.write(zeros.clone().into()));
    assert_eq!(reply.unwrap().new_status.length as usize, zeros.len());
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == zeros);
    assert_eq!((scene.counters().writes, scene.view.creations()), (2, created + 1));
    // Short ones are forwarded as they are.
    store(&*scene.front(), fid, &data[..MB]).unwrap();
    assert_eq!((scene.counters().writes, scene.view.creations()), (2, created + 1));
    // A promise of another client is broken.
    let other = Client::start(102);
    fetch_range(&*other.to(&scene.world.nodes[1]), fid, 0, 1).unwrap();
    store(&*scene.front(), fid, &data).unwrap();
    assert_eq!(other.station.broken.lock().last().map(|(fid, _)| *fid), Some(fid));
    assert_eq!(scene.world.locals[0].cancelled.lock().as_slice(), [""; 0]);
}

/// Stores of any range, through both nodes, some of whose objects are not created.
#[test]
fn any_ranges_are_stored_as_they_are() {
    let scene = Scene::new(103);
    let fid = make(&*scene.front(), root(1), "f").unwrap();
    let (front, owner) = (scene.front(), scene.owner());
    let mut rng = SmallRng::seed_from_u64(5);
    let mut expected: Vec<u8> = Vec::new();
    for round in 0..40_u64 {
        let position = rng.random_range(0..=expected.len() + 300_000);
        // Often at the edge of a chunk.
        let position = if rng.random() { position / CHUNK as usize * CHUNK as usize } else { position };
        let length = rng.random_range(MB..4 * MB);
        let data = if rng.random() { noise(length, round) } else { vec![round as u8; length] };
        let first = rng.random_range(1..6);
        scene.view.fail(if rng.random() { first..first + 1 } else { 0..0 });
        let writer = if rng.random_ratio(4, 5) { &front } else { &owner };
        let status = write_at(&**writer, fid, position as u64, &data).unwrap();
        expected.resize(expected.len().max(position + length), 0);
        expected[position..position + length].copy_from_slice(&data);
        assert_eq!((status.length as usize, u64::from(status.data_version)), (expected.len(), round + 1));
        let (got, _) = fetch_range(&*owner, fid, 0, ALL).unwrap();
        let differs = got.iter().zip(&expected).position(|(got, expected)| got != expected);
        assert_eq!((got.len(), differs), (expected.len(), None), "round {round} at {position}");
    }
    let counters = scene.counters();
    assert!(counters.writes > 20 && counters.writes_failed > 5, "{counters:?}");
}

/// What cannot be written to the bucket is sent, from the object on that was not created.
#[test]
fn the_owner_writes_what_the_front_cannot() {
    let scene = Scene::new(104);
    let data = noise(3 * MB, 3);
    for (name, first, written) in [("a", 1, 0), ("b", 2, 3), ("c", 4, 9)] {
        let fid = make(&*scene.front(), root(1), name).unwrap();
        let before = scene.counters();
        scene.view.fail(first..9);
        store(&*scene.front(), fid, &data).unwrap();
        assert_eq!(scene.view.creations(), first, "it is not tried again");
        let after = scene.counters();
        assert_eq!(after.written_bytes - before.written_bytes, written * CHUNK, "{name}");
        assert_eq!(after.writes_failed - before.writes_failed, 1);
        assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == data);
    }
    // A node that does not have the partition's bucket.
    *scene.world.locals[0].bucket.write() = None;
    let fid = make(&*scene.front(), root(1), "d").unwrap();
    store(&*scene.front(), fid, &data).unwrap();
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == data);
    // A partition whose keys may be replaced.
    let keys = Arc::new(KeyRing::random());
    let scene = Scene::with_keys(105, Some(&keys), Some(&keys));
    let (fid, data) = scene.file("f", 3 * MB);
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == data);
    assert_eq!((scene.counters().writes, scene.view.creations()), (0, 0));
}

/// The owner says who may store, before anything is written.
#[test]
fn the_owner_decides_who_may_write() {
    let scene = Scene::new(106);
    let (fid, data) = scene.file("f", 2 * MB);
    let created = scene.view.creations();
    let admin = Client::start(107);
    let identity = Some(cell(SecurityLevel::Encrypted));
    let at_owner = admin.to_service(scene.world.nodes[1].files, fs::SERVICE_ID, identity);
    let access_list = b"1\n0\nsystem:anyuser\t9\n".to_vec();
    fs::store_acl(&*at_owner, &fs::StoreACLRequest { fid: root(1), access_list }).unwrap();
    let new = noise(2 * MB, 8);
    assert_eq!(store(&*scene.front(), fid, &new).map(drop), Err(AbortCode::UAEACCES));
    let missing = fs::Fid { vnode: 98, ..fid };
    assert_eq!(store(&*scene.front(), missing, &new).map(drop), Err(AbortCode::VNOVNODE));
    assert_eq!(store(&*scene.front(), root(1), &new).map(drop), Err(AbortCode::UAEISDIR));
    assert_eq!(scene.view.creations(), created);
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == data);
}

/// Stores data. Sends the first `sent` bytes, calls `meanwhile`, then sends the rest.
fn store_slowly(
    connection: &dyn ClientConnection,
    fid: fs::Fid,
    data: &[u8],
    (sent, meanwhile): (usize, &mut dyn FnMut()),
) -> Result<(), AbortCode> {
    let (status, length) = (fs::StoreStatus::default(), data.len() as u64);
    let request = fs::StoreData64Request { fid, status, position: 0, length, file_length: length };
    let send = |stream: &mut dyn CallStream| {
        stream.write(Bytes::copy_from_slice(&data[..sent]))?;
        meanwhile();
        data[sent..].chunks(100_000).try_for_each(|piece| stream.write(Bytes::copy_from_slice(piece)))
    };
    fs::store_data64(connection, &request, send).map(drop)
}

/// Waits until the front has created this many objects.
fn await_creations(scene: &Scene, count: u64) {
    let begun = Instant::now();
    while scene.view.creations() < count {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} objects", scene.view.creations());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Neither a client that pauses nor a slow bucket seems to be the death of a node, and what the owner has got so far it keeps.
#[test]
fn pauses_do_not_end_a_store() {
    let scene = Scene::new(112);
    let (fid, _) = scene.file("f", 5);
    let data = noise(3 * MB, 4);
    for (sent, pauses) in [(1000, true), (MB, true), (2 * MB, false)] {
        scene.view.delay(if pauses { Duration::ZERO } else { PAUSE / 2 });
        let mut pause = || std::thread::sleep(if pauses { PAUSE } else { Duration::ZERO });
        store_slowly(&*scene.front(), fid, &data, (sent, &mut pause)).unwrap();
        let (got, reply) = fetch_range(&*scene.owner(), fid, 0, ALL).unwrap();
        assert!(got == data, "{sent} of {}", reply.status.length);
    }
    // One that is forwarded as it is.
    let short = &data[..MB];
    store_slowly(&*scene.front(), fid, short, (300, &mut || std::thread::sleep(PAUSE))).unwrap();
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == short);
    let counters = scene.counters();
    assert_eq!((counters.writes, counters.writes_failed, counters.unknown), (3, 0, 0), "{counters:?}");
}

/// Data that shrinks to little of its size takes no more memory than other data, and no object is left.
#[test]
fn data_that_shrinks_is_stored_in_few_objects() {
    let scene = Scene::new(113);
    let (fid, _) = scene.file("f", 5);
    let zeros = vec![0; 150 * MB];
    store(&*scene.front(), fid, &zeros).unwrap();
    assert_eq!(scene.view.creations(), 3, "256 chunks in each");
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == zeros);
}

/// An ownership that ends while objects are created: the client begins anew, and the file is as before or as after the store.
#[test]
fn an_ownership_that_ends_takes_its_stores_along() {
    let scene = Scene::new(108);
    let (fid, data) = scene.file("f", 3 * MB);
    let new = noise(3 * MB, 9);
    let created = scene.view.creations();
    let table = scene.world.table.clone();
    let mut end = || {
        await_creations(&scene, created + 1);
        table.set(1, |own| own.epoch = Epoch(own.epoch.0 + 1));
    };
    let begun = Instant::now();
    let stored = store_slowly(&*scene.front(), fid, &new, (2 * MB, &mut end));
    assert_eq!(stored, Err(AbortCode::VRESTARTING));
    assert!(begun.elapsed() < HOLD);
    let (got, _) = fetch_range(&*scene.owner(), fid, 0, ALL).unwrap();
    assert!(got == data || got == new, "all or nothing");
    store(&*scene.front(), fid, &new).unwrap();
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == new);
}

/// A client that gives up in the middle, or sends less than it has announced, changes nothing.
#[test]
fn an_incomplete_store_changes_nothing() {
    let scene = Scene::new(109);
    let (fid, data) = scene.file("f", 3 * MB);
    let new = noise(3 * MB, 9);
    let created = scene.view.creations();
    let (status, length) = (fs::StoreStatus::default(), new.len() as u64);
    let request = fs::StoreData64Request { fid, status, position: 0, length, file_length: length };
    let given_up = AbortCode(77);
    let stored = fs::store_data64(&*scene.front(), &request, |stream| {
        stream.write(Bytes::copy_from_slice(&new[..2 * MB]))?;
        await_creations(&scene, created + 1);
        Err(given_up)
    });
    assert_eq!(stored.map(drop), Err(given_up));
    // It ends the request before its data.
    let stored = fs::store_data64(&*scene.front(), &request, |stream| {
        stream.write(Bytes::copy_from_slice(&new[..2 * MB]))
    });
    assert_eq!(stored.map(drop), Err(AbortCode::RXGEN_SS_UNMARSHAL));
    // The first one could be in creation at the time, too.
    let begun = Instant::now();
    while scene.world.locals[0].cancelled.lock().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "a creation goes on without its store");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == data);
}
