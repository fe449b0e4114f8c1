//! Members with real threads and a short TTL, over a bucket in memory with and without faults.

use base::HostUuid;
use bucket::faulty::{Away, Faults, FaultyBucket};
use cluster::{
    AcquireError, CallKind, Cause, Member, MemberConfig, MemberEvent, NodeName, NodeState, Owner, OwnerEvent,
    PartitionName, Phase, Refusal, Reset, Route, Stage, Timing,
};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(4);
/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(90);

fn member(bucket: &Arc<dyn ObjectStore>, node: &str) -> Member {
    let timing = Timing::new(TTL).unwrap();
    let config = MemberConfig { folder: "cell".into(), timing, ..MemberConfig::new(node.parse().unwrap()) };
    Member::start(Arc::clone(bucket), config).unwrap()
}

fn partition() -> PartitionName {
    "cell/p1".parse().unwrap()
}

fn acquire(member: &Member) -> Owner {
    member.acquire(&partition(), &AtomicBool::new(false)).unwrap()
}

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn events(owner: &Owner) -> Receiver<OwnerEvent> {
    let (sender, events) = channel();
    owner.watch(move |event| _ = sender.send(event));
    events
}

fn expect(events: &Receiver<OwnerEvent>, is_it: impl Fn(&OwnerEvent) -> bool) {
    loop {
        if is_it(&events.recv_timeout(LIMIT).expect("the event comes")) {
            return;
        }
    }
}

#[test]
fn an_owner_answers_after_it_has_opened() {
    let bucket = memory();
    let first = member(&bucket, "a");
    let owner = acquire(&first);
    assert!(!owner.may_answer() && !owner.may_change());
    let hosts: Vec<HostUuid> = (0..100).map(|number| HostUuid([number; 16])).collect();
    assert_eq!(owner.opened([&hosts[..], &hosts[..]].concat()), hosts);
    wait("reads are answered", || owner.may_answer());
    for host in &hosts {
        assert!(!owner.may_change());
        owner.reset_done(*host, Reset::Acknowledged);
    }
    wait("changes are answered", || owner.may_change());
    let status = first.status().unwrap();
    assert_eq!(status.partitions[0].phase, Phase::Serving);
    assert!(status.lease_left.is_some());
    wait("it has a lease", || first.has_lease());
    let again = first.acquire(&partition(), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(again, AcquireError::Held);
    assert!(owner.release(None));
    first.leave();
}

/// The reason is there for as long as the bucket is away.
#[test]
fn a_waiting_member_says_why_requests_fail() {
    for (away, reason) in [(Away::Failing, "503 Slow Down"), (Away::Silent, "no answer within 1s")] {
        let faulty = FaultyBucket::new(1, Faults::default());
        faulty.set_away(Some(away));
        let bucket: Arc<dyn ObjectStore> = Arc::new(faulty.clone());
        let member = member(&bucket, "a");
        let failure = || member.status().unwrap().failure;
        std::thread::scope(|scope| {
            let acquired = scope.spawn(|| acquire(&member));
            wait("it fails", || failure().is_some_and(|failure| failure.why.contains(reason)));
            faulty.set_away(None);
            drop(acquired.join().unwrap());
        });
        wait("it does not fail any more", || failure().is_none());
    }
}

#[test]
fn a_missing_bucket_is_named() {
    let bucket = FaultyBucket::new(1, Faults::default());
    bucket.set_away(Some(Away::Missing));
    let bucket: Arc<dyn ObjectStore> = Arc::new(bucket);
    let member = member(&bucket, "a");
    let refused = member.acquire(&partition(), &AtomicBool::new(false)).unwrap_err();
    let AcquireError::Trouble { object, why } = &refused else { panic!("{refused}") };
    assert_eq!(object, "cell/nodes/a");
    assert!(why.contains("there is no such bucket") && why.contains("NoSuchBucket"), "{why}");
    assert!(member.status().unwrap().failure.is_some_and(|failure| failure.why == *why));
}

#[test]
fn a_released_partition_is_taken_at_once() {
    let bucket = memory();
    let (first, second) = (member(&bucket, "a"), member(&bucket, "b"));
    let owner = acquire(&first);
    owner.opened(Vec::new());
    let events = events(&owner);
    expect(&events, |event| matches!(event, OwnerEvent::Held { until } if *until > Instant::now()));
    let begun = Instant::now();
    assert!(owner.release(Some("b".parse().unwrap())));
    let next = acquire(&second);
    assert!(next.epoch() > cluster::Epoch(1));
    // A TTL would have to pass for a node that has died.
    assert!(begun.elapsed() < LIMIT);
    assert!(!matches!(events.try_iter().last(), Some(OwnerEvent::Lost { .. })));
    // The first one can have it back in the same way.
    drop(next);
    acquire(&first);
}

/// While a partition is being given up, calls that have begun are answered and new ones wait. The node that is named has it
/// next, although others wait longer, and the one that gave it up wants it back at once.
#[test]
fn a_drained_partition_goes_to_the_named_node() {
    let bucket = memory();
    let all = ["a", "b", "c"].map(|node| member(&bucket, node));
    let [first, second, third] = &all;
    let owner = acquire(first);
    owner.opened(Vec::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| third.acquire(&partition(), &stop));
        std::thread::sleep(TTL);
        owner.drain(Some("b".parse().unwrap()));
        let route = || first.route(&partition(), CallKind::Read, Duration::ZERO);
        assert_eq!(route(), Route::Hold);
        wait("it answers", || owner.may_answer() && owner.may_change());
        assert!(!owner.has_ended());
        let taking = scope.spawn(|| second.acquire(&partition(), &stop));
        std::thread::sleep(TTL);
        wait("it still answers", || owner.may_change());
        assert!(!taking.is_finished(), "the database is open");
        assert!(owner.hand_over() && !owner.hand_over());
        assert!(!owner.may_answer());
        let again = scope.spawn(|| first.acquire(&partition(), &stop));
        let next = taking.join().unwrap().unwrap();
        assert_eq!(next.epoch(), cluster::Epoch(2));
        drop(owner);
        next.opened(Vec::new());
        wait("an owner of before gives nothing up", || next.may_change());
        stop.store(true, Relaxed);
        assert_eq!(waiting.join().unwrap().unwrap_err(), AcquireError::Stopped);
        assert_eq!(again.join().unwrap().unwrap_err(), AcquireError::Stopped);
    });
}

#[test]
fn a_dead_owner_is_followed_after_its_lease() {
    let bucket = memory();
    let first = member(&bucket, "a");
    let owner = acquire(&first);
    owner.opened(Vec::new());
    wait("it answers", || owner.may_change());
    // It renews no more, as after a crash.
    std::mem::forget(owner);
    let died = Instant::now();
    let stop = AtomicBool::new(false);
    let second = member(&bucket, "b");
    let owner = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.acquire(&partition(), &stop));
        std::thread::sleep(TTL * 3);
        assert!(!waiting.is_finished(), "it is not taken from an owner that renews its lease");
        // `leave` waits for the owner in vain, which has not closed its database; then the thread ends.
        first.leave();
        waiting.join().unwrap().unwrap()
    });
    assert_eq!(owner.epoch(), cluster::Epoch(2));
    assert!(died.elapsed() >= TTL * 4);

    owner.opened(Vec::new());
    wait("it answers", || owner.may_change());
    let history = second.history().unwrap();
    let [past] = &history.last[..] else { panic!("{:?}", history.last) };
    let taken = &past.takeover;
    assert_eq!((taken.cause, taken.epoch, taken.is_complete), (Cause::Died, owner.epoch(), true));
    assert_eq!(taken.other.as_ref().map(NodeName::as_str), Some("a"));
    // The last renewal was seen up to a sixth of a TTL after it was made.
    assert!(taken.stage(Stage::Detect) >= TTL && taken.total() <= died.elapsed(), "{taken:?}");
    assert!(past.answered.is_some_and(|answered| answered >= taken.stage(Stage::Detect)), "{past:?}");
    let counters = history.counters;
    assert_eq!((counters.evictions, counters.acquired, history.takeovers.count()), (1, 1, 1));
    assert!(counters.renewals > 3 && history.requests.count() > counters.renewals, "{history:?}");
}

#[test]
fn a_wait_ends_when_it_is_asked_to() {
    let bucket = memory();
    let (first, second) = (member(&bucket, "a"), member(&bucket, "b"));
    let owner = acquire(&first);
    owner.opened(Vec::new());
    let stop = AtomicBool::new(true);
    assert_eq!(second.acquire(&partition(), &stop).unwrap_err(), AcquireError::Stopped);
    wait("it still answers", || owner.may_change());
    drop(owner);
    // It was abandoned: the partition is free for others.
    assert!(acquire(&first).epoch() > cluster::Epoch(1));
}

#[test]
fn an_outage_suspends_an_owner_and_ends_nothing() {
    let faulty = FaultyBucket::new(1, Faults::default());
    let bucket: Arc<dyn ObjectStore> = Arc::new(faulty.clone());
    let first = member(&bucket, "a");
    let owner = acquire(&first);
    owner.opened(Vec::new());
    let events = events(&owner);
    for away in [Away::Failing, Away::Silent] {
        faulty.set_away(Some(away));
        expect(&events, |event| *event == OwnerEvent::Lapsed);
        wait("it is suspended", || !owner.may_answer() && !first.has_lease());
        std::thread::sleep(TTL * 2);
        assert!(!owner.may_answer() && !owner.has_ended());
        faulty.set_away(None);
        expect(&events, |event| matches!(event, OwnerEvent::Resumed { .. }));
        wait("it answers again", || owner.may_change());
    }
    assert_eq!(owner.epoch(), cluster::Epoch(1));
    let history = first.history().unwrap();
    // A busy machine may add some, the last one just before.
    assert!(history.counters.lapses >= 2 && history.since_lapse.is_some(), "{history:?}");
    // Requests are ended after a quarter of the TTL.
    assert!(history.counters.late > 0 && history.requests.max() >= TTL.as_nanos() as u64 / 4, "{history:?}");
}

#[test]
fn a_lost_ownership_is_reported_and_can_be_won_again() {
    let bucket = memory();
    let first = member(&bucket, "a");
    let owner = acquire(&first);
    owner.opened(Vec::new());
    let events = events(&owner);
    owner.superseded();
    expect(&events, |event| matches!(event, OwnerEvent::Lost { .. }));
    assert!(!owner.may_answer() && owner.has_ended());
    drop(owner);
    let again = acquire(&first);
    assert!(again.epoch() > cluster::Epoch(1));
    again.opened(Vec::new());
    wait("it answers again", || again.may_change());
    let history = first.history().unwrap();
    let causes: Vec<Cause> = history.last.iter().map(|past| past.takeover.cause).collect();
    // It may have said that the partition is free before it was asked to take it again.
    assert_eq!(causes[..2], [Cause::New, Cause::Fenced]);
    assert!(causes.len() == 3 && matches!(causes[2], Cause::Restarted | Cause::Free), "{causes:?}");
    assert_eq!(history.causes[Cause::Fenced as usize], 1);
    assert_eq!(history.since_lapse.is_some(), history.counters.lapses > 0);
    // A second process of the same name waits until the first has left.
    let twin = member(&bucket, "a");
    std::thread::sleep(TTL * 2);
    wait("the first one has kept its lease", || again.may_change());
    assert!(!twin.has_lease());
    again.release(None);
    first.leave();
    wait("the twin joins", || twin.has_lease());
}

#[test]
fn an_unusable_object_is_named() {
    let bucket = memory();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let newer = "cellar partition owner 2\n".into();
    runtime.block_on(bucket.put(&"cell/p1/owner".into(), newer)).unwrap();
    let first = member(&bucket, "a");
    let error = first.acquire(&partition(), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("cell/p1/owner") && error.contains("version 2"), "{error}");
    let long = vec![b'x'; 1_000_000].into();
    runtime.block_on(bucket.put(&"cell/p1/owner".into(), long)).unwrap();
    let error = first.acquire(&partition(), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("4097 bytes"), "{error}");
}

/// Whether requests had each of the faults that make an answer doubtful.
fn has_met_all(faulty: &FaultyBucket) -> bool {
    let met = faulty.met();
    met.lost > 0 && met.own_conflict > 0 && met.late > 0 && met.refused > 0
}

/// Three members and a bucket with faults: at no time may two of them answer.
#[test]
fn two_owners_never_both_answer() {
    let faults =
        Faults { refused: 50, lost: 50, own_conflict: 50, late: 50, repeated: 50, delayed: 30, hung: 10 };
    let faulty = FaultyBucket::new(7, faults);
    let bucket: Arc<dyn ObjectStore> = Arc::new(faulty.clone());
    let (stop, begin) = (AtomicBool::new(false), Barrier::new(3));
    let answering = std::sync::Mutex::new(None::<u64>);
    let rounds = std::sync::Mutex::new(0);
    let play = |node: &str| {
        let member = member(&bucket, node);
        begin.wait();
        while let Ok(owner) = member.acquire(&partition(), &stop) {
            owner.opened(Vec::new());
            for _ in 0..40 {
                let mut newest = answering.lock().unwrap();
                if owner.may_change() {
                    // Epochs only grow: an owner that answers has the newest.
                    assert!(newest.is_none_or(|newest| newest <= owner.epoch().0), "{newest:?}, {owner:?}");
                    *newest = Some(owner.epoch().0);
                }
                drop(newest);
                std::thread::sleep(Duration::from_millis(2));
            }
            let mut rounds = rounds.lock().unwrap();
            *rounds += 1;
            stop.store(*rounds >= 12 && has_met_all(&faulty), Relaxed);
            drop(rounds);
            owner.release(None);
        }
    };
    std::thread::scope(|scope| {
        ["a", "b", "c"].map(|node| scope.spawn(move || play(node))).map(|thread| thread.join().unwrap())
    });
    assert!(*rounds.lock().unwrap() >= 12);
}

#[test]
fn a_process_that_owns_nothing_knows_the_way() {
    let bucket = memory();
    let address = "127.0.0.1:7010".parse().unwrap();
    let timing = Timing::new(TTL).unwrap();
    let node = |name: &str| MemberConfig {
        folder: "cell".into(),
        timing,
        addresses: vec![address],
        ..MemberConfig::new(name.parse().unwrap())
    };
    let owning = Member::start(Arc::clone(&bucket), node("a")).unwrap();
    let other = member(&bucket, "b");
    let route = || other.route(&partition(), CallKind::Read, Duration::ZERO);
    assert_eq!(route(), Route::Refuse(Refusal::NoPartition));
    other.follow(&partition());
    assert_eq!(route(), Route::Hold, "nobody owns it");
    let late = other.route(&partition(), CallKind::Read, Duration::from_secs(60));
    assert!(matches!(late, Route::Refuse(_)), "{late:?}");
    let owner = acquire(&owning);
    owner.opened(Vec::new());
    let forward =
        Route::Forward { node: "a".parse().unwrap(), epoch: owner.epoch(), addresses: vec![address] };
    wait("the way is known", || route() == forward);
    let own_route = || owning.route(&partition(), CallKind::Change, Duration::ZERO);
    wait("it serves the partition itself", || own_route() == Route::Local(owner.epoch()));
    let lease = other.lease(&"a".parse().unwrap()).unwrap().unwrap();
    assert_eq!((lease.state, Some(lease.incarnation)), (NodeState::Live, owning.incarnation()));
    assert_eq!((lease.addresses, other.lease(&"c".parse().unwrap())), (vec![address], Ok(None)));
    assert!(owner.release(None));
    owning.leave();
    wait("nobody owns it", || route() == Route::Hold);
    let left = other.lease(&"a".parse().unwrap()).unwrap().unwrap();
    assert_eq!(left.state, NodeState::Left);
}

#[test]
fn events_of_a_member_are_reported() {
    let bucket = memory();
    let (sender, events) = std::sync::mpsc::sync_channel(64);
    let config = MemberConfig {
        folder: "cell".into(),
        events: Some(sender),
        timing: Timing::new(TTL).unwrap(),
        ..MemberConfig::new("b".parse().unwrap())
    };
    let next = || events.recv_timeout(LIMIT).unwrap();
    let reported = Member::start(Arc::clone(&bucket), config).unwrap();
    assert_eq!(next(), MemberEvent::Joined);
    let owner = acquire(&reported);
    owner.opened(Vec::new());
    let MemberEvent::Takeover(takeover) = next() else { panic!("no takeover") };
    assert_eq!((takeover.cause, takeover.epoch.0), (Cause::New, 1));
    assert!(owner.release(None));
    let MemberEvent::Takeover(takeover) = next() else { panic!("no end of the ownership") };
    assert_eq!((takeover.cause, takeover.other), (Cause::GivenUp, None));
}

#[test]
fn a_silent_node_is_evicted_and_forgotten() {
    let bucket = memory();
    let node = |name: &str| name.parse::<NodeName>().unwrap();
    let living = member(&bucket, "b");
    let dead = member(&bucket, "a");
    wait("both have a lease", || living.has_lease() && dead.has_lease());
    let lease = living.lease(&node("a")).unwrap().unwrap();
    assert!(!living.remove_lease(&lease).unwrap(), "it is alive");
    dead.leave();
    // As if it had died: the last renewal is the newest state of the lease.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(bucket.put(&"cell/nodes/a".into(), lease.encode().into())).unwrap();
    living.evict(lease);
    let state = || living.lease(&node("a")).unwrap().unwrap().state;
    wait("it is found dead", || state() == NodeState::Dead);
    assert_eq!(living.status().unwrap().counters.evictions, 1);
    let lease = living.lease(&node("a")).unwrap().unwrap();
    let other = cluster::NodeRecord { sequence: lease.sequence + 1, ..lease.clone() };
    assert!(!living.remove_lease(&other).unwrap(), "it has changed");
    assert!(living.remove_lease(&lease).unwrap());
    assert_eq!(living.lease(&node("a")), Ok(None));
    assert!(living.remove_lease(&lease).unwrap(), "it is gone already");
    let again = member(&bucket, "a");
    wait("a node of that name joins again", || again.has_lease());
}
