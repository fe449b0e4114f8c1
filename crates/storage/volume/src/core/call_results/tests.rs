use super::*;
use crate::VnodeStatus;
use base::{UnixTime, UserId, VnodeId, VolumeId};
use std::net::Ipv4Addr;
use store::{CommitNumber, MemoryMeta};
use volume_records::{CallResult, FileKind};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn id(number: u64) -> CallId {
    CallId { process: 7, number }
}

fn at(seconds: u64) -> Monotonic {
    Monotonic(0) + Duration::from_secs(seconds)
}

fn recorded(unique: u32) -> RecordedCall {
    let status = VnodeStatus {
        vnode: VnodeId(2),
        unique,
        kind: FileKind::File,
        mode: 0o644,
        owner: UserId(1),
        group: 0,
        links: 1,
        length: 0,
        data_version: 0,
        client_modified: UnixTime(1),
        server_modified: UnixTime(1),
        author: UserId(1),
        parent: VnodeId(1),
        parent_unique: 1,
    };
    RecordedCall { volume: VolumeId(9), user: UserId(1), result: CallResult::Stored(status) }
}

fn done(unique: u32) -> Earlier {
    Earlier::Done(Box::new(recorded(unique)))
}

fn results() -> (Arc<MemoryMeta>, CallResults) {
    let meta = Arc::new(MemoryMeta::new());
    let results = CallResults::load(meta.clone()).unwrap();
    (meta, results)
}

/// Executes a call, durably.
fn execute(meta: &MemoryMeta, results: &CallResults, call: CallId, client: IpAddr) {
    assert_eq!(results.find(call).unwrap(), Earlier::Never, "{call:?}");
    let mut batch = Batch::new();
    CallResults::record(&mut batch, call, &recorded(call.number as u32));
    meta.sync(meta.commit(batch).unwrap()).unwrap();
    results.committed(call, client);
}

fn rows(meta: &dyn MetaStore) -> usize {
    let (from, to) = keys::results();
    let mut rows = 0;
    let range = KeyRange::ascending(&from, &to);
    let scanned = meta.scan(Family::SYSTEM, range, &mut |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    rows
}

#[test]
fn the_next_owner_finds_the_result_of_a_call() {
    let (meta, results) = results();
    execute(&meta, &results, id(1), CLIENT);
    assert_eq!(results.find(id(1)).unwrap(), done(1));
    // This one is not durable when the owner dies.
    let mut batch = Batch::new();
    CallResults::record(&mut batch, id(2), &recorded(2));
    meta.commit(batch).unwrap();
    results.committed(id(2), CLIENT);
    let next = CallResults::load(Arc::new(meta.crash(0))).unwrap();
    assert_eq!(next.find(id(1)).unwrap(), done(1));
    assert!(next.contains(id(1)) && !next.contains(id(2)));
    assert_eq!(next.find(id(2)).unwrap(), Earlier::Never);
    let other = CallId { process: 8, number: 1 };
    assert_eq!(next.find(other).unwrap(), Earlier::Never, "another process");
}

#[test]
fn a_deleted_result_is_not_taken_for_none() {
    let (meta, results) = results();
    for number in [1, 2, 5] {
        execute(&meta, &results, id(number), CLIENT);
    }
    results.forget(at(0)).unwrap();
    execute(&meta, &results, id(4), CLIENT);
    results.forget(at(59)).unwrap();
    assert_eq!(results.len(), 4);
    results.forget(at(60)).unwrap();
    assert_eq!((results.len(), rows(&*meta)), (1, 2), "a result, and the highest deleted number");
    meta.sync(CommitNumber(meta.commits())).unwrap();
    for results in [results, CallResults::load(Arc::new(meta.crash(0))).unwrap()] {
        for number in [1, 2, 3, 5] {
            assert_eq!(results.find(id(number)).unwrap(), Earlier::Unknown, "{number}");
        }
        assert_eq!(results.find(id(4)).unwrap(), done(4), "it is younger");
        assert_eq!(results.find(id(6)).unwrap(), Earlier::Never);
    }
}

#[test]
fn results_of_the_owner_before_are_kept_for_a_minute() {
    let (meta, results) = results();
    execute(&meta, &results, id(1), CLIENT);
    let results = CallResults::load(meta.clone()).unwrap();
    results.forget(at(1000)).unwrap();
    assert!(results.contains(id(1)));
    results.forget(at(1060)).unwrap();
    assert_eq!(results.find(id(1)).unwrap(), Earlier::Unknown);
    assert!(results.entries.lock().origins.is_empty());
}

#[test]
fn results_are_bounded_for_a_client_and_in_total() {
    let (meta, results) = results();
    execute(&meta, &results, id(1), CLIENT);
    let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    for number in 0..2 * RESULTS_PER_ORIGIN_MAX as u64 {
        execute(&meta, &results, id(2 + number), other);
        assert!(results.len() <= 1 + RESULTS_PER_ORIGIN_MAX);
    }
    assert!(results.contains(id(1)), "only those of the same client are deleted");
    assert_eq!(results.find(id(2)).unwrap(), Earlier::Unknown);
    for client in 0..40_u64 {
        for number in 0..RESULTS_PER_ORIGIN_MAX as u64 / 2 {
            let call = CallId { process: u128::from(100 + client), number: 1 + number };
            execute(&meta, &results, call, Ipv4Addr::from(0x0a01_0000 + client as u32).into());
        }
    }
    assert!(results.len() <= RESULTS_MAX && results.len() > RESULTS_MAX - 2 * SURPLUS);
    assert_eq!(results.find(id(1)).unwrap(), Earlier::Unknown, "the oldest go first");
    let entries = results.entries.lock();
    let of_origins: usize = entries.origins.values().map(VecDeque::len).sum();
    assert_eq!((of_origins, entries.places.len()), (entries.kept.len(), entries.kept.len()));
    assert_eq!(rows(&*meta), entries.kept.len() + entries.deleted.len());
}

#[test]
fn the_numbers_of_the_last_processes_are_kept() {
    let (meta, results) = results();
    for process in 0..PROCESSES_MAX as u128 + 10 {
        execute(&meta, &results, CallId { process, number: 3 }, CLIENT);
        results.forget(at(100 * process as u64)).unwrap();
    }
    assert_eq!(results.entries.lock().deleted.len(), PROCESSES_MAX);
    let find = |process| results.find(CallId { process, number: 3 }).unwrap();
    assert_eq!((find(0), find(200)), (Earlier::Never, Earlier::Unknown));
    assert_eq!(rows(&*meta), results.len() + PROCESSES_MAX);
}

#[test]
fn damaged_results_are_no_results() {
    let (meta, results) = results();
    execute(&meta, &results, id(1), CLIENT);
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, keys::recorded_call(id(1)), [9]);
    batch.put(Family::SYSTEM, keys::deleted_results(3), [1, 2]);
    batch.put(Family::SYSTEM, "results/short", [1]);
    meta.commit(batch).unwrap();
    let results = CallResults::load(meta).unwrap();
    assert_eq!(results.len(), 1);
    assert!(matches!(results.find(id(1)), Err(VolumeError::Damaged { .. })));
}
