//! Compares structures with wire forms derived by hand from the protocol's definitions.

use super::words;
use crate::{bozo, cb, common, fs, pr, vl, vol};
use base::HostUuid;
use std::fmt::Debug;
use xdr::{Decode, Encode, XdrString};

#[track_caller]
fn same<T: Encode + Decode + PartialEq + Debug>(value: &T, wire: &[u8]) {
    assert_eq!(xdr::to_vec(value), wire);
    assert_eq!(xdr::from_slice::<T>(wire).as_ref(), Ok(value));
}

/// Returns the words of a C string in an array.
fn characters(text: &str, length: usize) -> Vec<u32> {
    let mut all: Vec<u32> = text.bytes().map(u32::from).collect();
    all.resize(length, 0);
    all
}

#[test]
fn fetch_status_has_its_21_words_in_order() {
    let status = fs::FetchStatus {
        interface_version: 1,
        file_type: 2,
        link_count: 3,
        length: 4,
        data_version: 5,
        author: 6,
        owner: 7,
        caller_access: 8,
        anonymous_access: 9,
        unix_mode_bits: 10,
        parent_vnode: 11,
        parent_unique: 12,
        residency_mask: 13,
        client_mod_time: 14,
        server_mod_time: 15,
        group: 16,
        sync_counter: 17,
        data_version_high: 18,
        lock_count: 19,
        length_high: 20,
        error_code: 21,
    };
    same(&status, &words(&(1..=21).collect::<Vec<_>>()));
}

#[test]
fn store_status_callback_and_sync_have_their_words() {
    let status = fs::StoreStatus {
        mask: 1,
        client_mod_time: 2,
        owner: 3,
        group: 4,
        unix_mode_bits: 5,
        segment_size: 6,
    };
    same(&status, &words(&[1, 2, 3, 4, 5, 6]));
    same(&fs::CallBack { version: 1, expiration_time: 2, call_back_type: 3 }, &words(&[1, 2, 3]));
    let sync = fs::VolSync { spare1: 1, spare2: 2, spare3: 3, spare4: 4, spare5: 5, spare6: 6 };
    same(&sync, &words(&[1, 2, 3, 4, 5, 6]));
}

#[test]
fn create_file_has_its_arguments_in_order() {
    let request = fs::CreateFileRequest {
        directory: fs::Fid { volume: 1, vnode: 2, unique: 3 },
        name: "abcde".into(),
        status: fs::StoreStatus { mask: 8, unix_mode_bits: 0o644, ..Default::default() },
    };
    let name = [u32::from_be_bytes(*b"abcd"), u32::from_be_bytes(*b"e\0\0\0")];
    same(&request, &words(&[1, 2, 3, 5, name[0], name[1], 8, 0, 0, 0, 0o644, 0]));
    let reply = xdr::to_vec(&fs::CreateFileReply::default());
    assert_eq!(reply.len(), 4 * (3 + 21 + 21 + 3 + 6));
}

#[test]
fn wide_and_narrow_data_calls_differ_in_their_numbers_only() {
    let fid = fs::Fid { volume: 1, vnode: 2, unique: 3 };
    same(&fs::FetchDataRequest { fid, position: 4, length: 5 }, &words(&[1, 2, 3, 4, 5]));
    let wide = fs::FetchData64Request { fid, position: 1 << 32, length: 5 };
    same(&wide, &words(&[1, 2, 3, 1, 0, 0, 5]));
    let status = fs::StoreStatus::default();
    let store = fs::StoreData64Request { fid, status, position: 4, length: 5, file_length: 1 << 33 };
    same(&store, &words(&[1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 5, 2, 0]));
    let store = fs::StoreDataRequest { fid, status, position: 4, length: 5, file_length: 6 };
    same(&store, &words(&[1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5, 6]));
}

#[test]
fn the_old_lock_calls_take_the_sync_in_the_request() {
    assert_eq!(xdr::to_vec(&fs::OldSetLockRequest::default()).len(), 4 * (3 + 1 + 6));
    assert_eq!(xdr::to_vec(&fs::OldSetLockReply), []);
    assert_eq!(xdr::to_vec(&fs::SetLockRequest::default()).len(), 4 * (3 + 1));
    assert_eq!(xdr::to_vec(&fs::SetLockReply::default()).len(), 4 * 6);
}

#[test]
fn statistics_have_their_sizes() {
    assert_eq!(xdr::to_vec(&fs::ViceStatistics::default()).len(), 4 * 45 + 10 * (8 + 32));
    let reply = fs::GetXStatsReply { server_version: 2, time: 3, data: vec![4, -5] };
    same(&reply, &words(&[2, 3, 2, 4, 0xffff_fffb]));
    same(&fs::GetXStatsRequest { client_version: 2, collection: 1 }, &words(&[2, 1]));
    same(&fs::GetStatistics64Reply { statistics: vec![1, 1 << 32] }, &words(&[2, 0, 1, 1, 0]));
    same(&fs::XStatsVersionReply { version: 2 }, &words(&[2]));
    assert_eq!(xdr::to_vec(&fs::FetchVolumeStatus::default()).len(), 4 * 12);
    assert_eq!(xdr::to_vec(&fs::FsCmdInputs::default()).len(), 4 * (1 + 3 + 6 + 200 + 256));
}

#[test]
fn a_uuid_takes_eleven_words() {
    let uuid = HostUuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 200, 11, 12, 13, 14, 15, 16]);
    let wire = [0x0102_0304, 0x0506, 0x0708, 9, 200, 11, 12, 13, 14, 15, 16];
    same(&cb::ProbeUuidRequest { client_uuid: uuid }, &words(&wire));
    let mut signed = wire;
    signed[4] = 0xffff_ffc8;
    assert_eq!(xdr::from_slice(&words(&signed)), Ok(cb::ProbeUuidRequest { client_uuid: uuid }));
}

#[test]
fn a_hosts_addresses_have_three_arrays_of_32() {
    let host = common::InterfaceAddr::new(HostUuid([1; 16]), &[[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]);
    let mut wire = vec![2, 0x0101_0101, 0x0101, 0x0101, 1, 1, 1, 1, 1, 1, 1, 1];
    wire.extend([0x0a00_0001, 0x0a00_0002]);
    wire.resize(12 + 96, 0);
    same(&host, &words(&wire));
    assert_eq!(host.addresses().count(), 2);
    let liar = common::InterfaceAddr { interface_count: 1000, ..host };
    assert_eq!(liar.addresses().count(), 32);
}

#[test]
fn a_cache_entrys_fields_have_their_places() {
    assert_eq!(xdr::to_vec(&cb::DbLock::default()).len(), 4 * (16 + 8));
    assert_eq!(xdr::to_vec(&cb::DbCacheEntry::default()).len(), 4 * (2 + 3 + 2 + 8 + 7));
    assert_eq!(xdr::to_vec(&cb::DbCacheEntry64::default()).len(), 4 * (2 + 3 + 3 + 8 + 7));
}

#[test]
fn a_location_entry_has_65_words_of_name() {
    let mut wire = characters("root.cell", 65);
    wire.extend([2]);
    let mut entry = vl::NVldbEntry { name: "root.cell".into(), server_count: 2, ..Default::default() };
    for (place, base) in [(0, 0x0a00_0000), (1, 10), (2, 20)] {
        let numbers: [u32; 13] = std::array::from_fn(|i| base + i as u32);
        match place {
            0 => entry.server_number = numbers,
            1 => entry.server_partition = numbers.map(|n| n as i32),
            _ => entry.server_flags = numbers.map(|n| n as i32),
        }
        wire.extend(numbers);
    }
    entry.volume_id = [7, 8, 9];
    entry.clone_id = 10;
    entry.flags = 0x3000;
    entry.match_index = 1;
    wire.extend([7, 8, 9, 10, 0x3000, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    same(&entry, &words(&wire));
}

#[test]
fn a_location_entry_by_uuid_has_eleven_words_a_site() {
    let mut entry = vl::UVldbEntry { name: "v".into(), server_count: 1, ..Default::default() };
    entry.server_uuid[0] = HostUuid([2; 16]);
    entry.server_unique[0] = 3;
    entry.server_partition[0] = 4;
    entry.server_flags[0] = 5;
    entry.volume_id = [6, 7, 8];
    let mut wire = characters("v", 65);
    wire.extend([1, 0x0202_0202, 0x0202, 0x0202, 2, 2, 2, 2, 2, 2, 2, 2]);
    for first in [3, 4, 5] {
        wire.resize(if first == 3 { 66 + 13 * 11 } else { wire.len() + 12 }, 0);
        wire.push(first);
    }
    wire.resize(wire.len() + 12, 0);
    wire.extend([6, 7, 8]);
    wire.resize(wire.len() + 2 + 9, 0);
    same(&entry, &words(&wire));
}

#[test]
fn the_oldest_location_entry_has_eight_sites() {
    assert_eq!(xdr::to_vec(&vl::VldbEntry::default()).len(), 4 * (65 + 2 + 24 + 3 + 2));
    assert_eq!(xdr::to_vec(&vl::VldbUpdateEntry::default()).len(), 4 * (1 + 65 + 6 + 48));
    assert_eq!(xdr::to_vec(&vl::GetStatsReply::default()).len(), 4 * (1 + 50 + 50 + 5 + 10));
    let list = vl::LinkedListReply { entry_count: 1, entries: vec![vl::VldbEntry::default()] };
    let wire = xdr::to_vec(&list);
    assert_eq!(wire.len(), 4 * (1 + 1 + 96 + 1));
    assert_eq!((wire[7], wire[wire.len() - 1]), (1, 0), "a flag before the element, one at the end");
}

#[test]
fn a_protection_entry_has_64_words_of_name() {
    let entry = pr::CheckEntry {
        flags: 1,
        id: -204,
        owner: 3,
        creator: 4,
        group_quota: 5,
        user_quota: 6,
        count: 7,
        reserved: [8, 9, 10, 11, 12],
        name: "system:administrators".into(),
    };
    let mut wire = vec![1, 0xffff_ff34];
    wire.extend(3..=12);
    wire.extend(characters("system:administrators", 64));
    same(&entry, &words(&wire));
    assert_eq!(xdr::to_vec(&pr::DebugEntry::default()).len(), 4 * (4 + 5 + 10 + 13 + 64));
    assert_eq!(xdr::to_vec(&pr::PrUpdateEntry::default()).len(), 4 * (8 + 5 + 64));
}

#[test]
fn names_in_lists_are_arrays_and_alone_they_are_strings() {
    let mut wire = vec![1];
    wire.extend(characters("ab", 64));
    same(&pr::NameToIDRequest { names: vec!["ab".into()] }, &words(&wire));
    let alone = pr::INewEntryRequest { name: "ab".into(), id: 1, owner: 2 };
    same(&alone, &words(&[2, u32::from_be_bytes(*b"ab\0\0"), 1, 2]));
    same(&pr::ListOwnedReply { list: vec![-1], last: 0 }, &words(&[1, 0xffff_ffff, 0]));
    same(&pr::ListOwnedRequest { id: 1, last: 2 }, &words(&[1, 2]));
}

#[test]
fn a_listed_volume_has_its_words_in_order() {
    let info = vol::VolintInfo {
        name: "root.afs".into(),
        volume_id: 1,
        volume_type: 2,
        backup_id: 3,
        parent_id: 4,
        clone_id: 5,
        status: 6,
        copy_date: 7,
        in_use: 8,
        needs_salvaged: 9,
        destroy_me: 10,
        creation_date: 11,
        access_date: 12,
        update_date: 13,
        backup_date: 14,
        day_use: 15,
        file_count: 16,
        max_quota: 17,
        size: 18,
        flags: 19,
        spare0: 20,
        spare1: 21,
        spare2: 22,
        spare3: 23,
    };
    let mut wire = characters("root.afs", 32);
    wire.extend(1..=23);
    same(&info, &words(&wire));
    assert_eq!(xdr::to_vec(&vol::VolintXInfo::default()).len(), 4 * (32 + 16 + 8 + 24));
    assert_eq!(xdr::to_vec(&vol::TransDebugInfo::default()).len(), 4 * (6 + 3 + 30 + 5));
    assert_eq!(xdr::to_vec(&vol::VolserStatus::default()).len(), 4 * 16);
    assert_eq!(xdr::to_vec(&vol::DiskPartition::default()).len(), 4 * (64 + 4));
    assert_eq!(xdr::to_vec(&vol::DiskPartition64::default()).len(), 4 * (512 + 1) + 24);
}

#[test]
fn create_volume_has_the_id_both_ways() {
    let request = vol::CreateVolumeRequest {
        partition: 1,
        name: "ab".into(),
        volume_type: 0,
        parent_id: 3,
        volume_id: 4,
    };
    same(&request, &words(&[1, 2, u32::from_be_bytes(*b"ab\0\0"), 0, 3, 4]));
    same(&vol::CreateVolumeReply { volume_id: 4, transaction: 5 }, &words(&[4, 5]));
}

#[test]
fn an_overseers_key_takes_a_word_a_byte() {
    let reply = bozo::ListKeysReply {
        version: 3,
        key: bozo::Key { data: [1, 2, 3, 4, 5, 6, 7, 255] },
        info: bozo::KeyInfo { modified_seconds: 8, modified_microseconds: 9, checksum: 10, spare2: 11 },
    };
    same(&reply, &words(&[3, 1, 2, 3, 4, 5, 6, 7, 255, 8, 9, 10, 11]));
    assert_eq!(xdr::to_vec(&bozo::Status::default()).len(), 4 * 17);
    let at = bozo::NetKTime { mask: 7, hour: 4, minute: 0, second: 0, day: 0 };
    same(&bozo::GetRestartTimeReply { restart_time: at }, &words(&[7, 4, 0, 0, 0]));
}

#[test]
fn a_string_too_long_is_refused() {
    let long = XdrString(vec![b'x'; 257]);
    let request = fs::LookupRequest { name: long, ..Default::default() };
    assert!(xdr::from_slice::<fs::LookupRequest>(&xdr::to_vec(&request)).is_err());
    let fids = vec![fs::Fid::default(); 51];
    let bulk = fs::BulkStatusRequest { fids };
    assert!(xdr::from_slice::<fs::BulkStatusRequest>(&xdr::to_vec(&bulk)).is_err());
}
