use super::support::{Cell, LARGE, START, admin, anybody, unchanged};
use crate::IDLE_SECONDS_MAX;
use afs_idl::MemoryStream;
use afs_idl::vol::{self, attach_mode, volume_flags, volume_state};
use base::{AbortCode, PartitionId, UnixTime, VolumeId};
use proptest::prelude::*;
use volume::VolumeState;

const ENOENT: AbortCode = AbortCode(2);
const E2BIG: AbortCode = AbortCode(7);
const ENODEV: AbortCode = AbortCode(19);
const EINVAL: AbortCode = AbortCode(22);
const EROFS: AbortCode = AbortCode(30);

#[test]
fn a_volume_is_listed_while_the_server_itself_works_on_it() {
    let cell = Cell::new();
    let transaction = cell.create(0, "user.ann", 5, 0).unwrap();
    cell.set_flags(transaction, 0).unwrap();
    cell.end(transaction).unwrap();
    let before = cell.list(0);
    let listed = || {
        assert_eq!(cell.list(0), before);
        Ok(())
    };
    let partition = PartitionId::from_index(0).unwrap();
    cell.server.exclusively(VolumeId(5), partition, "Snapshot", listed).unwrap();
}

#[test]
fn vos_create_makes_a_volume_and_brings_it_online() {
    let cell = Cell::new();
    let transaction = cell.create(0, "user.ann", 536_870_915, 0).unwrap();
    assert_eq!(cell.file_service(536_870_915), Some(AbortCode::VOFFLINE));
    let busy = cell.list_one(0, 536_870_915).unwrap();
    assert_eq!((busy.status, busy.volume_id), (volume_state::BUSY, 536_870_915));
    assert_eq!(
        busy,
        vol::VolintInfo { status: busy.status, volume_id: busy.volume_id, ..Default::default() }
    );
    let info = vol::VolintInfo { max_quota: 7000, ..unchanged() };
    cell.server.set_info(&admin(), vol::SetInfoRequest { transaction, info }).unwrap();
    cell.set_flags(transaction, 0).unwrap();
    assert_eq!(cell.end(transaction), Ok(0));
    assert_eq!(cell.file_service(536_870_915), None);
    let wanted = vol::VolintInfo {
        name: "user.ann".into(),
        volume_id: 536_870_915,
        volume_type: 0,
        parent_id: 536_870_915,
        status: volume_state::OK,
        copy_date: START,
        in_use: 1,
        creation_date: START,
        update_date: START,
        max_quota: 7000,
        size: 2,
        ..Default::default()
    };
    assert_eq!(cell.list(0), [wanted]);
}

#[test]
fn the_extended_listing_agrees() {
    let cell = Cell::new();
    cell.vos_create(0, "user.ann", 5);
    cell.volumes.get(VolumeId(5)).unwrap().count_access(UnixTime(START));
    let request = vol::XListOneVolumeRequest { partition: 0, volume_id: 5 };
    let one = cell.server.x_list_one_volume(&anybody(), request).unwrap().entries;
    let request = vol::XListVolumesRequest { partition: 0, flags: 1 };
    let all = afs_idl::memory::collect(|reply| cell.server.x_list_volumes(&anybody(), request, reply));
    assert_eq!(all.map(|reply: vol::XListVolumesReply| reply.entries), Ok(one.clone()));
    let (extended, plain) = (&one[0], cell.list_one(0, 5).unwrap());
    assert_eq!((&extended.name, extended.volume_id, extended.size), (&plain.name, 5, 2));
    assert_eq!((extended.status, extended.in_use, extended.max_quota), (volume_state::OK, 1, 7000));
    assert_eq!((extended.day_use, plain.day_use), (1, 1));
    assert_eq!(extended.creation_date, plain.creation_date);
    cell.pass(2 * 86_400);
    assert_eq!(cell.list_one(0, 5).unwrap().day_use, 0, "the day is over");
}

#[test]
fn invalid_creations_are_refused() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    assert_eq!(cell.create(0, "b", 5, 0), Err(AbortCode::VVOLEXISTS));
    assert_eq!(cell.create(0, &"x".repeat(32), 6, 0), Err(AbortCode::VOLSERBADNAME));
    assert_eq!(cell.create(0, "a/b", 6, 0), Err(AbortCode::VOLSERBADNAME));
    assert_eq!(cell.create(0, "b", 0, 0), Err(E2BIG));
    for partition in [-1, 1, 256, i32::MAX] {
        assert_eq!(cell.create(partition, "b", 6, 0), Err(AbortCode::VOLSERILLEGAL_PARTITION));
    }
    let wrong =
        vol::CreateVolumeRequest { name: "b".into(), volume_type: 3, volume_id: 6, ..Default::default() };
    assert_eq!(cell.server.create_volume(&admin(), wrong), Err(EINVAL));
    assert_eq!(cell.file_service(6), Some(AbortCode::VNOVOL), "nothing is left");
    assert!(cell.create(0, "b", 6, 6).is_ok(), "and no transaction is");
}

#[test]
fn a_volume_for_a_restore_has_no_root_directory() {
    let cell = Cell::new();
    cell.create(0, "restored", 6, 6).unwrap();
    let volume = cell.volumes.get_any_state(VolumeId(6)).unwrap();
    assert!(volume.status(volume.root()).is_err());
    cell.create(0, "made", 7, 0).unwrap();
    let volume = cell.volumes.get_any_state(VolumeId(7)).unwrap();
    assert!(volume.status(volume.root()).is_ok());
}

#[test]
fn vos_remove_notifies_the_file_service() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    cell.heard.take();
    let transaction = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
    let doomed = volume_flags::DELETE_ON_SALVAGE | volume_flags::OUT_OF_SERVICE;
    cell.set_flags(transaction, doomed).unwrap();
    assert_eq!(cell.delete(transaction), Ok(()));
    assert_eq!(cell.delete(transaction), Err(ENOENT), "once is enough");
    assert_eq!(cell.set_flags(transaction, 0), Err(ENOENT));
    assert_eq!(cell.end(transaction), Ok(0));
    assert_eq!(cell.end(transaction), Err(ENOENT));
    assert_eq!(cell.heard.take(), [5]);
    assert_eq!(cell.file_service(5), Some(AbortCode::VNOVOL));
    assert_eq!(cell.list_one(0, 5), Err(ENODEV));
    assert_eq!(cell.open(5, 0, attach_mode::OFFLINE), Err(AbortCode::VNOVOL));
}

#[test]
fn a_transaction_keeps_others_away() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let transaction = cell.open(5, 0, attach_mode::BUSY).unwrap();
    assert_eq!(cell.open(5, 0, attach_mode::BUSY), Err(AbortCode::VOLSERVOLBUSY));
    assert_eq!(cell.file_service(5), Some(AbortCode::VBUSY));
    assert_eq!(cell.end(transaction), Ok(0));
    assert_eq!(cell.file_service(5), None);
    for (mode, reported) in
        [(attach_mode::OFFLINE, Some(AbortCode::VOFFLINE)), (attach_mode::READ_ONLY, None)]
    {
        let transaction = cell.open(5, 0, mode).unwrap();
        assert_eq!(cell.file_service(5), reported);
        cell.end(transaction).unwrap();
    }
    assert_eq!(cell.heard.take(), [5, 5], "after its creation and after being offline");
}

#[test]
fn transactions_are_refused_without_a_mode_or_a_volume() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    assert_eq!(cell.open(5, 0, 0), Err(EINVAL));
    assert_eq!(cell.open(5, -1, attach_mode::BUSY), Err(EINVAL));
    assert_eq!(cell.open(5, 1, attach_mode::BUSY), Err(AbortCode::VNOVOL), "no such partition");
    assert_eq!(cell.open(5, LARGE, attach_mode::BUSY), Err(AbortCode::VNOVOL), "another partition");
    assert_eq!(cell.open(6, 0, attach_mode::BUSY), Err(AbortCode::VNOVOL));
    assert!(cell.open(5, 0, attach_mode::BUSY).is_ok(), "failures leave nothing behind");
}

#[test]
fn vos_offline_and_online_are_lasting() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    for (flags, reported, in_use) in
        [(volume_flags::OUT_OF_SERVICE, Some(AbortCode::VOFFLINE), 0), (0, None, 1)]
    {
        let transaction = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
        cell.set_flags(transaction, flags).unwrap();
        let got = cell.server.get_flags(&anybody(), vol::GetFlagsRequest { transaction }).unwrap();
        assert_eq!(got.flags, flags);
        cell.end(transaction).unwrap();
        assert_eq!(cell.file_service(5), reported);
        let listed = cell.list_one(0, 5).unwrap();
        assert_eq!((listed.status, listed.in_use), (volume_state::OK, in_use));
    }
    let transaction = cell.open(5, 0, attach_mode::READ_ONLY).unwrap();
    assert_eq!(cell.set_flags(transaction, 0), Err(EROFS));
}

#[test]
fn vos_rename_changes_the_name_and_nothing_that_it_cannot() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let transaction = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
    let request = vol::SetIdsTypesRequest {
        transaction,
        name: "b".into(),
        volume_type: 0,
        parent_id: 5,
        clone_id: 6,
        backup_id: 7,
    };
    let set =
        |request: &vol::SetIdsTypesRequest| cell.server.set_ids_types(&admin(), request.clone()).map(|_| ());
    assert_eq!(set(&request), Ok(()));
    assert_eq!(set(&vol::SetIdsTypesRequest { volume_type: 1, ..request.clone() }), Err(EINVAL));
    assert_eq!(set(&vol::SetIdsTypesRequest { parent_id: 9, ..request.clone() }), Err(EINVAL));
    let nameless = vol::SetIdsTypesRequest { name: "".into(), ..request };
    assert_eq!(set(&nameless), Err(AbortCode::VOLSERBADNAME));
    let name = cell.server.get_name(&anybody(), vol::GetNameRequest { transaction }).unwrap().name;
    assert_eq!(name, "b");
    cell.end(transaction).unwrap();
    let listed = cell.list_one(0, 5).unwrap();
    assert_eq!((listed.clone_id, listed.backup_id, listed.parent_id), (6, 7, 5));
}

#[test]
fn vos_setfields_keeps_other_fields() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let transaction = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
    let set = |info| cell.server.set_info(&admin(), vol::SetInfoRequest { transaction, info }).map(|_| ());
    let status = || cell.server.get_status(&anybody(), vol::GetStatusRequest { transaction }).unwrap().status;
    let before = status();
    assert_eq!(set(unchanged()), Ok(()));
    assert_eq!(status(), before);
    assert_eq!((before.volume_id, before.parent_id, before.max_quota, before.next_unique), (5, 5, 7000, 2));
    assert_eq!((before.creation_date, before.access_date, before.expiration_date), (START, 0, 0));
    let info =
        vol::VolintInfo { max_quota: 0, creation_date: 11, update_date: 12, spare2: 13, ..unchanged() };
    assert_eq!(set(info), Ok(()));
    let after = status();
    assert_eq!((after.max_quota, after.creation_date, after.update_date), (0, 11, 12));
    assert_eq!(set(vol::VolintInfo { max_quota: -2, ..unchanged() }), Err(EINVAL));
    cell.server.set_date(&admin(), vol::SetDateRequest { transaction, new_date: 14 }).unwrap();
    assert_eq!(status().creation_date, 14);
    cell.end(transaction).unwrap();
    assert_eq!(cell.list_one(0, 5).unwrap().spare2, 13);
}

#[test]
fn a_volume_that_moves_away_stays_moved() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let transaction = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
    let request = vol::SetForwardingRequest { transaction, new_site: 0x0a00_0001 };
    cell.server.set_forwarding(&admin(), request).unwrap();
    assert_eq!(cell.heard.take_moved(), [5], "before it can be deleted");
    cell.end(transaction).unwrap();
    assert_eq!(cell.volumes.get_any_state(VolumeId(5)).unwrap().state(), VolumeState::Moved);
    assert_eq!(cell.file_service(5), Some(AbortCode::VMOVED));
}

#[test]
fn vos_status_shows_transactions_latest_first() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    cell.vos_create(LARGE, "b", 6);
    let first = cell.open(5, 0, attach_mode::BUSY).unwrap();
    cell.pass(10);
    let second = cell.open(6, LARGE, attach_mode::OFFLINE).unwrap();
    cell.pass(5);
    cell.set_flags(second, volume_flags::OUT_OF_SERVICE).unwrap();
    let list = cell.server.monitor(&anybody(), vol::MonitorRequest).unwrap().transactions;
    let wanted = vol::TransDebugInfo {
        transaction: second,
        time: START + 15,
        creation_time: START + 10,
        volume_id: 6,
        partition: LARGE,
        attach_flags: attach_mode::OFFLINE,
        volume_flags: volume_flags::OUT_OF_SERVICE as u32,
        last_procedure: "SetFlags".into(),
        ..Default::default()
    };
    assert_eq!(list[0], wanted);
    assert_eq!((list.len(), list[1].transaction, list[1].time), (2, first, START));
}

#[test]
fn idle_transactions_end_and_unfinished_volumes_go() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let made = cell.create(0, "half", 6, 0).unwrap();
    let opened = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
    cell.pass(IDLE_SECONDS_MAX);
    assert_eq!(cell.server.expire_transactions(), 0);
    cell.set_flags(opened, 0).unwrap();
    cell.pass(1);
    assert_eq!(cell.server.expire_transactions(), 1, "the other was used");
    assert_eq!(cell.end(made), Err(ENOENT));
    assert_eq!(cell.list_one(0, 6), Err(ENODEV));
    cell.pass(IDLE_SECONDS_MAX);
    assert_eq!(cell.server.expire_transactions(), 1);
    assert_eq!((cell.end(opened), cell.file_service(5)), (Err(ENOENT), None));
}

#[test]
fn how_long_a_transaction_may_be_idle_can_be_set() {
    for seconds in [120, 3 * IDLE_SECONDS_MAX] {
        let mut cell = Cell::new();
        cell.server = cell.server.with_idle_seconds_max(seconds);
        cell.vos_create(0, "a", 5);
        let opened = cell.open(5, 0, attach_mode::OFFLINE).unwrap();
        cell.pass(seconds);
        assert_eq!(cell.server.expire_transactions(), 0);
        cell.pass(1);
        assert_eq!(cell.server.expire_transactions(), 1);
        assert_eq!((cell.end(opened), cell.file_service(5)), (Err(ENOENT), None));
    }
}

#[test]
fn volumes_left_over_are_hidden_and_deleted_at_the_start() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let left = cell.create(0, "left", 6, 0).unwrap();
    let kept = cell.create(0, "kept", 7, 0).unwrap();
    cell.end(left).unwrap();
    let numbers: Vec<u32> = cell.list(0).iter().map(|entry| entry.volume_id).collect();
    assert_eq!(numbers, [5, 7], "one is busy, one is left over");
    let entry = cell.list_one(0, 6).unwrap();
    assert_eq!((entry.status, entry.name.to_string().as_str()), (0, "V0000000006.vol"));
    let request = vol::ListVolumesRequest { partition: 0, flags: 0 };
    let bare = cell.list_volumes(&anybody(), request).unwrap();
    assert_eq!(bare.iter().map(|entry| entry.volume_id).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(cell.server.delete_unfinished(), 1);
    assert_eq!(cell.list_one(0, 6), Err(ENODEV));
    assert_eq!(cell.end(kept), Ok(0));
}

#[test]
fn vos_zap_deletes_whatever_the_state() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let transaction = cell.open(5, 0, attach_mode::BUSY).unwrap();
    let nuke = |partition, volume_id| {
        cell.server.nuke_volume(&admin(), vol::NukeVolumeRequest { partition, volume_id }).map(|_| ())
    };
    assert_eq!(nuke(300, 5), Err(AbortCode::VOLSERNOVOL));
    assert_eq!(nuke(LARGE, 5), Err(ENOENT));
    assert_eq!(nuke(0, 5), Ok(()));
    assert_eq!(nuke(0, 5), Err(ENOENT));
    assert_eq!(cell.set_flags(transaction, 0), Err(ENOENT));
    assert_eq!(cell.delete(transaction), Err(ENOENT));
    assert_eq!(cell.end(transaction), Ok(0));
    assert!(cell.create(0, "again", 5, 0).is_ok());
}

#[test]
fn partitions_are_listed_and_measured() {
    let cell = Cell::new();
    let old = cell.server.list_partitions(&anybody(), vol::ListPartitionsRequest).unwrap().partitions.ids;
    assert_eq!((old[0], old[1], old[2], old[25]), (0, -1, 2, -1));
    let all = cell.server.x_list_partitions(&anybody(), vol::XListPartitionsRequest).unwrap();
    assert_eq!(all.partitions, [0, 2]);
    let narrow = |name: &str| {
        let request = vol::PartitionInfoRequest { name: name.into() };
        cell.server.partition_info(&anybody(), request).map(|reply| reply.partition)
    };
    let small = narrow("/vicepa").unwrap();
    assert_eq!((small.name.to_string().as_str(), small.free, small.min_free), ("/vicepa", 400, 1000));
    assert_eq!(narrow("/vicepc").unwrap().min_free, i32::MAX);
    for wrong in ["/vicepb", "a", "vicepa", "/vicep", ""] {
        assert_eq!(narrow(wrong), Err(AbortCode::VOLSERILLEGAL_PARTITION), "{wrong}");
    }
    let request = vol::PartitionInfo64Request { name: "/vicepc".into() };
    let wide = cell.server.partition_info64(&anybody(), request).unwrap().partition;
    assert_eq!((wide.free, wide.min_free), (1 << 32, 1 << 33));
    let request = vol::ListVolumesRequest { partition: 1, flags: 1 };
    assert_eq!(cell.list_volumes(&anybody(), request), Err(AbortCode::VOLSERILLEGAL_PARTITION));
}

#[test]
fn only_administrators_change_anything() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let transaction = cell.open(5, 0, attach_mode::BUSY).unwrap();
    let later = [vol::RE_CLONE, vol::DUMP_V2, vol::GET_SIZE, vol::CONVERT_RO_TO_RW_VOLUME];
    let opcodes = [100, 101, 102, 104, 105, 106, 108, 109, 111, 117, 122, 123, 126].into_iter().chain(later);
    for opcode in opcodes {
        let mut wire = u32::to_be_bytes(opcode).to_vec();
        wire.extend(transaction.to_be_bytes());
        wire.resize(400, 0);
        let mut stream = MemoryStream::new(&wire, 1000);
        let outcome = vol::dispatch(&cell.server, &anybody(), &mut stream);
        assert_eq!(outcome, Err(AbortCode::VOLSERBAD_ACCESS), "opcode {opcode}");
    }
    assert_eq!(cell.end(transaction), Ok(0));
}

#[test]
fn unserved_calls_are_refused() {
    let cell = Cell::new();
    cell.vos_create(0, "a", 5);
    let transaction = cell.open(5, 0, attach_mode::BUSY).unwrap();
    let forward = vol::ForwardRequest { transaction, ..Default::default() };
    assert_eq!(cell.server.forward(&admin(), forward), Err(AbortCode::RXGEN_OPCODE));
    let nth = vol::GetNthVolumeRequest { index: 0 };
    assert_eq!(cell.server.get_nth_volume(&admin(), nth), Err(AbortCode::VOLSERNO_OP));
}

proptest! {
    #[test]
    fn any_request_is_answered_or_refused(
        opcode in prop_oneof![99..129_u32, 65536..65550_u32],
        rest in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let cell = Cell::new();
        cell.vos_create(0, "a", 5);
        let mut wire = opcode.to_be_bytes().to_vec();
        wire.extend(rest);
        let mut stream = MemoryStream::new(&wire, 100);
        let _ = vol::dispatch(&cell.server, &admin(), &mut stream);
    }
}
