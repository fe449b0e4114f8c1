//! Cellar's own service. OpenAFS has no names for its calls.

use crate::argument::{long, own, text};
use crate::class::Class;
use crate::event::{Event, Shape, bytes_max, decode, procedures};
use afs_idl::cellar::*;

procedures! {
    CREATE_SNAPSHOT Volumes "" (q: CreateSnapshotRequest) [long("volume", q.volume), text("name", &q.name)];
    REMOVE_SNAPSHOT Volumes "" (q: RemoveSnapshotRequest) [long("volume", q.volume), text("name", &q.name)];
    ROLL_BACK_VOLUME Volumes "" (q: RollBackVolumeRequest) [long("volume", q.volume), text("name", &q.name)];
    SET_SNAPSHOT_POLICY Volumes "" (q: SetSnapshotPolicyRequest) [
        long("volume", q.volume),
        own("hourly", q.policy.hourly),
        own("daily", q.policy.daily),
        own("weekly", q.policy.weekly),
        own("monthly", q.policy.monthly),
    ];
    SET_VOLUME_POLICY Volumes "" (q: SetVolumePolicyRequest)
        [long("volume", q.volume), text("compression", &q.compression)];
    PURGE_VOLUME_CACHE Server "" (q: PurgeVolumeCacheRequest) [long("volume", q.volume)];
    START_CHECK Server "" (q: StartCheckRequest) [long("partition", q.partition)];
    STOP_CHECK Server "" (q: StopCheckRequest) [long("partition", q.partition)];
    SET_LOGGED_EVENTS Server "" (q: SetLoggedEventsRequest) [own("per_second", q.per_second)];
    LIST_SNAPSHOTS Lookups "" (q: ListSnapshotsRequest) [long("volume", q.volume)];
    GET_SNAPSHOT_SPACE Lookups "" (q: GetSnapshotSpaceRequest)
        [long("volume", q.volume), text("name", &q.name)];
    GET_SNAPSHOT_POLICY Lookups "" (q: GetSnapshotPolicyRequest) [long("volume", q.volume)];
    GET_VOLUME_POLICY Lookups "" (q: GetVolumePolicyRequest) [long("volume", q.volume)];
    GET_DIRECTORY_TOTALS Status "" (q: GetDirectoryTotalsRequest)
        [long("volume", q.volume), own("vnode", q.vnode), own("unique", q.unique)];
    LIST_SUBDIRECTORIES Status "" (q: ListSubdirectoriesRequest)
        [long("volume", q.volume), own("vnode", q.vnode), own("unique", q.unique)];
    GET_FIGURES Lookups "" (q: GetFiguresRequest) [own("table", q.table), own("volume", q.volume)];
    GET_SLOW_CALLS Lookups "" (q: GetSlowCallsRequest) [];
}
