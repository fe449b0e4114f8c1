//! Owners that change, hold calls, or are gone.

use crate::files;
use crate::strangers::{caller, node};
use crate::world::{Client, HOLD, Stuck, World, open, partition, root};
use afs_idl::{CallStream, MemoryStream, cluster, fs};
use base::{AbortCode, CallContext, SecurityLevel};
use bytes::Bytes;
use cluster_proto::Epoch;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

/// Time within which each call of these tests ends.
pub(crate) const ENDS: Duration = Duration::from_secs(60);

/// An owner that answers pings, but no call, is given up like one that has died.
#[test]
fn a_call_that_its_owner_never_answers_ends() {
    let world = World::new();
    let ann = Client::start(27);
    let front = ann.to_within(&world.nodes[0], ENDS);
    let status = |fid| fs::fetch_status(&*front, &fs::FetchStatusRequest { fid }).map(drop);
    assert_eq!(status(root(1)), Ok(()));
    let stuck = Stuck::start(Ipv4Addr::new(127, 0, 7, 2), cluster::SERVICE_ID);
    world.table.addresses.lock().insert(1, stuck.address());
    assert_eq!(status(root(1)), Err(AbortCode::VRESTARTING));
    assert!(world.nodes[0].front.counters().unknown >= 1);
    let unknown = fs::Fid { volume: 7, ..root(1) };
    assert_eq!(status(unknown), Err(AbortCode::VRESTARTING), "nor a question about a volume");
}

/// A front that answers pings, but passes no message on to its client, is passed over.
#[test]
fn a_client_is_called_directly_if_its_front_does_not_answer() {
    let world = World::new();
    let stuck = Stuck::start(Ipv4Addr::new(127, 0, 7, 1), cluster::SERVICE_ID);
    world.table.addresses.lock().insert(0, stuck.address());
    let ann = Client::start(28);
    let front = ann.to_within(&world.nodes[0], ENDS);
    fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: root(1) }).unwrap();
    let counters = world.nodes[1].service.counters();
    assert!(counters.sent_directly >= 1 && counters.sent_directly == counters.sent_through, "{counters:?}");
}

/// A client that does not answer its owner is refused as by any file server. Its front does not take that for the death of
/// the owner, and does not repeat the call.
#[test]
fn a_client_that_does_not_answer_its_owner_is_refused() {
    let world = World::new();
    let mute = Client::mute(29);
    let front = mute.to_within(&world.nodes[0], ENDS);
    let begun = Instant::now();
    for first in [AbortCode::VBUSY, AbortCode::RX_CALL_DEAD] {
        let status = fs::StoreStatus::default();
        let made = fs::MakeDirRequest { directory: root(1), name: "d".into(), status };
        assert_eq!(fs::make_dir(&*front, &made).map(drop), Err(first));
        let status = fs::fetch_status(&*front, &fs::FetchStatusRequest { fid: root(1) });
        assert_eq!(status.map(drop), Err(AbortCode::RX_CALL_DEAD));
    }
    assert!(begun.elapsed() < HOLD);
    let counters = world.nodes[0].front.counters();
    assert_eq!((counters.unknown, counters.forwarded), (0, 4));
}

/// Clients whose calls fail again and again get each error at once: an owner that delays it would seem to be dead.
#[test]
fn the_errors_of_many_calls_are_passed_on_at_once() {
    let world = World::new();
    // Each makes fewer failing calls than a file server answers without a delay.
    let clients: Vec<Client> = (34..38).map(Client::start).collect();
    let fronts: Vec<_> = clients.iter().map(|client| client.to_within(&world.nodes[0], ENDS)).collect();
    for front in &fronts {
        fs::fetch_status(&**front, &fs::FetchStatusRequest { fid: root(1) }).unwrap();
    }
    let begun = Instant::now();
    for front in &fronts {
        for name in ["a", "b", "c", "d"] {
            let request = fs::LookupRequest { directory: root(1), name: name.into() };
            assert_eq!(fs::lookup(&**front, &request).map(drop), Err(AbortCode::UAENOENT));
        }
    }
    let counters = world.nodes[0].front.counters();
    assert_eq!((counters.forwarded, counters.unknown), (20, 0), "after {:?}", begun.elapsed());
}

/// Forwards a call to the second node as the first one does. Returns the reply.
fn forwarded(world: &World, request: &cluster::ForwardRequest, call: &Bytes) -> Result<Vec<u8>, AbortCode> {
    let message = [xdr::to_vec(&cluster::FORWARD), xdr::to_vec(request), call.to_vec()].concat();
    let mut stream = MemoryStream::new(&message, 1000);
    dispatch(world, &mut stream).map(|()| stream.outgoing)
}

fn dispatch(world: &World, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
    let caller = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    cluster::dispatch(&*world.nodes[1].service, &CallContext::new(&caller), stream)
}

/// The stream of a front that dies before it has sent everything.
struct CutOff(MemoryStream);

impl CallStream for CutOff {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        let piece = self.0.read_chunk(max)?;
        if piece.is_empty() { Err(AbortCode::RX_CALL_TIMEOUT) } else { Ok(piece) }
    }

    fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
        Err(AbortCode::RX_CALL_TIMEOUT)
    }
}

/// A store whose data did not arrive is made when its front repeats it: the failure is not its result.
#[test]
fn a_store_that_was_cut_off_is_made_when_it_is_repeated() {
    let world = World::new();
    let client = Client::start(20);
    let fid = files::make(&*client.to(&world.nodes[1]), root(1), "f").unwrap();
    let status = fs::StoreStatus::default();
    let store = fs::StoreData64Request { fid, status, position: 0, length: 9000, file_length: 9000 };
    let request = make(1, &client).0;
    let call: Bytes = [xdr::to_vec(&fs::STORE_DATA64), xdr::to_vec(&store), vec![1; 9000]].concat().into();
    let whole = [xdr::to_vec(&cluster::FORWARD), xdr::to_vec(&request), call.to_vec()].concat();
    let part = &whole[..whole.len() - 4000];
    assert!(dispatch(&world, &mut CutOff(MemoryStream::new(part, 1000))).is_err());
    let reply = forwarded(&world, &request, &call).unwrap();
    let reply: fs::StoreData64Reply = xdr::from_slice(&reply).unwrap();
    assert_eq!((reply.new_status.length, world.nodes[1].service.counters().found), (9000, 0));
    assert!(forwarded(&world, &request, &call).is_ok());
    assert_eq!(world.nodes[1].service.counters().found, 1, "now it has a result");
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

/// A front keeps no reply of an owner that is longer than any reply to the call.
#[test]
fn an_endless_reply_of_an_owner_is_not_collected() {
    let world = World::new();
    let ann = Client::start(66);
    let front = ann.to(&world.nodes[0]);
    let fids = vec![root(0), root(1)];
    let ask = || fs::inline_bulk_status(&*front, &fs::InlineBulkStatusRequest { fids: fids.clone() });
    assert_eq!(ask().unwrap().statuses.len(), 2);
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let endless = open(Ipv4Addr::new(127, 0, 7, 67), cluster::SERVICE_ID, move |_, stream| {
        while count.fetch_add(1, Relaxed) < 1024 {
            stream.write(vec![0; 1 << 16].into())?;
        }
        Ok(())
    });
    world.table.addresses.lock().insert(1, endless.addresses()[0]);
    assert_eq!(ask().map(drop), Err(AbortCode::RXGEN_CC_UNMARSHAL));
    endless.stop();
    assert!(sent.load(Relaxed) < 512, "{} pieces of 64 KiB", sent.load(Relaxed));
}
