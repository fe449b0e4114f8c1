//! Calls of the volume service, as `vos` makes them, at a node that does not own the partition.

use crate::failures::ENDS;
use crate::files::{fetch, make, store};
use crate::strangers::{caller, node};
use crate::world::{Client, HOLD, Node, Stuck, VOLUMES, World, cell, partition, root};
use afs_idl::cluster::{self, refusal};
use afs_idl::vol::{self, attach_mode, volume_flags};
use afs_idl::{CallStream, ClientConnection, MemoryStream, fs};
use base::{AbortCode, CallContext, SecurityLevel};
use bytes::Bytes;
use cluster_proto::{Epoch, partition_of_transaction};
use clusterserver::Way;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const ENOENT: AbortCode = AbortCode(2);

/// An id that no volume has at first.
const NEW: u32 = 536_870_930;

fn administer(client: &Client, node: &Node) -> Arc<dyn ClientConnection> {
    client.to_service(node.volumes, vol::SERVICE_ID, Some(cell(SecurityLevel::Encrypted)))
}

fn create(
    vos: &dyn ClientConnection,
    partition: i32,
    name: &str,
    id: u32,
    parent: u32,
) -> Result<i32, AbortCode> {
    let (volume_type, name) = (0, name.into());
    let request = vol::CreateVolumeRequest { partition, name, volume_type, parent_id: parent, volume_id: id };
    vol::create_volume(vos, &request).map(|reply| reply.transaction)
}

fn begin(vos: &dyn ClientConnection, volume_id: u32, partition: i32, flags: i32) -> Result<i32, AbortCode> {
    vol::trans_create(vos, &vol::TransCreateRequest { volume_id, partition, flags })
        .map(|reply| reply.transaction)
}

fn end(vos: &dyn ClientConnection, transaction: i32) -> Result<(), AbortCode> {
    vol::end_trans(vos, &vol::EndTransRequest { transaction }).map(drop)
}

fn set_flags(vos: &dyn ClientConnection, transaction: i32, flags: i32) {
    vol::set_flags(vos, &vol::SetFlagsRequest { transaction, flags }).unwrap();
}

fn delete(vos: &dyn ClientConnection, transaction: i32) {
    set_flags(vos, transaction, volume_flags::DELETE_ON_SALVAGE | volume_flags::OUT_OF_SERVICE);
    vol::delete_volume(vos, &vol::DeleteVolumeRequest { transaction }).unwrap();
    end(vos, transaction).unwrap();
}

fn list(vos: &dyn ClientConnection, partition: i32) -> Result<Vec<u32>, AbortCode> {
    let reply = vol::list_volumes(vos, &vol::ListVolumesRequest { partition, flags: 1 })?;
    Ok(reply.entries.iter().map(|entry| entry.volume_id).collect())
}

fn dump(vos: &dyn ClientConnection, transaction: i32) -> Result<Vec<u8>, AbortCode> {
    let mut data = Vec::new();
    let receive = |stream: &mut dyn CallStream| {
        loop {
            let piece = stream.read_chunk(1 << 16)?;
            if piece.is_empty() {
                return Ok(());
            }
            data.extend_from_slice(&piece);
        }
    };
    vol::dump(vos, &vol::DumpRequest { transaction, from_date: 0 }, receive)?;
    Ok(data)
}

fn destination(address: SocketAddr) -> vol::DestServer {
    let SocketAddr::V4(address) = address else { panic!("{address} is no IPv4 address") };
    vol::DestServer { host: u32::from(*address.ip()), port: address.port().into(), security_index: 2 }
}

/// Everything about a volume of the second node is done at the first, and seen at both.
#[test]
fn volumes_are_administered_at_any_node() {
    let world = World::new();
    let client = Client::start(61);
    let [front, owner] = [0, 1].map(|index| administer(&client, &world.nodes[index]));
    for vos in [&front, &owner] {
        let partitions = vol::x_list_partitions(&**vos, &vol::XListPartitionsRequest).unwrap();
        assert_eq!(partitions.partitions, [0, 1]);
        for (index, id) in VOLUMES.iter().enumerate() {
            assert_eq!(list(&**vos, index as i32), Ok(vec![id.0]));
        }
        let name = "/vicepb".into();
        let space = vol::partition_info64(&**vos, &vol::PartitionInfo64Request { name }).unwrap();
        assert_eq!(space.partition.free, 1 << 29);
    }
    // A transaction has one number everywhere.
    let transaction = create(&*front, 1, "new", NEW, 0).unwrap();
    assert_eq!(partition_of_transaction(transaction).unwrap().index(), 1);
    set_flags(&*front, transaction, 0);
    let status = vol::get_status(&*owner, &vol::GetStatusRequest { transaction }).unwrap().status;
    assert_eq!(status.volume_id, NEW);
    let local = begin(&*front, VOLUMES[0].0, 0, attach_mode::BUSY).unwrap();
    let mut open = [local, transaction];
    for vos in [&front, &owner] {
        let shown = vol::monitor(&**vos, &vol::MonitorRequest).unwrap().transactions;
        let mut shown: Vec<i32> = shown.iter().map(|shown| shown.transaction).collect();
        shown.sort_unstable();
        open.sort_unstable();
        assert_eq!(shown, open, "all nodes' transactions");
    }
    assert_eq!((end(&*owner, local), end(&*owner, transaction)), (Ok(()), Ok(())));
    assert_eq!((end(&*front, local), end(&*front, transaction)), (Err(ENOENT), Err(ENOENT)));
    // Data in both directions.
    let files = client.to(&world.nodes[0]);
    let file = make(&*files, root(1), "f").unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    store(&*files, file, &data).unwrap();
    let transaction = begin(&*front, VOLUMES[1].0, 1, attach_mode::BUSY).unwrap();
    let dumped = dump(&*front, transaction).unwrap();
    assert!(dumped.len() > data.len() && dumped == dump(&*owner, transaction).unwrap());
    end(&*front, transaction).unwrap();
    let target = create(&*front, 1, "copy", NEW + 1, NEW + 1).unwrap();
    let cookie = vol::RestoreCookie { name: "copy".into(), parent_id: NEW + 1, ..Default::default() };
    let send = |stream: &mut dyn CallStream| {
        dumped.chunks(100_000).try_for_each(|piece| stream.write(Bytes::copy_from_slice(piece)))
    };
    vol::restore(&*front, &vol::RestoreRequest { transaction: target, flags: 0, cookie }, send).unwrap();
    set_flags(&*front, target, 0);
    end(&*front, target).unwrap();
    let copied = fs::Fid { volume: NEW + 1, ..file };
    assert_eq!(fetch(&*files, copied, 1 << 30).unwrap(), data);
    let transaction = begin(&*front, NEW + 1, 1, attach_mode::OFFLINE).unwrap();
    delete(&*front, transaction);
    assert_eq!(list(&*front, 1), Ok(vec![VOLUMES[1].0, NEW]));
}

/// Moves a volume as `vos move` does, through one node, which owns only one of the partitions.
#[test]
fn a_volume_moves_between_partitions_of_two_owners() {
    let world = World::new();
    let client = Client::start(62);
    let [files, others] = [0, 1].map(|index| client.to(&world.nodes[index]));
    let file = make(&*files, root(0), "f").unwrap();
    store(&*files, file, b"moved").unwrap();
    assert_eq!(fetch(&*others, file, 100), Ok(b"moved".to_vec()), "its place is known at the other node");
    let at = &world.nodes[0];
    let (vos, id) = (administer(&client, at), VOLUMES[0].0);
    let source = begin(&*vos, id, 0, attach_mode::BUSY).unwrap();
    let target = create(&*vos, 1, "v0", id, id).unwrap();
    let cookie = vol::RestoreCookie { name: "v0".into(), parent_id: id, ..Default::default() };
    let destination = destination(at.volumes);
    let request = vol::ForwardRequest {
        transaction: source,
        from_date: 0,
        destination,
        destination_transaction: target,
        cookie,
    };
    vol::forward(&*vos, &request).unwrap();
    // File service has the old one as long as that is there.
    for files in [&files, &others] {
        assert_eq!(fetch(&**files, file, 100), Err(AbortCode::VBUSY));
    }
    set_flags(&*vos, source, volume_flags::OUT_OF_SERVICE);
    set_flags(&*vos, target, 0);
    end(&*vos, target).unwrap();
    for files in [&files, &others] {
        let held = fetch(&**files, file, 100);
        assert!(matches!(held, Err(AbortCode::VBUSY | AbortCode::VOFFLINE)), "{held:?}");
    }
    delete(&*vos, source);
    for files in [&files, &others] {
        assert_eq!(fetch(&**files, file, 100), Ok(b"moved".to_vec()), "from the new owner");
    }
    assert_eq!((list(&*vos, 0), list(&*vos, 1)), (Ok(vec![]), Ok(vec![id, VOLUMES[1].0])));
}

/// A transaction ends with its owner, whichever node its number is used at.
#[test]
fn a_number_is_void_under_the_next_owner() {
    let world = World::new();
    let client = Client::start(63);
    let front = administer(&client, &world.nodes[0]);
    let transaction = begin(&*front, VOLUMES[1].0, 1, attach_mode::BUSY).unwrap();
    world.table.set(1, |own| own.epoch.0 += 1);
    let next = begin(&*front, VOLUMES[1].0 + 1, 1, attach_mode::BUSY);
    assert_eq!(next, Err(AbortCode::VNOVOL), "the call is executed");
    let other = create(&*front, 1, "new", NEW, 0).unwrap();
    assert!(other >> 16 != transaction >> 16 && other != transaction);
    end(&*front, other).unwrap();
    for number in [0, -1, i32::MAX, transaction ^ 0x10_0000, transaction + 1] {
        assert_eq!(end(&*front, number), Err(ENOENT), "{number:#x}");
    }
}

/// A caller that is not an administrator gets the same answers at the owner and at another node.
#[test]
fn strangers_get_the_owners_answers() {
    let world = World::new();
    let client = Client::start(64);
    let admin = administer(&client, &world.nodes[0]);
    let transaction = begin(&*admin, VOLUMES[1].0, 1, attach_mode::BUSY).unwrap();
    let denied = AbortCode::VOLSERBAD_ACCESS;
    for index in [1, 0] {
        let stranger = client.to_service(world.nodes[index].volumes, vol::SERVICE_ID, None);
        assert_eq!(begin(&*stranger, VOLUMES[1].0, 1, attach_mode::BUSY), Err(denied));
        assert_eq!(create(&*stranger, 1, "new", NEW, 0), Err(denied));
        assert_eq!(dump(&*stranger, transaction), Err(denied));
        assert_eq!(end(&*stranger, transaction), Err(denied));
        let nuke = vol::NukeVolumeRequest { partition: 1, volume_id: VOLUMES[1].0 };
        assert_eq!(vol::nuke_volume(&*stranger, &nuke).map(drop), Err(denied));
        assert_eq!(list(&*stranger, 1), Ok(vec![VOLUMES[1].0]), "queries are for anyone");
        assert_eq!(list(&*stranger, 7), Err(AbortCode::VOLSERILLEGAL_PARTITION));
    }
    end(&*admin, transaction).unwrap();
}

#[test]
fn calls_wait_for_an_owner_but_not_for_ever() {
    let world = World::new();
    let client = Client::start(65);
    let front = administer(&client, &world.nodes[0]);
    world.table.set(1, |own| (own.reads, own.changes) = (false, false));
    let begun = Instant::now();
    assert_eq!(begin(&*front, VOLUMES[1].0, 1, attach_mode::BUSY), Err(AbortCode::VRESTARTING));
    assert!(begun.elapsed() >= HOLD / 2, "{:?}", begun.elapsed());
    // The volume may be there.
    assert_eq!(create(&*front, 0, "new", NEW, 0), Err(AbortCode::VBUSY));
    world.table.set(1, |own| (own.reads, own.changes) = (true, true));
    assert_eq!(list(&*front, 1), Ok(vec![VOLUMES[1].0]));
}

/// A change whose outcome is unknown goes to no other epoch: the next owner does not know its result.
#[test]
fn changes_in_doubt_are_not_repeated_to_the_next_owner() {
    let mut world = World::new();
    let client = Client::start(24);
    let front = administer(&client, &world.nodes[0]);
    assert_eq!(list(&*front, 1), Ok(vec![VOLUMES[1].0]));
    world.nodes[1].kill();
    thread::scope(|scope| {
        scope.spawn(|| {
            while world.nodes[0].front.counters().unknown == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            world.table.beliefs.lock().insert((0, partition(1)), (1, Epoch(7)));
        });
        let begun = Instant::now();
        assert_eq!(begin(&*front, VOLUMES[1].0, 1, attach_mode::BUSY), Err(AbortCode::VRESTARTING));
        assert!(begun.elapsed() < HOLD, "as soon as another owner is known");
    });
}

/// The owner of another partition is opening it, as at the start of a cluster: the new volume is there for clients of both nodes,
/// whichever partition it is in.
#[test]
fn a_volume_that_is_created_meanwhile_is_served() {
    let world = World::new();
    let client = Client::start(66);
    let front = administer(&client, &world.nodes[0]);
    for (created, opening) in [(0, 1), (1, 0)] {
        world.table.set(opening, |own| (own.reads, own.changes) = (false, false));
        let id = NEW + created as u32;
        let transaction = std::thread::scope(|scope| {
            let creating = scope.spawn(|| create(&*front, created, "new", id, 0));
            std::thread::sleep(HOLD / 4);
            assert!(!creating.is_finished(), "it is not known whether the volume is in the other partition");
            world.table.set(opening, |own| (own.reads, own.changes) = (true, true));
            creating.join().unwrap().unwrap()
        });
        set_flags(&*front, transaction, 0);
        end(&*front, transaction).unwrap();
        for node in &world.nodes {
            let root = fs::Fid { volume: id, ..root(0) };
            fs::fetch_status(&*client.to(node), &fs::FetchStatusRequest { fid: root }).unwrap();
        }
    }
}

/// A list of all owners is that of those that answer: `vos status` does not wait for one that stands still, whose machine answers pings.
#[test]
fn a_node_that_stands_still_is_left_out_of_lists() {
    let world = World::new();
    let client = Client::start(68);
    let vos = administer(&client, &world.nodes[0]);
    let local = begin(&*vos, VOLUMES[0].0, 0, attach_mode::BUSY).unwrap();
    let stuck = Stuck::start(std::net::Ipv4Addr::new(127, 0, 7, 2), cluster::SERVICE_ID);
    world.table.addresses.lock().insert(1, stuck.address());
    let (shown, is_shown) = channel();
    let asked = Arc::clone(&vos);
    thread::spawn(move || shown.send(vol::monitor(&*asked, &vol::MonitorRequest)));
    let listed = is_shown.recv_timeout(ENDS).expect("it answers").unwrap().transactions;
    assert_eq!(listed.iter().map(|one| one.transaction).collect::<Vec<_>>(), [local]);
    end(&*vos, local).unwrap();
}

/// A request of another node that never ends.
struct Endless {
    request: MemoryStream,
    /// Number of bytes that were read after the request.
    rest: usize,
}

impl CallStream for Endless {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        let piece = self.request.read_chunk(max)?;
        if !piece.is_empty() {
            return Ok(piece);
        }
        self.rest += max;
        assert!(self.rest < 1 << 24, "it is read for ever");
        Ok(vec![0; max].into())
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.request.write(data)
    }
}

/// Nor does a client keep a worker of its front, whose owner has answered already.
#[test]
fn no_call_without_data_is_passed_on_for_ever() {
    let world = World::new();
    let ann = Client::start(69);
    let mallory =
        base::Caller { peer: ann.address(), ..caller(None, SecurityLevel::Clear, ann.address().ip()) };
    let front = &world.nodes[0].front;
    let endless = |request: Vec<u8>| Endless { request: MemoryStream::new(&request, 1444), rest: 0 };
    let malformed = Err(AbortCode::RXGEN_SS_UNMARSHAL);
    let request = vol::ListVolumesRequest { partition: 1, flags: 1 };
    let mut stream = endless([xdr::to_vec(&vol::LIST_VOLUMES), xdr::to_vec(&request)].concat());
    let here = |_: &mut dyn CallStream| panic!("it is for the other node");
    let service = (vol::SERVICE_ID, (|_| true) as fn(u32) -> bool);
    assert_eq!(front.administer(service, &CallContext::new(&mallory), &mut stream, &here), malformed);
    let request = fs::FetchStatusRequest { fid: root(1) };
    let mut stream = endless([xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&request)].concat());
    let Way::Ended(ended) = front.route(&CallContext::new(&mallory), &mut stream) else {
        panic!("it is for the other node")
    };
    assert_eq!(ended, malformed);
}

/// A node that sends on after a call keeps no worker of the owner, whatever the call is. The data of a restore is no such rest.
#[test]
fn data_after_administration_is_not_read_for_ever() {
    let world = World::new();
    let client = Client::start(67);
    let vos = administer(&client, &world.nodes[1]);
    let file = make(&*client.to(&world.nodes[1]), root(1), "f").unwrap();
    store(&*client.to(&world.nodes[1]), file, &vec![7; 1 << 20]).unwrap();
    let source = begin(&*vos, VOLUMES[1].0, 1, attach_mode::BUSY).unwrap();
    let dumped = dump(&*vos, source).unwrap();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, world.nodes[0].cluster.ip());
    let address = std::net::Ipv4Addr::new(127, 0, 7, 67).to_ipv6_mapped().octets();
    let forward = |(opcode, number): (u32, u64), call: &[u8]| {
        let cell = cluster::Caller {
            is_known: 1,
            name: "afs".into(),
            level: SecurityLevel::Encrypted as u32,
            address,
            port: 7001,
            local: address,
            ..Default::default()
        };
        let (service, front, partition) = (vol::SERVICE_ID.into(), node(0), partition(1).as_str().into());
        let (epoch, wait_ms, caller) = (6, 50, cell);
        let to =
            cluster::ForwardToRequest { service, opcode, front, partition, epoch, number, wait_ms, caller };
        let message =
            [xdr::to_vec(&cluster::FORWARD_TO), xdr::to_vec(&to), xdr::to_vec(&opcode), call.to_vec()];
        MemoryStream::new(&message.concat(), 1444)
    };
    let serve = |stream: &mut dyn CallStream| {
        cluster::dispatch(&*world.nodes[1].service, &CallContext::new(&front), stream)
    };
    let endless = |request| serve(&mut Endless { request, rest: 0 });
    let malformed = Err(AbortCode::RXGEN_SS_UNMARSHAL);

    let flags = xdr::to_vec(&vol::SetFlagsRequest { transaction: source, flags: 0 });
    assert_eq!(endless(forward((vol::SET_FLAGS, 1), &flags)), malformed);
    assert_eq!(endless(forward((vol::SET_FLAGS, 1), &flags)), malformed, "its result is known");
    let query = xdr::to_vec(&vol::GetStatusRequest { transaction: source });
    assert_eq!(endless(forward((vol::GET_STATUS, 2), &query)), Ok(()), "a query is answered at once");

    let target = create(&*vos, 1, "copy", NEW, NEW).unwrap();
    let cookie = vol::RestoreCookie { name: "copy".into(), parent_id: NEW, ..Default::default() };
    let restore = xdr::to_vec(&vol::RestoreRequest { transaction: target, flags: 0, cookie });
    let whole = [restore, dumped].concat();
    assert_eq!(serve(&mut forward((vol::RESTORE, 3), &whole)), Ok(()), "a restore of any length");
    assert_eq!(endless(forward((vol::RESTORE, 3), &whole)), malformed, "its result is known");
    assert_eq!(endless(forward((vol::RESTORE, 4), &whole)), Err(AbortCode::VOLSERREAD_DUMPERROR));
    end(&*vos, target).unwrap();
    end(&*vos, source).unwrap();
}

/// What no front sends is refused, and not executed.
#[test]
fn forwarded_administration_is_checked() {
    let world = World::new();
    let ip = world.nodes[0].cluster.ip();
    let front = caller(Some("afs"), SecurityLevel::Encrypted, ip);
    let address = std::net::Ipv4Addr::new(127, 0, 7, 66).to_ipv6_mapped().octets();
    let good = || cluster::ForwardToRequest {
        service: vol::SERVICE_ID.into(),
        opcode: vol::LIST_VOLUMES,
        front: node(0),
        partition: partition(1).as_str().into(),
        epoch: 6,
        number: 1,
        wait_ms: 50,
        caller: cluster::Caller { address, port: 7001, local: address, ..Default::default() },
    };
    let listing = |partition: i32| {
        [xdr::to_vec(&vol::LIST_VOLUMES), xdr::to_vec(&vol::ListVolumesRequest { partition, flags: 0 })]
            .concat()
    };
    let send = |caller: &base::Caller, request: cluster::ForwardToRequest, rest: &[u8]| {
        let message = [xdr::to_vec(&cluster::FORWARD_TO), xdr::to_vec(&request), rest.to_vec()].concat();
        let mut stream = MemoryStream::new(&message, 1000);
        let result = cluster::dispatch(&*world.nodes[1].service, &CallContext::new(caller), &mut stream);
        result.err().unwrap_or(AbortCode(0))
    };
    let malformed = AbortCode::RXGEN_SS_UNMARSHAL;
    assert_eq!(send(&front, good(), &listing(1)), AbortCode(0));
    assert_eq!(
        send(&front, good(), &listing(0)),
        malformed,
        "another partition than the one that is checked"
    );
    assert_eq!(send(&front, good(), &listing(-1)), AbortCode::RXGEN_OPCODE, "the front's own");
    assert_eq!(send(&front, good(), &listing(1)[..6]), malformed);
    let other = cluster::ForwardToRequest { opcode: vol::MONITOR, ..good() };
    assert_eq!(send(&front, other, &listing(1)), malformed, "another call than the one that is announced");
    for (service, opcode) in
        [(1, 130), (52, 503), (vol::SERVICE_ID.into(), 115), (1 << 16 | 4, vol::LIST_VOLUMES)]
    {
        let request = cluster::ForwardToRequest { service, opcode, ..good() };
        assert_eq!(
            send(&front, request, &xdr::to_vec(&opcode)),
            AbortCode::RXGEN_OPCODE,
            "{service} {opcode}"
        );
    }
    let past = cluster::ForwardToRequest { epoch: 5, ..good() };
    assert_eq!(send(&front, past, &listing(1)), AbortCode(refusal::OTHER_EPOCH));
    let stranger = caller(Some("ann"), SecurityLevel::Encrypted, ip);
    assert_eq!(send(&stranger, good(), &listing(1)), AbortCode::UAEACCES);
    let report = [
        xdr::to_vec(&cluster::VOLUME_DELETED),
        xdr::to_vec(&cluster::VolumeDeletedRequest { node: node(0), volume: 1 }),
    ];
    for (who, code) in [(&stranger, Err(AbortCode::UAEACCES)), (&front, Ok(()))] {
        let mut stream = MemoryStream::new(&report.concat(), 1000);
        let result = cluster::dispatch(&*world.nodes[1].service, &CallContext::new(who), &mut stream);
        assert_eq!(result, code);
    }
}
