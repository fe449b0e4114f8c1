use super::network::{Network, Other};
use super::support::{Cell, LARGE, admin};
use afs_idl::MemoryStream;
use afs_idl::vol::{self, Server as _, attach_mode};
use base::{AbortCode, VolumeId};
use std::sync::Arc;

/// `vos dump` of a volume by OpenAFS 1.8.9.
const FULL: &[u8] = include_bytes!("../../../afs-format/testdata/dump/full");
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
