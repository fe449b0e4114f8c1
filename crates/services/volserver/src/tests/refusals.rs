//! Tests that invalid or untimely requests fail with the code that `vos` expects, and leave nothing behind.

use super::network::{Network, Other};
use super::support::{Cell, DOOMED, Disks, LARGE, actor, admin, read, write};
use crate::IDLE_SECONDS_MAX;
use afs_idl::MemoryStream;
use afs_idl::cellar;
use afs_idl::vol::{self, attach_mode, volume_type};
use base::{AbortCode, VolumeId};
use std::sync::Arc;
use volume::SetStatus;

const ID: u32 = 900;
const NEW: u32 = 901;
const SMALL: i32 = 0;
const ENOENT: AbortCode = AbortCode(2);
const E2BIG: AbortCode = AbortCode(7);
const EXDEV: AbortCode = AbortCode(18);
const ENODEV: AbortCode = AbortCode(19);
const EINVAL: AbortCode = AbortCode(22);

/// Creates a server with a volume that has a few small files.
fn with_volume(disks: &Disks) -> Cell {
    let cell = Cell::on(disks);
    cell.vos_create(LARGE, "home", ID);
    let volume = cell.volumes.get(VolumeId(ID)).unwrap();
    write(&volume, cell.now(), "file", b"hello");
    volume
        .create_symlink(&actor(cell.now()), volume.root(), b"link", b"file", &SetStatus::default())
        .unwrap();
    cell
}

fn dump(cell: &Cell) -> Vec<u8> {
    let transaction = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let mut stream = MemoryStream::default();
    cell.server.dump(&admin(), vol::DumpRequest { transaction, from_date: 0 }, &mut stream).unwrap();
    cell.end(transaction).unwrap();
    stream.outgoing
}

fn restore(cell: &Cell, transaction: i32, name: &str, dump: &[u8]) -> Result<(), AbortCode> {
    let cookie = vol::RestoreCookie { name: name.into(), ..Default::default() };
    let request = vol::RestoreRequest { transaction, flags: 0, cookie };
    cell.server.restore(&admin(), request, &mut MemoryStream::new(dump, 1000)).map(drop)
}

/// Returns the ids of all volumes on a partition, including incomplete ones.
fn numbers(cell: &Cell, partition: i32) -> Vec<u32> {
    let request = vol::ListVolumesRequest { partition, flags: 0 };
    let entries = cell.list_volumes(&admin(), request).unwrap();
    entries.iter().map(|entry| entry.volume_id).collect()
}

/// Makes a call whose request is a transaction number followed by zeros.
fn call(cell: &Cell, opcode: u32, transaction: i32) -> Result<(), AbortCode> {
    let mut wire = opcode.to_be_bytes().to_vec();
    wire.extend(transaction.to_be_bytes());
    wire.resize(400, 0);
    let mut stream = MemoryStream::new(&wire, 1000);
    if (cellar::OFFER_VOLUME..=cellar::BORROW_OBJECTS).contains(&opcode) {
        cellar::dispatch(&cell.server, &admin(), &mut stream)
    } else {
        vol::dispatch(&cell.server, &admin(), &mut stream)
    }
}

const OF_A_VOLUME: [u32; 22] = [
    vol::DELETE_VOLUME,
    vol::RESTORE,
    vol::FORWARD,
    vol::CLONE_VOLUME,
    vol::SET_FLAGS,
    vol::GET_FLAGS,
    vol::DUMP,
    vol::SET_FORWARDING,
    vol::GET_NAME,
    vol::GET_STATUS,
    vol::SET_IDS_TYPES,
    vol::RE_CLONE,
    vol::SET_DATE,
    vol::SET_INFO,
    vol::FORWARD_MULTIPLE,
    vol::GET_SIZE,
    vol::DUMP_V2,
    cellar::OFFER_VOLUME,
    cellar::GET_CHUNK_DIGESTS,
    cellar::TAKE_VOLUME,
    cellar::DIGEST_CONTENTS,
    cellar::BORROW_OBJECTS,
];

#[test]
fn every_call_refuses_an_ended_transaction() {
    let cell = with_volume(&Disks::default());
    let ended = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    cell.end(ended).unwrap();
    let late = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    cell.pass(IDLE_SECONDS_MAX + 1);
    assert_eq!(cell.server.expire_transactions(), 1);
    cell.vos_create(LARGE, "gone", NEW);
    let deleted = cell.open(NEW, LARGE, attach_mode::OFFLINE).unwrap();
    cell.delete(deleted).unwrap();
    for transaction in [0, -1, i32::MAX, ended, late, deleted] {
        for opcode in OF_A_VOLUME {
            assert_eq!(call(&cell, opcode, transaction), Err(ENOENT), "{opcode} of {transaction}");
        }
    }
    assert_eq!(call(&cell, vol::END_TRANS, late), Err(ENOENT));
    assert_eq!(call(&cell, vol::END_TRANS, deleted), Ok(()));
    assert_eq!((numbers(&cell, LARGE), cell.file_service(ID)), (vec![ID], None));
    cell.check();
}

#[test]
fn names_that_are_too_long_or_none_change_nothing() {
    let cell = with_volume(&Disks::default());
    let dump = dump(&cell);
    let open = cell.open(ID, LARGE, attach_mode::OFFLINE).unwrap();
    for name in [&"x".repeat(32), &"x".repeat(255), "", "a/b", "a b"] {
        let wrong = Err(AbortCode::VOLSERBADNAME);
        assert_eq!(cell.create(LARGE, name, NEW, 0).map(drop), wrong, "{name}");
        assert_eq!(clone(&cell, open, NEW, 1, name, 0), wrong, "{name}");
        assert_eq!(restore(&cell, open, name, &dump), wrong, "{name}");
        let request =
            cellar::TakeVolumeRequest { transaction: open, name: name.into(), ..Default::default() };
        let stream = &mut MemoryStream::new(&transfer(), 1000);
        assert_eq!(cell.server.take_volume(&admin(), request, stream).map(drop), wrong, "{name}");
        let request = vol::SetIdsTypesRequest {
            transaction: open,
            name: name.into(),
            parent_id: ID,
            ..Default::default()
        };
        assert_eq!(cell.server.set_ids_types(&admin(), request).map(drop), wrong, "{name}");
    }
    cell.end(open).unwrap();
    assert_eq!(numbers(&cell, LARGE), [ID]);
    let volume = cell.volumes.get(VolumeId(ID)).unwrap();
    assert_eq!((volume.header().name.as_str(), &read(&volume, "file")[..]), ("home", &b"hello"[..]));
    assert!(cell.create(LARGE, &"x".repeat(31), NEW, 0).is_ok());
}

/// Returns an empty transfer.
fn transfer() -> Vec<u8> {
    let mut stream = Vec::new();
    afs_format::transfer::Writer::begin(&mut stream).end(&mut stream);
    stream
}

fn clone(
    cell: &Cell,
    transaction: i32,
    new_volume_id: u32,
    new_type: i32,
    name: &str,
    purge_volume_id: u32,
) -> Result<(), AbortCode> {
    let new_name = name.into();
    let request = vol::CloneVolumeRequest { transaction, purge_volume_id, new_type, new_name, new_volume_id };
    cell.server.clone_volume(&admin(), request).map(drop)
}

#[test]
fn clones_that_cannot_be_made_leave_nothing() {
    let cell = with_volume(&Disks::default());
    cell.vos_create(LARGE, "other", 910);
    cell.vos_create(SMALL, "elsewhere", 911);
    let other = cell.open(910, LARGE, attach_mode::BUSY).unwrap();
    clone(&cell, other, 912, volume_type::READ_ONLY, "other.readonly", 0).unwrap();
    cell.end(other).unwrap();
    let finished = cell.open(912, LARGE, attach_mode::OFFLINE).unwrap();
    cell.set_flags(finished, 0).unwrap();
    cell.end(finished).unwrap();
    let before = numbers(&cell, LARGE);
    let open = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let of = |number, kind, purged| clone(&cell, open, number, kind, "home.readonly", purged);
    assert_eq!(of(0, volume_type::READ_ONLY, 0), Err(E2BIG));
    for kind in [-1, 3, i32::MAX] {
        assert_eq!(of(NEW, kind, 0), Err(EINVAL), "type {kind}");
    }
    // The clone to replace: missing, not a clone, of another family, on another partition.
    assert_eq!(of(NEW, volume_type::READ_ONLY, 999), Err(AbortCode::VNOVOL));
    assert_eq!(of(NEW, volume_type::READ_ONLY, ID), Err(EINVAL));
    assert_eq!(of(NEW, volume_type::READ_ONLY, 912), Err(EXDEV));
    assert_eq!(of(NEW, volume_type::READ_ONLY, 911), Err(AbortCode::VNOVOL));
    // The volume's own id, and one that is in use on this partition.
    assert_eq!(of(ID, volume_type::BACKUP, 0), Err(AbortCode::VOLSERVOLBUSY));
    for kind in [volume_type::READ_WRITE, volume_type::READ_ONLY, volume_type::BACKUP] {
        assert_eq!(of(910, kind, 0), Err(AbortCode::VVOLEXISTS), "type {kind}");
    }
    cell.end(open).unwrap();
    assert_eq!(numbers(&cell, LARGE), before);
    let header = cell.volumes.get(VolumeId(ID)).unwrap().header();
    assert_eq!((header.clone, header.backup), (VolumeId(0), VolumeId(0)));
    assert_eq!(cell.server.delete_unfinished(), 0);
    cell.check();
}

#[test]
fn only_a_read_only_volume_becomes_the_read_write_one() {
    let cell = with_volume(&Disks::default());
    let open = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    clone(&cell, open, NEW, volume_type::BACKUP, "home.backup", 0).unwrap();
    let convert = |partition, volume_id| {
        let request = vol::ConvertRoToRwVolumeRequest { partition, volume_id };
        cell.server.convert_ro_to_rw_volume(&admin(), request).map(drop)
    };
    for partition in [-1, 1, 300] {
        assert_eq!(convert(partition, ID), Err(AbortCode::VOLSERILLEGAL_PARTITION));
    }
    assert_eq!(convert(LARGE, 999), Err(ENODEV));
    assert_eq!(convert(SMALL, ID), Err(ENODEV));
    assert_eq!(convert(LARGE, ID), Err(AbortCode::VOLSERVOLBUSY));
    cell.end(open).unwrap();
    assert_eq!(convert(LARGE, ID), Err(EINVAL));
    assert_eq!(convert(LARGE, NEW), Err(EINVAL), "a backup volume");
    assert_eq!(cell.file_service(ID), None);
}

#[test]
fn a_dump_that_ends_early_is_refused_wherever_that_is() {
    let cell = with_volume(&Disks::default());
    let dump = dump(&cell);
    let transaction = cell.create(LARGE, "new", NEW, NEW).unwrap();
    cell.set_flags(transaction, DOOMED).unwrap();
    for length in 0..dump.len() {
        let refused = restore(&cell, transaction, "new", &dump[..length]);
        assert_eq!(refused, Err(AbortCode::VOLSERREAD_DUMPERROR), "{length} bytes");
    }
    let volume = cell.volumes.get_any_state(VolumeId(NEW)).unwrap();
    assert!(volume.status(volume.root()).is_err(), "it has nothing yet");
    assert_eq!(restore(&cell, transaction, "new", &dump), Ok(()));
    assert_eq!(read(&cell.volumes.get_any_state(VolumeId(NEW)).unwrap(), "file"), b"hello");
    // The client of the restore disappears.
    cell.set_flags(transaction, DOOMED).unwrap();
    cell.pass(IDLE_SECONDS_MAX + 1);
    assert_eq!(cell.server.expire_transactions(), 1);
    assert_eq!(numbers(&cell, LARGE), [ID]);
    cell.check();
}

#[test]
fn a_full_disk_is_reported_and_leaves_nothing() {
    let disks = Disks::default();
    let (mut cell, full) = (with_volume(&Disks::default()), Arc::new(Cell::on(&disks)));
    write(&cell.volumes.get(VolumeId(ID)).unwrap(), cell.now(), "large", &vec![7; 600_000]);
    let dump = dump(&cell);
    for network in [Network::of_dumps(), Network::of_cellars()] {
        cell.server = cell.server.with_other_servers(Arc::new(Other::new(&full, &Arc::new(network))));
        let to = full.create(SMALL, "new", NEW, NEW).unwrap();
        full.set_free_kib(300);
        assert_eq!(restore(&full, to, "new", &dump), Ok(()), "there is room for each chunk");
        full.set_free_kib(100);
        assert_eq!(restore(&full, to, "new", &dump), Err(AbortCode::VDISKFULL));
        let source = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
        let request = vol::ForwardRequest {
            transaction: source,
            from_date: 0,
            destination: vol::DestServer { host: 0x0a00_0001, port: 7005, security_index: 2 },
            destination_transaction: to,
            cookie: vol::RestoreCookie { name: "new".into(), ..Default::default() },
        };
        assert_eq!(cell.server.forward(&admin(), request), Err(AbortCode::VDISKFULL));
        cell.end(source).unwrap();
        full.delete(to).unwrap();
        full.end(to).unwrap();
        assert_eq!(numbers(&full, SMALL), [0_u32; 0]);
        full.check_all(&disks);
        assert_eq!(disks.chunks[0].live_chunks(), 0);
    }
    // A read-write clone copies the data.
    full.set_free_kib(300);
    let to = full.create(SMALL, "new", NEW, NEW).unwrap();
    restore(&full, to, "new", &dump).unwrap();
    full.set_flags(to, 0).unwrap();
    full.set_free_kib(100);
    assert_eq!(clone(&full, to, 950, volume_type::READ_WRITE, "copy", 0), Err(AbortCode::VDISKFULL));
    full.end(to).unwrap();
    assert_eq!(numbers(&full, SMALL), [NEW]);
    full.check_all(&disks);
}
