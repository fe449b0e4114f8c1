//! The basic overseer. Of AddKey only the version is read: the key must not be recorded.

use crate::argument::{long, own, own_text, text};
use crate::class::Class;
use crate::event::{Event, Shape, bytes_max, decode, procedures};
use afs_idl::bozo::*;

procedures! {
    SET_RESTART_TIME Server "AFS_BOS_SetReSt" (q: SetRestartTimeRequest) [own("kind", q.kind)];
    EXEC Server "AFS_BOS_Exec" (q: ExecRequest) [text("command", &q.command)];
    INSTALL Server "AFS_BOS_Inst" (q: InstallRequest) [text("path", &q.path), own("size", q.size)];
    UN_INSTALL Server "AFS_BOS_UnInst" (q: UnInstallRequest) [text("path", &q.path)];
    SET_CELL_NAME Server "AFS_BOS_SetCell" (q: SetCellNameRequest) [text("name", &q.name)];
    ADD_CELL_HOST Server "AFS_BOS_AddHst" (q: AddCellHostRequest) [text("name", &q.name)];
    DELETE_CELL_HOST Server "AFS_BOS_DelHst" (q: DeleteCellHostRequest) [text("name", &q.name)];
    ADD_KEY Server "AFS_BOS_AddKey" keeps 8 (version: i32) [own("version", version)];
    DELETE_KEY Server "AFS_BOS_DelKey" (q: DeleteKeyRequest) [own("version", q.version)];
    LIST_KEYS Server "AFS_BOS_LstKey" (q: ListKeysRequest) [own("index", q.index)];
    SET_NO_AUTH_FLAG Server "AFS_BOS_SetNoAu" (q: SetNoAuthFlagRequest) [long("flag", q.flag)];
    ADD_S_USER Server "AFS_BOS_AddSUsr" (q: AddSUserRequest) [own_text("name", &q.name)];
    DELETE_S_USER Server "AFS_BOS_DelSUsr" (q: DeleteSUserRequest) [own_text("name", &q.name)];
    CREATE_BNODE Server "AFS_BOS_CreBnod" (q: CreateBnodeRequest)
        [own_text("type", &q.instance_type), own_text("instance", &q.instance)];
    DELETE_BNODE Server "AFS_BOS_DelBnod" (q: DeleteBnodeRequest) [text("instance", &q.instance)];
    SET_STATUS Server "AFS_BOS_SetStat" (q: SetStatusRequest)
        [text("instance", &q.instance), own("status", q.status)];
    SET_T_STATUS Server "AFS_BOS_SetTSta" (q: SetTStatusRequest)
        [text("instance", &q.instance), own("status", q.status)];
    SHUTDOWN_ALL Server "AFS_BOS_ShtdAll" (q: ShutdownAllRequest) [];
    RESTART_ALL Server "AFS_BOS_ReStAll" (q: RestartAllRequest) [];
    STARTUP_ALL Server "AFS_BOS_StartAl" (q: StartupAllRequest) [];
    WAIT_ALL Server "AFS_BOS_WaitAll" (q: WaitAllRequest) [];
    RE_BOZO Server "AFS_BOS_ReBos" (q: ReBozoRequest) [];
    RESTART Server "AFS_BOS_ReStart" (q: RestartRequest) [text("instance", &q.instance)];
    PRUNE Server "AFS_BOS_PrnLog" (q: PruneRequest) [own("flags", q.flags)];
    SET_RESTRICTED_MODE Server "" (q: SetRestrictedModeRequest) [long("mode", q.mode)];
    GET_LOG Lookups "AFS_BOS_GetLog" (q: GetLogRequest) [own_text("name", &q.name)];
    LIST_S_USERS Lookups "AFS_BOS_LstSUsr" (q: ListSUsersRequest) [own("index", q.index)];
}
