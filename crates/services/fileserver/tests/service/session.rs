//! The calls of the Linux client (kafs) in a short session, through the wire form in both directions.

use crate::world::{Client, World, root, serve};
use afs_idl::{CallStream, MemoryConnection, fs};
use base::{AbortCode, CallContext};
use std::net::SocketAddr;

fn connect(world: &World, client: &Client) -> MemoryConnection {
    let (server, caller) = (world.server.clone(), client.caller.clone());
    let peer = SocketAddr::from(([127, 0, 0, 1], 7000));
    MemoryConnection::new(peer, 1_412, move |stream| {
        serve(&server, |call| fs::dispatch(call, &CallContext::new(&caller), stream))
    })
}

fn read_all(stream: &mut dyn CallStream) -> Result<Vec<u8>, AbortCode> {
    let mut length = [0; 8];
    let mut got = 0;
    while got < length.len() {
        got += stream.read(&mut length[got..])?;
    }
    let mut data = vec![0; u64::from_be_bytes(length) as usize];
    let mut got = 0;
    while got < data.len() {
        got += stream.read(&mut data[got..])?;
    }
    Ok(data)
}

fn fetch(connection: &MemoryConnection, fid: fs::Fid, length: i64) -> (Vec<u8>, fs::FetchData64Reply) {
    let mut data = Vec::new();
    let request = fs::FetchData64Request { fid, position: 0, length };
    let reply = fs::fetch_data64(connection, &request, |stream| {
        data = read_all(stream)?;
        Ok(())
    });
    (data, reply.unwrap())
}

#[test]
fn mount_list_create_write_read_rename_remove() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let server = connect(&world, &bob);
    let capabilities = fs::get_capabilities(&server, &fs::GetCapabilitiesRequest).unwrap().capabilities;
    assert_eq!(capabilities, [7]);
    let status = fs::fetch_status(&server, &fs::FetchStatusRequest { fid: root() }).unwrap().status;
    let (blob, _) = fetch(&server, root(), i64::from(status.length));
    assert_eq!(blob.len() as u32, status.length);

    let times = fs::store_mask::MOD_TIME | fs::store_mask::MODE;
    let set =
        fs::StoreStatus { mask: times, client_mod_time: 77, unix_mode_bits: 0o644, ..Default::default() };
    let create = fs::CreateFileRequest { directory: root(), name: "file".into(), status: set };
    let made = fs::create_file(&server, &create).unwrap();
    let data: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
    let store = fs::StoreData64Request {
        fid: made.fid,
        status: fs::StoreStatus { mask: fs::store_mask::MOD_TIME, client_mod_time: 78, ..Default::default() },
        position: 0,
        length: data.len() as u64,
        file_length: data.len() as u64,
    };
    let stored = fs::store_data64(&server, &store, |stream| stream.write(data.clone().into())).unwrap();
    assert_eq!((stored.new_status.length, stored.new_status.client_mod_time), (100_000, 78));
    let (read, reply) = fetch(&server, made.fid, 1 << 20);
    assert_eq!((read, reply.status), (data, stored.new_status));

    let bulk = fs::InlineBulkStatusRequest { fids: vec![made.fid, root()] };
    let bulk = fs::inline_bulk_status(&server, &bulk).unwrap();
    assert_eq!((bulk.statuses[0], bulk.statuses[1].file_type), (stored.new_status, 2));

    let rename = fs::RenameRequest {
        old_directory: root(),
        old_name: "file".into(),
        new_directory: root(),
        new_name: "renamed".into(),
    };
    let renamed = fs::rename(&server, &rename).unwrap();
    assert_eq!(renamed.old_directory_status, renamed.new_directory_status);
    assert_eq!(renamed.new_directory_status.data_version, made.directory_status.data_version + 1);
    let remove = fs::RemoveFileRequest { directory: root(), name: "file".into() };
    assert_eq!(fs::remove_file(&server, &remove).err(), Some(AbortCode::UAENOENT));
    let remove = fs::RemoveFileRequest { directory: root(), name: "renamed".into() };
    fs::remove_file(&server, &remove).unwrap();
    let gone = fs::fetch_status(&server, &fs::FetchStatusRequest { fid: made.fid });
    assert_eq!(gone.err(), Some(AbortCode::VNOVNODE));
    fs::give_up_all_call_backs(&server, &fs::GiveUpAllCallBacksRequest).unwrap();
    assert_eq!(world.server.callback_counters().promises, 0);
}
