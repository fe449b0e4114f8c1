//! Tests of queries: who may make them, and what they may change.

use super::support::{Cell, admin, anybody};
use crate::IDLE_SECONDS_MAX;
use crate::codes::ENOENT;
use afs_idl::vol::{self, attach_mode, volume_state};
use afs_idl::{CallStream, ReplyWriter};
use base::{AbortCode, Access, CallContext, Caller, VolumeId};
use bytes::Bytes;

/// Makes the three calls that query a transaction.
fn query(cell: &Cell, caller: &Caller, transaction: i32) -> [Result<(), AbortCode>; 3] {
    let server = &cell.server;
    [
        server.get_status(&CallContext::new(caller), vol::GetStatusRequest { transaction }).map(drop),
        server.get_name(&CallContext::new(caller), vol::GetNameRequest { transaction }).map(drop),
        server.get_flags(&CallContext::new(caller), vol::GetFlagsRequest { transaction }).map(drop),
    ]
}

#[test]
fn strangers_do_not_keep_a_transaction_alive() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let opened = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
    cell.pass(IDLE_SECONDS_MAX);
    assert_eq!(query(&cell, &anybody(), opened), [Ok(()); 3]);
    cell.pass(1);
    assert_eq!(cell.server.expire_transactions(), 1);
    assert_eq!(query(&cell, &anybody(), opened), [Err(ENOENT); 3]);
}

#[test]
fn administrators_keep_a_transaction_alive_by_queries() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let opened = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
    cell.pass(IDLE_SECONDS_MAX);
    assert_eq!(query(&cell, &admin(), opened), [Ok(()); 3]);
    cell.pass(1);
    assert_eq!(cell.server.expire_transactions(), 0);
}

/// Makes all calls that query volumes and partitions.
fn list(cell: &Cell, caller: &Caller) -> [Result<(), AbortCode>; 9] {
    let server = &cell.server;
    let name = || "/vicepa".into();
    [
        cell.list_volumes(caller, vol::ListVolumesRequest { partition: 0, flags: 1 }).map(drop),
        afs_idl::memory::collect::<vol::XListVolumesReply>(|reply| {
            server.x_list_volumes(caller, vol::XListVolumesRequest { partition: 0, flags: 1 }, reply)
        })
        .map(drop),
        server.list_one_volume(caller, vol::ListOneVolumeRequest { partition: 0, volume_id: 5 }).map(drop),
        server.x_list_one_volume(caller, vol::XListOneVolumeRequest { partition: 0, volume_id: 5 }).map(drop),
        server.monitor(caller, vol::MonitorRequest).map(drop),
        server.list_partitions(caller, vol::ListPartitionsRequest).map(drop),
        server.x_list_partitions(caller, vol::XListPartitionsRequest).map(drop),
        server.partition_info(caller, vol::PartitionInfoRequest { name: name() }).map(drop),
        server.partition_info64(caller, vol::PartitionInfo64Request { name: name() }).map(drop),
    ]
}

#[test]
fn queries_can_be_restricted() {
    let mut cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let opened = cell.open(5, 0, attach_mode::READ_ONLY).unwrap();
    assert_eq!(list(&cell, &anybody()), [Ok(()); 9]);
    cell.server = cell.server.with_queries(Access::Administrators);
    let refused = Err(AbortCode::VOLSERBAD_ACCESS);
    assert_eq!((list(&cell, &anybody()), query(&cell, &anybody(), opened)), ([refused; 9], [refused; 3]));
    assert_eq!((list(&cell, &admin()), query(&cell, &admin(), opened)), ([Ok(()); 9], [Ok(()); 3]));
    cell.server = cell.server.with_queries(Access::Authenticated);
    assert_eq!((list(&cell, &anybody()), list(&cell, &admin())), ([refused; 9], [Ok(()); 9]));
}

/// A client of ListVolumes that deletes a volume when the first piece of the reply arrives.
struct Deleting<'a> {
    cell: &'a Cell,
    doomed: VolumeId,
    pieces: Vec<Bytes>,
}

impl CallStream for Deleting<'_> {
    fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
        Ok(0)
    }

    fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
        Ok(Bytes::new())
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        if self.pieces.is_empty() {
            self.cell.volumes.delete(self.doomed).unwrap();
        }
        self.pieces.push(data);
        Ok(())
    }
}

#[test]
fn a_list_stays_whole_while_volumes_are_deleted() {
    let cell = Cell::new();
    for id in 1..=400 {
        cell.vos_create(0, &format!("v{id}"), id);
    }
    let mut client = Deleting { cell: &cell, doomed: VolumeId(399), pieces: Vec::new() };
    let request = vol::ListVolumesRequest { partition: 0, flags: 1 };
    let mut reply = ReplyWriter::new(&mut client);
    cell.server.list_volumes(&anybody(), request, &mut reply).unwrap();
    reply.finish().unwrap();
    assert!(client.pieces.len() > 2, "{}", client.pieces.len());
    let reply: vol::ListVolumesReply = xdr::from_slice(&client.pieces.concat()).unwrap();
    let ids: Vec<u32> = reply.entries.iter().map(|entry| entry.volume_id).collect();
    assert_eq!(ids, (1..=400).collect::<Vec<_>>());
    let states = |id: usize| reply.entries[id - 1].status;
    assert_eq!(
        (states(398), states(399), states(400)),
        (volume_state::OK, volume_state::NO_VOLUME, volume_state::OK)
    );
}
