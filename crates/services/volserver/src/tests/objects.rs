//! Tests of transfers between partitions of one bucket.

use super::counting::{IN_USE, LOAN, PREFIX, UUID};
use super::support::{Cell, Disks, LARGE, START, admin, anybody};
use super::transfers::{ID, Pair, contents, noise, take};
use crate::OtherOwners;
use afs_format::transfer::{CHUNK_BYTES, Stored, Writer};
use afs_idl::MemoryStream;
use afs_idl::cellar::{BorrowObjectsRequest, UsedObjectsRequest};
use afs_idl::vol::{self, attach_mode};
use base::{AbortCode, PartitionId, VolumeId};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::MemoryChunks;
use volume::{Borrower, ChunkAddress, ChunkPlace, LentObjects, StoredChunk};

const TARGET: u32 = super::transfers::TARGET;
const REFUSED: Result<(), AbortCode> = Err(AbortCode::VOLSERREAD_DUMPERROR);

/// Where the other server's partition is.
struct Beside(Option<&'static str>);

impl OtherOwners for Beside {
    fn partitions(&self) -> Vec<PartitionId> {
        [0, LARGE as u32].into_iter().filter_map(PartitionId::from_index).collect()
    }

    fn transaction_numbers(&self, partition: PartitionId) -> Option<RangeInclusive<i32>> {
        let first = partition.index() as i32 * 10_000;
        Some(first + 1..=first + 99)
    }

    fn prefix_beside(&self, partition: PartitionId, _: PartitionId) -> Option<String> {
        self.0.filter(|_| partition.index() as i32 == LARGE).map(str::to_owned)
    }

    fn address(&self) -> Option<SocketAddrV4> {
        None
    }

    fn has(&self, _: VolumeId, _: Duration) -> Option<bool> {
        Some(false)
    }

    fn volume_deleted(&self, _: VolumeId) {}
}

/// Two servers whose large partitions are in one bucket, with the disks of the source. `taken` are the chunks that the target
/// finds there, those of the source if it is `None`.
fn pair(prefix: Option<&'static str>, taken: Option<MemoryChunks>) -> (Pair, Disks) {
    let (mut from, mut to) = (Disks::default(), Disks::default());
    from.beside = Some(to.chunks[1].clone());
    to.beside = Some(taken.map_or_else(|| from.chunks[1].clone(), Arc::new));
    let cell = Cell::on(&from).sharing(Arc::new(Beside(prefix)));
    let other = Arc::new(Cell::on(&to).sharing(Arc::new(Beside(prefix))));
    (Pair::of(cell, other, to), from)
}

#[test]
fn data_in_objects_is_not_sent() {
    let (mut pair, from) = pair(Some(PREFIX), None);
    let to = pair.create();
    from.reads.store(0, Relaxed);
    pair.forward(to, 0).unwrap();
    let [whole] = pair.network.streams()[..] else { panic!() };
    // The small files, which are in the metadata, and the ends of the others.
    assert!((3000..8000).contains(&whole), "{whole}");
    let done = pair.cell.server.sent()[0].done;
    assert!(done > 8 * CHUNK_BYTES as u64, "{done}");
    let counted = [&from.reads, &pair.disks.reads, &pair.disks.appends].map(|count| count.load(Relaxed));
    assert_eq!((counted, pair.network.asked()), ([0; 3], 0), "no data is read or written");
    let kept = std::mem::take(&mut *from.loans.kept.lock());
    let borrower = Borrower { partition: UUID, index: LARGE as u32 };
    assert_eq!((kept.len(), kept[0].loan, kept[0].borrower, kept[0].objects.len()), (1, LOAN, borrower, 2));
    pair.other.set_flags(to, 0).unwrap();
    pair.other.end(to).unwrap();
    assert_eq!(contents(&pair.target()), contents(&pair.volume()));
    // A part of a file has changed.
    pair.now += 100;
    pair.write_at("large", CHUNK_BYTES as u64 + 5, b"changed", 5 * CHUNK_BYTES as u64 + 77);
    pair.disks.appends.store(0, Relaxed);
    pair.send(START + 50);
    let [changed] = pair.network.streams()[..] else { panic!() };
    assert!(changed < 2000, "{changed}");
    // Those of a file that has not changed: contents in service are not built upon.
    assert_eq!(pair.disks.appends.load(Relaxed), 2);
    pair.send(0);
    // The source is not needed.
    pair.cell.volumes.delete(VolumeId(ID)).unwrap();
    while pair.cell.volumes.purge_step().unwrap() {}
    assert_eq!(from.chunks[1].live_chunks(), 0);
    assert_eq!(contents(&pair.target())[&b"exact"[..]], noise(3, 2 * CHUNK_BYTES));
}

#[test]
fn data_is_sent_to_where_objects_cannot_be_taken_over() {
    for prefix in [None, Some("cells/another")] {
        let (pair, _) = pair(prefix, None);
        pair.send(0);
        let [whole] = pair.network.streams()[..] else { panic!() };
        assert!(whole > 7 * CHUNK_BYTES, "{whole}");
    }
    // The target finds out in the middle of the transfer.
    let (pair, _) = pair(Some(PREFIX), Some(MemoryChunks::new()));
    pair.send(0);
    let [short, long] = pair.network.streams()[..] else { panic!() };
    assert!(short < 8000 && long > 7 * CHUNK_BYTES, "{short}, {long}");
}

#[test]
fn a_transfer_of_references_that_is_cut_off_is_repeated() {
    for cuts in [&[700][..], &[1500, 3300], &[3300, 20]] {
        let (pair, _) = pair(Some(PREFIX), None);
        pair.network.cut(cuts);
        pair.send(0);
        assert_eq!(pair.network.pauses() as usize, cuts.len());
        assert!(pair.network.streams().iter().all(|bytes| *bytes < 8000));
    }
}

/// The objects may be used from the end of the transfer on, not from that of the dump in it.
#[test]
fn a_transfer_without_its_end_is_not_used() {
    let (pair, _) = pair(Some(PREFIX), None);
    pair.send(0);
    pair.write("tiny", b"other");
    let (dump, chunk, before) = (dump(&pair), first_chunk(&pair), contents(&pair.target()));
    let data = noise(3, 2 * CHUNK_BYTES);
    let at = dump.windows(64).position(|bytes| *bytes == data[..64]).unwrap();
    let to = pair.other.open(TARGET, LARGE, attach_mode::BUSY).unwrap();
    let stream = referring(&dump, at, chunk);
    let whole = stream.len() - END_BYTES;
    let more = [&stream[..whole], &stream[whole - 5..whole]].concat();
    for stream in [&stream[..whole], &stream[..stream.len() - 1], &more] {
        let request = BorrowObjectsRequest { transaction: to, partition: LARGE, uuid: UUID, loan: LOAN };
        assert_eq!(pair.other.server.borrow_objects(&admin(), request).unwrap().accepted, 1);
        take(&pair.other, to, stream).unwrap_err();
        assert_eq!(contents(&pair.target()), before);
    }
    pair.other.end(to).unwrap();
    pair.other.check();
}

#[test]
fn loans_end_when_the_borrower_does_not_use_the_objects() {
    let (pair, from) = pair(Some(PREFIX), None);
    let lent = |loan, index, partition, objects: &[u64]| {
        let borrower = Borrower { partition, index };
        LentObjects { lender: UUID, loan, borrower, objects: objects.to_vec() }
    };
    let large = LARGE as u32;
    let (other, away) = (lent(8, large, [1; 16], &[1]), lent(7, 200, [2; 16], &[1]));
    let (in_use, empty) = (lent(IN_USE, large, UUID, &[1, 2]), lent(IN_USE, large, UUID, &[]));
    *from.loans.kept.lock() =
        vec![lent(LOAN, large, UUID, &[1, 2, 3]), other.clone(), away.clone(), in_use.clone()];
    *from.loans.used.lock() = vec![2];
    let kept = || from.loans.kept.lock().clone();
    pair.cell.server.end_loans(None);
    let left = lent(LOAN, large, UUID, &[2]);
    assert_eq!(kept(), [left, other.clone(), away.clone(), in_use]);
    let mut after = BTreeMap::new();
    pair.cell.server.end_loans(Some(&mut after));
    assert_eq!(kept()[1..], [other, away, empty]);
}

#[test]
fn loans_of_what_is_in_use_are_asked_for_in_turn() {
    let (pair, from) = pair(Some(PREFIX), None);
    let borrower = Borrower { partition: UUID, index: LARGE as u32 };
    // All have the number of a loan of objects that the lender uses.
    let lent = |object| LentObjects { lender: UUID, loan: IN_USE, borrower, objects: vec![object] };
    *from.loans.kept.lock() = (0..90).map(lent).collect();
    let mut after = BTreeMap::new();
    pair.cell.server.end_loans(Some(&mut after));
    assert_eq!(after.values().max(), Some(&IN_USE), "there may be more");
    pair.cell.server.end_loans(Some(&mut after));
    assert_eq!(after.values().max(), Some(&0), "it begins anew");
}

#[test]
fn only_administrators_ask_for_the_use_of_objects() {
    let (pair, from) = pair(Some(PREFIX), None);
    *from.loans.used.lock() = vec![2];
    let request = UsedObjectsRequest {
        partition: LARGE as u32,
        uuid: UUID,
        lender: [1; 16],
        loan: LOAN,
        objects: vec![1, 2, 3],
        brings_home: 1,
    };
    let ask = |caller, request| pair.cell.server.used_objects(&caller, request).map(|reply| reply.used);
    assert_eq!(ask(admin(), request.clone()), Ok(vec![2]));
    assert_eq!(ask(anybody(), request.clone()), Err(AbortCode::VOLSERBAD_ACCESS));
    let others = [
        UsedObjectsRequest { uuid: [2; 16], ..request.clone() },
        UsedObjectsRequest { partition: 0, ..request.clone() },
        UsedObjectsRequest { partition: 200, ..request.clone() },
        UsedObjectsRequest { partition: u32::MAX, ..request },
    ];
    for other in others {
        assert!(ask(admin(), other.clone()).is_err(), "{other:?}");
    }
}

/// Returns a dump of the volume.
fn dump(pair: &Pair) -> Vec<u8> {
    let transaction = pair.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let mut stream = MemoryStream::new(&[], 1000);
    let request = vol::DumpRequest { transaction, from_date: 0 };
    pair.cell.server.dump(&admin(), request, &mut stream).unwrap();
    pair.cell.end(transaction).unwrap();
    stream.outgoing
}

/// Length of the end of a transfer: its kind and a digest.
const END_BYTES: usize = 33;

/// Returns the transfer of a dump with a reference in place of the bytes from `at` on.
fn referring(dump: &[u8], at: usize, stored: Stored) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut writer = Writer::begin(&mut stream);
    writer.raw(&dump[..at], &mut stream);
    writer.stored(&stored, &mut stream);
    writer.raw(&dump[(at + stored.length as usize).min(dump.len())..], &mut stream);
    writer.end(&mut stream);
    stream
}

/// Returns the place of the first chunk of a file of two.
fn first_chunk(pair: &Pair) -> Stored {
    let volume = pair.volume();
    let found = volume.lookup(volume.root(), b"exact").unwrap();
    let status = volume.status(super::support::fid(&volume, found)).unwrap();
    let stored = volume.stored_chunks(&status, 0).unwrap();
    let StoredChunk::Own(ChunkPlace { address, origin }, length) = stored.places[0].1 else {
        panic!("{stored:?}")
    };
    let ChunkAddress { segment: object, offset, stored_bytes: record_bytes } = address;
    Stored { length, object, offset, record_bytes, origin }
}

#[test]
fn references_to_anything_else_are_refused() {
    let (pair, _) = pair(Some(PREFIX), None);
    pair.send(0);
    pair.write("tiny", b"other");
    let (dump, chunk, before) = (dump(&pair), first_chunk(&pair), contents(&pair.target()));
    let data = noise(3, 2 * CHUNK_BYTES);
    let at = dump.windows(64).position(|bytes| *bytes == data[..64]).unwrap();
    let to = pair.other.open(TARGET, LARGE, attach_mode::BUSY).unwrap();
    let offer = |uuid| {
        let request = BorrowObjectsRequest { transaction: to, partition: LARGE, uuid, loan: LOAN };
        pair.other.server.borrow_objects(&admin(), request).unwrap().accepted
    };
    let stream = |at, stored| referring(&dump, at, stored);
    assert_eq!((offer([0; 16]), take(&pair.other, to, &stream(at, chunk))), (0, REFUSED));
    assert_eq!(take(&pair.other, to, &stream(at, chunk)), REFUSED, "nothing was offered");
    let wrong = [
        (at - 1, chunk),
        (at + 1, chunk),
        (at + CHUNK_BYTES - 10, chunk),
        (0, chunk),
        (20, Stored { length: 4, ..chunk }),
        (dump.len(), chunk),
        (at, Stored { length: 1, ..chunk }),
        (at, Stored { length: chunk.length - 1, ..chunk }),
        (at, Stored { object: chunk.object + 1000, ..chunk }),
        (at, Stored { offset: u64::MAX, ..chunk }),
        (at, Stored { record_bytes: 0, ..chunk }),
    ];
    for (at, stored) in wrong {
        assert_eq!(offer(UUID), 1);
        assert_eq!(take(&pair.other, to, &stream(at, stored)), REFUSED, "{stored:?} at {at}");
        assert_eq!(contents(&pair.target()), before);
    }
    assert_eq!(offer(UUID), 1);
    take(&pair.other, to, &stream(at, chunk)).unwrap();
    pair.other.end(to).unwrap();
    assert_eq!(contents(&pair.target()), contents(&pair.volume()));
    pair.other.check();
}
