use super::network::{DYING, FORBIDDEN, Network, OTHERS, Other, REFUSED, SLOW};
use super::support::{Cell, Disks, LARGE, START, admin, read, write};
use afs_format::transfer::CHUNK_BYTES;
use afs_idl::MemoryStream;
use afs_idl::vol::{self, attach_mode};
use base::{AbortCode, VolumeId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `vos dump` of a volume by OpenAFS 1.8.9.
const FULL: &[u8] = include_bytes!("../../../../protocol/afs-format/testdata/dump/full");
const ID: u32 = 900;

fn restored(cell: &Cell, dump: &[u8]) {
    let transaction = cell.create(LARGE, "home", ID, ID).unwrap();
    let cookie = vol::RestoreCookie { name: "home".into(), ..Default::default() };
    let request = vol::RestoreRequest { transaction, flags: 0, cookie };
    cell.server.restore(&admin(), request, &mut MemoryStream::new(dump, 1000)).unwrap();
    cell.set_flags(transaction, 0).unwrap();
    cell.end(transaction).unwrap();
}

#[test]
fn a_volume_is_sent_to_one_server_or_to_several() {
    let (mut cell, other) = (Cell::new(), Arc::new(Cell::new()));
    cell.server =
        cell.server.with_other_servers(Arc::new(Other::new(&other, &Arc::new(Network::of_dumps()))));
    restored(&cell, FULL);
    let source = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let cookie = vol::RestoreCookie { name: "there".into(), ..Default::default() };
    let server = vol::DestServer { host: 0x0a00_0001, port: 7005, security_index: 2 };
    let target = |id| other.create(LARGE, "there", id, id).unwrap();
    let request = vol::ForwardRequest {
        transaction: source,
        from_date: 0,
        destination: server,
        destination_transaction: target(1),
        cookie: cookie.clone(),
    };
    assert_eq!(cell.server.forward(&admin(), request.clone()), Ok(vol::ForwardReply));
    let unknown = vol::ForwardRequest { destination_transaction: 77, ..request };
    assert_eq!(cell.server.forward(&admin(), unknown), Err(AbortCode(2)));
    let replica =
        |transaction, port| vol::Replica { transaction, server: vol::DestServer { port, ..server } };
    let destinations =
        vec![replica(target(2), 7005), replica(77, 7005), replica(1, 1), replica(target(3), 7005)];
    let request =
        vol::ForwardMultipleRequest { transaction: source, from_date: 0, destinations, spare: 0, cookie };
    let results = cell.server.forward_multiple(&admin(), request).unwrap().results;
    assert_eq!(results, [0, 2, AbortCode::RX_CALL_DEAD.0, 0]);
    for id in 1..=3 {
        let volume = other.volumes.get_any_state(VolumeId(id)).unwrap();
        assert!(volume.lookup(volume.root(), b"hello").is_ok(), "volume {id}");
        assert_eq!(volume.header().name.as_str(), "there");
    }
    other.check();
}

const FILES: usize = 5;
const FILE_CHUNKS: usize = 3;

/// Creates a server with a volume of some files, and a counter of the chunks that it reads.
fn with_files() -> (Cell, Disks) {
    let disks = Disks::default();
    let cell = Cell::on(&disks);
    cell.vos_create(LARGE, "home", ID);
    let volume = cell.volumes.get_any_state(VolumeId(ID)).unwrap();
    for file in 0..FILES {
        let text = (0..).flat_map(|n: u32| (n * 7 + file as u32).to_be_bytes());
        let data: Vec<u8> = text.take(FILE_CHUNKS * CHUNK_BYTES).collect();
        write(&volume, cell.now(), &format!("file{file}"), &data);
    }
    disks.reads.store(0, Ordering::Relaxed);
    (cell, disks)
}

#[test]
fn nothing_is_sent_to_a_forbidden_destination() {
    for network in [Network::of_dumps(), Network::of_cellars()] {
        let ((mut cell, _), other, network) = (with_files(), Arc::new(Cell::new()), Arc::new(network));
        cell.server = cell.server.with_other_servers(Arc::new(Other::new(&other, &network)));
        assert_eq!(send_to(&cell, &other, &[FORBIDDEN.into()]), [REFUSED.0]);
        assert!(network.streams().is_empty() && network.asked() == 0);
    }
}

/// Returns a target at this port, creating the volume if it is missing.
fn target(other: &Cell, id: u32, port: i32) -> vol::Replica {
    let open = other.open(id, LARGE, attach_mode::BUSY);
    let transaction = open.unwrap_or_else(|_| other.create(LARGE, "there", id, id).unwrap());
    let server = vol::DestServer { host: 0x0a00_0001, port, security_index: 2 };
    vol::Replica { transaction, server }
}

/// Sends the changes of the volume since a date.
fn send(cell: &Cell, from_date: u32, destinations: Vec<vol::Replica>) -> Vec<i32> {
    let transaction = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let cookie = vol::RestoreCookie { name: "there".into(), ..Default::default() };
    let request = vol::ForwardMultipleRequest { transaction, from_date, destinations, spare: 0, cookie };
    let results = cell.server.forward_multiple(&admin(), request).unwrap().results;
    cell.end(transaction).unwrap();
    results
}

/// Sends the volume to servers at these ports, each into a separate volume, with ids from 1 on.
fn send_to(cell: &Cell, other: &Cell, ports: &[i32]) -> Vec<i32> {
    send(cell, 0, (1..).zip(ports).map(|(id, &port)| target(other, id, port)).collect())
}

fn has_all(other: &Cell, id: u32) -> bool {
    let volume = other.volumes.get_any_state(VolumeId(id)).unwrap();
    (0..FILES).all(|file| volume.lookup(volume.root(), format!("file{file}").as_bytes()).is_ok())
}

#[test]
fn however_many_targets_there_are_each_chunk_is_read_once() {
    for network in [Network::of_dumps(), Network::of_cellars()] {
        let ((mut cell, disks), other) = (with_files(), Arc::new(Cell::new()));
        cell.server = cell.server.with_other_servers(Arc::new(Other::new(&other, &Arc::new(network))));
        assert_eq!(send_to(&cell, &other, &[7005; 13]), [0; 13]);
        assert_eq!(disks.reads.load(Ordering::Relaxed), FILES * FILE_CHUNKS);
        assert!((1..=13).all(|id| has_all(&other, id)));
        other.check();
    }
}

#[test]
fn each_changed_chunk_is_read_once_for_all_sites() {
    for network in [Network::of_dumps(), Network::of_cellars()] {
        let ((mut cell, disks), other) = (with_files(), Arc::new(Cell::new()));
        cell.server = cell.server.with_other_servers(Arc::new(Other::new(&other, &Arc::new(network))));
        let release = |ids: std::ops::RangeInclusive<u32>, from_date| {
            disks.reads.store(0, Ordering::Relaxed);
            let targets: Vec<vol::Replica> = ids.map(|id| target(&other, id, 7005)).collect();
            assert!(send(&cell, from_date, targets.clone()).iter().all(|code| *code == 0));
            for target in targets {
                other.set_flags(target.transaction, 0).unwrap();
                other.end(target.transaction).unwrap();
            }
            disks.reads.load(Ordering::Relaxed)
        };
        assert_eq!(release(1..=3, 0), FILES * FILE_CHUNKS);
        cell.pass(100);
        let volume = cell.volumes.get_any_state(VolumeId(ID)).unwrap();
        let changed = vec![1; FILE_CHUNKS * CHUNK_BYTES];
        write(&volume, cell.now(), "file1", &changed);
        assert_eq!(release(1..=3, START + 50), FILE_CHUNKS);
        // An additional site without data needs a full read.
        assert_eq!(release(4..=4, 0), FILES * FILE_CHUNKS);
        for id in 1..=4 {
            let volume = other.volumes.get_any_state(VolumeId(id)).unwrap();
            assert!(has_all(&other, id) && read(&volume, "file1") == changed, "site {id}");
        }
        other.check();
    }
}

#[test]
fn full_and_incremental_sites_share_one_read() {
    let ((mut cell, disks), other) = (with_files(), Arc::new(Cell::new()));
    let network = Arc::new(Network::of_cellars());
    cell.server = cell.server.with_other_servers(Arc::new(Other::new(&other, &network)));
    assert_eq!(send_to(&cell, &other, &[7005, OTHERS, 7005, OTHERS, OTHERS]), [0; 5]);
    assert_eq!(disks.reads.load(Ordering::Relaxed), FILES * FILE_CHUNKS);
    assert!((1..=5).all(|id| has_all(&other, id)));
    // Transfers with references contain digests as well, so their streams are longer.
    let mut lengths = network.streams();
    lengths.sort_unstable();
    assert!(lengths[0] == lengths[2] && lengths[2] < lengths[3] && lengths[3] == lengths[4], "{lengths:?}");
    other.check();
}

#[test]
fn a_target_that_dies_or_is_slow_keeps_the_others_from_nothing() {
    let ((mut cell, disks), other) = (with_files(), Arc::new(Cell::new()));
    let network = Arc::new(Network::of_dumps());
    cell.server = cell.server.with_other_servers(Arc::new(Other::new(&other, &network)));
    // The slow target accepts nothing before the two normal ones have everything.
    let results = send_to(&cell, &other, &[7005, DYING, SLOW, 7005]);
    assert_eq!(results, [0, AbortCode::RX_CALL_DEAD.0, 0, 0]);
    assert!([1, 3, 4].into_iter().all(|id| has_all(&other, id)));
    assert_eq!(disks.reads.load(Ordering::Relaxed), FILES * FILE_CHUNKS);
    assert_eq!(network.streams().len(), 3);
}
