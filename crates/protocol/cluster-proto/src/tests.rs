//! Members against a small bucket without faults, step by step. The histories in `tests/` have the faults.

use crate::{
    Action, Answer, Call, CallKind, Cause, Epoch, Holder, Member, MemberConfig, NodeName, NodeRecord,
    NodeState, Notice, Operation, OwnerRecord, PartitionName, Phase, Promise, Refusal, Request, Reset, Route,
    Stage, Tag, Takeover, Timing, Via,
};
use base::{HostUuid, Monotonic};
use std::collections::BTreeMap;
use std::time::Duration;

const MS: u64 = 1_000_000;
const HOST: HostUuid = HostUuid([7; 16]);

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, (u64, Vec<u8>)>,
    writes: u64,
}

impl Bucket {
    fn apply(&mut self, request: &Request) -> Answer {
        let tag = |number: u64| Tag { e_tag: Some(number.to_string()), version: None };
        let found = self.objects.get(&request.object);
        let bytes = match &request.operation {
            Operation::Read => {
                return found
                    .map_or(Answer::Missing, |(number, bytes)| Answer::Found(tag(*number), bytes.clone()));
            }
            Operation::Create(bytes) if found.is_none() => bytes,
            Operation::Replace(expected, bytes)
                if found.is_some_and(|(number, _)| tag(*number) == *expected) =>
            {
                bytes
            }
            _ => return Answer::Conflict,
        };
        self.put(&request.object, bytes.clone());
        Answer::Written(tag(self.writes))
    }

    fn put(&mut self, object: &str, bytes: Vec<u8>) {
        self.writes += 1;
        self.objects.insert(object.to_owned(), (self.writes, bytes));
    }

    fn lease(&self, node: &str) -> NodeRecord {
        NodeRecord::decode(&name(node), &self.objects[&format!("c/nodes/{node}")].1).unwrap()
    }

    fn owner(&self) -> OwnerRecord {
        OwnerRecord::decode(&self.objects["c/p1/owner"].1).unwrap()
    }
}

fn name(node: &str) -> NodeName {
    node.parse().unwrap()
}

fn partition() -> PartitionName {
    "c/p1".parse().unwrap()
}

fn at(ms: u64) -> Monotonic {
    Monotonic(ms * MS)
}

fn member(node: &str, nonce: u128) -> Member {
    member_after(node, nonce, None)
}

fn member_after(node: &str, nonce: u128, ended: Option<u128>) -> Member {
    let addresses = vec!["192.0.2.1:7010".parse().unwrap()];
    let (node, timing) = (name(node), Timing::default());
    let folder = "c".into();
    let config = MemberConfig { node, nonce, ended, folder, addresses, takes_addresses: false, timing };
    Member::new(config, at(0))
}

/// Does what the member asks, with requests that succeed at once. Returns everything else that it asks.
fn settle(member: &mut Member, bucket: &mut Bucket, now: Monotonic) -> Vec<Action> {
    let mut others = Vec::new();
    while let Some(action) = member.poll(now) {
        match action {
            Action::Request(request) => member.answer(now, request.id, bucket.apply(&request)),
            other => others.push(other),
        }
    }
    others
}

/// Runs until `end`, in steps of the member's own times.
fn run(member: &mut Member, bucket: &mut Bucket, from_ms: u64, to_ms: u64) -> Vec<Action> {
    let (mut now, end) = (at(from_ms), at(to_ms));
    let mut all = Vec::new();
    for _ in 0..1000 {
        all.extend(settle(member, bucket, now));
        let next = member.next_time(now).filter(|next| *next <= end);
        assert!(next.is_none_or(|next| next > now), "it waits for {next:?} at {now:?}");
        match next {
            Some(next) => now = next,
            None => return all,
        }
    }
    panic!("no end at {now:?}");
}

/// Returns a member that serves the partition in the epoch.
fn serving(node: &str, nonce: u128, bucket: &mut Bucket, epoch: u64) -> Member {
    let mut member = member(node, nonce);
    member.want(at(0), &partition());
    let actions = run(&mut member, bucket, 0, 10);
    assert!(actions.contains(&Action::Open(partition(), Epoch(epoch))), "{actions:?}");
    member.opened(at(10), &partition(), Epoch(epoch), []);
    settle(&mut member, bucket, at(10));
    assert_eq!(member.phase(&partition()), Some((Phase::Serving, Epoch(epoch))));
    member
}

fn call(kind: CallKind, since_ms: u64) -> Call {
    Call { kind, host: Some(HOST), via: Via::Client, since: at(since_ms) }
}

fn next_request(member: &mut Member, now: Monotonic) -> Request {
    loop {
        match member.poll(now) {
            Some(Action::Request(request)) => return request,
            Some(_) => {}
            None => panic!("no request at {now:?}"),
        }
    }
}

#[test]
fn the_first_node_serves_at_once() {
    let mut bucket = Bucket::default();
    let mut alone = serving("a", 1, &mut bucket, 1);
    assert_eq!(alone.deadline(), Some(at(0) + Timing::default().trust()));
    assert_eq!(alone.route(at(20), &partition(), call(CallKind::Change, 20)), Route::Local(Epoch(1)));
    assert!(alone.may_answer(at(20), &partition(), Epoch(1), CallKind::Change));
    assert!(!alone.may_answer(at(20), &partition(), Epoch(2), CallKind::Change));
    let unknown = "c/p9".parse().unwrap();
    assert_eq!(alone.route(at(20), &unknown, call(CallKind::Read, 20)), Route::Refuse(Refusal::NoPartition));
    // It renews every second, and asks for nothing else.
    let writes = bucket.writes;
    run(&mut alone, &mut bucket, 20, 10_500);
    assert_eq!(bucket.writes - writes, 10);
    assert_eq!(alone.deadline(), Some(at(10_000) + Timing::default().trust()));
}

#[test]
fn a_deadline_counts_from_the_sending() {
    let mut bucket = Bucket::default();
    let mut node = serving("a", 1, &mut bucket, 1);
    let request = next_request(&mut node, at(1000));
    let answer = bucket.apply(&request);
    node.answer(at(4000), request.id, answer.clone());
    assert_eq!(node.deadline(), Some(at(1000) + Timing::default().trust()));
    // An answer that comes twice changes nothing.
    node.answer(at(5000), request.id, answer);
    assert_eq!(node.deadline(), Some(at(1000) + Timing::default().trust()));
}

#[test]
fn a_renewal_without_an_answer_is_recognised() {
    let mut bucket = Bucket::default();
    let mut node = serving("a", 1, &mut bucket, 1);
    let request = next_request(&mut node, at(1000));
    bucket.apply(&request);
    node.answer(at(2500), request.id, Answer::Unknown("503".into()));
    assert_eq!(node.deadline(), Some(at(0) + Timing::default().trust()));
    let now = node.next_time(at(2500)).unwrap();
    let read = next_request(&mut node, now);
    assert_eq!(read.operation, Operation::Read);
    node.answer(now, read.id, bucket.apply(&read));
    assert_eq!(node.deadline(), Some(at(1000) + Timing::default().trust()));
    // The same after 412 for a renewal that was done.
    let request = next_request(&mut node, at(2700));
    bucket.apply(&request);
    node.answer(at(2700), request.id, Answer::Conflict);
    settle(&mut node, &mut bucket, at(2701));
    assert_eq!(node.deadline(), Some(at(2700) + Timing::default().trust()));
}

#[test]
fn a_lease_that_lapsed_goes_on_if_nobody_has_evicted_it() {
    let mut bucket = Bucket::default();
    let mut node = serving("a", 1, &mut bucket, 1);
    let request = next_request(&mut node, at(1000));
    assert_eq!(node.next_time(at(1000)), Some(at(0) + Timing::default().trust()));
    assert_eq!(node.poll(at(5000)), Some(Action::Notice(Notice::Lapsed)));
    assert_eq!(node.route(at(5000), &partition(), call(CallKind::Read, 5000)), Route::Hold);
    assert!(!node.may_answer(at(5000), &partition(), Epoch(1), CallKind::Read));
    let silent = node.route(at(25_000), &partition(), call(CallKind::Read, 5000));
    assert_eq!(silent, Route::Refuse(Refusal::Silent));
    node.answer(at(30_000), request.id, Answer::Unknown("no answer".into()));
    let actions = run(&mut node, &mut bucket, 30_000, 30_500);
    assert_eq!(actions, [Action::Notice(Notice::Resumed)]);
    assert!(node.may_answer(at(30_500), &partition(), Epoch(1), CallKind::Change));
}

#[test]
fn a_dead_owner_is_waited_for_and_evicted() {
    let mut bucket = Bucket::default();
    serving("a", 1, &mut bucket, 1);
    let mut other = member("b", 2);
    other.want(at(0), &partition());
    run(&mut other, &mut bucket, 0, 2500);
    assert_eq!(other.phase(&partition()).unwrap().0, Phase::Remote);
    let Route::Forward { node, epoch, addresses } =
        other.route(at(2500), &partition(), call(CallKind::Read, 2500))
    else {
        panic!("it is not forwarded")
    };
    assert_eq!((node, epoch, addresses.len()), (name("a"), Epoch(1), 1));
    run(&mut other, &mut bucket, 2500, 5990);
    assert_eq!(other.phase(&partition()).unwrap().0, Phase::Waiting);
    assert_eq!(other.route(at(5990), &partition(), call(CallKind::Read, 5990)), Route::Hold);
    assert_eq!(bucket.lease("a").state, NodeState::Live);
    let actions = run(&mut other, &mut bucket, 5990, 6100);
    assert_eq!(bucket.lease("a").state, NodeState::Dead);
    assert!(actions.contains(&Action::Open(partition(), Epoch(2))), "{actions:?}");
    let restarting = other.route(at(26_000), &partition(), call(CallKind::Read, 5990));
    assert_eq!(restarting, Route::Refuse(Refusal::Silent), "its own lease has lapsed in this test");
}

#[test]
fn an_owner_that_renews_is_never_evicted() {
    let mut bucket = Bucket::default();
    let mut owner = serving("a", 1, &mut bucket, 1);
    let mut other = member("b", 2);
    other.want(at(0), &partition());
    for second in 0..60 {
        run(&mut owner, &mut bucket, second * 1000 + 20, second * 1000 + 1000);
        run(&mut other, &mut bucket, second * 1000 + 20, second * 1000 + 1000);
    }
    assert_eq!(owner.phase(&partition()).unwrap().0, Phase::Serving);
    assert_eq!(other.phase(&partition()).unwrap().0, Phase::Remote);
}

#[test]
fn a_silent_node_is_evicted_though_nothing_is_wanted() {
    let mut bucket = Bucket::default();
    run(&mut member("a", 1), &mut bucket, 0, 10);
    let mut other = member("b", 2);
    run(&mut other, &mut bucket, 100, 20_000);
    assert_eq!(bucket.lease("a").state, NodeState::Live, "it owns nothing");
    other.evict(at(20_000), bucket.lease("b"));
    other.evict(at(20_000), bucket.lease("a"));
    run(&mut other, &mut bucket, 20_000, 25_999);
    assert_eq!(bucket.lease("a").state, NodeState::Live, "its lease is watched for a TTL");
    let actions = run(&mut other, &mut bucket, 25_999, 27_100);
    let evicted = Action::Notice(Notice::Evicted(name("a"), bucket.lease("a").incarnation));
    assert!(actions.contains(&evicted), "{actions:?}");
    assert_eq!(bucket.lease("a").state, NodeState::Dead);
    assert!(other.nodes().is_empty(), "it is not watched any more");
    assert!(other.has_lease(at(27_100)), "it does not evict itself");
}

#[test]
fn a_node_that_was_taken_for_silent_stays_if_it_renews() {
    let (mut bucket, mut other) = (Bucket::default(), member("b", 2));
    let mut slow = member("a", 1);
    run(&mut slow, &mut bucket, 0, 10);
    let stale = bucket.lease("a");
    run(&mut slow, &mut bucket, 1000, 1010);
    run(&mut other, &mut bucket, 0, 1100);
    other.evict(at(1100), stale);
    run(&mut other, &mut bucket, 1100, 60_000);
    assert_eq!(bucket.lease("a").state, NodeState::Live);
    other.evict(at(60_000), bucket.lease("a"));
    run(&mut other, &mut bucket, 60_000, 63_000);
    run(&mut slow, &mut bucket, 63_000, 63_010);
    run(&mut other, &mut bucket, 63_010, 99_000);
    assert_eq!(bucket.lease("a").state, NodeState::Live, "it has renewed its lease once more");
    assert!(other.nodes().is_empty());
}

/// Nodes renew their leases one after the other when the bucket is back; whichever is first evicts none of the others.
#[test]
fn the_end_of_an_outage_evicts_no_node() {
    let mut bucket = Bucket::default();
    let mut owner = serving("a", 1, &mut bucket, 1);
    let mut other = member("b", 2);
    other.follow(at(0), &partition());
    for second in 0..10 {
        run(&mut owner, &mut bucket, second * 1000 + 20, second * 1000 + 1000);
        run(&mut other, &mut bucket, second * 1000 + 20, second * 1000 + 1000);
    }
    other.evict(at(10_000), bucket.lease("a"));
    run(&mut other, &mut bucket, 80_000, 80_500);
    other.evict(at(80_500), bucket.lease("a"));
    run(&mut other, &mut bucket, 80_500, 83_000);
    assert_eq!(bucket.lease("a").state, NodeState::Live);
    run(&mut owner, &mut bucket, 83_000, 84_000);
    for second in 84..100 {
        run(&mut owner, &mut bucket, second * 1000, second * 1000 + 980);
        run(&mut other, &mut bucket, second * 1000, second * 1000 + 980);
    }
    assert_eq!((bucket.lease("a").state, owner.incarnation().count), (NodeState::Live, 1));
}

#[test]
fn a_node_whose_lease_was_removed_owns_nothing() {
    let mut bucket = Bucket::default();
    let mut first = serving("a", 1, &mut bucket, 1);
    bucket.objects.remove("c/nodes/a");
    let actions = run(&mut first, &mut bucket, 60_000, 60_100);
    assert!(actions.contains(&Action::Close(partition(), Epoch(1))), "{actions:?}");
    assert_eq!((first.incarnation().count, bucket.lease("a").incarnation.count), (2, 2), "it joins anew");
    assert!(!first.may_answer(at(60_100), &partition(), Epoch(1), CallKind::Read));
}

#[test]
fn a_process_is_warned_of_another_one_with_its_name() {
    let mut bucket = Bucket::default();
    let (mut first, mut second) = (member("a", 1), member("a", 2));
    run(&mut first, &mut bucket, 0, 10);
    let warning = Action::Notice(Notice::NameTaken(vec!["192.0.2.1:7010".parse().unwrap()]));
    let mut warnings = |from_s: u64, to_s: u64, is_alive: bool| {
        let mut count = 0;
        for from in (from_s..to_s).map(|second| second * 1000) {
            if is_alive {
                run(&mut first, &mut bucket, from, from + 10);
            }
            let actions = run(&mut second, &mut bucket, from + 20, from + 990);
            count += actions.iter().filter(|action| **action == warning).count();
        }
        count
    };
    assert_eq!(warnings(1, 31, true), 0, "it may be handing over");
    assert!(warnings(31, 40, true) >= 5);
    assert_eq!(warnings(40, 60, false), 0, "its lease is waited for in silence");
    assert!(second.has_lease(at(60_000)));
}

#[test]
fn an_evicted_owner_closes_and_joins_anew() {
    let mut bucket = Bucket::default();
    let mut owner = serving("a", 1, &mut bucket, 1);
    let mut other = member("b", 2);
    other.want(at(0), &partition());
    run(&mut other, &mut bucket, 0, 6500);
    let actions = settle(&mut owner, &mut bucket, at(7000));
    assert!(actions.contains(&Action::Close(partition(), Epoch(1))), "{actions:?}");
    assert_eq!(owner.phase(&partition()).unwrap().0, Phase::Fenced);
    assert_eq!(owner.incarnation().count, 2);
    owner.closed(at(7000), &partition(), Epoch(1));
    run(&mut owner, &mut bucket, 7000, 7100);
    assert_eq!(owner.phase(&partition()).unwrap().0, Phase::Remote);
    assert!(owner.has_lease(at(7100)));
    let Route::Forward { node, epoch, .. } = owner.route(at(7100), &partition(), call(CallKind::Read, 7100))
    else {
        panic!("it is not forwarded")
    };
    assert_eq!((node, epoch), (name("b"), Epoch(2)));
}

#[test]
fn a_restarted_process_waits_for_its_predecessor() {
    let mut bucket = Bucket::default();
    serving("a", 1, &mut bucket, 1);
    let mut again = member("a", 2);
    again.want(at(0), &partition());
    run(&mut again, &mut bucket, 0, 5990);
    assert!(!again.has_lease(at(5990)));
    let actions = run(&mut again, &mut bucket, 5990, 6100);
    assert!(actions.contains(&Action::Open(partition(), Epoch(2))), "{actions:?}");
    assert_eq!(bucket.lease("a").replaced.map(|before| before.nonce), Some(1));
}

#[test]
fn a_process_that_has_ended_is_not_waited_for() {
    let mut bucket = Bucket::default();
    let mut before = serving("a", 1, &mut bucket, 1);
    let renewal = next_request(&mut before, at(1000));
    let mut again = member_after("a", 2, Some(1));
    again.want(at(0), &partition());
    let actions = run(&mut again, &mut bucket, 0, 10);
    assert!(actions.contains(&Action::Open(partition(), Epoch(2))), "{actions:?}");
    assert!(again.has_lease(at(10)));
    assert_eq!(bucket.lease("a").replaced.map(|before| before.nonce), Some(1));
    assert_eq!(bucket.apply(&renewal), Answer::Conflict, "a late request of the process changes nothing");
}

#[test]
fn a_request_of_an_ended_process_may_come_first() {
    let mut bucket = Bucket::default();
    let mut before = serving("a", 1, &mut bucket, 1);
    let renewal = next_request(&mut before, at(1000));
    let mut again = member_after("a", 2, Some(1));
    again.want(at(0), &partition());
    let read = next_request(&mut again, at(0));
    again.answer(at(0), read.id, bucket.apply(&read));
    assert!(matches!(bucket.apply(&renewal), Answer::Written(_)));
    let actions = run(&mut again, &mut bucket, 0, 2000);
    assert!(actions.contains(&Action::Open(partition(), Epoch(2))), "{actions:?}");
}

#[test]
fn another_process_than_the_ended_one_is_waited_for() {
    let mut bucket = Bucket::default();
    serving("a", 1, &mut bucket, 1);
    let mut again = member_after("a", 3, Some(2));
    again.want(at(0), &partition());
    run(&mut again, &mut bucket, 0, 5990);
    assert!(!again.has_lease(at(5990)));
}

#[test]
fn an_orderly_end_frees_everything_at_once() {
    let mut bucket = Bucket::default();
    let mut owner = serving("a", 1, &mut bucket, 1);
    owner.leave(at(100));
    let actions = settle(&mut owner, &mut bucket, at(100));
    assert!(actions.contains(&Action::Drain(partition(), Epoch(1))), "{actions:?}");
    // What has begun is answered, nothing else begins.
    assert!(owner.may_answer(at(100), &partition(), Epoch(1), CallKind::Change));
    assert_eq!(owner.route(at(100), &partition(), call(CallKind::Read, 100)), Route::Hold);
    owner.drained(at(200), &partition(), Epoch(1));
    assert!(!owner.may_answer(at(200), &partition(), Epoch(1), CallKind::Read));
    run(&mut owner, &mut bucket, 200, 300);
    assert!(owner.has_left());
    assert_eq!(bucket.owner(), OwnerRecord { epoch: Epoch(1), holder: Holder::Free { successor: None } });
    assert_eq!(bucket.lease("a").state, NodeState::Left);
    serving("a", 2, &mut bucket, 2);
}

#[test]
fn a_successor_comes_first() {
    let mut bucket = Bucket::default();
    let mut owner = serving("a", 1, &mut bucket, 1);
    owner.release(at(100), &partition(), Some(name("b")));
    settle(&mut owner, &mut bucket, at(100));
    owner.drained(at(100), &partition(), Epoch(1));
    settle(&mut owner, &mut bucket, at(100));
    let mut third = member("c", 3);
    third.want(at(0), &partition());
    let actions = run(&mut third, &mut bucket, 0, 5900);
    assert!(!actions.iter().any(|action| matches!(action, Action::Open(..))), "{actions:?}");
    serving("b", 2, &mut bucket, 2);
    run(&mut third, &mut bucket, 5900, 6900);
    assert_eq!(third.phase(&partition()).unwrap().0, Phase::Remote);
}

#[test]
fn a_partition_that_is_not_followed_any_more_is_forgotten() {
    let mut bucket = Bucket::default();
    let mut owner = serving("a", 1, &mut bucket, 1);
    owner.unfollow(at(0), &partition());
    assert!(owner.phase(&partition()).is_some(), "it is served here");
    let mut other = member("b", 2);
    other.follow(at(0), &partition());
    run(&mut other, &mut bucket, 0, 1000);
    let call = call(CallKind::Read, 0);
    assert!(matches!(other.route(at(1000), &partition(), call), Route::Forward { .. }));
    other.unfollow(at(1000), &partition());
    assert_eq!(other.route(at(1000), &partition(), call), Route::Refuse(Refusal::NoPartition));
    other.want(at(1000), &partition());
    other.unfollow(at(1000), &partition());
    assert!(other.phase(&partition()).is_some(), "it is wanted here");
}

#[test]
fn changes_wait_for_the_resets() {
    let mut bucket = Bucket::default();
    let mut node = member("a", 1);
    node.want(at(0), &partition());
    settle(&mut node, &mut bucket, at(0));
    node.opened(at(10), &partition(), Epoch(1), [HOST, HostUuid([8; 16])]);
    let actions = settle(&mut node, &mut bucket, at(10));
    assert_eq!(actions.iter().filter(|action| matches!(action, Action::Reset(..))).count(), 2);
    let other = |kind| Call { host: Some(HostUuid([9; 16])), ..call(kind, 10) };
    assert_eq!(node.route(at(10), &partition(), other(CallKind::Read)), Route::Local(Epoch(1)));
    assert_eq!(node.route(at(10), &partition(), other(CallKind::Change)), Route::Hold);
    // A listed host is reset before its own call.
    assert_eq!(node.route(at(10), &partition(), call(CallKind::Read, 10)), Route::Hold);
    node.reset_done(at(20), &partition(), Epoch(1), HOST, Reset::Acknowledged);
    assert_eq!(node.route(at(20), &partition(), call(CallKind::Read, 20)), Route::Local(Epoch(1)));
    assert_eq!(node.route(at(20), &partition(), other(CallKind::Change)), Route::Hold);
    // A report of another epoch changes nothing.
    node.reset_done(at(20), &partition(), Epoch(9), HostUuid([8; 16]), Reset::Acknowledged);
    assert_eq!(node.route(at(20), &partition(), other(CallKind::Change)), Route::Hold);
    node.reset_done(at(30), &partition(), Epoch(1), HostUuid([8; 16]), Reset::Unreachable);
    assert_eq!(node.route(at(30), &partition(), other(CallKind::Change)), Route::Local(Epoch(1)));
    // The host that did not answer is reset before its next call.
    let unreachable = Call { host: Some(HostUuid([8; 16])), ..call(CallKind::Read, 30) };
    assert_eq!(node.route(at(30), &partition(), unreachable), Route::Hold);
    let actions = settle(&mut node, &mut bucket, at(30));
    assert!(actions.contains(&Action::Reset(partition(), Epoch(1), HostUuid([8; 16]))), "{actions:?}");
}

#[test]
fn a_promise_follows_the_durable_host() {
    let mut bucket = Bucket::default();
    let mut node = serving("a", 1, &mut bucket, 1);
    assert_eq!(node.promise(&partition(), Epoch(1), HOST), Promise::RecordFirst);
    node.recorded(&partition(), Epoch(2), HOST, true);
    assert_eq!(node.promise(&partition(), Epoch(1), HOST), Promise::Wait);
    node.recorded(&partition(), Epoch(1), HOST, true);
    assert_eq!(node.promise(&partition(), Epoch(1), HOST), Promise::Allowed);
    assert_eq!(node.promise(&partition(), Epoch(2), HOST), Promise::Never);
    assert!(node.forget(&partition(), Epoch(1), HOST));
    node.forgotten(&partition(), Epoch(1), HOST);
    assert_eq!(node.promise(&partition(), Epoch(1), HOST), Promise::RecordFirst);
}

#[test]
fn a_front_with_another_epoch_is_refused() {
    let mut bucket = Bucket::default();
    let mut node = serving("a", 1, &mut bucket, 1);
    let via = |epoch| Call { via: Via::Front(Epoch(epoch)), ..call(CallKind::Read, 20) };
    assert_eq!(node.route(at(20), &partition(), via(1)), Route::Local(Epoch(1)));
    let not_owner = Route::Refuse(Refusal::NotOwner(Some((name("a"), Epoch(1)))));
    assert_eq!(node.route(at(20), &partition(), via(0)), not_owner);
    // A later epoch is a reason to look whether the membership goes on.
    assert_eq!(node.next_time(at(20)), Some(at(1000)));
    assert_eq!(node.route(at(20), &partition(), via(2)), not_owner);
    assert_eq!(next_request(&mut node, at(20)).operation, Operation::Read);
}

#[test]
fn a_database_that_does_not_open_is_tried_in_a_later_epoch() {
    let mut bucket = Bucket::default();
    let mut node = member("a", 1);
    node.want(at(0), &partition());
    settle(&mut node, &mut bucket, at(0));
    node.not_opened(at(500), &partition(), Epoch(1));
    let actions = run(&mut node, &mut bucket, 500, 1500);
    assert!(actions.contains(&Action::Open(partition(), Epoch(2))), "{actions:?}");
    // What is reported of the first epoch comes too late.
    node.opened(at(1500), &partition(), Epoch(1), []);
    assert_eq!(node.phase(&partition()), Some((Phase::Opening, Epoch(2))));
}

#[test]
fn a_superseded_database_is_opened_again() {
    let mut bucket = Bucket::default();
    let mut node = serving("a", 1, &mut bucket, 1);
    node.superseded(at(50), &partition(), Epoch(1));
    let actions = settle(&mut node, &mut bucket, at(50));
    assert!(actions.contains(&Action::Close(partition(), Epoch(1))), "{actions:?}");
    assert!(!node.may_answer(at(50), &partition(), Epoch(1), CallKind::Read));
    node.closed(at(60), &partition(), Epoch(1));
    let actions = run(&mut node, &mut bucket, 60, 100);
    assert!(actions.contains(&Action::Open(partition(), Epoch(2))), "{actions:?}");
}

#[test]
fn unusable_objects_are_reported_and_left_alone() {
    let mut bucket = Bucket::default();
    bucket.put("c/p1/owner", b"cellar partition owner 2\nsomething new\n".to_vec());
    let mut node = member("a", 1);
    node.want(at(0), &partition());
    let actions = run(&mut node, &mut bucket, 0, 100);
    let trouble = actions.iter().find_map(|action| match action {
        Action::Notice(Notice::Trouble { object, why }) => Some((object.as_str(), why.as_str())),
        _ => None,
    });
    let (object, why) = trouble.unwrap();
    assert!(object == "c/p1/owner" && why.contains("newer program"), "{object}: {why}");
    assert!(bucket.objects["c/p1/owner"].1.ends_with(b"something new\n"));
    // It is read again, and used once it can be.
    bucket.put(
        "c/p1/owner",
        OwnerRecord { epoch: Epoch(4), holder: Holder::Free { successor: None } }.encode(),
    );
    let actions = run(&mut node, &mut bucket, 100, 2000);
    assert!(actions.contains(&Action::Open(partition(), Epoch(5))), "{actions:?}");
}

#[test]
fn a_claim_of_which_nobody_knows_is_given_back() {
    let mut bucket = Bucket::default();
    let mut node = member("a", 1);
    node.want(at(0), &partition());
    // Join and read, up to the claim.
    let claim = loop {
        let request = next_request(&mut node, at(0));
        if request.object == "c/p1/owner" && request.operation != Operation::Read {
            break request;
        }
        node.answer(at(0), request.id, bucket.apply(&request));
    };
    node.release(at(10), &partition(), None);
    node.answer(at(20), claim.id, Answer::Unknown("no answer".into()));
    run(&mut node, &mut bucket, 20, 900);
    bucket.apply(&claim);
    assert!(matches!(bucket.owner().holder, Holder::Owned { .. }));
    run(&mut node, &mut bucket, 900, 3000);
    assert_eq!(bucket.owner(), OwnerRecord { epoch: Epoch(1), holder: Holder::Free { successor: None } });
    assert_eq!(node.phase(&partition()).unwrap().0, Phase::Remote);
}

#[test]
fn a_refused_request_is_reported_and_repeated() {
    let mut bucket = Bucket::default();
    let mut node = member("a", 1);
    let request = next_request(&mut node, at(0));
    node.answer(at(1), request.id, Answer::Refused("403".into()));
    assert!(matches!(node.poll(at(1)), Some(Action::Notice(Notice::Trouble { .. }))));
    assert_eq!(node.poll(at(1)), None);
    assert_eq!(node.next_time(at(1)), Some(at(1) + Duration::from_secs(1)));
    run(&mut node, &mut bucket, 1001, 1100);
    assert!(node.has_lease(at(1100)));
}

/// Returns the takeovers among the actions, with their times in milliseconds.
fn takeovers(actions: &[Action]) -> Vec<(Takeover, [u128; Stage::COUNT])> {
    let takeover = |action: &Action| match action {
        Action::Notice(Notice::Takeover(takeover)) => {
            Some(((**takeover).clone(), takeover.stages.map(|stage| stage.as_millis())))
        }
        _ => None,
    };
    actions.iter().filter_map(takeover).collect()
}

#[test]
fn the_takeover_of_a_dead_node_is_measured() {
    let mut bucket = Bucket::default();
    serving("a", 1, &mut bucket, 1);
    let mut other = member("b", 2);
    other.want(at(0), &partition());
    run(&mut other, &mut bucket, 0, 2500);
    let [seen] = &other.nodes()[..] else { panic!("{:?}", other.nodes()) };
    assert_eq!((seen.node.as_str(), seen.state), ("a", Some(NodeState::Live)));
    assert_eq!((seen.changed, seen.addresses.len(), seen.renewal), (at(0), 1, None));
    assert_eq!(takeovers(&run(&mut other, &mut bucket, 2500, 6100)), []);
    other.opened(at(6900), &partition(), Epoch(2), [HOST]);
    let actions = settle(&mut other, &mut bucket, at(6900));
    assert_eq!(takeovers(&actions), [], "a host has to be reset");
    other.reset_done(at(7150), &partition(), Epoch(2), HOST, Reset::Acknowledged);
    let actions = settle(&mut other, &mut bucket, at(7150));
    let [(taken, stages)] = &takeovers(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((taken.epoch, taken.cause, taken.is_complete), (Epoch(2), Cause::Died, true));
    assert_eq!(taken.other.as_ref().map(NodeName::as_str), Some("a"));
    assert_eq!(*stages, [6000, 0, 0, 900, 250, 0, 0]);
    assert_eq!(taken.began + taken.total(), at(7150));
}

#[test]
fn a_move_is_measured_at_both_nodes() {
    let mut bucket = Bucket::default();
    let mut owner = serving("a", 1, &mut bucket, 1);
    owner.release(at(100), &partition(), Some(name("b")));
    settle(&mut owner, &mut bucket, at(100));
    owner.drained(at(400), &partition(), Epoch(1));
    let actions = settle(&mut owner, &mut bucket, at(400));
    let [(given, stages)] = &takeovers(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((given.cause, given.epoch, given.is_complete), (Cause::GivenUp, Epoch(1), true));
    assert_eq!(given.other.as_ref().map(NodeName::as_str), Some("b"));
    assert_eq!((*stages, given.total().as_millis()), ([0, 0, 0, 0, 0, 300, 0], 300));

    let mut next = member("b", 2);
    next.want(at(0), &partition());
    run(&mut next, &mut bucket, 0, 10);
    next.opened(at(60), &partition(), Epoch(2), []);
    let actions = settle(&mut next, &mut bucket, at(60));
    let [(taken, stages)] = &takeovers(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((taken.cause, taken.is_complete), (Cause::Moved, true));
    assert_eq!(*stages, [0, 0, 0, 60, 0, 0, 0]);
}

#[test]
fn an_ownership_that_ends_early_is_not_complete() {
    let mut bucket = Bucket::default();
    let mut node = member("a", 1);
    node.want(at(0), &partition());
    run(&mut node, &mut bucket, 0, 10);
    node.superseded(at(30), &partition(), Epoch(1));
    node.closed(at(70), &partition(), Epoch(1));
    let actions = settle(&mut node, &mut bucket, at(70));
    let [(taken, _), (lost, stages)] = &takeovers(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((taken.cause, taken.is_complete), (Cause::New, false));
    assert_eq!((lost.cause, lost.is_complete, stages[Stage::Close as usize]), (Cause::Fenced, true, 40));
    // Its own object is there when it takes the partition again.
    node.opened(at(90), &partition(), Epoch(2), []);
    let actions = settle(&mut node, &mut bucket, at(90));
    let [(again, _)] = &takeovers(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((again.cause, again.is_complete), (Cause::Restarted, true));
}
