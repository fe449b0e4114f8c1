//! Volumes that move between two partitions of one bucket: the target borrows the objects of the source.

use crate::support::{config, runtime};
use crate::writers::{Files, contents, create, options, partition_id};
use base::{AbortCode, Fid, UnixTime, VnodeId, VolumeId, VolumeType};
use bucket::faulty::{Faults, FaultyBucket};
use bucket_partition::{BucketConfig, Opener};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path as Name;
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{ChunkAddress, ChunkPlace, MasterKey, Partition};
use volume::{
    Borrower, CHUNK_NAMES, CompactionPolicy, DataSource, Import, LentObjects, Loan, NewVolume,
    PartitionHandle, Restoration, Space, StoredChunk, VnodeStatus, Volume, VolumeError, VolumeHeader,
    VolumeOptions, Volumes,
};
use volume_check::{CheckOptions, check};

pub(crate) const PREFIXES: [&str; 2] = ["cells/a", "cells/b"];
const HISTORIES: u64 = 40;
const EVENTS: u32 = 40;
const OPENS_MAX: u32 = 20;

/// A process that has one of the partitions.
pub(crate) struct Side {
    // Dropped in this order.
    pub(crate) volumes: Volumes,
    pub(crate) partition: Partition,
    opener: Opener,
    prefix: &'static str,
}

impl Side {
    fn opener(bucket: &FaultyBucket, side: usize, seed: u64) -> Opener {
        Side::opener_of(Arc::new(bucket.clone()), side, seed)
    }

    pub(crate) fn opener_of(bucket: Arc<dyn ObjectStore>, side: usize, seed: u64) -> Opener {
        let (prefix, request_limit) = (PREFIXES[side], Duration::from_secs(5));
        let options = BucketConfig {
            request_limit,
            object_bytes_max: 40_000,
            patience: Duration::from_secs(20),
            seed: Some(seed),
            ..BucketConfig::default()
        };
        Opener::with_runtime(runtime(), bucket, prefix, prefix, &options)
    }

    fn try_open(bucket: &FaultyBucket, side: usize, seed: u64) -> Option<Side> {
        Side::open_with(Side::opener(bucket, side, seed), side)
    }

    pub(crate) fn open_with(opener: Opener, side: usize) -> Option<Side> {
        let partition = opener.open(&config(), None).ok()?;
        partition.recount(CHUNK_NAMES).ok()?;
        let handle = PartitionHandle {
            id: partition_id(),
            meta: partition.meta(),
            chunks: partition.chunks(),
            space: Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 }),
        };
        let volumes = Volumes::open(vec![handle], VolumeOptions { append_threads: 0, ..options() }).ok()?;
        Some(Side { volumes, partition, opener, prefix: PREFIXES[side] })
    }

    pub(crate) fn open(bucket: &FaultyBucket, side: usize) -> Side {
        // Each process draws other names of objects.
        let open = |_| Side::try_open(bucket, side, bucket.met().requests << 1 | side as u64);
        (0..OPENS_MAX).find_map(open).expect("it opens")
    }

    pub(crate) fn crash(self) {
        self.opener.abandon();
    }

    pub(crate) fn get(&self, id: VolumeId) -> Arc<Volume> {
        self.volumes.get_any_state(id).unwrap()
    }

    /// Returns the volume with this id, creating it if it is missing.
    pub(crate) fn volume(&self, id: VolumeId, kind: VolumeType) -> Result<Arc<Volume>, VolumeError> {
        if let Ok(volume) = self.volumes.get_any_state(id) {
            return Ok(volume);
        }
        let new = NewVolume {
            id,
            name: format!("volume.{}", id.0).parse().unwrap(),
            kind,
            parent: id,
            quota_max_kib: 0,
            with_root: true,
            in_service: true,
            destroy_me: 0,
            now: UnixTime(1),
        };
        self.volumes.create(partition_id(), &new)
    }

    pub(crate) fn identity(&self) -> [u8; 16] {
        self.partition.chunks().identity().unwrap()
    }

    /// Ends the loans of what the other side does not use, as far as that is known. It brings the rest home, if `is_unneeded` here.
    pub(crate) fn end_loans_of(&self, other: &Side, is_unneeded: bool) {
        let chunks = self.partition.chunks();
        for lent in chunks.lent(is_unneeded) {
            let LentObjects { lender, loan, borrower, objects } = lent;
            assert_eq!((lender, borrower.partition), (self.identity(), other.identity()));
            let used = other.partition.chunks().used_of_loan((lender, loan), &objects, is_unneeded);
            let Ok(used) = used else { continue };
            let unused: Vec<u64> = objects.into_iter().filter(|id| !used.contains(id)).collect();
            _ = chunks.end_loan(loan, &unused);
        }
    }

    pub(crate) fn end_loans(&self, other: &Side) {
        self.end_loans_of(other, true);
    }

    /// Does all upkeep; what the bucket refuses is left.
    pub(crate) fn keep_up(&self) {
        while self.volumes.purge_step().unwrap_or(false) {}
        let policy = CompactionPolicy::default();
        let step = || self.volumes.compact_step(partition_id(), policy, UnixTime(1));
        _ = (0..1000).find(|_| step().is_ok_and(|step| step.is_idle));
        (0..3).for_each(|_| _ = self.partition.maintain());
    }

    /// Removes what requests of ended processes have left.
    pub(crate) fn sweep(&self) {
        self.partition.sweep().unwrap();
    }
}

/// A file of a volume, with the places of its chunks.
struct Lending<'a> {
    volume: &'a Arc<Volume>,
    status: VnodeStatus,
    at: u64,
    taken: u64,
    objects: &'a mut BTreeSet<u64>,
}

impl DataSource for Lending<'_> {
    fn next(&mut self, most: usize) -> Result<Bytes, AbortCode> {
        let fid = self.status.fid(self.volume.id());
        let read = self.volume.read(fid, self.at, most as u64).map_err(AbortCode::from)?.1.concat();
        self.at += read.len() as u64;
        Ok(read.into())
    }

    fn stored(&mut self, length: usize) -> Result<Option<ChunkPlace>, AbortCode> {
        let index = self.at >> options().chunk_shift;
        let found = self.volume.stored_chunks(&self.status, index).map_err(AbortCode::from)?;
        let place = found.places.first().filter(|(first, _)| *first == index).map(|(_, place)| place);
        match place {
            Some(StoredChunk::Own(chunk, bytes)) if *bytes as usize == length => {
                self.at += length as u64;
                self.taken += 1;
                self.objects.insert(chunk.address.segment);
                Ok(Some(*chunk))
            }
            _ => Ok(None),
        }
    }
}

/// Sends a volume to the other partition, as the volume `id` there; returns the number of chunks that were taken over.
pub(crate) fn send(
    from: &Side,
    source: VolumeId,
    to: &Side,
    id: VolumeId,
    kind: VolumeType,
) -> Result<u64, VolumeError> {
    let sent = begin(from, source, to, id, kind)?;
    sent.keep(to)?;
    sent.finish(to)
}

/// A transfer whose data is at the target.
struct Sent {
    source: Arc<Volume>,
    loan: Loan,
    restoration: Restoration,
    header: VolumeHeader,
    objects: BTreeSet<u64>,
    taken: u64,
}

impl Sent {
    /// The source records the loan.
    fn keep(&self, to: &Side) -> Result<(), VolumeError> {
        let objects: Vec<u64> = self.objects.iter().copied().collect();
        let borrower = Borrower { partition: to.identity(), index: 1 };
        if objects.is_empty() { Ok(()) } else { self.source.keep_lent(&self.loan, borrower, &objects) }
    }

    /// The target takes the volume into use.
    fn finish(self, to: &Side) -> Result<u64, VolumeError> {
        self.restoration.finish(&to.volumes, self.header, UnixTime(2))?;
        Ok(self.taken)
    }
}

fn begin(
    from: &Side,
    source: VolumeId,
    to: &Side,
    id: VolumeId,
    kind: VolumeType,
) -> Result<Sent, VolumeError> {
    let source = from.volumes.get_any_state(source)?;
    let loan = source.lend_chunks().unwrap();
    let target = to.volume(id, kind)?;
    let mut restoration = to.volumes.restore(id)?;
    restoration.set_import(import(&target, from.prefix, &loan)?);
    let mut found = Vec::new();
    source.vnodes(VnodeId(0), &mut |status| {
        found.push(*status);
        true
    })?;
    let (mut taken, mut objects) = (0, BTreeSet::new());
    found.sort_by_key(|status| !status.is_directory());
    for status in found {
        if status.is_directory() {
            let fid = status.fid(source.id());
            let blob = source.reader(fid, 0, u64::MAX)?.directory()?;
            let (status, acl) = source.status_and_acl(fid)?;
            restoration.directory(status, (*acl).clone(), &blob)?;
        } else {
            let mut data = Lending { volume: &source, status, at: 0, taken: 0, objects: &mut objects };
            restoration.file(status, &mut data)?;
            taken += data.taken;
        }
    }
    let old = target.header();
    let header = VolumeHeader { id, parent: id, kind, name: old.name, ..source.header() };
    Ok(Sent { source, loan, restoration, header, objects, taken })
}

fn import(target: &Volume, prefix: &str, loan: &Loan) -> Result<Import, VolumeError> {
    target.import_chunks(prefix, loan.partition, loan.id, options().chunk_shift)
}

pub(crate) fn noise(rng: &mut SmallRng, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    rng.fill_bytes(&mut data);
    data
}

/// Returns the names of the objects of file data of both partitions.
fn objects(bucket: &FaultyBucket) -> Vec<String> {
    let list = |prefix: &str| {
        let folder = Name::from(format!("{prefix}/chunks"));
        let found = runtime().block_on(async { bucket.list(Some(&folder)).try_collect::<Vec<_>>().await });
        found.unwrap().into_iter().map(|object| object.location.to_string())
    };
    PREFIXES.iter().flat_map(|prefix| list(prefix)).collect()
}

pub(crate) fn is_clean(bucket: &FaultyBucket, side: usize) -> u64 {
    is_clean_by(&Side::opener(bucket, side, 7))
}

pub(crate) fn is_clean_by(opener: &Opener) -> u64 {
    let inspection = opener.inspect(None).unwrap();
    let (meta, segments) = (inspection.meta(), inspection.segments());
    let report = check(meta, Some(segments), CheckOptions { data: true }, &mut |_| {});
    assert!(report.is_clean(), "{report:#?}");
    report.chunks_read
}

/// Deletes all volumes; nothing is left then.
pub(crate) fn delete_all(bucket: &FaultyBucket) {
    // What a crash has left is found after the next start.
    for _ in 0..2 {
        let sides = [0, 1].map(|side| Side::open(bucket, side));
        for side in &sides {
            for volume in side.volumes.list(partition_id()) {
                side.volumes.delete(volume.id()).unwrap();
            }
            side.keep_up();
        }
        for (one, two) in [(0, 1), (1, 0)] {
            sides[one].end_loans(&sides[two]);
            sides[one].keep_up();
            sides[one].sweep();
        }
    }
    assert_eq!(objects(bucket), Vec::<String>::new());
}

pub(crate) const HOME: VolumeId = VolumeId(1000);
const OTHER: VolumeId = VolumeId(2000);
const SITE: VolumeId = VolumeId(3000);

/// Puts some files into a volume, among them one with a hole and one that is in no chunk.
pub(crate) fn fill(side: &Side, id: VolumeId, rng: &mut SmallRng) -> Files {
    let volume = side.volume(id, VolumeType::ReadWrite).unwrap();
    for (name, length) in [("tiny", 50), ("one", 4096), ("long", 30_000), ("longer", 90_001)] {
        create(&volume, name, &noise(rng, length)).unwrap();
    }
    create(&volume, "hole", &[vec![0; 20_000], noise(rng, 5000)].concat()).unwrap();
    contents(&volume)
}

#[test]
fn a_move_killed_at_any_request_loses_nothing() {
    let mut ends = [0; 2];
    for requests in 0.. {
        let bucket = FaultyBucket::new(requests, Faults::default());
        let mut rng = SmallRng::seed_from_u64(requests);
        let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
        let (files, others) = (fill(&from, HOME, &mut rng), fill(&from, OTHER, &mut rng));
        bucket.set_away_after(requests);
        let sent = send(&from, HOME, &to, HOME, VolumeType::ReadWrite);
        let is_over = sent.is_ok() && bucket.met().away == 0;
        to.crash();
        bucket.set_away(None);
        let to = Side::open(&bucket, 1);
        let found = to.volumes.get_any_state(HOME).map(|volume| contents(&volume)).unwrap_or_default();
        assert!(found == files || (sent.is_err() && found.is_empty()), "killed after {requests} requests");
        ends[usize::from(found == files)] += 1;
        if found.is_empty() {
            to.sweep();
            assert!(send(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap() > 30);
        }
        // The source deletes the volume, and the objects in which nothing else is once the target has copied them.
        from.volumes.delete(HOME).unwrap();
        for _ in 0..3 {
            from.keep_up();
            from.end_loans(&to);
            to.keep_up();
        }
        assert_eq!(contents(&to.get(HOME)), files);
        assert_eq!(contents(&from.get(OTHER)), others);
        drop((from, to));
        assert!(is_clean(&bucket, 0) > 30 && is_clean(&bucket, 1) > 30);
        assert_eq!(contents(&Side::open(&bucket, 1).get(HOME)), files);
        delete_all(&bucket);
        if is_over {
            println!("{requests} requests; {} moves were not made, {} were", ends[0], ends[1]);
            assert!(requests > 8 && ends[0] > 8);
            return;
        }
    }
}

/// Moves a volume with one large file, and returns its contents and the number of requests of the move.
fn move_large(bucket: &FaultyBucket, from: Side, to: &Side) -> (Side, Vec<u8>, u64) {
    let volume = from.volume(HOME, VolumeType::ReadWrite).unwrap();
    let data = noise(&mut SmallRng::seed_from_u64(1), 4_000_000);
    create(&volume, "large", &data).unwrap();
    drop(volume);
    drop(from);
    // Without what is in memory.
    let from = Side::open(bucket, 0);
    let before = bucket.met().requests;
    assert_eq!(send(&from, HOME, to, HOME, VolumeType::ReadWrite).unwrap(), 977);
    (from, data, bucket.met().requests - before)
}

/// Returns the names of objects with file data.
pub(crate) fn data_objects(bucket: &FaultyBucket) -> Vec<String> {
    objects(bucket).into_iter().filter(|name| !name.contains("/loan-")).collect()
}

#[test]
fn a_move_copies_nothing_until_the_source_is_deleted() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let to = Side::open(&bucket, 1);
    let (from, data, requests) = move_large(&bucket, Side::open(&bucket, 0), &to);
    let lent = data_objects(&bucket);
    println!("977 chunks in {} objects: {requests} requests", lent.len());
    assert!(lent.iter().all(|name| name.starts_with(PREFIXES[0])), "{lent:?}");
    assert_eq!(objects(&bucket).len(), lent.len() + 1, "and the record of the loan");
    assert_eq!(to.partition.statistics().chunks.chunks_appended, 0);
    assert!(requests < lent.len() as u64 + 60, "{requests} requests");
    let files = BTreeMap::from([("large".to_owned(), data)]);
    // While the source uses the objects, nothing is copied.
    from.end_loans(&to);
    from.end_loans_of(&to, false);
    to.keep_up();
    assert_eq!((from.partition.chunks().lent(true), data_objects(&bucket)), (vec![], lent.clone()));
    // Both are opened again.
    drop((from, to));
    let [from, to] = [0, 1].map(|side| Side::open(&bucket, side));
    assert_eq!(contents(&to.get(HOME)), files);
    from.volumes.delete(HOME).unwrap();
    from.keep_up();
    assert_eq!(data_objects(&bucket), lent, "the target has them");
    from.end_loans(&to);
    to.keep_up();
    assert_eq!(data_objects(&bucket).len(), 2 * lent.len(), "they are copied");
    from.end_loans(&to);
    from.keep_up();
    let left = objects(&bucket);
    assert_eq!(left.len(), lent.len());
    assert!(left.iter().all(|name| name.starts_with(PREFIXES[1])), "{left:?}");
    assert_eq!(contents(&to.get(HOME)), files);
    drop((from, to));
    assert_eq!(contents(&Side::open(&bucket, 1).get(HOME)), files);
    assert_eq!(is_clean(&bucket, 1), 977);
    delete_all(&bucket);
}

#[test]
fn borrowed_objects_that_are_not_used_any_more_are_given_back() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let to = Side::open(&bucket, 1);
    let (from, data, _) = move_large(&bucket, Side::open(&bucket, 0), &to);
    to.volumes.delete(HOME).unwrap();
    to.keep_up();
    assert_eq!(
        contents(&from.get(HOME)),
        BTreeMap::from([("large".to_owned(), data)]),
        "the source has them"
    );
    from.volumes.delete(HOME).unwrap();
    from.keep_up();
    let lent = data_objects(&bucket).len();
    assert!(lent > 90 && from.partition.chunks().lent(true)[0].objects.len() == lent);
    // Of the target, nothing is left that could use them.
    to.crash();
    let next = Side::open(&bucket, 1);
    next.keep_up();
    from.end_loans(&next);
    from.keep_up();
    assert_eq!(objects(&bucket), Vec::<String>::new());
}

#[test]
fn loans_of_what_the_source_uses_end_too() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let to = Side::open(&bucket, 1);
    let (from, data, _) = move_large(&bucket, Side::open(&bucket, 0), &to);
    to.volumes.delete(HOME).unwrap();
    to.keep_up();
    from.end_loans_of(&to, false);
    assert_eq!(objects(&bucket), data_objects(&bucket), "no loan is left");
    drop(from);
    let from = Side::open(&bucket, 0);
    assert_eq!(from.partition.chunks().lent(false), []);
    assert_eq!(contents(&from.get(HOME)), BTreeMap::from([("large".to_owned(), data)]));
}

/// A superseded owner may name objects that the next one removes.
#[test]
fn a_superseded_owner_lends_nothing() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let sent = begin(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    let next = Side::open(&bucket, 0);
    next.volumes.delete(HOME).unwrap();
    next.keep_up();
    sent.keep(&to).unwrap_err();
    // The target, which would find the record of the loan now, has not seen the end of the transfer.
    drop(sent);
    to.keep_up();
    drop((from, next));
    delete_all(&bucket);
}

/// The next owner of the borrower may use objects that a superseded one does not know of.
#[test]
fn a_superseded_borrower_does_not_answer() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let next = Side::open(&bucket, 1);
    send(&from, HOME, &next, HOME, VolumeType::ReadWrite).unwrap();
    let [lent] = &from.partition.chunks().lent(false)[..] else { panic!("one loan") };
    let ask =
        |side: &Side| side.partition.chunks().used_of_loan((lent.lender, lent.loan), &lent.objects, false);
    ask(&to).unwrap_err();
    assert_eq!(ask(&next).unwrap(), lent.objects);
}

#[test]
fn nothing_is_taken_into_use_before_the_loan_is_recorded() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let begin = || begin(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    let error = begin().finish(&to).unwrap_err().to_string();
    assert!(error.contains("there is no such object"), "{error}");
    // One object is missing; the loan is another partition's.
    let sent = begin();
    let borrower = Borrower { partition: to.identity(), index: 1 };
    let some: Vec<u64> = sent.objects.iter().copied().skip(1).collect();
    from.get(HOME).keep_lent(&sent.loan, borrower, &some).unwrap();
    let error = sent.finish(&to).unwrap_err().to_string();
    assert!(error.contains("is not lent"), "{error}");
    let sent = begin();
    let all: Vec<u64> = sent.objects.iter().copied().collect();
    from.get(HOME).keep_lent(&sent.loan, Borrower { partition: [3; 16], ..borrower }, &all).unwrap();
    let error = sent.finish(&to).unwrap_err().to_string();
    assert!(error.contains("lent to another partition"), "{error}");
    assert!(contents(&to.get(HOME)).is_empty());
}

/// The source may ask about a loan before the target has seen what is lent.
#[test]
fn objects_of_a_transfer_that_goes_on_count_as_used() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    let files = fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let target = to.volume(SITE, VolumeType::ReadOnly).unwrap();
    let loan = from.get(HOME).lend_chunks().unwrap();
    let held = import(&target, PREFIXES[0], &loan).unwrap();
    let used = || to.partition.chunks().used_of_loan((from.identity(), loan.id), &[1, 2], true).unwrap();
    assert_eq!(used(), [1, 2]);
    drop(held);
    assert_eq!(used(), [0; 0]);
    // The source ends, and its next owner asks, between the record of the loan and the commit of the target.
    let sent = begin(&from, HOME, &to, HOME, VolumeType::ReadWrite).unwrap();
    sent.keep(&to).unwrap();
    from.crash();
    let next = Side::open(&bucket, 0);
    next.volumes.delete(HOME).unwrap();
    let ask = || {
        next.keep_up();
        next.end_loans(&to);
        next.keep_up();
    };
    ask();
    sent.finish(&to).unwrap();
    for _ in 0..3 {
        ask();
        to.keep_up();
        assert_eq!(contents(&to.get(HOME)), files);
    }
    assert!(objects(&bucket).iter().all(|name| name.starts_with(PREFIXES[1])), "{:?}", objects(&bucket));
}

#[test]
fn objects_on_loan_stay_although_nothing_refers_to_them() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let side = Side::open(&bucket, 0);
    fill(&side, HOME, &mut SmallRng::seed_from_u64(1));
    let loan = side.get(HOME).lend_chunks().unwrap();
    side.volumes.delete(HOME).unwrap();
    side.keep_up();
    side.keep_up();
    assert!(!objects(&bucket).is_empty());
    drop(loan);
    side.keep_up();
    assert_eq!(objects(&bucket), Vec::<String>::new());
}

/// The next owner of the source may remove what a superseded one names.
#[test]
fn nothing_is_taken_of_objects_that_are_gone() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let target = to.volume(HOME, VolumeType::ReadWrite).unwrap();
    let (chunk, loan) = (places(&from, "longer")[0], from.get(HOME).lend_chunks().unwrap());
    from.crash();
    let next = Side::open(&bucket, 0);
    next.volumes.delete(HOME).unwrap();
    next.keep_up();
    assert_eq!(objects(&bucket), Vec::<String>::new());
    let mut import = import(&target, PREFIXES[0], &loan).unwrap();
    let chunks = to.partition.chunks();
    for _ in 0..2 {
        let error = chunks.take_chunk(&mut import, chunk).unwrap_err().to_string();
        assert!(error.contains("there is no such object"), "{error}");
    }
    chunks.end_import(import);
    drop((target, chunks));
    to.keep_up();
    assert_eq!(objects(&bucket), Vec::<String>::new());
}

#[test]
fn only_the_named_partition_of_the_bucket_is_a_source() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let (from, to) = (Side::open(&bucket, 0), Side::open(&bucket, 1));
    fill(&from, HOME, &mut SmallRng::seed_from_u64(1));
    let (loan, target) =
        (from.get(HOME).lend_chunks().unwrap(), to.volume(SITE, VolumeType::ReadWrite).unwrap());
    let import_again = |prefix: &str, partition| {
        target
            .import_chunks(prefix, partition, loan.id, options().chunk_shift)
            .map_err(|error| error.to_string())
    };
    import_again(PREFIXES[0], loan.partition).unwrap();
    for (prefix, partition) in
        [(PREFIXES[1], loan.partition), ("cells/c", loan.partition), (PREFIXES[0], [1; 16])]
    {
        import_again(prefix, partition).unwrap_err();
    }
    target.import_chunks(PREFIXES[0], loan.partition, loan.id, 18).unwrap_err();
    // Addresses of no chunk, and of one that was taken.
    let mut import = import_again(PREFIXES[0], loan.partition).unwrap();
    let chunk = places(&from, "longer")[0];
    let chunks = to.partition.chunks();
    let address = chunk.address;
    let wrong = [
        ChunkAddress { segment: address.segment + 1000, ..address },
        ChunkAddress { offset: 0, ..address },
        ChunkAddress { offset: u64::MAX, ..address },
        ChunkAddress { stored_bytes: 5, ..address },
        ChunkAddress { stored_bytes: 1 << 20, ..address },
    ];
    for address in wrong {
        chunks.take_chunk(&mut import, ChunkPlace { address, ..chunk }).unwrap_err();
    }
    // Another object at its place.
    let mut other = import_again(PREFIXES[0], loan.partition).unwrap();
    let moved = ChunkPlace { origin: chunk.origin + 1, ..chunk };
    let error = chunks.take_chunk(&mut other, moved).unwrap_err().to_string();
    assert!(error.contains("as the object that is meant"), "{error}");
    chunks.end_import(other);
    chunks.take_chunk(&mut import, moved).unwrap_err();
    let taken = chunks.take_chunk(&mut import, chunk).unwrap();
    chunks.take_chunk(&mut import, chunk).unwrap_err();
    assert_eq!(chunks.read(taken).unwrap(), from.partition.chunks().read(chunk.address).unwrap());
    chunks.release(taken);
    chunks.end_import(import);
    drop((loan, target, chunks));
    to.keep_up();
    assert!(objects(&bucket).iter().all(|name| name.starts_with(PREFIXES[0])), "{:?}", objects(&bucket));
}

#[test]
fn encrypted_partitions_neither_lend_nor_take() {
    let bucket = FaultyBucket::new(1, Faults::default());
    let from = Side::open(&bucket, 0);
    let loan = from.get(fill_one(&from)).lend_chunks().unwrap();
    let key = MasterKey::parse(&[7; 32]).unwrap();
    let opener = Side::opener(&bucket, 1, 1);
    let partition = opener.open(&config(), Some(&key)).unwrap();
    let chunks = partition.chunks();
    assert!(chunks.lend().is_none());
    assert!(
        chunks
            .import(PREFIXES[0], loan.partition, loan.id)
            .unwrap_err()
            .to_string()
            .contains("takes over no objects")
    );
}

/// Returns where the chunks of a file are.
pub(crate) fn places(side: &Side, name: &str) -> Vec<ChunkPlace> {
    let volume = side.get(HOME);
    let found = volume.lookup(volume.root(), name.as_bytes()).unwrap();
    let status = volume.status(Fid { volume: HOME, vnode: found.vnode, unique: found.unique }).unwrap();
    let found = volume.stored_chunks(&status, 0).unwrap();
    let place = |(_, chunk)| match chunk {
        StoredChunk::Own(place, _) => place,
        StoredChunk::Elsewhere => panic!("it is small, or shared"),
    };
    found.places.into_iter().map(place).collect()
}

fn fill_one(side: &Side) -> VolumeId {
    fill(side, HOME, &mut SmallRng::seed_from_u64(1));
    HOME
}

/// A volume that moves to and fro while it changes, with a read-only site on the other partition now and then, while both
/// partitions are kept up, processes crash, and the bucket fails.
struct History {
    rng: SmallRng,
    bucket: FaultyBucket,
    faults: Faults,
    sides: [Option<Side>; 2],
    home: usize,
    files: Files,
    /// The contents of the site on each side.
    sites: [Option<Files>; 2],
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    moves: u64,
    releases: u64,
    failures: u64,
    crashes: u64,
    taken: u64,
    /// Objects that were lent and were asked for.
    asked: u64,
}

fn compare(what: &str, found: &Files, wanted: &Files) {
    let lengths = |files: &Files| -> Vec<(String, usize)> {
        files.iter().map(|(name, data)| (name.clone(), data.len())).collect()
    };
    assert_eq!(lengths(found), lengths(wanted), "{what}");
    let differs = |(name, data): &(&String, &Vec<u8>)| wanted.get(*name) != Some(*data);
    let other: Vec<&String> = found.iter().filter(differs).map(|(name, _)| name).collect();
    assert!(other.is_empty(), "{what}: other bytes in {other:?}");
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut some = |most: u32| if rng.random() { rng.random_range(0..=most) } else { 0 };
        let faults = Faults {
            refused: some(60),
            lost: some(60),
            own_conflict: some(60),
            late: some(60),
            repeated: some(80),
            delayed: some(40),
            hung: some(8),
        };
        let bucket = FaultyBucket::new(seed, Faults::default());
        let sides = [0, 1].map(|side| Some(Side::open(&bucket, side)));
        let files = fill(sides[0].as_ref().unwrap(), HOME, &mut rng);
        let (home, sites, seen) = (0, [None, None], Seen::default());
        History { rng, bucket, faults, sides, home, files, sites, seen }
    }

    fn side(&self, side: usize) -> &Side {
        self.sides[side].as_ref().unwrap()
    }

    fn reopen(&mut self, side: usize) {
        self.sides[side].take().unwrap().crash();
        self.sides[side] = Some(Side::open(&self.bucket, side));
        self.seen.crashes += 1;
    }

    /// Sends with faults; after a failure, perhaps as one of a process that ended.
    fn send(&mut self, id: VolumeId, kind: VolumeType) -> bool {
        let to = 1 - self.home;
        if self.rng.random_range(0..4) == 0 {
            self.bucket.set_away_after(self.rng.random_range(0..60));
        }
        self.bucket.set_faults(self.faults);
        let sent = begin(self.side(self.home), HOME, self.side(to), id, kind);
        let sent = sent.and_then(|sent| self.end_transfer(sent));
        self.bucket.set_faults(Faults::default());
        self.bucket.set_away(None);
        let is_crash = self.rng.random_range(0..3) == 0;
        if is_crash || sent.is_err() {
            let side = if self.rng.random() { to } else { self.home };
            self.reopen(side);
        }
        self.seen.taken += sent.as_ref().copied().unwrap_or(0);
        self.seen.failures += u64::from(sent.is_err());
        sent.is_ok()
    }

    /// Records the loan and takes the volume into use. Meanwhile the source may crash, and its next owner does its upkeep.
    fn end_transfer(&mut self, sent: Sent) -> Result<u64, VolumeError> {
        sent.keep(self.side(1 - self.home))?;
        if self.rng.random_range(0..4) == 0 {
            self.bucket.set_faults(Faults::default());
            self.bucket.set_away(None);
            self.reopen(self.home);
            self.end_loans(self.home);
            self.side(self.home).keep_up();
        }
        sent.finish(self.side(1 - self.home))
    }

    fn end_loans(&mut self, side: usize) {
        let is_unneeded = self.rng.random();
        let lent = self.side(side).partition.chunks().lent(is_unneeded);
        self.seen.asked += lent.iter().map(|lent| lent.objects.len() as u64).sum::<u64>();
        self.side(side).end_loans_of(self.side(1 - side), is_unneeded);
    }

    fn change(&mut self) {
        let name = ["tiny", "one", "long", "new"].into_iter().choose(&mut self.rng).unwrap();
        let length = self.rng.random_range(1..30_000);
        let data = noise(&mut self.rng, length);
        let volume = self.side(self.home).get(HOME);
        if self.files.contains_key(name) {
            volume.remove_file(&crate::writers::actor(), volume.root(), name.as_bytes()).unwrap();
        }
        create(&volume, name, &data).unwrap();
        self.files.insert(name.to_owned(), data);
    }

    fn relocate(&mut self) {
        if !self.send(HOME, VolumeType::ReadWrite) {
            return;
        }
        self.seen.moves += 1;
        self.side(self.home).volumes.delete(HOME).unwrap();
        self.home = 1 - self.home;
    }

    fn release(&mut self) {
        let to = 1 - self.home;
        if self.send(SITE, VolumeType::ReadOnly) {
            self.seen.releases += 1;
            self.sites[to] = Some(self.files.clone());
            return;
        }
        // An error may come after the change.
        let found = self.side(to).volumes.get_any_state(SITE).ok().map(|site| contents(&site));
        if found.as_ref() == Some(&self.files) {
            self.sites[to] = found;
        } else if self.sites[to].is_none() {
            assert!(found.is_none_or(|files| files.is_empty()), "the site has a part of the release");
            _ = self.side(to).volumes.delete(SITE);
        }
    }

    fn event(&mut self) {
        let side = self.rng.random_range(0..2);
        match self.rng.random_range(0..12) {
            10 | 11 => {
                self.bucket.set_faults(self.faults);
                self.end_loans(side);
                self.bucket.set_faults(Faults::default());
            }
            0..=2 => self.change(),
            3 | 4 => self.relocate(),
            5 => self.release(),
            6 => self.reopen(side),
            7 => self.side(side).sweep(),
            _ => {
                self.bucket.set_faults(self.faults);
                self.side(side).keep_up();
                self.bucket.set_faults(Faults::default());
            }
        }
    }

    fn check(&self) {
        compare("the volume", &contents(&self.side(self.home).get(HOME)), &self.files);
        for (side, site) in self.sites.iter().enumerate() {
            if let Some(files) = site {
                compare("the site", &contents(&self.side(side).get(SITE)), files);
            }
        }
    }

    fn play(mut self) -> Seen {
        for _ in 0..EVENTS {
            self.event();
            self.check();
        }
        for side in 0..2 {
            self.side(side).keep_up();
        }
        self.check();
        self.sides = [None, None];
        for side in 0..2 {
            is_clean(&self.bucket, side);
        }
        delete_all(&self.bucket);
        self.seen
    }
}

#[test]
fn volumes_that_move_to_and_fro_keep_every_byte() {
    let mut all = Seen::default();
    seeds::play(HISTORIES, |seed| {
        let Seen { moves, releases, failures, crashes, taken, asked } = History::new(seed).play();
        all.moves += moves;
        all.releases += releases;
        all.failures += failures;
        all.crashes += crashes;
        all.taken += taken;
        all.asked += asked;
    });
    println!("{all:?}");
    let Seen { moves, releases, failures, crashes, taken, asked } = all;
    assert!(moves > 80 && releases > 40 && failures > 20 && crashes > 100 && taken > 2000, "{all:?}");
    assert!(asked > 100, "{all:?}");
}
