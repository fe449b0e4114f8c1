//! The volume service.

use crate::argument::{Forward, forwards, host, long, own, own_text, text};
use crate::class::Class;
use crate::event::{Event, Shape, bytes_max, decode, procedures};
use afs_idl::vol::*;

/// Returns each destination with its result; the reply of a call that failed as a whole has no results.
fn destinations(request: &ForwardMultipleRequest, reply: &ForwardMultipleReply) -> Vec<Forward> {
    let results = reply.results.iter().copied().chain(std::iter::repeat(0));
    let forward = |(replica, code): (&Replica, i32)| Forward {
        to: replica.server.host.into(),
        transaction: replica.transaction,
        code,
    };
    request.destinations.iter().zip(results).map(forward).collect()
}

procedures! {
    CREATE_VOLUME Volumes "AFS_VS_CrVol" (q: CreateVolumeRequest, r: CreateVolumeReply) [
        long("transaction", r.transaction),
        long("volume", if r.volume_id == 0 { q.volume_id } else { r.volume_id }),
        text("name", &q.name),
        long("type", q.volume_type),
        long("parent", q.parent_id),
        own("partition", q.partition),
    ];
    DELETE_VOLUME Volumes "AFS_VS_DelVol" (q: DeleteVolumeRequest) [long("transaction", q.transaction)];
    NUKE_VOLUME Volumes "AFS_VS_NukVol" (q: NukeVolumeRequest)
        [long("volume", q.volume_id), own("partition", q.partition)];
    RESTORE Volumes "AFS_VS_Restore" (q: RestoreRequest)
        [long("transaction", q.transaction), own_text("name", &q.cookie.name)];
    FORWARD Volumes "AFS_VS_Forward" (q: ForwardRequest) [
        long("transaction", q.transaction),
        host("to", q.destination.host),
        long("to_transaction", q.destination_transaction),
    ];
    FORWARD_MULTIPLE Volumes "AFS_VS_Forward" (q: ForwardMultipleRequest, r: ForwardMultipleReply)
        [long("transaction", q.transaction), forwards("destinations", destinations(&q, &r))];
    DUMP Volumes "AFS_VS_Dump" (q: DumpRequest)
        [long("transaction", q.transaction), own("from_date", q.from_date)];
    DUMP_V2 Volumes "AFS_VS_Dump" (q: DumpV2Request)
        [long("transaction", q.transaction), own("from_date", q.from_date)];
    TRANS_CREATE Volumes "AFS_VS_TransCr" (q: TransCreateRequest, r: TransCreateReply) [
        long("transaction", r.transaction),
        long("volume", q.volume_id),
        own("partition", q.partition),
        own("flags", q.flags),
    ];
    END_TRANS Volumes "AFS_VS_EndTrn" (q: EndTransRequest) [long("transaction", q.transaction)];
    CLONE_VOLUME Volumes "AFS_VS_Clone" (q: CloneVolumeRequest, r: CloneVolumeReply) [
        long("transaction", q.transaction),
        long("purged_volume", q.purge_volume_id),
        text("name", &q.new_name),
        long("type", q.new_type),
        long("volume", if r.new_volume_id == 0 { q.new_volume_id } else { r.new_volume_id }),
    ];
    RE_CLONE Volumes "AFS_VS_ReClone" (q: ReCloneRequest)
        [long("transaction", q.transaction), long("clone", q.clone_id)];
    SET_FLAGS Volumes "AFS_VS_SetFlgs" (q: SetFlagsRequest)
        [long("transaction", q.transaction), long("flags", q.flags)];
    SET_FORWARDING Volumes "AFS_VS_SetForw" (q: SetForwardingRequest)
        [long("transaction", q.transaction), host("to", q.new_site)];
    SET_IDS_TYPES Volumes "AFS_VS_SetIdTy" (q: SetIdsTypesRequest) [
        long("transaction", q.transaction),
        text("name", &q.name),
        long("type", q.volume_type),
        long("parent", q.parent_id),
        long("clone", q.clone_id),
        long("backup", q.backup_id),
    ];
    SET_DATE Volumes "AFS_VS_SetDate" (q: SetDateRequest)
        [long("transaction", q.transaction), long("date", q.new_date)];
    SET_INFO Volumes "AFS_VS_SetInfo" (q: SetInfoRequest)
        [long("transaction", q.transaction), own("max_quota", q.info.max_quota)];
    SIGNAL_RESTORE Volumes "AFS_VS_SigRst" (q: SignalRestoreRequest) [own_text("name", &q.name)];
    CONVERT_RO_TO_RW_VOLUME Volumes "" (q: ConvertRoToRwVolumeRequest)
        [long("volume", q.volume_id), own("partition", q.partition)];
    SPLIT_VOLUME Volumes "" (q: SplitVolumeRequest)
        [long("volume", q.volume_id), long("new_volume", q.new_volume_id), own("vnode", q.vnode)];
    PARTITION_INFO Lookups "AFS_VS_ParInf" (q: PartitionInfoRequest) [text("partition", &q.name)];
    PARTITION_INFO64 Lookups "AFS_VS_ParInf" (q: PartitionInfo64Request) [text("partition", &q.name)];
    GET_NTH_VOLUME Lookups "AFS_VS_GetNVol" (q: GetNthVolumeRequest, r: GetNthVolumeReply)
        [long("volume", r.volume_id)];
    GET_FLAGS Lookups "AFS_VS_GetFlgs" (q: GetFlagsRequest) [long("transaction", q.transaction)];
    GET_STATUS Lookups "AFS_VS_GetStat" (q: GetStatusRequest) [long("transaction", q.transaction)];
    GET_NAME Lookups "AFS_VS_GetName" (q: GetNameRequest) [long("transaction", q.transaction)];
    GET_SIZE Lookups "" (q: GetSizeRequest) [long("transaction", q.transaction)];
    LIST_PARTITIONS Lookups "AFS_VS_ListPar" (q: ListPartitionsRequest) [];
    X_LIST_PARTITIONS Lookups "AFS_VS_ListPar" (q: XListPartitionsRequest) [];
    LIST_ONE_VOLUME Lookups "AFS_VS_Lst1Vol" (q: ListOneVolumeRequest) [long("volume", q.volume_id)];
    X_LIST_ONE_VOLUME Lookups "AFS_VS_XLst1Vl" (q: XListOneVolumeRequest) [long("volume", q.volume_id)];
    LIST_VOLUMES Lookups "AFS_VS_ListVol" (q: ListVolumesRequest) [own("partition", q.partition)];
    X_LIST_VOLUMES Lookups "AFS_VS_XLstVol" (q: XListVolumesRequest) [own("partition", q.partition)];
    MONITOR Lookups "AFS_VS_Monitor" (q: MonitorRequest) [];
}
