//! Owners that change, hold calls, or are gone.

use crate::strangers::{caller, node};
use crate::world::{Client, HOLD, World, partition, root};
use afs_idl::{CallStream, MemoryStream, cluster, fs};
use base::{AbortCode, CallContext, SecurityLevel};
use bytes::Bytes;
use cluster_proto::Epoch;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

/// Returns a forwarded MakeDir of this client.
fn make(number: u64, client: &Client) -> (cluster::ForwardRequest, Bytes) {
    let call =
        fs::MakeDirRequest { directory: root(1), name: "d".into(), status: fs::StoreStatus::default() };
    let address = Ipv4Addr::new(127, 0, 7, 20).to_ipv6_mapped().octets();
    let request = cluster::ForwardRequest {
        front: node(0),
        partition: partition(1).as_str().into(),
        epoch: 6,
        number,
        wait_ms: 200,
        caller: cluster::Caller {
            address,
            port: client.address().port().into(),
            local: address,
            ..Default::default()
        },
    };
    (request, [xdr::to_vec(&fs::MAKE_DIR), xdr::to_vec(&call)].concat().into())
}

/// A front with an epoch that has passed is refused, holds the call, and succeeds once it knows the present one.
#[test]
fn an_outdated_front_asks_again() {
    let world = World::new();
    let ann = Client::start(21);
    let front = ann.to(&world.nodes[0]);
    let fid = root(1);
    fs::fetch_status(&*front, &fs::FetchStatusRequest { fid }).unwrap();
    world.table.beliefs.lock().insert((0, partition(1)), (1, Epoch(6)));
    world.table.set(1, |own| own.epoch = Epoch(7));
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            world.table.beliefs.lock().clear();
        });
        let made =
            fs::MakeDirRequest { directory: fid, name: "d".into(), status: fs::StoreStatus::default() };
        fs::make_dir(&*front, &made).unwrap();
    });
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(world.nodes[0].front.counters().refused >= 1);
}

#[test]
fn changes_are_held_until_the_owner_answers_them() {
    let world = World::new();
    let ann = Client::start(22);
    let front = ann.to(&world.nodes[0]);
    world.table.set(1, |own| own.changes = false);
    fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: root(1) }).unwrap();
    let made =
        fs::MakeDirRequest { directory: root(1), name: "d".into(), status: fs::StoreStatus::default() };
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            world.table.set(1, |own| own.changes = true);
        });
        fs::make_dir(&*front, &made).unwrap();
    });
    world.table.set(1, |own| own.changes = false);
    let begun = Instant::now();
    assert_eq!(fs::make_dir(&*front, &made), Err(AbortCode::VRESTARTING), "held for too long");
    assert!(begun.elapsed() >= HOLD);
}

#[test]
fn clients_begin_anew_if_the_owner_is_gone() {
    let mut world = World::new();
    let ann = Client::start(23);
    let front = ann.to(&world.nodes[0]);
    fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: root(1) }).unwrap();
    world.nodes[1].kill();
    let begun = Instant::now();
    let status = fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: root(1) });
    assert_eq!(status.map(drop), Err(AbortCode::VRESTARTING));
    assert!(begun.elapsed() >= HOLD);
    assert!(world.nodes[0].front.counters().unknown >= 1);
    fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: root(0) }).unwrap();
}

/// A change whose outcome is unknown goes to no other epoch: it would be made twice.
#[test]
fn a_change_in_doubt_is_not_repeated_to_the_next_owner() {
    let mut world = World::new();
    let ann = Client::start(24);
    let front = ann.to(&world.nodes[0]);
    fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: root(1) }).unwrap();
    world.nodes[1].kill();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            world.table.beliefs.lock().insert((0, partition(1)), (1, Epoch(7)));
        });
        let begun = Instant::now();
        let made =
            fs::MakeDirRequest { directory: root(1), name: "d".into(), status: fs::StoreStatus::default() };
        assert_eq!(fs::make_dir(&*front, &made), Err(AbortCode::VRESTARTING));
        assert!(begun.elapsed() < HOLD, "as soon as another owner is known");
    });
}

/// Forwards a call to the second node as the first one does. Returns the reply.
fn forwarded(world: &World, request: &cluster::ForwardRequest, call: &Bytes) -> Result<Vec<u8>, AbortCode> {
    let message = [xdr::to_vec(&cluster::FORWARD), xdr::to_vec(request), call.to_vec()].concat();
    let mut stream = MemoryStream::new(&message, 1000);
    let caller = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let served = cluster::dispatch(&*world.nodes[1].service, &CallContext::new(&caller), &mut stream);
    served.map(|()| stream.outgoing)
}

/// A repeated forward finds the result of the first; the same call with another number does not.
#[test]
fn a_repeated_change_is_made_once() {
    let world = World::new();
    let client = Client::start(20);
    let send = |number| {
        let (request, call) = make(number, &client);
        forwarded(&world, &request, &call)
    };
    let first = send(1).unwrap();
    assert_eq!(send(1), Ok(first), "the result of the first");
    assert_eq!(world.nodes[1].service.counters().found, 1);
    assert_eq!(send(2), Err(AbortCode::UAEEXIST), "another call");
    assert_eq!(send(2), Err(AbortCode::UAEEXIST), "errors are remembered, too");
    assert_eq!(world.nodes[1].service.counters().found, 2);
}

/// A repeated store does not write again: another client may have written meanwhile.
#[test]
fn a_repeated_store_does_not_write_again() {
    let world = World::new();
    let client = Client::start(20);
    let (request, call) = make(1, &client);
    let made = forwarded(&world, &request, &call).unwrap();
    let directory: fs::MakeDirReply = xdr::from_slice(&made).unwrap();
    let (bob, name) = (Client::start(26), "f".into());
    let owner = bob.to(&world.nodes[1]);
    let status = fs::StoreStatus::default();
    let file = fs::CreateFileRequest { directory: directory.fid, name, status };
    let fid = fs::create_file(&*owner, &file).unwrap().fid;
    let store = |data: &[u8]| {
        let length = data.len() as u64;
        fs::StoreData64Request { fid, status, position: 0, length, file_length: length }
    };
    let call =
        [xdr::to_vec(&fs::STORE_DATA64), xdr::to_vec(&store(&[1; 9000])), vec![1; 9000]].concat().into();
    let request = cluster::ForwardRequest { number: 2, ..request };
    let first = forwarded(&world, &request, &call).unwrap();
    let version = |reply: &[u8]| {
        let reply: fs::StoreData64Reply = xdr::from_slice(reply).unwrap();
        (reply.new_status.data_version, reply.new_status.length)
    };
    assert_eq!(version(&first).1, 9000);
    let bobs = fs::store_data64(&*owner, &store(b"bob"), |stream| stream.write("bob".into())).unwrap();
    assert_eq!(version(&forwarded(&world, &request, &call).unwrap()), version(&first));
    let now = fs::fetch_status(&*owner, &fs::FetchStatusRequest { fid }).unwrap().status;
    assert_eq!((now.data_version, now.length), (bobs.new_status.data_version, 3));
}

/// A store that is too long to be kept cannot be sent again; the client begins anew.
#[test]
fn a_long_store_to_an_owner_that_refuses_it_begins_anew() {
    let world = World::new();
    let ann = Client::start(25);
    let front = ann.to(&world.nodes[0]);
    let make =
        fs::CreateFileRequest { directory: root(1), name: "f".into(), status: fs::StoreStatus::default() };
    let fid = fs::create_file(&*front, &make).unwrap().fid;
    world.table.beliefs.lock().insert((0, partition(1)), (1, Epoch(9)));
    let store = |length: usize| {
        let request = fs::StoreData64Request {
            fid,
            status: fs::StoreStatus::default(),
            position: 0,
            length: length as u64,
            file_length: length as u64,
        };
        let send = |stream: &mut dyn CallStream| {
            (0..length / 1000).try_for_each(|_| stream.write(Bytes::from_static(&[7; 1000])))
        };
        let begun = Instant::now();
        (fs::store_data64(&*front, &request, send).map(drop), begun.elapsed())
    };
    let (long, _) = store(8_000_000);
    assert_eq!(long, Err(AbortCode::VRESTARTING));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            world.table.beliefs.lock().clear();
        });
        assert_eq!(store(100_000).0, Ok(()), "a short one is kept");
    });
    assert_eq!(store(8_000_000).0, Ok(()), "nothing was lost of the connection");
}
