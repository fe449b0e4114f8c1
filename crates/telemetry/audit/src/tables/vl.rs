//! The volume location service.

use crate::argument::{long, own, own_host, own_text, text};
use crate::class::Class;
use crate::event::{Event, Shape, bytes_max, decode, procedures};
use afs_idl::vl::*;

procedures! {
    CREATE_ENTRY Volumes "AFS_VL_CreEnt" (q: CreateEntryRequest)
        [text("name", &q.new_entry.name), own("volume", q.new_entry.volume_id[0])];
    CREATE_ENTRY_N Volumes "AFS_VL_CreEnt" (q: CreateEntryNRequest)
        [text("name", &q.new_entry.name), own("volume", q.new_entry.volume_id[0])];
    CREATE_ENTRY_U Volumes "" (q: CreateEntryURequest)
        [text("name", &q.new_entry.name), own("volume", q.new_entry.volume_id[0])];
    DELETE_ENTRY Volumes "AFS_VL_DelEnt" (q: DeleteEntryRequest) [long("volume", q.volume_id)];
    GET_NEW_VOLUME_ID Volumes "AFS_VL_GetNVlID" (q: GetNewVolumeIdRequest, r: GetNewVolumeIdReply)
        [own("count", q.bump_count), own("volume", r.new_volume_id)];
    REPLACE_ENTRY Volumes "AFS_VL_RepEnt" (q: ReplaceEntryRequest)
        [long("volume", q.volume_id), own_text("name", &q.new_entry.name)];
    REPLACE_ENTRY_N Volumes "AFS_VL_RepEnt" (q: ReplaceEntryNRequest)
        [long("volume", q.volume_id), own_text("name", &q.new_entry.name)];
    REPLACE_ENTRY_U Volumes "" (q: ReplaceEntryURequest)
        [long("volume", q.volume_id), own_text("name", &q.new_entry.name)];
    UPDATE_ENTRY Volumes "AFS_VL_UpdEnt" (q: UpdateEntryRequest)
        [long("volume", q.volume_id), own("mask", q.update.mask)];
    UPDATE_ENTRY_BY_NAME Volumes "AFS_VL_UpdEnt" (q: UpdateEntryByNameRequest)
        [long("volume", -1), own_text("name", &q.volume_name), own("mask", q.update.mask)];
    SET_LOCK Volumes "AFS_VL_SetLck" (q: SetLockRequest)
        [long("volume", q.volume_id), own("operation", q.operation)];
    RELEASE_LOCK Volumes "AFS_VL_RelLck" (q: ReleaseLockRequest) [long("volume", q.volume_id)];
    CHANGE_ADDR Volumes "AFS_VL_ChgAdd" (q: ChangeAddrRequest)
        [long("old_address", q.old_address), long("new_address", q.new_address)];
    REGISTER_ADDRS Volumes "" (q: RegisterAddrsRequest) [
        own("addresses", q.addresses.len() as i64),
        own_host("first_address", q.addresses.first().copied().unwrap_or_default()),
    ];
    LIST_ENTRY Lookups "AFS_VL_ListEnt" (q: ListEntryRequest) [long("previous_index", q.previous_index)];
    LIST_ENTRY_N Lookups "AFS_VL_ListEntN" (q: ListEntryNRequest)
        [long("previous_index", q.previous_index)];
    LIST_ATTRIBUTES Lookups "AFS_VL_ListAttr" (q: ListAttributesRequest) [];
    LIST_ATTRIBUTES_N Lookups "AFS_VL_ListAttrN" (q: ListAttributesNRequest) [];
    LIST_ATTRIBUTES_N2 Lookups "AFS_VL_ListAttrN2" (q: ListAttributesN2Request) [];
    LINKED_LIST Lookups "AFS_VL_LinkList" (q: LinkedListRequest) [];
    LINKED_LIST_N Lookups "AFS_VL_LinkListN" (q: LinkedListNRequest) [];
    GET_STATS Lookups "AFS_VL_GetStats" (q: GetStatsRequest) [];
    GET_ENTRY_BY_ID Lookups "" (q: GetEntryByIDRequest) [long("volume", q.volume_id)];
    GET_ENTRY_BY_IDN Lookups "" (q: GetEntryByIDNRequest) [long("volume", q.volume_id)];
    GET_ENTRY_BY_IDU Lookups "" (q: GetEntryByIDURequest) [long("volume", q.volume_id)];
    GET_ENTRY_BY_NAME_O Lookups "" (q: GetEntryByNameORequest) [text("name", &q.volume_name)];
    GET_ENTRY_BY_NAME_N Lookups "" (q: GetEntryByNameNRequest) [text("name", &q.volume_name)];
    GET_ENTRY_BY_NAME_U Lookups "" (q: GetEntryByNameURequest) [text("name", &q.volume_name)];
    LIST_ENTRY_U Lookups "" (q: ListEntryURequest) [];
    LIST_ATTRIBUTES_U Lookups "" (q: ListAttributesURequest) [];
    LINKED_LIST_U Lookups "" (q: LinkedListURequest) [];
    GET_ADDRS Lookups "" (q: GetAddrsRequest) [];
    GET_ADDRS_U Lookups "" (q: GetAddrsURequest) [];
}
