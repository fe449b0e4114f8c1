//! Histories of calls between the nodes of a cluster.

use crate::{Seed, seed};
use afs_idl::cluster::{self, part_kind};
use afs_idl::{cellar, fs, vol};
use base::{Fid, PartitionId};
use cluster_proto::{Epoch, transaction_numbers};
use cluster_world::{VOLUMES, incarnation, name, partition, root, store_arguments};
use clusterserver::wire_node;
use corpus::frames::push;
use corpus::services::{Event, Peer, SECRET};
use std::net::Ipv4Addr;
use xdr::Encode;

/// The epoch in which the owner owns the second partition.
const EPOCH: u64 = 6;

/// A file that a history creates first, in the root directory.
const FILE: fs::Fid = fs::Fid { volume: VOLUMES[1].0, vnode: 4, unique: 4 };

/// The first object that the owner offers: the one before has the data of the secret file.
const OBJECT: u64 = 1 << 36 | 1;

/// Length of the record of a chunk of 4096 bytes that is not compressed.
const RECORD: u32 = 4160;

/// A sequence of calls and events.
#[derive(Default)]
struct History {
    bytes: Vec<u8>,
    /// The number of the last call.
    number: u64,
}

impl History {
    fn piece(&mut self, peer: Peer, event: Event, parts: &[&[u8]]) {
        let head = [peer as u8 | (event as u8) << 4];
        push(&mut self.bytes, &[&head[..], &parts.concat()].concat());
    }

    /// Makes a call of the other node.
    fn call(&mut self, event: Event, opcode: u32, request: &impl Encode, rest: &[u8]) {
        self.piece(Peer::Node, event, &[&xdr::to_vec(&opcode), &xdr::to_vec(request), rest]);
    }

    /// Lets the other node pass a client's call on.
    fn forward(&mut self, opcode: u32, request: &impl Encode, data: &[u8]) {
        self.number += 1;
        let call = [&xdr::to_vec(&opcode), &xdr::to_vec(request), data].concat();
        self.call(Event::Nothing, cluster::FORWARD, &forward(self.number), &call);
    }

    /// Lets it pass on a call of another service by a holder of the cell's key.
    fn administer(&mut self, service: u16, opcode: u32, request: &impl Encode) {
        self.number += 1;
        let call = [xdr::to_vec(&opcode), xdr::to_vec(request)].concat();
        self.call(Event::Nothing, cluster::FORWARD_TO, &forward_to(service, opcode, self.number), &call);
    }
}

fn node() -> cluster::Node {
    wire_node(&(name(0), incarnation(0)))
}

/// An anonymous client.
fn client() -> cluster::Caller {
    let address = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets();
    cluster::Caller { address, port: 7001, local: address, connection: 1, ..Default::default() }
}

fn superuser() -> cluster::Caller {
    cluster::Caller { is_known: 1, name: "afs".into(), level: 2, connection: 2, ..client() }
}

fn forward(number: u64) -> cluster::ForwardRequest {
    let partition = partition(1).as_str().into();
    cluster::ForwardRequest { front: node(), partition, epoch: EPOCH, number, wait_ms: 50, caller: client() }
}

fn forward_to(service: u16, opcode: u32, number: u64) -> cluster::ForwardToRequest {
    let cluster::ForwardRequest { front, partition, epoch, wait_ms, .. } = forward(number);
    let (service, caller) = (service.into(), superuser());
    cluster::ForwardToRequest { service, opcode, front, partition, epoch, number, wait_ms, caller }
}

fn fetch(fid: fs::Fid, position: u64, length: u64) -> cluster::FetchRequest {
    let cluster::ForwardRequest { front, partition, epoch, wait_ms, caller, .. } = forward(0);
    let (fs::Fid { volume, vnode, unique }, names) = (fid, 1);
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

fn offer(fid: fs::Fid, length: u64) -> cluster::OfferStoreRequest {
    let cluster::ForwardRequest { front, partition, epoch, wait_ms, caller, .. } = forward(0);
    cluster::OfferStoreRequest {
        front,
        partition,
        epoch,
        wait_ms,
        caller,
        arguments: store_arguments(fid, length),
    }
}

fn store(fid: fs::Fid, length: u64, number: u64, objects: &[u64]) -> cluster::StoreRequest {
    let cluster::OfferStoreRequest { front, partition, epoch, wait_ms, caller, arguments } =
        offer(fid, length);
    let (chunk_shift, objects) = (12, objects.to_vec());
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

fn locate(node: cluster::Node) -> cluster::LocateVolumeRequest {
    let partition = partition(1).as_str().into();
    cluster::LocateVolumeRequest { node, partition, epoch: EPOCH, volume: VOLUMES[1].0 }
}

fn call_client(port: u32) -> cluster::CallClientRequest {
    let cluster::Caller { address, .. } = client();
    let request = xdr::to_vec(&afs_idl::cb::PROBE);
    cluster::CallClientRequest { owner: node(), address, port, patience_ms: u32::MAX, request }
}

fn bytes(data: &[u8]) -> Vec<u8> {
    [&xdr::to_vec(&part_kind::BYTES)[..], &xdr::to_vec(&(data.len() as u32)), data].concat()
}

fn object(id: u64) -> Vec<u8> {
    [xdr::to_vec(&part_kind::OBJECT), xdr::to_vec(&id)].concat()
}

fn chunk(id: u64, offset: u64, length: u32) -> Vec<u8> {
    [xdr::to_vec(&part_kind::CHUNK), xdr::to_vec(&id), xdr::to_vec(&offset), xdr::to_vec(&length)].concat()
}

fn create_file() -> fs::CreateFileRequest {
    fs::CreateFileRequest { directory: root(1), name: "file".into(), status: fs::StoreStatus::default() }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let histories = [
        ("files", files()),
        ("foreign_fids", foreign_fids()),
        ("placed", placed()),
        ("placed_wrongly", placed_wrongly()),
        ("strangers", strangers()),
        ("memberships", memberships()),
        ("epochs", epochs()),
        ("volumes", volumes()),
        ("clients", clients()),
    ];
    let mut seeds: Vec<Seed> =
        histories.into_iter().map(|(file, history)| seed("serve_cluster", file, history.bytes)).collect();
    // Every procedure with arguments that consist of zeros, ones, or the number of the volume.
    for (number, word) in [0, 1, VOLUMES[1].0].into_iter().enumerate() {
        let arguments = Words(word);
        let mut history = History::default();
        for (opcode, _) in fs::PROCEDURES {
            history.forward(*opcode, &arguments, &[]);
        }
        seeds.push(seed("serve_cluster", format!("all_files_{number}"), history.bytes));
        let services = [
            ("volumes", vol::SERVICE_ID, vol::PROCEDURES),
            ("cellar", cellar::SERVICE_ID, cellar::PROCEDURES),
        ];
        for (name, service, procedures) in services {
            let mut history = History::default();
            for (opcode, _) in procedures {
                history.administer(service, *opcode, &arguments);
            }
            seeds.push(seed("serve_cluster", format!("all_{name}_{number}"), history.bytes));
        }
    }
    seeds
}

/// Arguments that consist of one word.
struct Words(u32);

impl Encode for Words {
    fn encode(&self, out: &mut Vec<u8>) {
        (0..24).for_each(|_| self.0.encode(out));
    }
}

/// What any client may do, and attempts to use the secret file.
fn files() -> History {
    let mut history = History::default();
    let (directory, secret, status) = (root(1), fs::Fid::from(SECRET), fs::StoreStatus::default());
    let whole = |fid| fs::StoreData64Request { fid, status, position: 0, length: 5000, file_length: 5000 };
    history.forward(fs::CREATE_FILE, &create_file(), &[]);
    history.forward(fs::STORE_DATA64, &whole(FILE), &[7; 5000]);
    history.forward(
        fs::FETCH_DATA64,
        &fs::FetchData64Request { fid: FILE, position: 0, length: 1 << 40 },
        &[],
    );
    history.forward(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: FILE }, &[]);
    history.forward(
        fs::INLINE_BULK_STATUS,
        &fs::InlineBulkStatusRequest { fids: vec![directory, FILE] },
        &[],
    );
    history.forward(fs::SET_LOCK, &fs::SetLockRequest { fid: FILE, lock_type: 1 }, &[]);
    history.forward(fs::RELEASE_LOCK, &fs::ReleaseLockRequest { fid: FILE }, &[]);
    let link = fs::LinkRequest { directory, name: "link".into(), existing: FILE };
    history.forward(fs::LINK, &link, &[]);
    history.forward(fs::REMOVE_FILE, &fs::RemoveFileRequest { directory, name: "link".into() }, &[]);
    history.forward(fs::GIVE_UP_ALL_CALL_BACKS, &fs::GiveUpAllCallBacksRequest, &[]);
    // From here on everything is refused.
    history.forward(fs::FETCH_DATA64, &fs::FetchData64Request { fid: secret, position: 0, length: 9 }, &[]);
    history.forward(fs::STORE_DATA64, &whole(secret), &[7; 5000]);
    history.forward(fs::STORE_STATUS, &fs::StoreStatusRequest { fid: secret, status }, &[]);
    history.forward(fs::SET_LOCK, &fs::SetLockRequest { fid: secret, lock_type: 1 }, &[]);
    history.call(Event::Nothing, cluster::FETCH, &fetch(secret, 0, 1 << 20), &[]);
    history.call(Event::Nothing, cluster::OFFER_STORE, &offer(secret, 5000), &[]);
    let forged = store(secret, 5, 99, &[]);
    history.call(Event::Nothing, cluster::STORE, &forged, &bytes(b"forge"));
    history
}

/// Files of the other partition, which the owner still has open.
fn foreign_fids() -> History {
    let mut history = History::default();
    let (here, there) = (root(1), root(0));
    history.forward(fs::CREATE_FILE, &create_file(), &[]);
    history.forward(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: there }, &[]);
    let status = fs::StoreStatus::default();
    let make = fs::MakeDirRequest { directory: there, name: "d".into(), status };
    history.forward(fs::MAKE_DIR, &make, &[]);
    let rename = fs::RenameRequest {
        old_directory: here,
        old_name: "file".into(),
        new_directory: there,
        new_name: "file".into(),
    };
    history.forward(fs::RENAME, &rename, &[]);
    let existing = fs::Fid { volume: VOLUMES[0].0, ..FILE };
    history.forward(fs::LINK, &fs::LinkRequest { directory: here, name: "l".into(), existing }, &[]);
    history.forward(fs::BULK_STATUS, &fs::BulkStatusRequest { fids: vec![here, there] }, &[]);
    history.forward(fs::BULK_STATUS, &fs::BulkStatusRequest { fids: vec![there, there] }, &[]);
    history.call(Event::Nothing, cluster::FETCH, &fetch(Fid::root(VOLUMES[0]).into(), 0, 1 << 20), &[]);
    history.call(Event::Nothing, cluster::OFFER_STORE, &offer(existing, 1 << 20), &[]);
    history.call(Event::Nothing, cluster::STORE, &store(existing, 5, 9, &[]), &bytes(b"forge"));
    let other = cluster::ForwardRequest { partition: partition(0).as_str().into(), ..forward(8) };
    let call = [xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&fs::FetchStatusRequest { fid: there })].concat();
    history.call(Event::Nothing, cluster::FORWARD, &other, &call);
    history
}

/// A store whose data is in an object that the other node has created, and what is read of it.
fn placed() -> History {
    let mut history = History::default();
    let length = 2 * 4096 + 5;
    history.forward(fs::CREATE_FILE, &create_file(), &[]);
    history.call(Event::Nothing, cluster::OFFER_STORE, &offer(FILE, length), &[]);
    history.piece(Peer::Bucket, Event::Nothing, &[&[0, 0], b"contents"]);
    let data = [object(OBJECT), chunk(OBJECT, 32, RECORD), bytes(&[6; 4096]), bytes(&[]), bytes(b"ended")];
    history.call(Event::Nothing, cluster::STORE, &store(FILE, length, 7, &[OBJECT]), &data.concat());
    history.call(Event::Nothing, cluster::STORE, &store(FILE, length, 7, &[OBJECT]), &data.concat());
    history.call(Event::Nothing, cluster::FETCH, &fetch(FILE, 0, 1 << 40), &[]);
    let whole = fs::FetchData64Request { fid: FILE, position: 0, length: 1 << 40 };
    history.forward(fs::FETCH_DATA64, &whole, &[]);
    history
}

/// Stores with objects that do not exist, belong to another store, or are damaged.
fn placed_wrongly() -> History {
    let mut history = History::default();
    history.forward(fs::CREATE_FILE, &create_file(), &[]);
    for number in 0..8 {
        history.call(Event::Nothing, cluster::OFFER_STORE, &offer(FILE, 4096), &[]);
        let own = OBJECT + number;
        if number != 0 {
            let is_raw = u8::from(number == 1);
            history.piece(Peer::Bucket, Event::Nothing, &[&[0, is_raw], b"contents"]);
        }
        let (objects, data) = match number {
            0 | 1 => (vec![own], [object(own), chunk(own, 32, RECORD)].concat()),
            2 => (vec![own], chunk(own, 32, RECORD)),
            3 => (vec![own], [object(own - 3), chunk(own - 3, 32, RECORD)].concat()),
            4 => (vec![u64::MAX, own], [object(own), chunk(own, 32, RECORD)].concat()),
            5 => (vec![own], [object(own), chunk(own, u64::MAX, u32::MAX)].concat()),
            6 => (vec![own], [object(own), bytes(b"5"), chunk(own, 32, RECORD)].concat()),
            _ => (vec![own, own], [object(own), chunk(own, 31, RECORD + 1)].concat()),
        };
        history.call(Event::Nothing, cluster::STORE, &store(FILE, 4096, 20 + number, &objects), &data);
    }
    let huge = cluster::StoreRequest { chunk_shift: u32::MAX, ..store(FILE, u64::MAX, 50, &[]) };
    history.call(Event::Nothing, cluster::STORE, &huge, &bytes(&[1]));
    let far = cluster::FetchRequest { position: u64::MAX, length: u64::MAX, ..fetch(FILE, 0, 0) };
    history.call(Event::Nothing, cluster::FETCH, &far, &[]);
    history
}

/// Every procedure, by each kind of stranger, with a good request.
fn strangers() -> History {
    let mut history = History::default();
    let status =
        [xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&fs::FetchStatusRequest { fid: root(1) })].concat();
    let remove = vol::NukeVolumeRequest { partition: 1, volume_id: VOLUMES[1].0 };
    let remove = [xdr::to_vec(&vol::NUKE_VOLUME), xdr::to_vec(&remove)].concat();
    for peer in [Peer::Anonymous, Peer::Administrator, Peer::Unencrypted, Peer::Elsewhere] {
        let mut call = |opcode: u32, request: &[u8], rest: &[u8]| {
            history.piece(peer, Event::Nothing, &[&xdr::to_vec(&opcode), request, rest]);
        };
        call(cluster::FORWARD, &xdr::to_vec(&forward(1)), &status);
        let to = forward_to(vol::SERVICE_ID, vol::NUKE_VOLUME, 2);
        call(cluster::FORWARD_TO, &xdr::to_vec(&to), &remove);
        call(cluster::FETCH, &xdr::to_vec(&fetch(root(1), 0, 1 << 20)), &[]);
        call(cluster::OFFER_STORE, &xdr::to_vec(&offer(FILE, 1 << 20)), &[]);
        call(cluster::STORE, &xdr::to_vec(&store(FILE, 5, 3, &[])), &bytes(b"forge"));
        call(cluster::CALL_CLIENT, &xdr::to_vec(&call_client(7001)), &[]);
        call(cluster::LOCATE_VOLUME, &xdr::to_vec(&locate(node())), &[]);
        let deleted = cluster::VolumeDeletedRequest { node: node(), volume: VOLUMES[1].0 };
        call(cluster::VOLUME_DELETED, &xdr::to_vec(&deleted), &[]);
    }
    history
}

/// Memberships that have ended, have never been, or are those of others.
fn memberships() -> History {
    let mut history = History::default();
    let locate_as = |history: &mut History, event: Event, node: cluster::Node| {
        history.call(event, cluster::LOCATE_VOLUME, &locate(node), &[]);
    };
    locate_as(&mut history, Event::Nothing, node());
    locate_as(&mut history, Event::Nothing, cluster::Node { membership: 0, ..node() });
    locate_as(&mut history, Event::Nothing, cluster::Node { membership: 2, ..node() });
    locate_as(&mut history, Event::Nothing, cluster::Node { nonce_low: 4711, ..node() });
    locate_as(&mut history, Event::Nothing, cluster::Node { name: "n9".into(), ..node() });
    locate_as(&mut history, Event::Nothing, wire_node(&(name(1), incarnation(1))));
    locate_as(&mut history, Event::Evict, node());
    locate_as(&mut history, Event::Wait, node());
    locate_as(&mut history, Event::Join, node());
    locate_as(&mut history, Event::Wait, node());
    history
}

/// Ownerships that have ended, do not answer, or will be; and a node that would wait for weeks.
fn epochs() -> History {
    let mut history = History::default();
    let status =
        [xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&fs::FetchStatusRequest { fid: root(1) })].concat();
    let mut number = 0;
    let mut ask = |event: Event, epoch: u64| {
        number += 1;
        let request = cluster::ForwardRequest { epoch, wait_ms: u32::MAX, ..forward(number) };
        history.call(event, cluster::FORWARD, &request, &status);
    };
    ask(Event::Nothing, EPOCH);
    ask(Event::Nothing, EPOCH - 1);
    ask(Event::Nothing, u64::MAX);
    ask(Event::Lapse, EPOCH);
    ask(Event::Resume, EPOCH);
    ask(Event::Drain, EPOCH);
    ask(Event::Succeed, EPOCH);
    ask(Event::Nothing, EPOCH + 1);
    history
}

/// A volume is made and removed by a holder of the cell's key.
fn volumes() -> History {
    let mut history = History::default();
    let id = PartitionId::from_index(1).expect("a small number");
    let transaction = *transaction_numbers(id, Epoch(EPOCH)).start();
    let (partition, volume_id) = (1, VOLUMES[1].0 + 9);
    let create = vol::CreateVolumeRequest {
        partition,
        name: "user.bob".into(),
        volume_type: 0,
        parent_id: 0,
        volume_id,
    };
    let of = vol::SERVICE_ID;
    history.administer(of, vol::CREATE_VOLUME, &create);
    history.administer(of, vol::SET_FLAGS, &vol::SetFlagsRequest { transaction, flags: 0 });
    history.administer(of, vol::END_TRANS, &vol::EndTransRequest { transaction });
    history.administer(of, vol::X_LIST_VOLUMES, &vol::XListVolumesRequest { partition, flags: 1 });
    history.administer(of, vol::MONITOR, &vol::MonitorRequest);
    let begin = vol::TransCreateRequest { volume_id, partition, flags: vol::attach_mode::OFFLINE };
    history.administer(of, vol::TRANS_CREATE, &begin);
    let transaction = transaction + 1;
    history.administer(of, vol::GET_STATUS, &vol::GetStatusRequest { transaction });
    history.administer(of, vol::DUMP, &vol::DumpRequest { transaction, from_date: 0 });
    history.administer(of, vol::DELETE_VOLUME, &vol::DeleteVolumeRequest { transaction });
    history.administer(of, vol::END_TRANS, &vol::EndTransRequest { transaction });
    // From here on everything is refused.
    for (partition, volume_id) in [(0, VOLUMES[0].0), (1, VOLUMES[0].0)] {
        history.administer(of, vol::NUKE_VOLUME, &vol::NukeVolumeRequest { partition, volume_id });
    }
    history
}

fn clients() -> History {
    let mut history = History::default();
    for port in [7001, 0, u32::MAX] {
        history.call(Event::Nothing, cluster::CALL_CLIENT, &call_client(port), &[]);
    }
    let everyone = cluster::CallClientRequest {
        address: Ipv4Addr::new(224, 0, 0, 1).to_ipv6_mapped().octets(),
        ..call_client(7001)
    };
    history.call(Event::Nothing, cluster::CALL_CLIENT, &everyone, &[]);
    for volume in [VOLUMES[0].0, VOLUMES[1].0, 0, u32::MAX] {
        let request = cluster::LocateVolumeRequest { volume, ..locate(node()) };
        history.call(Event::Nothing, cluster::LOCATE_VOLUME, &request, &[]);
        let request = cluster::VolumeDeletedRequest { node: node(), volume };
        history.call(Event::Nothing, cluster::VOLUME_DELETED, &request, &[]);
    }
    history
}
