//! Promises on a partition that another server can take over: their hosts are in its durable list, and the next server
//! resets these before it acknowledges a change.

use crate::world::{Client, HOME, World, partition, root};
use afs_idl::fs::{self, Server};
use base::{AbortCode, Fid, HostUuid};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use volume::{Commits, InCall, ListedHost, Permit, Promisee, listed_hosts, recorded_locks};

/// A valid lease.
#[derive(Default)]
pub(crate) struct Lease {
    pub(crate) is_resetting: AtomicBool,
}

impl Permit for Lease {
    fn may_answer(&self) -> bool {
        true
    }

    fn may_change(&self) -> bool {
        !self.is_resetting.load(SeqCst)
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// Returns a server whose partition can be taken over.
pub(crate) fn world() -> World {
    let world = World::new();
    world.volumes.limit(partition(), Arc::new(Lease::default())).unwrap();
    world
}

/// Returns a server that takes the partition over, and its lease, which acknowledges no change yet.
pub(crate) fn next(world: &World) -> (World, Arc<Lease>, Vec<ListedHost>) {
    let lease = Arc::new(Lease { is_resetting: AtomicBool::new(true) });
    let next = world.taken_over(lease.clone());
    let listed = listed_hosts(&*next.meta).unwrap();
    (next, lease, listed)
}

fn count(world: &World) -> usize {
    world.volumes.listed_hosts_count(partition()).unwrap()
}

/// Makes a call that identifies the client and promises nothing.
fn greet(world: &World, client: &Client) {
    let request = fs::GetVolumeStatusRequest { volume_id: HOME.0 };
    world.serve(|call| call.get_volume_status(&client.call(), request)).unwrap();
}

fn listed(world: &World) -> Vec<SocketAddr> {
    listed_hosts(&world.meta.crash(0)).unwrap().into_iter().map(|host| host.address).collect()
}

#[test]
fn no_promise_is_answered_before_its_host_is_durably_listed() {
    let world = world();
    let alice = world.client("alice", 1);
    greet(&world, &alice);
    assert_eq!(world.try_status(&alice, root()), None, "she is not in the list");
    assert_eq!(world.try_statuses(&alice, &[root()]), None);
    let request = fs::FetchStatusRequest { fid: root() };
    let pending = world.server.serve(|call| call.fetch_status(&alice.call(), request));
    let Err(pending) = pending.into_ready() else { panic!("the reply waits for nothing") };
    assert_eq!(world.try_status(&alice, root()), None, "she is not durably in the list");
    let fids = fs::InlineBulkStatusRequest { fids: vec![root()] };
    let second = world.server.serve(|call| call.inline_bulk_status(&alice.call(), fids));
    assert!(second.into_ready().is_err(), "another call waits for the same");
    assert!(listed(&world).is_empty());
    let reply = pending.wait().unwrap().unwrap();
    assert!(reply.call_back.expiration_time > 0);
    assert_eq!(listed(&world), [alice.caller.peer]);

    let commits = world.meta.commits();
    assert!(world.try_status(&alice, root()).unwrap().call_back.expiration_time > 0);
    assert!(world.try_statuses(&alice, &[root()]).is_some());
    let again = world.server.serve(|call| call.fetch_status(&alice.call(), request));
    assert!(again.into_ready().is_ok());
    assert_eq!(world.meta.commits(), commits, "one commit is enough");
    // A creation promises the new file.
    let bob = world.client("bob", 2);
    world.create(&bob, root(), "file").unwrap();
    assert_eq!(listed(&world), [alice.caller.peer, bob.caller.peer]);
}

#[test]
fn other_partitions_have_no_list() {
    let world = World::new();
    let alice = world.client("alice", 1);
    greet(&world, &alice);
    let commits = world.meta.commits();
    assert!(world.try_status(&alice, root()).is_some());
    world.status(&alice, root()).unwrap();
    assert_eq!((count(&world), world.meta.commits(), listed(&world)), (0, commits, vec![]));
}

/// Alice holds a promise of the dead server and never calls; bob changes the directory at the next one.
#[test]
fn a_change_is_acknowledged_after_the_resets() {
    let world = world();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    world.status(&alice, root()).unwrap();
    let (next, lease, listed) = next(&world);
    assert_eq!(listed, [ListedHost { address: alice.caller.peer, uuid: Some(HostUuid([1; 16])) }]);
    let resets = next.server.owe_resets(&listed);
    world.heard();
    std::thread::scope(|scope| {
        let change = scope.spawn(|| {
            let made = next.create(&bob, root(), "file");
            next.log.lock().push("bob is answered".into());
            made
        });
        // Bob reads meanwhile.
        next.status(&next.client("bob", 2), root()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!change.is_finished());
        next.server.send_resets(resets, &|address, is_reset| {
            assert_eq!((address, is_reset), (alice.caller.peer, true));
            lease.is_resetting.store(false, SeqCst);
        });
        change.join().unwrap().unwrap();
    });
    let heard = world.heard();
    let at = |what: &str| heard.iter().position(|line| line == what);
    assert!(at("alice forgets all").unwrap() < at("bob is answered").unwrap(), "{heard:?}");
    // Her calls need no other reset.
    next.status(&next.client("alice", 1), root()).unwrap();
    assert_eq!(world.heard(), ["alice tells about itself"]);
}

#[test]
fn a_listed_host_is_reset_before_its_own_call() {
    let world = world();
    let alice = world.client("alice", 1);
    world.status(&alice, root()).unwrap();
    let (next, _, listed) = next(&world);
    let resets = next.server.owe_resets(&listed);
    let alice = next.client("alice", 1);
    world.heard();
    let request = fs::FetchStatusRequest { fid: root() };
    next.wire_call(&alice, fs::FETCH_STATUS, &request, &[]).unwrap();
    assert_eq!(world.heard(), ["alice tells about itself", "alice forgets all", "alice is answered"]);
    // The reset that was owed comes late.
    let done = Mutex::new(Vec::new());
    next.server.send_resets(resets, &|address, is_reset| done.lock().push((address, is_reset)));
    assert_eq!(*done.lock(), [(alice.caller.peer, true)]);
}

#[test]
fn a_host_that_does_not_answer_is_owed_its_reset() {
    let world = world();
    let (alice, carol) = (world.client("alice", 1), world.client("carol", 3));
    for client in [&alice, &carol] {
        world.status(client, root()).unwrap();
    }
    carol.station.set_reachable(false);
    let (next, lease, listed) = next(&world);
    let resets = next.server.owe_resets(&listed);
    let done = Mutex::new(Vec::new());
    next.network.patiences();
    next.server.send_resets(resets, &|address, is_reset| done.lock().push((address, is_reset)));
    let called = next.network.patiences().into_iter().filter(|(address, _)| *address == carol.caller.peer);
    let waits: Vec<_> = called.map(|(_, patience)| patience).collect();
    assert_eq!(waits, [Duration::from_secs(3)], "she is not probed, too");
    let mut done = done.into_inner();
    done.sort_unstable();
    assert_eq!(done, [(alice.caller.peer, true), (carol.caller.peer, false)]);
    lease.is_resetting.store(false, SeqCst);
    next.create(&next.client("bob", 2), root(), "file").unwrap();
    // She stays in the list: if this server dies, too, the next one has to reset her.
    next.clock.advance(3_600);
    next.server.maintain();
    assert!(listed_hosts(&*next.meta).unwrap().iter().any(|host| host.address == carol.caller.peer));
    carol.station.set_reachable(true);
    world.heard();
    let request = fs::FetchStatusRequest { fid: root() };
    next.wire_call(&next.client("carol", 3), fs::FETCH_STATUS, &request, &[]).unwrap();
    assert_eq!(world.heard(), ["carol tells about itself", "carol forgets all", "carol is answered"]);
}

/// Alice's laptop is asleep, and carol's has its address.
#[test]
fn a_reset_that_another_client_accepts_does_not_count() {
    let world = world();
    let alice = world.client("alice", 1);
    world.status(&alice, root()).unwrap();
    let home = alice.caller.peer;
    let alice = world.moved(&alice, "10.9.9.9:7001".parse().unwrap());
    let carol = world.moved(&world.client("carol", 3), home);
    let (next, _, listed) = next(&world);
    let resets = next.server.owe_resets(&listed);
    world.heard();
    next.server.send_resets(resets, &|address, is_reset| assert_eq!((address, is_reset), (home, false)));
    assert_eq!(world.heard(), ["carol forgets all", "carol is probed"]);
    // Alice is back, and calls.
    next.moved(&carol, "10.0.0.3:7001".parse().unwrap());
    let alice = next.moved(&alice, home);
    let request = fs::FetchStatusRequest { fid: root() };
    next.wire_call(&alice, fs::FETCH_STATUS, &request, &[]).unwrap();
    assert_eq!(world.heard(), ["alice tells about itself", "alice forgets all", "alice is answered"]);
}

/// The next server knows alice at an address that carol has had since, when she called the last owner.
#[test]
fn any_client_at_a_listed_address_is_reset() {
    let world = world();
    let (next, ..) = next(&world);
    let alice = world.client("alice", 1);
    next.status(&alice, root()).unwrap();
    next.clock.advance(120);
    let home = alice.caller.peer;
    world.moved(&alice, "10.9.9.9:7001".parse().unwrap());
    world.moved(&world.client("carol", 3), home);
    let listed = ListedHost { address: home, uuid: Some(HostUuid([3; 16])) };
    let resets = next.server.owe_resets(&[listed]);
    world.heard();
    next.server.send_resets(resets, &|address, is_reset| assert_eq!((address, is_reset), (home, false)));
    assert_eq!(world.heard(), ["carol forgets all", "carol is probed"]);
}

/// Carol has alice's address, and has called before alice's reset was sent.
#[test]
fn an_unanswered_reset_of_a_removed_host_does_not_count() {
    let world = world();
    let alice = world.client("alice", 1);
    world.status(&alice, root()).unwrap();
    let home = alice.caller.peer;
    let (next, _, listed) = next(&world);
    let resets = next.server.owe_resets(&listed);
    world.moved(&alice, "10.9.9.9:7001".parse().unwrap());
    let carol = next.moved(&world.client("carol", 3), home);
    next.status(&carol, root()).unwrap();
    carol.station.set_reachable(false);
    next.server.send_resets(resets, &|address, is_reset| assert_eq!((address, is_reset), (home, false)));
}

/// Many silent hosts are waited for before hers.
#[test]
fn a_reset_that_is_sent_late_asks_who_is_there() {
    let world = world();
    let (next, ..) = next(&world);
    let alice = next.client("alice", 1);
    next.status(&alice, root()).unwrap();
    let home = alice.caller.peer;
    let resets = next.server.owe_resets(&[ListedHost { address: home, uuid: Some(HostUuid([1; 16])) }]);
    next.clock.advance(120);
    next.moved(&alice, "10.9.9.9:7001".parse().unwrap());
    next.moved(&world.client("carol", 3), home);
    world.heard();
    next.server.send_resets(resets, &|address, is_reset| assert_eq!((address, is_reset), (home, false)));
    assert_eq!(world.heard(), ["carol forgets all", "carol is probed"]);
}

/// A restarted server has its own list.
#[test]
fn an_old_client_is_reset_in_its_own_way() {
    let world = world();
    let old = world.old_client("carol", 3);
    world.status(&old, root()).unwrap();
    let (next, _, listed) = next(&world);
    assert_eq!(listed, [ListedHost { address: old.caller.peer, uuid: None }]);
    world.heard();
    next.server.send_resets(next.server.owe_resets(&listed), &|_, is_reset| assert!(is_reset));
    assert_eq!(world.heard(), ["carol forgets all (old)"]);
}

#[test]
fn a_volume_operation_waits_for_the_resets() {
    let world = world();
    let alice = world.client("alice", 1);
    world.status(&alice, root()).unwrap();
    let (next, _, listed) = next(&world);
    let resets = next.server.owe_resets(&listed);
    std::thread::scope(|scope| {
        let operation = scope.spawn(|| next.server.volume_changed(HOME));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!operation.is_finished());
        next.server.send_resets(resets, &|_, _| ());
        operation.join().unwrap();
    });
}

#[test]
fn hosts_without_promises_leave_the_list() {
    let world = world();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    for client in [&alice, &bob] {
        world.status(client, root()).unwrap();
    }
    world.serve(|call| call.give_up_all_call_backs(&bob.call(), fs::GiveUpAllCallBacksRequest)).unwrap();
    world.server.maintain();
    assert_eq!(count(&world), 2, "he may come back");
    world.clock.advance(600);
    world.server.maintain();
    assert_eq!(count(&world), 1, "alice holds a promise");
    assert_eq!(world.try_status(&bob, root()), None);
    world.status(&bob, root()).unwrap();
    world.volumes.sync().unwrap();
    assert_eq!(listed(&world), [alice.caller.peer, bob.caller.peer]);
    world.clock.advance(5 * 3_600);
    world.server.maintain();
    assert_eq!(count(&world), 0);
}

/// Anyone can obtain promises, so the list is bounded.
#[test]
fn a_full_list_costs_the_promise() {
    let world = world();
    let alice = world.client("alice", 1);
    let volume = world.volumes.get(HOME).unwrap();
    let now = fileserver::Clock::monotonic(&*world.clock);
    let ports = 10_000..u16::MAX;
    let listed = Commits::collect(|commits| {
        let volume = InCall::new(volume.clone(), commits);
        let pin = |port: &u16| {
            let address = SocketAddr::new(alice.caller.peer.ip(), *port);
            volume.pin_host(&Promisee { number: 1, address, now }, || None).is_some()
        };
        ports.take_while(pin).count()
    });
    assert_eq!(listed.wait().unwrap(), 4_096);
    let reply = world.status(&alice, root()).unwrap();
    assert_eq!(reply.call_back.expiration_time, 0);
    assert_eq!(reply.call_back.call_back_type, fs::call_back_type::DROPPED);
    assert_eq!(world.try_status(&alice, root()), None);
    let fids = fs::InlineBulkStatusRequest { fids: vec![root()] };
    let replies = world.serve(|call| call.inline_bulk_status(&alice.call(), fids)).unwrap();
    assert_eq!(replies.call_backs[0].expiration_time, 0);
    let bob = world.client("bob", 2);
    assert!(world.status(&bob, root()).unwrap().call_back.expiration_time > 0, "another address");
    world.heard();
    world.create(&bob, root(), "file").unwrap();
    assert_eq!(world.heard(), Vec::<String>::new(), "alice was promised nothing");
    assert_eq!(count(&world), 4_097);
}

/// Returns the next server, which acknowledges changes and has the locks of the partition.
pub(crate) fn next_with_locks(world: &World) -> World {
    let (next, lease, _) = next(world);
    lease.is_resetting.store(false, SeqCst);
    next.server.restore_locks(partition(), recorded_locks(&*next.meta).unwrap());
    next
}

fn extend(world: &World, client: &Client, fid: fs::Fid) -> Result<(), AbortCode> {
    world.serve(|call| call.extend_lock(&client.call(), fs::ExtendLockRequest { fid })).map(|_| ())
}

fn release(world: &World, client: &Client, fid: fs::Fid) {
    world.serve(|call| call.release_lock(&client.call(), fs::ReleaseLockRequest { fid })).unwrap();
}

#[test]
fn locks_survive_their_server() {
    let first = world();
    let (alice, bob) = (first.client("alice", 1), first.client("bob", 2));
    let files = ["a", "b", "c"].map(|name| first.create(&bob, root(), name).unwrap());
    first.set_lock(&alice, files[0], fs::lock_type::WRITE).unwrap();
    first.set_lock(&alice, files[1], fs::lock_type::READ).unwrap();
    first.set_lock(&bob, files[1], fs::lock_type::READ).unwrap();
    first.set_lock(&bob, files[2], fs::lock_type::WRITE).unwrap();
    release(&first, &bob, files[2]);
    first.clock.advance(200);

    let second = next_with_locks(&first);
    let shown = |world: &World| files.map(|file| world.status(&bob, file).unwrap().status.lock_count as i32);
    assert_eq!(shown(&second), [-1, 2, 0]);
    assert_eq!(second.set_lock(&bob, files[0], fs::lock_type::READ), Err(AbortCode::UAEAGAIN));
    second.clock.advance(200);
    extend(&second, &alice, files[0]).unwrap();
    release(&second, &bob, files[1]);
    second.remove(&bob, root(), "b").unwrap();
    second.set_lock(&bob, files[2], fs::lock_type::WRITE).unwrap();
    assert_eq!(extend(&second, &alice, files[1]), Err(AbortCode::VNOVNODE));

    let third = next_with_locks(&second);
    let left = recorded_locks(&*third.meta).unwrap();
    assert_eq!(left, [(Fid::from(files[0]), -1), (Fid::from(files[2]), -1)]);
    assert_eq!(third.set_lock(&bob, files[0], fs::lock_type::READ), Err(AbortCode::UAEAGAIN));
}

#[test]
fn a_lock_is_answered_when_it_is_durable() {
    let world = world();
    let alice = world.client("alice", 1);
    let file = world.create(&alice, root(), "file").unwrap();
    let request = fs::SetLockRequest { fid: file, lock_type: fs::lock_type::WRITE };
    let pending = world.server.serve(|call| call.set_lock(&alice.call(), request));
    assert!(pending.into_ready().is_err());
    assert_eq!(recorded_locks(&world.meta.crash(0)).unwrap(), []);
    world.volumes.sync().unwrap();
    assert_eq!(recorded_locks(&world.meta.crash(0)).unwrap(), [(Fid::from(file), -1)]);
}

#[test]
fn expired_locks_leave_no_record_unless_they_are_extended() {
    let world = world();
    let alice = world.client("alice", 1);
    let file = world.create(&alice, root(), "file").unwrap();
    world.set_lock(&alice, file, fs::lock_type::READ).unwrap();
    world.clock.advance(301);
    world.server.maintain();
    assert_eq!(recorded_locks(&*world.meta).unwrap(), []);
    extend(&world, &alice, file).unwrap();
    assert_eq!(recorded_locks(&*world.meta).unwrap(), [(Fid::from(file), 1)]);
    let commits = world.meta.commits();
    extend(&world, &alice, file).unwrap();
    assert_eq!(world.meta.commits(), commits, "the record is there");
}

#[test]
fn locks_of_deleted_volumes_are_not_restored() {
    let world = world();
    let alice = world.client("alice", 1);
    let file = world.create(&alice, root(), "file").unwrap();
    world.set_lock(&alice, file, fs::lock_type::READ).unwrap();
    let elsewhere = Fid { volume: base::VolumeId(99), ..Fid::from(file) };
    world.server.restore_locks(partition(), vec![(Fid::from(file), 1), (elsewhere, -1)]);
    assert_eq!(recorded_locks(&*world.meta).unwrap(), [(Fid::from(file), 1)]);
}

#[test]
fn other_partitions_have_no_records_of_locks() {
    let world = World::new();
    let alice = world.client("alice", 1);
    let file = world.create(&alice, root(), "file").unwrap();
    let commits = world.meta.commits();
    world.set_lock(&alice, file, fs::lock_type::WRITE).unwrap();
    extend(&world, &alice, file).unwrap();
    release(&world, &alice, file);
    assert_eq!((world.meta.commits(), recorded_locks(&*world.meta).unwrap()), (commits, vec![]));
}
