//! Callers that are not nodes of the cluster, and requests that no front makes.

use crate::files::{fetch_range, make};
use crate::shelf::Shelf;
use crate::world::{Client, World, cell, incarnation, memory, partition, root};
use afs_idl::cluster::{self, part_kind, refusal};
use afs_idl::{MemoryStream, fs};
use base::{AbortCode, CallContext, Caller, Connection, Identity, Principal, SecurityLevel};
use cluster_world::store_arguments;
use clusterserver::Way;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A caller on the cluster's port.
pub(crate) fn caller(name: Option<&str>, level: SecurityLevel, ip: IpAddr) -> Caller {
    let principal =
        |name: &str| Principal { name: name.into(), instance: String::new(), realm: String::new() };
    Caller {
        identity: name.map_or(Identity::Anonymous, |name| Identity::Known(principal(name))),
        level,
        peer: (ip, 7010).into(),
        local: ip,
        connection: Connection::new(),
    }
}

/// The membership of a node.
pub(crate) fn node(index: usize) -> cluster::Node {
    let nonce_low = incarnation(index).nonce as u64;
    cluster::Node { name: format!("n{index}").into(), nonce_high: 0, nonce_low, membership: 1 }
}

fn forward() -> cluster::ForwardRequest {
    let address = std::net::Ipv4Addr::new(127, 0, 7, 30).to_ipv6_mapped().octets();
    cluster::ForwardRequest {
        front: node(0),
        partition: partition(1).as_str().into(),
        epoch: 6,
        number: 1,
        wait_ms: 50,
        caller: cluster::Caller { address, port: 7001, local: address, ..Default::default() },
    }
}

/// Asks for the data of the second node's root directory.
fn fetch() -> cluster::FetchRequest {
    let cluster::ForwardRequest { front, partition, epoch, wait_ms, caller, .. } = forward();
    let fs::Fid { volume, vnode, unique } = root(1);
    let (position, length, names) = (0, 1 << 20, 1);
    cluster::FetchRequest {
        front,
        partition,
        epoch,
        wait_ms,
        caller,
        volume,
        vnode,
        unique,
        position,
        length,
        names,
    }
}

/// Asks whether a file of the second node may be written.
fn offer(fid: fs::Fid) -> cluster::OfferStoreRequest {
    let cluster::ForwardRequest { front, partition, epoch, wait_ms, caller, .. } = forward();
    let arguments = store_arguments(fid, 1 << 20);
    cluster::OfferStoreRequest { front, partition, epoch, wait_ms, caller, arguments }
}

/// Stores into a file of the second node.
fn place(fid: fs::Fid) -> cluster::StoreRequest {
    let cluster::OfferStoreRequest { front, partition, epoch, wait_ms, caller, arguments } = offer(fid);
    let (number, chunk_shift, objects) = (1, 18, Vec::new());
    cluster::StoreRequest {
        front,
        partition,
        epoch,
        number,
        wait_ms,
        caller,
        arguments,
        chunk_shift,
        objects,
    }
}

/// Asks for the volume of the second node.
fn locate(node: cluster::Node) -> cluster::LocateVolumeRequest {
    let partition = partition(1).as_str().into();
    cluster::LocateVolumeRequest { node, partition, epoch: 6, volume: root(1).volume }
}

fn status(index: usize) -> Vec<u8> {
    let request = fs::FetchStatusRequest { fid: root(index) };
    [xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&request)].concat()
}

/// Makes a call at the second node.
fn call(world: &World, caller: &Caller, opcode: u32, request: &impl xdr::Encode, rest: &[u8]) -> AbortCode {
    let message = [xdr::to_vec(&opcode), xdr::to_vec(request), rest.to_vec()].concat();
    let mut stream = MemoryStream::new(&message, 1000);
    let result = cluster::dispatch(&*world.nodes[1].service, &CallContext::new(caller), &mut stream);
    assert!(stream.outgoing.is_empty() || result.is_ok());
    result.err().unwrap_or(AbortCode(0))
}

/// Nothing is answered to a caller without the cell's key, whatever it says, nor to one that does not encrypt.
#[test]
fn strangers_get_what_strangers_get() {
    let world = World::new();
    let ip = world.nodes[0].cluster.ip();
    let (clear, auth, crypt) = (SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted);
    for (name, level, code) in [
        (None, clear, AbortCode::RXKADNOAUTH),
        (Some("ann"), crypt, AbortCode::UAEACCES),
        (Some("afs"), clear, AbortCode::RXKADLEVELFAIL),
        (Some("afs"), auth, AbortCode::RXKADLEVELFAIL),
    ] {
        let caller = caller(name, level, ip);
        let locate = locate(node(0));
        let client = cluster::CallClientRequest { owner: node(0), port: 7001, ..Default::default() };
        assert_eq!(call(&world, &caller, cluster::FORWARD, &forward(), &status(1)), code, "{name:?}");
        assert_eq!(call(&world, &caller, cluster::FETCH, &fetch(), &[]), code, "{name:?}");
        assert_eq!(call(&world, &caller, cluster::OFFER_STORE, &offer(root(1)), &[]), code, "{name:?}");
        assert_eq!(call(&world, &caller, cluster::STORE, &place(root(1)), &[]), code, "{name:?}");
        assert_eq!(call(&world, &caller, cluster::LOCATE_VOLUME, &locate, &[]), code, "{name:?}");
        assert_eq!(call(&world, &caller, cluster::CALL_CLIENT, &client, &[]), code, "{name:?}");
    }
    let counters = world.nodes[1].service.counters();
    assert_eq!((counters.strangers, counters.executed), (24, 0));
    // The same over the network.
    let stranger = Client::start(31);
    let address = world.nodes[1].cluster;
    let locate = locate(node(0));
    for (identity, code) in [
        (None, AbortCode::RXKADNOAUTH),
        (Some(cell(auth)), AbortCode::RXKADLEVELFAIL),
        (Some(cell(crypt)), AbortCode(refusal::NO_LEASE)),
    ] {
        let connection = stranger.to_service(address, cluster::SERVICE_ID, identity);
        assert_eq!(cluster::locate_volume(&*connection, &locate).map(drop), Err(code));
    }
}

/// Its file server's port is closed. That is no silence of the client.
#[test]
fn a_node_that_cannot_call_a_client_says_so() {
    let mut world = World::new();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let address = std::net::Ipv4Addr::new(127, 0, 7, 30).to_ipv6_mapped().octets();
    let request = cluster::CallClientRequest {
        owner: node(0),
        address,
        port: 7001,
        patience_ms: 1000,
        ..Default::default()
    };
    world.nodes[1].kill_all();
    let code = call(&world, &front, cluster::CALL_CLIENT, &request, &[]);
    assert_eq!(code, AbortCode::RX_RESTARTING);
}

/// The receiving thread answers what a worker would, and nothing that a worker would refuse.
#[test]
fn the_fast_path_answers_nodes_with_a_known_lease() {
    let world = World::new();
    let (ip, client) = (world.nodes[0].cluster.ip(), Client::start(30));
    let front = caller(Some("afs"), SecurityLevel::Encrypted, ip);
    let forward = || {
        let request = forward();
        let port = client.address().port().into();
        cluster::ForwardRequest { caller: cluster::Caller { port, ..request.caller }, ..request }
    };
    let ask = |caller: &Caller, request: &cluster::ForwardRequest| {
        let message = [xdr::to_vec(&cluster::FORWARD), xdr::to_vec(request), status(1)].concat();
        world.nodes[1].service.try_answer(&CallContext::new(caller), &message)
    };
    assert_eq!(ask(&front, &forward()), None, "the lease of the front is not known");
    assert_eq!(call(&world, &front, cluster::FORWARD, &forward(), &status(1)), AbortCode(0));
    let executed = || world.nodes[1].service.counters().executed;
    let before = executed();
    // A lease is known for a while only; a call to a worker, which counts as nothing, reads it again.
    let ask_known = || {
        call(&world, &front, cluster::LOCATE_VOLUME, &locate(node(0)), &[]);
        ask(&front, &forward())
    };
    let ask_known = || (0..1000).find_map(|_| ask_known()).unwrap();
    let reply = ask_known();
    let reply: fs::FetchStatusReply = xdr::from_slice(&reply).unwrap();
    assert_eq!((reply.status.file_type, executed()), (fs::file_type::DIRECTORY, before + 1));

    let (clear, auth, crypt) = (SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted);
    for (name, level) in [(None, clear), (Some("ann"), crypt), (Some("afs"), clear), (Some("afs"), auth)] {
        assert_eq!(ask(&caller(name, level, ip), &forward()), None, "{name:?}");
    }
    let elsewhere = caller(Some("afs"), crypt, "127.0.7.77".parse().unwrap());
    assert_eq!(ask(&elsewhere, &forward()), None, "not the address of the lease");
    let request = forward();
    for other in [
        cluster::ForwardRequest { front: node(1), ..request.clone() },
        cluster::ForwardRequest { epoch: 5, ..request.clone() },
        cluster::ForwardRequest { epoch: 7, ..request.clone() },
        cluster::ForwardRequest { partition: partition(0).as_str().into(), ..request.clone() },
        cluster::ForwardRequest { partition: "a//b".into(), ..request.clone() },
        cluster::ForwardRequest {
            caller: cluster::Caller { is_known: 2, ..request.caller.clone() },
            ..request
        },
    ] {
        assert_eq!(ask(&front, &other), None, "{other:?}");
    }
    world.table.set(1, |own| own.reads = false);
    assert_eq!(ask(&front, &forward()), None, "nothing is answered at present");
    world.table.set(1, |own| (own.reads, own.is_draining) = (true, true));
    assert_eq!(ask(&front, &forward()), None, "it is being given up");
    world.table.set(1, |own| own.is_draining = false);
    ask_known();
    world.table.dead.lock().push(0);
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(ask(&front, &forward()), None, "its lease may have ended");
    let counters = world.nodes[1].service.counters();
    assert_eq!((counters.strangers, counters.executed), (0, before + 2), "it has no other effect");
}

/// A holder of the key is a node only with that node's lease, from that node's address.
#[test]
fn a_node_is_bound_to_its_lease() {
    let world = World::new();
    let ip = world.nodes[0].cluster.ip();
    let here = caller(Some("afs"), SecurityLevel::Encrypted, ip);
    let elsewhere = caller(Some("afs"), SecurityLevel::Encrypted, "127.0.7.77".parse().unwrap());
    let ask = |caller: &Caller, node| call(&world, caller, cluster::LOCATE_VOLUME, &locate(node), &[]);
    let no_lease = AbortCode(refusal::NO_LEASE);
    assert_eq!(ask(&here, cluster::Node { membership: 2, ..node(0) }), no_lease);
    assert_eq!(ask(&here, cluster::Node { nonce_low: 4711, ..node(0) }), no_lease);
    assert_eq!(ask(&here, cluster::Node { name: "n9".into(), ..node(0) }), no_lease);
    assert_eq!(ask(&here, node(1)), no_lease, "the lease of another node");
    assert_eq!(ask(&elsewhere, node(0)), no_lease, "not even if it is known");
    assert_eq!(ask(&here, node(0)), AbortCode(0));
    assert_eq!(ask(&elsewhere, node(0)), no_lease, "not even if it is known");
    world.table.dead.lock().push(0);
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(ask(&here, node(0)), no_lease, "it was evicted");
}

/// A node that was evicted and goes on, or anyone else with the key, does not cause a request to the bucket with each call.
#[test]
fn the_bucket_is_not_asked_for_each_call_without_a_lease() {
    let world = World::new();
    let here = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let ask = |node| call(&world, &here, cluster::LOCATE_VOLUME, &locate(node), &[]);
    let reads = || world.table.leases_read.load(Relaxed);
    let (no_lease, begun, before) = (AbortCode(refusal::NO_LEASE), Instant::now(), reads());
    for _ in 0..1000 {
        assert_eq!(ask(cluster::Node { membership: 2, ..node(0) }), no_lease);
    }
    let most = 1 + begun.elapsed().as_millis() as u64 / 200;
    assert!((1..=most).contains(&(reads() - before)), "{} reads, {most} at most", reads() - before);
    assert_eq!(ask(node(0)), AbortCode(0), "the membership that has a lease");
    // It is looked for again.
    world.table.dead.lock().push(0);
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(ask(node(0)), no_lease);
    world.table.dead.lock().clear();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ask(node(0)), AbortCode(0));
}

/// A holder of the key that is no node can name a new membership, or a new name, with each call.
#[test]
fn the_bucket_is_not_asked_for_each_membership() {
    let world = World::new();
    let stranger = caller(Some("afs"), SecurityLevel::Encrypted, "127.0.7.77".parse().unwrap());
    let here = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let ask = |caller, node| call(&world, caller, cluster::LOCATE_VOLUME, &locate(node), &[]);
    let reads = || world.table.leases_read.load(Relaxed);
    let (no_lease, begun, before) = (AbortCode(refusal::NO_LEASE), Instant::now(), reads());
    for nonce_low in 0..500 {
        assert_eq!(ask(&stranger, cluster::Node { nonce_low, ..node(1) }), no_lease);
        let name = format!("m{nonce_low}").as_str().into();
        assert_eq!(ask(&stranger, cluster::Node { name, ..node(0) }), no_lease);
    }
    let most = 21 + begun.elapsed().as_millis() as u64 / 50;
    assert!((1..=most).contains(&(reads() - before)), "{} reads, {most} at most", reads() - before);
    assert_eq!(ask(&here, node(0)), AbortCode(0), "a node is not refused for that");
}

/// A client that sends on after its call keeps no worker of the owner. What a repeated call has is read to its end.
#[test]
fn data_after_a_call_is_not_read_for_ever() {
    let world = World::new();
    let client = Client::start(30);
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let mut number = 0;
    let mut make = |following: usize| {
        number += 1;
        let (directory, name) = (root(1), format!("f{number}").as_str().into());
        let create = fs::CreateFileRequest { directory, name, status: fs::StoreStatus::default() };
        let port = client.address().port().into();
        let caller = cluster::Caller { port, ..forward().caller };
        let request = cluster::ForwardRequest { number, caller, ..forward() };
        let made = [xdr::to_vec(&fs::CREATE_FILE), xdr::to_vec(&create), vec![0; following]].concat();
        call(&world, &front, cluster::FORWARD, &request, &made)
    };
    assert_eq!((make(0), make(200_000)), (AbortCode(0), AbortCode(0)));
    assert_eq!(make(300_000), AbortCode::RXGEN_SS_UNMARSHAL);
}

#[test]
fn requests_that_no_front_makes_are_refused() {
    let world = World::new();
    let ip = world.nodes[0].cluster.ip();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, ip);
    let send = |request: cluster::ForwardRequest, rest: &[u8]| {
        call(&world, &front, cluster::FORWARD, &request, rest)
    };
    let other_epoch = AbortCode(refusal::OTHER_EPOCH);
    assert_eq!(send(cluster::ForwardRequest { epoch: 5, ..forward() }, &status(1)), other_epoch, "past");
    assert_eq!(send(cluster::ForwardRequest { epoch: 7, ..forward() }, &status(1)), other_epoch, "forged");
    let not_owner = AbortCode(refusal::NOT_OWNER);
    let of_the_front = partition(0).as_str().into();
    assert_eq!(send(cluster::ForwardRequest { partition: of_the_front, ..forward() }, &status(1)), not_owner);
    assert_eq!(send(cluster::ForwardRequest { partition: "x".into(), ..forward() }, &status(1)), not_owner);
    world.table.set(1, |own| own.reads = false);
    assert_eq!(send(forward(), &status(1)), AbortCode(refusal::HELD));
}

#[test]
fn malformed_requests_are_refused() {
    let world = World::new();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let send = |request: cluster::ForwardRequest, rest: &[u8]| {
        call(&world, &front, cluster::FORWARD, &request, rest)
    };
    let malformed = AbortCode::RXGEN_SS_UNMARSHAL;
    assert_eq!(send(forward(), &[]), malformed, "no call");
    assert_eq!(send(forward(), &status(1)[..9]), malformed, "half a call");
    assert_eq!(
        send(cluster::ForwardRequest { partition: "a//b".into(), ..forward() }, &status(1)),
        malformed
    );
    let bad = cluster::Caller { level: 9, ..forward().caller };
    assert_eq!(send(cluster::ForwardRequest { caller: bad, ..forward() }, &status(1)), malformed);
    assert_eq!(send(forward(), &xdr::to_vec(&fs::GET_TIME)), AbortCode::RXGEN_OPCODE, "the front's own");
    // A volume that is not here is not looked for elsewhere: nothing is forwarded twice.
    let client = Client::start(30);
    let (request, call_of) = (forward(), status(0));
    let request = cluster::ForwardRequest {
        caller: cluster::Caller { port: client.address().port().into(), ..request.caller },
        ..request
    };
    assert_eq!(send(request, &call_of), AbortCode::VNOVOL);
    assert_eq!(world.nodes[1].front.counters(), clusterserver::Counters::default());
}

/// Only the owner in this epoch says that a volume is not there; while it gives the partition up, it says nothing.
#[test]
fn only_an_owner_knows_that_a_volume_is_absent() {
    let world = World::new();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let ask =
        |request: cluster::LocateVolumeRequest| call(&world, &front, cluster::LOCATE_VOLUME, &request, &[]);
    let absent = || cluster::LocateVolumeRequest { volume: 7, ..locate(node(0)) };
    assert_eq!(ask(locate(node(0))), AbortCode(0));
    assert_eq!(ask(absent()), AbortCode::VNOVOL);
    let other_epoch = AbortCode(refusal::OTHER_EPOCH);
    assert_eq!(ask(cluster::LocateVolumeRequest { epoch: 5, ..absent() }), other_epoch);
    let elsewhere = cluster::LocateVolumeRequest { partition: partition(0).as_str().into(), ..absent() };
    let not_owner = AbortCode(refusal::NOT_OWNER);
    assert_eq!(ask(elsewhere), not_owner);
    world.table.set(1, |own| own.is_draining = true);
    assert_eq!((ask(absent()), ask(locate(node(0)))), (not_owner, not_owner));
    let send = |volume| call(&world, &front, cluster::FORWARD, &forward(), &status(volume));
    assert_eq!(send(1), not_owner, "the next owner executes it");
}

/// A client that names volumes that do not exist makes its front ask other nodes at a limited rate, and only its own calls
/// suffer.
#[test]
fn unknown_volumes_are_asked_for_at_a_limited_rate() {
    let world = World::new();
    let request = |volume| {
        let request = fs::FetchStatusRequest { fid: fs::Fid { volume, ..root(1) } };
        [xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&request)].concat()
    };
    let mallory = caller(None, SecurityLevel::Clear, "127.0.7.32".parse().unwrap());
    // What is nowhere else is looked for here.
    let is_asked = |volume| {
        let mut stream = MemoryStream::new(&request(volume), 1000);
        match world.nodes[0].front.route(&CallContext::new(&mallory), &mut stream) {
            Way::Here(_) => true,
            Way::Ended(result) => {
                assert_eq!(result, Err(AbortCode::VBUSY));
                false
            }
        }
    };
    let begun = Instant::now();
    let asked = (1000..2000).filter(|volume| is_asked(*volume)).count();
    let most = 21 + begun.elapsed().as_millis() / 50;
    assert!(asked >= 20 && asked as u128 <= most, "{asked} of 1000, expected at most {most}");
    let ann = Client::start(33);
    let status = fs::FetchStatusRequest { fid: root(1) };
    fs::fetch_status(&*ann.to(&world.nodes[0]), &status).unwrap();
}

/// Whatever is missing of a forwarded call, it is refused and not executed.
#[test]
fn cut_requests_are_refused() {
    let world = World::new();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let whole = [xdr::to_vec(&cluster::FORWARD), xdr::to_vec(&forward()), status(1)].concat();
    for length in 0..whole.len() {
        let mut stream = MemoryStream::new(&whole[..length], 7);
        let result = cluster::dispatch(&*world.nodes[1].service, &CallContext::new(&front), &mut stream);
        assert_eq!(result, Err(AbortCode::RXGEN_SS_UNMARSHAL), "{length} of {} bytes", whole.len());
        assert!(stream.outgoing.is_empty());
    }
}

/// A question about the data of a file is answered by the owner of its volume only, in the epoch that the front names, and for
/// ranges that there can be.
#[test]
fn questions_about_data_are_checked_like_calls() {
    let world = World::new();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let client = Client::start(87);
    let address = std::net::Ipv4Addr::new(127, 0, 7, 87).to_ipv6_mapped().octets();
    let of_client = cluster::Caller { address, port: client.address().port().into(), ..fetch().caller };
    let good = || cluster::FetchRequest { caller: of_client.clone(), ..fetch() };
    let ask = |request: cluster::FetchRequest| call(&world, &front, cluster::FETCH, &request, &[]);
    assert_eq!(ask(good()), AbortCode(0));
    let other_epoch = AbortCode(refusal::OTHER_EPOCH);
    assert_eq!(ask(cluster::FetchRequest { epoch: 5, ..good() }), other_epoch);
    assert_eq!(ask(cluster::FetchRequest { epoch: 7, ..good() }), other_epoch);
    let not_owner = AbortCode(refusal::NOT_OWNER);
    let of_the_front = partition(0).as_str().into();
    assert_eq!(ask(cluster::FetchRequest { partition: of_the_front, ..good() }), not_owner);
    assert_eq!(ask(cluster::FetchRequest { volume: root(0).volume, ..good() }), AbortCode::VNOVOL);
    assert_eq!(ask(cluster::FetchRequest { vnode: 0, ..good() }), AbortCode::UAEINVAL);
    assert_eq!(ask(cluster::FetchRequest { vnode: 77, ..good() }), AbortCode::VNOVNODE);
    for (position, length) in [(u64::MAX, 1), (0, u64::MAX), (1 << 62, i64::MAX as u64)] {
        assert_eq!(ask(cluster::FetchRequest { position, length, ..good() }), AbortCode::UAEFBIG);
    }
    let node = cluster::Node { membership: 9, ..node(0) };
    assert_eq!(ask(cluster::FetchRequest { front: node, ..good() }), AbortCode(refusal::NO_LEASE));
    let bad = cluster::Caller { level: 9, ..of_client.clone() };
    assert_eq!(ask(cluster::FetchRequest { caller: bad, ..good() }), AbortCode::RXGEN_SS_UNMARSHAL);
    assert_eq!(
        ask(cluster::FetchRequest { partition: "a//b".into(), ..good() }),
        AbortCode::RXGEN_SS_UNMARSHAL
    );
    world.table.set(1, |own| own.reads = false);
    assert_eq!(ask(good()), AbortCode(refusal::HELD));
    // Whatever is missing of it, it is refused.
    let whole = [xdr::to_vec(&cluster::FETCH), xdr::to_vec(&good())].concat();
    for length in 0..whole.len() {
        let mut stream = MemoryStream::new(&whole[..length], 7);
        let result = cluster::dispatch(&*world.nodes[1].service, &CallContext::new(&front), &mut stream);
        assert_eq!(result, Err(AbortCode::RXGEN_SS_UNMARSHAL), "{length} of {} bytes", whole.len());
    }
}

/// Data of a store to which an object with this number was offered.
type Data<'d> = &'d dyn Fn(u64) -> Vec<u8>;

/// A store by another node is checked like any call, and so is its data: nothing that it names is taken that was not offered.
#[test]
fn stores_by_fronts_are_checked_like_calls() {
    let shelf = Shelf::default();
    let world = World::of(vec![memory(0), shelf.partition(None)]);
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let client = Client::start(111);
    let fid = make(&*client.to(&world.nodes[1]), root(1), "f").unwrap();
    let address = std::net::Ipv4Addr::new(127, 0, 7, 111).to_ipv6_mapped().octets();
    let of_client = cluster::Caller { address, port: client.address().port().into(), ..forward().caller };
    let good_offer = || cluster::OfferStoreRequest { caller: of_client.clone(), ..offer(fid) };
    let ask = |request: cluster::OfferStoreRequest| call(&world, &front, cluster::OFFER_STORE, &request, &[]);
    assert_eq!(ask(good_offer()), AbortCode(0));
    let (other_epoch, not_owner) = (AbortCode(refusal::OTHER_EPOCH), AbortCode(refusal::NOT_OWNER));
    assert_eq!(ask(cluster::OfferStoreRequest { epoch: 7, ..good_offer() }), other_epoch);
    let of_the_front = partition(0).as_str().into();
    assert_eq!(ask(cluster::OfferStoreRequest { partition: of_the_front, ..good_offer() }), not_owner);
    let with = |arguments| ask(cluster::OfferStoreRequest { arguments, ..good_offer() });
    assert_eq!(with(store_arguments(root(0), 1 << 20)), AbortCode::VNOVOL);
    assert_eq!(with(store_arguments(fs::Fid { vnode: 78, ..fid }, 1 << 20)), AbortCode::VNOVNODE);
    assert_eq!(with(store_arguments(root(1), 1 << 20)), AbortCode::UAEISDIR);
    assert_eq!(with(store_arguments(fid, u64::MAX)), AbortCode::UAEFBIG);
    let whole = store_arguments(fid, 1 << 20);
    for length in 0..whole.len() {
        assert_eq!(with(whole[..length].to_vec()), AbortCode::RXGEN_SS_UNMARSHAL, "{length}");
    }
    let offered = || -> cluster::OfferStoreReply {
        let message = [xdr::to_vec(&cluster::OFFER_STORE), xdr::to_vec(&good_offer())].concat();
        let mut stream = MemoryStream::new(&message, 1000);
        cluster::dispatch(&*world.nodes[1].service, &CallContext::new(&front), &mut stream).unwrap();
        xdr::from_slice(&stream.outgoing).unwrap()
    };
    let mut number = 10;
    let mut store = |(chunk_shift, objects): (u32, Vec<u64>), data: &[u8]| {
        number += 1;
        let caller = of_client.clone();
        let request = cluster::StoreRequest { caller, number, chunk_shift, objects, ..place(fid) };
        call(&world, &front, cluster::STORE, &request, data)
    };
    let bytes = |length: u32| {
        [xdr::to_vec(&part_kind::BYTES), xdr::to_vec(&length), vec![7; length as usize]].concat()
    };
    let object = |number: u64| [xdr::to_vec(&part_kind::OBJECT), xdr::to_vec(&number)].concat();
    let chunk = |object: u64, offset: u64, length: u32| {
        [xdr::to_vec(&part_kind::CHUNK), xdr::to_vec(&object), xdr::to_vec(&offset), xdr::to_vec(&length)]
            .concat()
    };
    let malformed = AbortCode::RXGEN_SS_UNMARSHAL;
    let other = offered().objects[0];
    let wrong: [(&str, Data<'_>); 9] = [
        ("no data", &|_| Vec::new()),
        ("an unknown part", &|_| xdr::to_vec(&3_u32)),
        ("too little", &|_| bytes(1 << 19)),
        ("a cut part", &|_| bytes(1 << 20)[..1 << 20].to_vec()),
        ("a chunk in the middle of a chunk", &|own| [object(own), bytes(5), chunk(own, 32, 300)].concat()),
        ("a chunk of an object that was not begun", &|own| chunk(own, 32, 300)),
        ("an object of another store", &|_| [object(other), chunk(other, 32, 300)].concat()),
        ("an object that cannot be", &|_| [object(u64::MAX), chunk(u64::MAX, u64::MAX, u32::MAX)].concat()),
        ("an object twice", &|own| [object(own), object(own), bytes(1 << 20)].concat()),
    ];
    for (what, data) in wrong {
        let own = offered().objects[0];
        assert_eq!(store((18, vec![own]), &data(own)), malformed, "{what}");
    }
    let own = offered().objects[0];
    let missing = [object(own), chunk(own, 32, 300)].concat();
    assert_eq!(store((18, vec![own]), &missing), AbortCode::UAEIO, "an object that does not exist");
    // What the client gets: the owner lives.
    let restarting = AbortCode(refusal::OF_RX + AbortCode::VRESTARTING.0);
    assert_eq!(store((18, vec![own]), &missing), restarting, "it was given up");
    assert_eq!(store((18, vec![9 << 36]), &missing), restarting, "it was not offered");
    let own = offered().objects[0];
    let missing = [object(own), chunk(own, 32, 300)].concat();
    assert_eq!(store((17, vec![own]), &missing), restarting, "chunks have another size");
    assert_eq!(store((64, Vec::new()), &bytes(1 << 20)), malformed, "no chunk has this size");
    let status =
        fs::fetch_status(&*client.to(&world.nodes[1]), &fs::FetchStatusRequest { fid }).unwrap().status;
    assert_eq!((status.length, status.data_version), (0, 0), "nothing has changed");
    assert_eq!(store((18, Vec::new()), &[bytes(1 << 19), bytes(1 << 19)].concat()), AbortCode(0));
    assert!(fetch_range(&*client.to(&world.nodes[1]), fid, 0, 1 << 21).unwrap().0 == vec![7; 1 << 20]);
}
