//! The file service. In OpenAFS's format all of these start with the caller's id, which [`crate::text`] adds.

use crate::argument::{acl, fid, fids, int, long, own, own_text, text};
use crate::class::Class;
use crate::event::{Event, Shape, bytes_max, decode, procedures};
use afs_idl::fs::*;

procedures! {
    FETCH_DATA Data "AFS_SRX_FchData" (q: FetchDataRequest)
        [fid("fid", q.fid), own("position", q.position), own("length", q.length)];
    FETCH_DATA64 Data "AFS_SRX_FchData" (q: FetchData64Request)
        [fid("fid", q.fid), own("position", q.position), own("length", q.length)];
    STORE_DATA Data "AFS_SRX_StData" (q: StoreDataRequest)
        [fid("fid", q.fid), own("position", q.position), own("length", q.length)];
    STORE_DATA64 Data "AFS_SRX_StData" (q: StoreData64Request)
        [fid("fid", q.fid), own("position", q.position as i64), own("length", q.length as i64)];
    FETCH_ACL Status "AFS_SRX_FchACL" (q: FetchACLRequest, r: FetchACLReply)
        [fid("fid", q.fid), acl("acl", &r.access_list)];
    FETCH_STATUS Status "AFS_SRX_FchStat": Fid (q: FetchStatusRequest) [fid("fid", q.fid)];
    BULK_STATUS Status "AFS_SRX_BFchSta" (q: BulkStatusRequest) [fids("fids", &q.fids)];
    INLINE_BULK_STATUS Status "AFS_SRX_BIFchSt" (q: InlineBulkStatusRequest) [fids("fids", &q.fids)];
    LOOKUP Status "" (q: LookupRequest, r: LookupReply)
        [fid("directory", q.directory), text("name", &q.name), fid("fid", r.fid)];
    STORE_ACL Rights "AFS_SRX_StACL" (q: StoreACLRequest) [fid("fid", q.fid), acl("acl", &q.access_list)];
    OLD_STORE_ACL Rights "AFS_SRX_StACL" (q: OldStoreACLRequest)
        [fid("fid", q.fid), acl("acl", &q.access_list)];
    STORE_STATUS Rights "AFS_SRX_StStat" (q: StoreStatusRequest) [
        fid("fid", q.fid),
        own("mask", q.status.mask),
        own("owner", q.status.owner),
        own("group", q.status.group),
        own("mode", q.status.unix_mode_bits),
    ];
    FLUSH_CPS Rights "AFS_SRX_FlusCPS" (q: FlushCPSRequest)
        [own("users", q.users.len() as i64), own("hosts", q.addresses.len() as i64)];
    REMOVE_FILE Names "AFS_SRX_RmFile" (q: RemoveFileRequest)
        [fid("directory", q.directory), text("name", &q.name)];
    CREATE_FILE Names "AFS_SRX_CrFile" (q: CreateFileRequest, r: CreateFileReply)
        [fid("directory", q.directory), text("name", &q.name), fid("fid", r.fid)];
    RENAME Names "AFS_SRX_RNmFile" (q: RenameRequest) [
        fid("directory", q.old_directory),
        text("name", &q.old_name),
        fid("new_directory", q.new_directory),
        text("new_name", &q.new_name),
    ];
    SYMLINK Names "AFS_SRX_SymLink" (q: SymlinkRequest, r: SymlinkReply) [
        fid("directory", q.directory),
        text("name", &q.name),
        fid("fid", r.fid),
        text("contents", &q.contents),
    ];
    DFS_SYMLINK Names "AFS_SRX_SymLink" (q: DFSSymlinkRequest, r: DFSSymlinkReply) [
        fid("directory", q.directory),
        text("name", &q.name),
        fid("fid", r.fid),
        text("contents", &q.contents),
    ];
    LINK Names "AFS_SRX_Link" (q: LinkRequest)
        [fid("directory", q.directory), text("name", &q.name), fid("fid", q.existing)];
    MAKE_DIR Names "AFS_SRX_MakeDir" (q: MakeDirRequest, r: MakeDirReply)
        [fid("directory", q.directory), text("name", &q.name), fid("fid", r.fid)];
    REMOVE_DIR Names "AFS_SRX_RmDir" (q: RemoveDirRequest)
        [fid("directory", q.directory), text("name", &q.name)];
    SET_LOCK Locks "AFS_SRX_SetLock" (q: SetLockRequest) [fid("fid", q.fid), long("type", q.lock_type)];
    OLD_SET_LOCK Locks "AFS_SRX_SetLock" (q: OldSetLockRequest)
        [fid("fid", q.fid), long("type", q.lock_type)];
    EXTEND_LOCK Locks "AFS_SRX_ExtLock": Fid (q: ExtendLockRequest) [fid("fid", q.fid)];
    OLD_EXTEND_LOCK Locks "AFS_SRX_ExtLock" (q: OldExtendLockRequest) [fid("fid", q.fid)];
    RELEASE_LOCK Locks "AFS_SRX_RelLock": Fid (q: ReleaseLockRequest) [fid("fid", q.fid)];
    OLD_RELEASE_LOCK Locks "AFS_SRX_RelLock" (q: OldReleaseLockRequest) [fid("fid", q.fid)];
    GET_STATISTICS Status "AFS_SRX_GetStats" (q: GetStatisticsRequest) [];
    GET_STATISTICS64 Status "AFS_SRX_GetStats" (q: GetStatistics64Request) [];
    X_STATS_VERSION Status "AFS_SRX_XStatsVer" (q: XStatsVersionRequest) [];
    GET_X_STATS Status "AFS_SRX_GetXStats" (q: GetXStatsRequest)
        [int("version", q.client_version), int("collection", q.collection)];
    GET_VOLUME_STATUS Status "AFS_SRX_GetVolS" (q: GetVolumeStatusRequest, r: GetVolumeStatusReply)
        [long("volume", q.volume_id), text("name", &r.name)];
    SET_VOLUME_STATUS Volumes "AFS_SRX_SetVolS" (q: SetVolumeStatusRequest) [
        long("volume", q.volume_id),
        text("name", &q.name),
        own("mask", q.status.mask),
        own("min_quota", q.status.min_quota),
        own("max_quota", q.status.max_quota),
        own_text("offline_message", &q.offline_message),
        own_text("message_of_the_day", &q.message_of_the_day),
    ];
}
