//! Objects that other partitions use.

use super::reserved::{clean, fresh_and_shared, shared};
use super::*;
use crate::segment::objects::Borrower;

const BORROWER: Borrower = Borrower { partition: [6; 16], index: 1 };

/// Appends a chunk that is in an object of its own.
fn append_alone(store: &ObjectChunks, seed: u32) -> ChunkAddress {
    let address = append(store, seed);
    store.sync().unwrap();
    address
}

/// Lends the object of a chunk; returns the number of the loan.
fn lend(store: &ObjectChunks, address: ChunkAddress) -> u64 {
    let loan = store.lend().unwrap();
    store.keep_lent(&loan, BORROWER, &[address.segment]).unwrap();
    loan.id
}

fn names(bucket: &MemoryBucket, suffix: &str) -> usize {
    bucket.names().iter().filter(|name| name.ends_with(suffix)).count()
}

#[test]
fn a_lent_object_stays_until_its_loan_ends() {
    let (bucket, meta, store) = fresh_and_shared();
    let address = append_alone(&store, 1);
    let loans = [lend(&store, address), lend(&store, address)];
    store.release(address);
    clean(&store);
    assert_eq!((names(&bucket, ".seg"), store.loans(), store.lent(true).len()), (1, (1, 0), 2));
    store.end_loan(loans[0], &[address.segment]).unwrap();
    clean(&store);
    drop(store);
    let store = shared(&bucket, &meta, config());
    clean(&store);
    let [lent] = &store.lent(true)[..] else { panic!("one loan is left") };
    assert_eq!((lent.loan, lent.borrower, &lent.objects[..]), (loans[1], BORROWER, &[address.segment][..]));
    assert_eq!(names(&bucket, ".seg"), 1);
    store.end_loan(loans[1], &[address.segment]).unwrap();
    clean(&store);
    assert!(bucket.names().is_empty(), "{:?}", bucket.names());
    drop(store);
    assert_eq!(shared(&bucket, &meta, config()).lent(false), []);
}

#[test]
fn a_loan_whose_record_cannot_be_removed_is_ended_later() {
    let (bucket, _, store) = fresh_and_shared();
    let address = append_alone(&store, 1);
    let loan = lend(&store, address);
    bucket.fail(Some(BucketError::Unavailable("away".into())));
    store.end_loan(loan, &[address.segment]).unwrap_err();
    bucket.fail(None);
    let [lent] = &store.lent(true)[..] else { panic!("it is still there") };
    assert!(lent.objects.is_empty());
    store.end_loan(loan, &[]).unwrap();
    assert_eq!((store.lent(false), bucket.names().len()), (vec![], 1));
}

/// Metadata that was restored from a copy knows neither the objects nor the loans that are newer.
#[test]
fn restored_metadata_does_not_make_loans_forgotten() {
    let (bucket, _, store) = fresh_and_shared();
    let (lent, other) = (append_alone(&store, 1), append_alone(&store, 2));
    let loan = lend(&store, lent);
    drop(store);
    let store = shared(&bucket, &Arc::new(MemoryMeta::new()), config());
    clean(&store);
    assert!(bucket.names().contains(&object_name(lent.segment)));
    assert!(!bucket.names().contains(&object_name(other.segment)));
    assert_ne!(lend(&store, append_alone(&store, 3)), loan, "a number is not used again");
    assert_eq!(store.lent(true).iter().map(|lent| lent.loan).collect::<Vec<_>>(), [loan]);
    store.end_loan(loan, &[lent.segment]).unwrap();
    clean(&store);
    assert!(!bucket.names().contains(&object_name(lent.segment)));
}

#[test]
fn a_damaged_record_of_a_loan_keeps_all_objects() {
    let (bucket, _, store) = fresh_and_shared();
    let (lent, other) = (append_alone(&store, 1), append_alone(&store, 2));
    let loan = lend(&store, lent);
    drop(store);
    bucket.flip(&name::loan_name(loan), 62);
    let store = shared(&bucket, &Arc::new(MemoryMeta::new()), config());
    clean(&store);
    for address in [lent, other] {
        assert!(bucket.names().contains(&object_name(address.segment)));
    }
}

/// A list of the bucket begins with the oldest loan.
#[test]
fn numbers_of_loans_are_not_used_again() {
    let (bucket, mut meta, mut store) = fresh_and_shared();
    let address = append_alone(&store, 1);
    let mut loans = BTreeSet::new();
    for _ in 0..4 {
        assert!(loans.insert(lend(&store, address)));
        drop(store);
        store = shared(&bucket, &meta, config());
    }
    // A copy of the metadata from before all that.
    drop(store);
    meta = Arc::new(MemoryMeta::new());
    for _ in 0..8 {
        store = shared(&bucket, &meta, config());
        assert!(loans.insert(store.lend().unwrap().id), "a number is used again");
        drop(store);
    }
}

/// The account of an object that is lent and in use here is damaged: the object gets a new one.
#[test]
fn a_lent_object_with_a_damaged_account_is_in_use() {
    let (bucket, meta, store) = fresh_and_shared();
    let address = append_alone(&store, 1);
    put(&meta, 1, address);
    let loan = lend(&store, address);
    drop(store);
    damage(&meta, address.segment);
    let store = shared(&bucket, &meta, config());
    assert_eq!(store.lent(true), []);
    clean(&store);
    assert_eq!(store.lent(true), []);
    store.end_loan(loan, &[address.segment]).unwrap();
    clean(&store);
    assert_eq!(store.read(address).unwrap(), noise(1, 1000));
    drop(store);
    let store = shared(&bucket, &meta, config());
    clean(&store);
    assert_eq!(store.read(address).unwrap(), noise(1, 1000));
}

#[test]
fn a_record_that_is_created_after_its_loan_is_removed() {
    let (bucket, _, store) = fresh_and_shared();
    let address = append_alone(&store, 1);
    let loan = lend(&store, address);
    let name = name::loan_name(loan);
    let record = bucket.0.lock().objects[&name].clone();
    clean(&store);
    assert!(bucket.names().contains(&name));
    store.end_loan(loan, &[address.segment]).unwrap();
    bucket.0.lock().objects.insert(name.clone(), record);
    clean(&store);
    assert!(!bucket.names().contains(&name));
}

#[test]
fn lent_objects_are_not_compacted() {
    let (_, _, store) = fresh_and_shared();
    let addresses = [append(&store, 1), append(&store, 2)];
    store.sync().unwrap();
    store.release(addresses[0]);
    assert_eq!(store.sparse_segments(30).len(), 1);
    let loan = lend(&store, addresses[1]);
    assert_eq!(store.sparse_segments(30), []);
    store.end_loan(loan, &[addresses[1].segment]).unwrap();
    assert_eq!(store.sparse_segments(30).len(), 1);
}

/// Programs that know of no loans expect 8 bytes, and would remove what is lent.
#[test]
fn a_partition_that_has_lent_is_marked() {
    let (bucket, meta, store) = fresh_and_shared();
    let mark = |meta: &MemoryMeta| meta.get(Family::SYSTEM, EPOCH_KEY).unwrap().unwrap()[8..].to_vec();
    assert_eq!(mark(&meta), []);
    let address = append_alone(&store, 1);
    let loan = lend(&store, address);
    store.end_loan(loan, &[address.segment]).unwrap();
    drop(store);
    drop(shared(&bucket, &meta, config()));
    assert_eq!(mark(&meta), [LENDS]);
    for unknown in [vec![LENDS + 1], vec![LENDS, 0]] {
        let mut batch = Batch::new();
        batch.put(Family::SYSTEM, EPOCH_KEY, [&[0; 8][..], &unknown].concat());
        meta.commit(batch).unwrap();
        let opened = ObjectChunks::open(Arc::new(bucket.clone()), Arc::clone(&meta) as _, config(), None);
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("a newer program"), "{error}");
    }
}
