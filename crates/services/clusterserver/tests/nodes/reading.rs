//! Fronts that read file data from the bucket themselves.

use crate::files::{fetch_range, make, store};
use crate::shelf::{IDENTITY, Shelf, View, damaged};
use crate::world::{Client, HOLD, World, cell, memory, root};
use afs_idl::{CallStream, ClientConnection, fs};
use base::{AbortCode, SecurityLevel};
use bytes::Bytes;
use cluster_proto::Epoch;
use clusterserver::Counters;
use std::sync::Arc;
use std::time::Instant;
use store::{Bucket, BucketError, KeyRing};

/// A world in which the second node's file data is in a bucket.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) shelf: Shelf,
    /// The bucket as the first node uses it.
    pub(crate) view: View,
    pub(crate) client: Client,
}

impl Scene {
    pub(crate) fn new(number: u8) -> Scene {
        Scene::with_keys(number, None, None)
    }

    pub(crate) fn with_keys(number: u8, owner: Option<&Arc<KeyRing>>, front: Option<&Arc<KeyRing>>) -> Scene {
        let shelf = Shelf::default();
        let world = World::of(vec![memory(0), shelf.partition(owner)]);
        let view = View::of(&shelf);
        *world.locals[0].foreign.write() = Some((IDENTITY, view.chunks(front)));
        *world.locals[0].bucket.write() = Some(Arc::new(view.clone()));
        Scene { world, shelf, view, client: Client::start(number) }
    }

    pub(crate) fn front(&self) -> Arc<dyn ClientConnection> {
        self.client.to(&self.world.nodes[0])
    }

    pub(crate) fn owner(&self) -> Arc<dyn ClientConnection> {
        self.client.to(&self.world.nodes[1])
    }

    pub(crate) fn counters(&self) -> Counters {
        self.world.nodes[0].front.counters()
    }

    /// Makes a file of this many bytes.
    pub(crate) fn file(&self, name: &str, length: usize) -> (fs::Fid, Vec<u8>) {
        let (front, data) = (self.front(), noise(length, 1));
        let fid = make(&*front, root(1), name).unwrap();
        assert_eq!(store(&*front, fid, &data).unwrap().length as usize, length);
        (fid, data)
    }
}

/// Returns bytes that are hard to compress.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) const MB: usize = 1_000_000;
pub(crate) const ALL: i64 = i64::MAX / 2;

/// The data comes from the bucket, and everything else is what the owner answers.
#[test]
fn a_front_reads_long_files_from_the_bucket() {
    let scene = Scene::new(71);
    let (fid, data) = scene.file("f", 3 * MB);
    let before = scene.counters();
    let (got, reply) = fetch_range(&*scene.front(), fid, 0, ALL).unwrap();
    assert!(got == data, "{} of {} bytes", got.len(), data.len());
    let (same, direct) = fetch_range(&*scene.owner(), fid, 0, ALL).unwrap();
    assert!(same == data);
    assert_eq!((reply.status, reply.sync), (direct.status, direct.sync));
    assert_eq!(reply.call_back.call_back_type, fs::call_back_type::SHARED);
    let after = scene.counters();
    assert_eq!((after.reads - before.reads, after.forwarded - before.forwarded), (1, 1));
    assert_eq!(
        (after.read_bytes - before.read_bytes, after.relayed_bytes),
        (3 * MB as u64, before.relayed_bytes)
    );
    let reads = scene.view.reads();
    assert!((1..=12).contains(&reads), "{reads} for 12 chunks of 256 KiB");
    let expected = std::mem::take(&mut *scene.world.locals[0].expected.lock());
    assert!(
        expected.len() == 11 && expected.iter().all(|(identity, _)| *identity == IDENTITY),
        "{expected:?}"
    );
    // Again from memory, whatever the range.
    for (position, length) in [(0, 200_000), (262_143, 262_146), (100_000, 2 * MB as i64), (2_900_000, ALL)] {
        let (got, reply) = fetch_range(&*scene.front(), fid, position, length).unwrap();
        let end = data.len().min((position + length) as usize);
        assert!(got == data[position as usize..end], "{position} {length}");
        assert_eq!(reply.status, direct.status);
    }
    assert!(scene.view.reads() <= reads + 1, "a window may have been on its way");
    assert_eq!(scene.counters().relayed_bytes - before.relayed_bytes, 100_000, "the last range is short");
    let (got, _) = fetch_range(&*scene.front(), fid, 4 * MB as i64, ALL).unwrap();
    assert!(got.is_empty(), "beyond the end");
    // The promise is kept.
    store(&*Client::start(72).to(&scene.world.nodes[1]), fid, b"new").unwrap();
    assert_eq!(scene.client.station.broken.lock().last().map(|(fid, _)| *fid), Some(fid));
    assert_eq!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0, b"new");
}

#[test]
fn short_fetches_are_forwarded() {
    let scene = Scene::new(73);
    let (fid, data) = scene.file("f", MB);
    let (short, small) = scene.file("g", 20_000);
    let before = scene.counters();
    let least = i64::try_from(afs_idl::cluster::NAMED_BYTES_MIN).unwrap();
    assert!(fetch_range(&*scene.front(), fid, 0, least - 1).unwrap().0 == data[..least as usize - 1]);
    assert!(
        fetch_range(&*scene.front(), short, 0, ALL).unwrap().0 == small,
        "a short file, of any length asked for"
    );
    assert_eq!((scene.counters().reads, scene.view.reads()), (before.reads, 0));
    assert!(fetch_range(&*scene.front(), fid, 0, least).unwrap().0 == data[..least as usize]);
    assert_eq!((scene.counters().reads, scene.view.reads()), (before.reads + 1, 1));
    let (directory, reply) = fetch_range(&*scene.front(), root(1), 0, ALL).unwrap();
    assert_eq!(directory.len(), reply.status.length as usize);
    assert!(directory == fetch_range(&*scene.owner(), root(1), 0, ALL).unwrap().0);
    // The old form, whose length has one word.
    let request = fs::FetchDataRequest { fid, position: 5, length: least as i32 };
    let mut got = Vec::new();
    let receive = |stream: &mut dyn CallStream| {
        while got.len() < 4 + least as usize {
            got.extend_from_slice(&stream.read_chunk(4 + least as usize - got.len())?);
        }
        Ok(())
    };
    let reply = fs::fetch_data(&*scene.front(), &request, receive).unwrap();
    assert_eq!((&got[..4], reply.status.length), (&(least as u32).to_be_bytes()[..], MB as u32));
    assert!(got[4..] == data[5..5 + least as usize]);
}

fn write_at(connection: &dyn ClientConnection, fid: fs::Fid, position: u64, data: &[u8], file_length: u64) {
    let (status, length) = (fs::StoreStatus::default(), data.len() as u64);
    let request = fs::StoreData64Request { fid, status, position, length, file_length };
    fs::store_data64(connection, &request, |stream| stream.write(Bytes::copy_from_slice(data))).unwrap();
}

#[test]
fn holes_and_cut_files_are_read_as_they_are() {
    let scene = Scene::new(74);
    let fid = make(&*scene.front(), root(1), "f").unwrap();
    let (head, tail) = (noise(300_000, 2), noise(400_000, 3));
    write_at(&*scene.front(), fid, 0, &head, 300_000);
    write_at(&*scene.front(), fid, 5_000_001, &tail, 5_400_001);
    let mut expected = head;
    expected.resize(5_000_001, 0);
    expected.extend_from_slice(&tail);
    let check = |expected: &[u8]| {
        let (got, reply) = fetch_range(&*scene.front(), fid, 0, ALL).unwrap();
        assert_eq!((got.len(), reply.status.length as usize), (expected.len(), expected.len()));
        assert_eq!(got.iter().zip(expected).position(|(got, expected)| got != expected), None);
        assert!(fetch_range(&*scene.owner(), fid, 0, ALL).unwrap().0 == expected);
        for position in [0, 250_000, 299_999, 4_999_999, 5_100_000] {
            let (got, _) = fetch_range(&*scene.front(), fid, position as i64, 700_000).unwrap();
            assert!(got == expected[position.min(expected.len())..expected.len().min(position + 700_000)]);
        }
    };
    check(&expected);
    assert!(scene.counters().read_bytes > 0);
    // Cut within a chunk, and longer again.
    write_at(&*scene.front(), fid, 0, b"", 5_200_000);
    expected.truncate(5_200_000);
    check(&expected);
    write_at(&*scene.front(), fid, 5_900_000, b"end", 5_900_003);
    expected.resize(5_900_000, 0);
    expected.extend_from_slice(b"end");
    check(&expected);
    assert_eq!(scene.counters().reads_failed, 0);
}

#[test]
fn encrypted_data_is_read_with_the_keys() {
    let keys = Arc::new(KeyRing::random());
    let scene = Scene::with_keys(75, Some(&keys), Some(&keys));
    let (fid, data) = scene.file("f", 2 * MB);
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
    assert_eq!((scene.counters().read_bytes, scene.counters().reads_failed), (2 * MB as u64, 0));
    for wrong in [None, Some(Arc::new(KeyRing::random()))] {
        let scene = Scene::with_keys(76, Some(&keys), wrong.as_ref());
        let (fid, data) = scene.file("f", 2 * MB);
        assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data, "the owner sends it");
        assert_eq!((scene.counters().read_bytes, scene.counters().reads_failed), (0, 1));
    }
}

/// An object that is deleted while a front reads, because its chunks were copied, and one that arrives with wrong bytes: the
/// owner sends the rest.
#[test]
fn the_owner_sends_what_cannot_be_read() {
    let scene = Scene::new(77);
    let missing = |name: &str| Err(BucketError::Missing { name: name.to_owned() });
    for (name, first) in [("f", 1), ("g", 2), ("h", 3)] {
        let (fid, data) = scene.file(name, 3 * MB);
        let before = scene.counters();
        scene.view.meddle(move |number, name| (number >= first).then(|| missing(name)));
        assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
        let after = scene.counters();
        assert_eq!(after.reads_failed - before.reads_failed, 1, "it is not tried again");
        let read = after.read_bytes - before.read_bytes;
        assert!(read >= (first - 1).min(1) * 262_144, "{read} of {name}");
        assert!(after.relayed_bytes - before.relayed_bytes >= 3 * MB as u64 - read);
    }
    let (fid, data) = scene.file("i", 3 * MB);
    let shelf = scene.shelf.clone();
    scene.view.meddle(move |number, name| {
        (number >= 3).then(|| shelf.read(name, 0..u64::MAX).map(|all| damaged(&all.bytes)))
    });
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data, "never the wrong bytes");
    assert_eq!(scene.counters().reads_failed, 4);
    let away = BucketError::Unavailable("no answer".into());
    let (fid, data) = scene.file("j", 3 * MB);
    scene.view.meddle(move |_, _| Some(Err(away.clone())));
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
}

/// Bytes that are wrong in the bucket itself are an error, at the owner and at its fronts.
#[test]
fn damage_in_the_bucket_is_an_error_of_the_call() {
    let scene = Scene::new(78);
    let (fid, _) = scene.file("f", 3 * MB);
    scene.shelf.replace(damaged);
    assert!(!scene.shelf.names().is_empty());
    assert_eq!(fetch_range(&*scene.front(), fid, 0, ALL).map(drop), Err(AbortCode::UAEIO));
    assert_eq!(fetch_range(&*scene.owner(), fid, 0, ALL).map(drop), Err(AbortCode::UAEIO));
    assert_eq!(scene.counters().read_bytes, 0);
}

/// A file that changes while it is read, and whose old data is deleted, is never mixed: the client begins anew.
#[test]
fn a_file_that_changes_meanwhile_is_read_anew() {
    let scene = Scene::new(79);
    let (fid, data) = scene.file("f", 3 * MB);
    let new = noise(3 * MB, 5);
    let other = Client::start(80);
    let (writer, changed) = (other.to(&scene.world.nodes[1]), new.clone());
    scene.view.meddle(move |number, name| {
        if number == 4 {
            store(&*writer, fid, &changed).unwrap();
        }
        (number >= 4).then(|| Err(BucketError::Missing { name: name.to_owned() }))
    });
    assert_eq!(fetch_range(&*scene.front(), fid, 0, ALL).map(drop), Err(AbortCode::VRESTARTING));
    let (got, _) = fetch_range(&*scene.front(), fid, 0, ALL).unwrap();
    assert!(got == new && got != data);
    // If the old data is still there, the client gets it with the old version: it was valid when the call began.
    let (writer, changed) = (other.to(&scene.world.nodes[1]), data.clone());
    let version = fetch_range(&*scene.front(), fid, 0, 1).unwrap().1.status.data_version;
    scene.view.meddle(move |number, _| {
        if number == 4 {
            store(&*writer, fid, &changed).unwrap();
        }
        None
    });
    let (got, reply) = fetch_range(&*scene.front(), fid, 0, ALL).unwrap();
    assert!(got == new && reply.status.data_version == version);
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
}

/// What an owner has answered is valid for the call, whatever becomes of the owner afterwards. Another owner does not continue
/// it.
#[test]
fn an_owner_may_end_after_its_answer() {
    let scene = Scene::new(81);
    let (fid, data) = scene.file("f", 3 * MB);
    let table = scene.world.table.clone();
    scene.view.meddle(move |number, _| {
        if number == 1 {
            table.set(1, |own| (own.reads, own.changes) = (false, false));
        }
        None
    });
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
    let begun = Instant::now();
    assert_eq!(
        fetch_range(&*scene.front(), fid, 0, ALL).map(drop),
        Err(AbortCode::VRESTARTING),
        "it is asked for every call"
    );
    assert!(begun.elapsed() >= HOLD);
    scene.world.table.set(1, |own| (own.reads, own.changes) = (true, true));
    let (fid, _) = scene.file("g", 3 * MB);
    let table = scene.world.table.clone();
    scene.view.meddle(move |number, name| {
        if number == 2 {
            table.set(1, |own| own.epoch = Epoch(own.epoch.0 + 1));
        }
        (number >= 2).then(|| Err(BucketError::Missing { name: name.to_owned() }))
    });
    let begun = Instant::now();
    assert_eq!(
        fetch_range(&*scene.front(), fid, 0, ALL).map(drop),
        Err(AbortCode::VRESTARTING),
        "in another epoch"
    );
    assert!(begun.elapsed() < HOLD);
}

/// The owner's process ends after its answer: the front still sends what is in the bucket, and nothing else.
#[test]
fn an_owner_may_die_after_its_answer() {
    for is_missing in [false, true] {
        let mut scene = Scene::new(82);
        let (fid, data) = scene.file("f", 3 * MB);
        let owner = Arc::new(parking_lot::Mutex::new(scene.world.nodes.pop()));
        scene.view.meddle(move |number, name| {
            if let (1, Some(mut owner)) = (number, owner.lock().take()) {
                owner.kill();
            }
            (is_missing && number > 3).then(|| Err(BucketError::Missing { name: name.to_owned() }))
        });
        let fetched = fetch_range(&*scene.front(), fid, 0, ALL).map(|(got, _)| got == data);
        assert_eq!(fetched, if is_missing { Err(AbortCode::VRESTARTING) } else { Ok(true) });
    }
}

/// A client that may not read a file at its owner gets nothing of it at a front that has it in its cache.
#[test]
fn the_owner_decides_who_may_read() {
    let scene = Scene::new(83);
    let (fid, data) = scene.file("f", 2 * MB);
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
    let before = scene.counters();
    let admin = Client::start(84);
    let identity = Some(cell(SecurityLevel::Encrypted));
    let at_owner = admin.to_service(scene.world.nodes[1].files, fs::SERVICE_ID, identity);
    let access_list = b"1\n0\nsystem:anyuser\t8\n".to_vec();
    fs::store_acl(&*at_owner, &fs::StoreACLRequest { fid: root(1), access_list }).unwrap();
    assert_eq!(fetch_range(&*scene.front(), fid, 0, ALL).map(drop), Err(AbortCode::UAEACCES));
    assert_eq!(
        fetch_range(&*scene.front(), fs::Fid { vnode: 99, ..fid }, 0, ALL).map(drop),
        Err(AbortCode::VNOVNODE)
    );
    let after = scene.counters();
    assert_eq!((after.reads, after.read_bytes), (before.reads, before.read_bytes));
    let access_list = b"1\n0\nsystem:anyuser\t9\n".to_vec();
    fs::store_acl(&*at_owner, &fs::StoreACLRequest { fid: root(1), access_list }).unwrap();
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
}

/// A partition that was replaced by another one has chunks with the same addresses and other contents.
#[test]
fn chunks_of_another_partition_are_not_read() {
    let scene = Scene::new(85);
    let (fid, data) = scene.file("f", 2 * MB);
    *scene.world.locals[0].foreign.write() = Some(([8; 16], scene.view.chunks(None)));
    assert!(fetch_range(&*scene.front(), fid, 0, ALL).unwrap().0 == data);
    assert_eq!((scene.counters().read_bytes, scene.view.reads()), (0, 0));
}
