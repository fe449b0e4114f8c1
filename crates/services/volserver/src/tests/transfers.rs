//! Tests of transfers from one Cellar server to another.

use super::network::{DYING, Network, Other};
use super::support::{Cell, Disks, LARGE, START, actor, admin, anybody, fid, write_at};
use afs_format::transfer::{CHUNK_BYTES, Known, Writer, digest};
use afs_idl::MemoryStream;
use afs_idl::cellar::{self, ChunkRange};
use afs_idl::vol::{self, attach_mode};
use base::{AbortCode, UnixTime, VolumeId, VolumeType};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use volume::{Actor, SetStatus, Volume};

pub(super) const ID: u32 = 900;
pub(super) const TARGET: u32 = 901;
const SERVER: vol::DestServer = vol::DestServer { host: 0x0a00_0001, port: 7005, security_index: 2 };

/// Two servers, and a network connection from one to the other.
pub(super) struct Pair {
    pub(super) cell: Cell,
    pub(super) other: Arc<Cell>,
    /// Disks of the other server.
    pub(super) disks: Disks,
    way: Arc<Other>,
    pub(super) network: Arc<Network>,
    pub(super) now: u32,
}

/// Returns bytes that do not repeat.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| step()).collect()
}

impl Pair {
    pub(super) fn new() -> Pair {
        let (cell, disks) = (Cell::new(), Disks::default());
        let other = Arc::new(Cell::on(&disks));
        Pair::of(cell, other, disks)
    }

    /// Connects two servers. `disks` are those of the other one.
    pub(super) fn of(mut cell: Cell, other: Arc<Cell>, disks: Disks) -> Pair {
        let network = Arc::new(Network::of_cellars());
        let way = Arc::new(Other::new(&other, &network));
        cell.server = cell.server.with_other_servers(way.clone());
        cell.vos_create(LARGE, "home", ID);
        let pair = Pair { cell, other, disks, way, network, now: START };
        pair.write("tiny", b"hello");
        pair.write("small", &noise(1, 3000));
        pair.write("large", &noise(2, 5 * CHUNK_BYTES + 77));
        pair.write("exact", &noise(3, 2 * CHUNK_BYTES));
        pair.write("hole", &[vec![0; 3 * CHUNK_BYTES], noise(4, 10)].concat());
        pair
    }

    /// Restarts the other server with these disks.
    pub(super) fn restart(&mut self, disks: Disks) {
        let now = self.other.now();
        self.disks = disks;
        self.other = Arc::new(Cell::on(&self.disks));
        self.other.pass(now.0 - START);
        self.other.server.delete_unfinished();
        self.way.replace(&self.other);
    }

    pub(super) fn volume(&self) -> Arc<Volume> {
        self.cell.volumes.get_any_state(VolumeId(ID)).unwrap()
    }

    pub(super) fn target(&self) -> Arc<Volume> {
        self.other.volumes.get_any_state(VolumeId(TARGET)).unwrap()
    }

    pub(super) fn actor(&self) -> Actor {
        actor(UnixTime(self.now))
    }

    pub(super) fn write(&self, name: &str, data: &[u8]) {
        self.write_at(name, 0, data, data.len() as u64);
    }

    pub(super) fn write_at(&self, name: &str, offset: u64, data: &[u8], file_length: u64) {
        let volume = self.volume();
        write_at(&volume, UnixTime(self.now), (volume.root(), name), offset, data, file_length);
    }

    /// Creates a volume on the other server and returns its transaction.
    pub(super) fn create(&self) -> i32 {
        self.other.create(LARGE, "there", TARGET, TARGET).unwrap()
    }

    pub(super) fn forward(&self, to: i32, from_date: u32) -> Result<(), AbortCode> {
        let source = self.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
        let request = vol::ForwardRequest {
            transaction: source,
            from_date,
            destination: SERVER,
            destination_transaction: to,
            cookie: vol::RestoreCookie { name: "there".into(), ..Default::default() },
        };
        let sent = self.cell.server.forward(&admin(), request).map(drop);
        self.cell.end(source).unwrap();
        sent
    }

    /// Sends the volume, creating it if it is missing, and puts it into service.
    pub(super) fn send(&self, from_date: u32) {
        let open = self.other.open(TARGET, LARGE, attach_mode::BUSY);
        let to = open.unwrap_or_else(|_| self.create());
        self.forward(to, from_date).unwrap();
        self.other.set_flags(to, 0).unwrap();
        self.other.end(to).unwrap();
        assert_eq!(contents(&self.target()), contents(&self.volume()));
        self.other.check();
    }
}

/// Returns the contents of all files by name.
pub(super) fn contents(volume: &Arc<Volume>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = Vec::new();
    volume.entries(volume.root(), &mut |name, found| names.push((name.to_vec(), found))).unwrap();
    let read = |(name, found): (Vec<u8>, volume::Found)| {
        (name, volume.read(fid(volume, found), 0, 1 << 24).unwrap().1.concat())
    };
    names.into_iter().filter(|(name, _)| !name.starts_with(b".")).map(read).collect()
}

#[test]
fn only_missing_chunks_are_sent() {
    let mut pair = Pair::new();
    pair.send(0);
    let [whole] = pair.network.streams()[..] else { panic!() };
    assert!((7 * CHUNK_BYTES..8 * CHUNK_BYTES).contains(&whole), "{whole}");
    assert_eq!(pair.network.asked(), 0, "an empty volume has nothing");
    // A full transfer does not send existing chunks either, whatever their date.
    pair.send(0);
    let [again] = pair.network.streams()[..] else { panic!() };
    assert!(again < 10_000, "{again}");
    assert_eq!(pair.network.asked(), 1);
    // One chunk of a large file has changed, and one was added at its end.
    pair.now += 100;
    pair.write_at("large", CHUNK_BYTES as u64 + 5, b"changed", 5 * CHUNK_BYTES as u64 + 77);
    pair.write_at("large", 6 * CHUNK_BYTES as u64 + 5, b"added", 6 * CHUNK_BYTES as u64 + 10);
    pair.send(START + 50);
    let [changed] = pair.network.streams()[..] else { panic!() };
    assert!((2 * CHUNK_BYTES..3 * CHUNK_BYTES + 5000).contains(&changed), "{changed}");
    // Nothing has changed.
    pair.send(START + 1000);
    assert!(pair.network.streams()[0] < 2000);
}

#[test]
fn sent_bytes_are_reported() {
    let pair = Pair::new();
    pair.send(0);
    pair.send(0);
    let reply = pair.cell.server.list_transfers(&admin(), cellar::ListTransfersRequest).unwrap();
    let stranger = pair.cell.server.list_transfers(&anybody(), cellar::ListTransfersRequest);
    assert_eq!(stranger, Err(AbortCode::VOLSERBAD_ACCESS));
    let [first, second] = &reply.transfers[..] else { panic!("{reply:?}") };
    assert_eq!((first.volume, first.to, first.code), (ID, SERVER.host, 0));
    assert!(first.ended != 0 && first.done > 8 * CHUNK_BYTES as u64 && first.done <= first.total);
    assert!(first.sent >= 7 * CHUNK_BYTES as u64);
    assert_eq!(second.done, first.done);
    assert!(second.sent < 10_000);
}

#[test]
fn progress_within_a_large_file_is_reported() {
    for network in [Network::of_dumps(), Network::of_cellars()] {
        let mut pair = Pair::new();
        pair.cell.server =
            pair.cell.server.with_other_servers(Arc::new(Other::new(&pair.other, &Arc::new(network))));
        let (to, source) = (pair.create(), pair.cell.open(ID, LARGE, attach_mode::BUSY).unwrap());
        let request = vol::ForwardRequest {
            transaction: source,
            from_date: 0,
            destination: vol::DestServer { port: DYING, ..SERVER },
            destination_transaction: to,
            cookie: vol::RestoreCookie { name: "there".into(), ..Default::default() },
        };
        assert_eq!(pair.cell.server.forward(&admin(), request).err(), Some(AbortCode::RX_CALL_DEAD));
        let [transfer] = &pair.cell.server.sent()[..] else { panic!() };
        // The fifth chunk of the file was never sent completely.
        assert!((3..5).contains(&(transfer.done / CHUNK_BYTES as u64)), "{transfer:?}");
    }
}

#[test]
fn a_transfer_that_is_cut_off_goes_on_where_it_was() {
    for cuts in [&[1][..], &[3 * CHUNK_BYTES], &[700, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES]] {
        let pair = Pair::new();
        pair.network.cut(cuts);
        pair.send(0);
        assert_eq!(pair.network.pauses() as usize, cuts.len());
        let [last] = pair.network.streams()[..] else { panic!() };
        let arrived = cuts.iter().max().unwrap().saturating_sub(CHUNK_BYTES + 20_000);
        assert!(last + arrived < 8 * CHUNK_BYTES, "{cuts:?}: {last}");
        if cuts.len() > 1 {
            assert!(last < 6 * CHUNK_BYTES, "{cuts:?}: {last}");
        }
    }
}

#[test]
fn a_stream_that_changes_on_the_way_leaves_the_target_as_it_was() {
    let pair = Pair::new();
    // All data of a transfer to an empty volume is sent literally.
    for at in [0, 60, 75, 200, 1000, CHUNK_BYTES, 3 * CHUNK_BYTES, 7 * CHUNK_BYTES - 3, usize::MAX] {
        let to = pair.create();
        pair.network.damage(at);
        assert!(pair.forward(to, 0).is_err(), "byte {at}");
        assert!(pair.target().lookup(pair.target().root(), b"tiny").is_err());
        pair.other.delete(to).unwrap();
        pair.other.end(to).unwrap();
    }
    pair.send(0);
    let before = contents(&pair.target());
    pair.write("tiny", b"other");
    for at in (70..3500).step_by(97) {
        let to = pair.other.open(TARGET, LARGE, attach_mode::BUSY).unwrap();
        pair.network.damage(at);
        assert!(pair.forward(to, 0).is_err(), "byte {at}");
        pair.other.end(to).unwrap();
        assert_eq!(contents(&pair.target()), before, "byte {at}");
    }
    pair.other.check();
}

pub(super) fn take(cell: &Cell, transaction: i32, stream: &[u8]) -> Result<(), AbortCode> {
    let (name, volume_type, clone_id) = ("there".into(), 0, 0);
    let request = cellar::TakeVolumeRequest { transaction, name, volume_type, clone_id };
    cell.server.take_volume(&admin(), request, &mut MemoryStream::new(stream, 1000)).map(drop)
}

#[test]
fn references_to_missing_chunks_are_refused() {
    let pair = Pair::new();
    pair.send(0);
    let before = contents(&pair.target());
    let chunk = Bytes::from(noise(3, CHUNK_BYTES));
    let to = pair.other.open(TARGET, LARGE, attach_mode::BUSY).unwrap();
    let known = Known { vnode: 8, unique: 1, index: 0, length: CHUNK_BYTES as u32, digest: digest(&[chunk]) };
    let wrong = [
        Known { vnode: 1, ..known },
        Known { vnode: 1 << 20, ..known },
        Known { unique: 999, ..known },
        Known { index: u64::MAX, ..known },
        Known { length: 5, ..known },
        Known { digest: [0; 32], ..known },
    ];
    for known in wrong {
        let mut stream = Vec::new();
        let mut writer = Writer::begin(&mut stream);
        writer.known(&known, &mut stream);
        writer.end(&mut stream);
        assert_eq!(take(&pair.other, to, &stream), Err(AbortCode::VOLSERREAD_DUMPERROR), "{known:?}");
    }
    assert_eq!(take(&pair.other, to, b"no transfer at all"), Err(AbortCode::VOLSERREAD_DUMPERROR));
    pair.other.end(to).unwrap();
    assert_eq!(contents(&pair.target()), before);
    pair.other.check();
}

#[test]
fn digests_are_limited_and_for_administrators_only() {
    let pair = Pair::new();
    pair.send(0);
    let transaction = pair.other.open(TARGET, LARGE, attach_mode::BUSY).unwrap();
    let root = pair.target().root();
    let exact = pair.target().lookup(root, b"exact").unwrap();
    let range = ChunkRange { vnode: exact.vnode.0, unique: exact.unique, first: 0, count: 3 };
    let ask = |ranges| cellar::GetChunkDigestsRequest { transaction, ranges };
    let reply = pair.other.server.get_chunk_digests(&admin(), ask(vec![range])).unwrap();
    let data = Bytes::from(noise(3, 2 * CHUNK_BYTES));
    let wanted = [data.slice(..CHUNK_BYTES), data.slice(CHUNK_BYTES..)].map(|chunk| digest(&[chunk]));
    let reported: Vec<_> =
        reply.digests.iter().map(|reported| (reported.is_known, reported.digest)).collect();
    assert_eq!(reported, [(1, wanted[0]), (1, wanted[1]), (0, [0; 32])]);
    let much = ChunkRange { count: u32::MAX, ..range };
    assert_eq!(pair.other.server.get_chunk_digests(&admin(), ask(vec![much; 3])), Err(AbortCode(7)));
    let denied = Err(AbortCode::VOLSERBAD_ACCESS);
    assert_eq!(pair.other.server.get_chunk_digests(&anybody(), ask(vec![range])), denied);
    let directory = ChunkRange { vnode: 1, unique: 1, first: 0, count: 1 };
    let reply = pair.other.server.get_chunk_digests(&admin(), ask(vec![directory])).unwrap();
    assert_eq!(reply.digests[0].is_known, 0);
    pair.other.end(transaction).unwrap();
}

#[test]
fn a_read_write_clone_is_a_volume_of_its_own() {
    let pair = Pair::new();
    let source = pair.cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let request = vol::CloneVolumeRequest {
        transaction: source,
        purge_volume_id: 0,
        new_type: vol::volume_type::READ_WRITE,
        new_name: "home.clone".into(),
        new_volume_id: 950,
    };
    pair.cell.server.clone_volume(&admin(), request.clone()).unwrap();
    assert_eq!(pair.cell.server.clone_volume(&admin(), request), Err(AbortCode::VVOLEXISTS));
    pair.cell.end(source).unwrap();
    let before = contents(&pair.volume());
    let clone = || pair.cell.volumes.get_any_state(VolumeId(950)).unwrap();
    assert!(!clone().header().in_service, "until it is put into service");
    let open = pair.cell.open(950, LARGE, attach_mode::OFFLINE).unwrap();
    pair.cell.set_flags(open, 0).unwrap();
    pair.cell.end(open).unwrap();
    let header = clone().header();
    assert_eq!(
        (header.kind, header.parent, header.name.as_str()),
        (VolumeType::ReadWrite, VolumeId(ID), "home.clone")
    );
    assert_eq!(contents(&clone()), before);
    // The volumes change independently, and either can be deleted.
    pair.write("large", b"changed");
    assert_eq!(contents(&clone()), before);
    let made = clone().create_file(&pair.actor(), clone().root(), b"new", &SetStatus::default());
    assert!(made.is_ok());
    assert!(!contents(&pair.volume()).contains_key(&b"new"[..]));
    pair.cell.volumes.delete(VolumeId(ID)).unwrap();
    pair.cell.check();
    assert_eq!(contents(&clone()).len(), before.len() + 1);
}
