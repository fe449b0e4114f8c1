//! The protection service.

use crate::argument::{found, host, id, long, own, own_text, text};
use crate::class::Class;
use crate::event::{Event, Shape, bytes_max, decode, procedures};
use afs_idl::pr::*;
use xdr::XdrString;

/// Pairs names with ids, up to the length of the shorter list.
fn pairs(names: &[XdrString], ids: &[i32]) -> Vec<(Vec<u8>, i32)> {
    names.iter().map(|name| name.0.clone()).zip(ids.iter().copied()).collect()
}

procedures! {
    I_NEW_ENTRY Users "AFS_PTS_INewEnt" (q: INewEntryRequest)
        [id("id", q.id), text("name", &q.name), id("owner", q.owner)];
    NEW_ENTRY Users "AFS_PTS_NewEnt" (q: NewEntryRequest, r: NewEntryReply)
        [id("id", r.id), text("name", &q.name), id("owner", q.owner), own("flag", q.flag)];
    ADD_TO_GROUP Users "AFS_PTS_AdToGrp" (q: AddToGroupRequest) [id("group", q.group), id("user", q.user)];
    REMOVE_FROM_GROUP Users "AFS_PTS_RmFmGrp" (q: RemoveFromGroupRequest)
        [id("group", q.group), id("user", q.user)];
    DELETE Users "AFS_PTS_Del" (q: DeleteRequest) [id("id", q.id)];
    SET_MAX Users "AFS_PTS_SetMax" (q: SetMaxRequest) [id("id", q.id), long("group_flag", q.group_flag)];
    CHANGE_ENTRY Users "AFS_PTS_ChgEnt" (q: ChangeEntryRequest)
        [id("id", q.id), text("name", &q.name), long("owner", q.owner), long("new_id", q.new_id)];
    SET_FIELDS_ENTRY Users "AFS_PTS_SetFEnt" (q: SetFieldsEntryRequest) [
        id("id", q.id),
        own("mask", q.mask),
        own("flags", q.flags),
        own("group_quota", q.group_quota),
        own("user_quota", q.user_quota),
    ];
    UPDATE_ENTRY Users "AFS_PTS_UpdEnt" (q: UpdateEntryRequest) [
        id("id", q.id),
        text("name", &q.name),
        own("mask", q.update.mask),
        own("new_id", q.update.id),
        own_text("new_name", &q.update.name),
    ];
    WHERE_IS_IT Lookups "AFS_PTS_WheIsIt" (q: WhereIsItRequest, r: WhereIsItReply)
        [id("id", q.id), long("position", r.position)];
    DUMP_ENTRY Lookups "AFS_PTS_DmpEnt" (q: DumpEntryRequest) [long("position", q.position)];
    NAME_TO_ID Lookups "AFS_PTS_NmToId" (q: NameToIDRequest, r: NameToIDReply)
        [found(pairs(&q.names, &r.ids), false)];
    ID_TO_NAME Lookups "AFS_PTS_IdToNm" (q: IDToNameRequest, r: IDToNameReply)
        [found(pairs(&r.names, &q.ids), true)];
    GET_CPS Lookups "AFS_PTS_GetCPS" (q: GetCPSRequest) [id("id", q.id)];
    GET_CPS2 Lookups "AFS_PTS_GetCPS2" (q: GetCPS2Request) [id("id", q.id), host("host", q.host)];
    GET_HOST_CPS Lookups "AFS_PTS_GetHCPS" (q: GetHostCPSRequest) [host("host", q.host)];
    LIST_MAX Lookups "AFS_PTS_LstMax" (q: ListMaxRequest) [];
    LIST_ENTRY Lookups "AFS_PTS_LstEnt" (q: ListEntryRequest) [id("id", q.id)];
    LIST_ENTRIES Lookups "AFS_PTS_LstEnts" (q: ListEntriesRequest) [long("flags", q.flags)];
    LIST_ELEMENTS Lookups "AFS_PTS_LstEle" (q: ListElementsRequest) [id("id", q.id)];
    LIST_SUPER_GROUPS Lookups "AFS_PTS_LstSGrps" (q: ListSuperGroupsRequest) [id("id", q.id)];
    LIST_OWNED Lookups "AFS_PTS_LstOwn" (q: ListOwnedRequest) [id("id", q.id)];
    IS_A_MEMBER_OF Lookups "AFS_PTS_IsMemOf" (q: IsAMemberOfRequest)
        [long("user", q.user), long("group", q.group)];
}
