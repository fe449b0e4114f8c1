//! Opens transactions, creates volumes and deletes them.

use crate::apart;
use crate::codes::{self, E2BIG, EINVAL, ENOENT};
use crate::server::{DESTROY_ME, VolumeServer};
use crate::transactions::{Refusal, Use};
use afs_idl::vol::{
    CreateVolumeReply, CreateVolumeRequest, NukeVolumeRequest, TransCreateRequest, attach_mode,
};
use base::{AbortCode, PartitionId, VolumeId, VolumeName, VolumeType};
use events::current;
use std::sync::Arc;
use tracing::info;
use volume::{NewVolume, Volume};
use xdr::XdrString;

/// Initial quota of a new volume in KiB.
const NEW_QUOTA_KIB: u64 = 5000;

/// Attach modes, of which a transaction must specify at least one.
const ATTACH_MODES: i32 =
    attach_mode::CREATE | attach_mode::BUSY | attach_mode::READ_ONLY | attach_mode::OFFLINE;

/// AFSVolTransCreate. Returns the transaction's number.
pub(crate) fn open(server: &VolumeServer, request: &TransCreateRequest) -> Result<i32, AbortCode> {
    if request.flags & ATTACH_MODES == 0 || request.partition < 0 {
        return Err(EINVAL);
    }
    // A partition that this server lacks has no volumes.
    let partition = server.partition(request.partition).map_err(|_| AbortCode::VNOVOL)?;
    let id = VolumeId(request.volume_id);
    let used = begin(server, id, partition, request.flags, "TransCreate")?;
    match find(server, id, partition) {
        Ok(volume) => used.attach(&volume),
        Err(code) => {
            used.end();
            return Err(code);
        }
    }
    Ok(used.id())
}

pub(crate) fn begin<'a>(
    server: &'a VolumeServer,
    volume: VolumeId,
    partition: PartitionId,
    flags: i32,
    procedure: &'static str,
) -> Result<Use<'a>, AbortCode> {
    let begun = server.transactions().begin(volume, partition, flags, procedure);
    begun.map_err(|refusal| match refusal {
        Refusal::Busy => AbortCode::VOLSERVOLBUSY,
        Refusal::TooMany => AbortCode::VOLSERNO_MEMORY,
    })
}

pub(crate) fn find(
    server: &VolumeServer,
    id: VolumeId,
    partition: PartitionId,
) -> Result<Arc<Volume>, AbortCode> {
    server.volumes().find_on(id, partition).map_err(|error| codes::of(&error))
}

/// AFSVolCreateVolume: creates a volume that is marked for destruction and out of service until SetFlags
/// changes that. Only a read-write volume whose parent is given as itself gets no root directory, because it
/// waits for a restore.
pub(crate) fn create(
    server: &VolumeServer,
    request: &CreateVolumeRequest,
) -> Result<CreateVolumeReply, AbortCode> {
    let name = volume_name(&request.name)?;
    let partition = server.partition(request.partition)?;
    let kind = kind(request.volume_type)?;
    let id = VolumeId(request.volume_id);
    if id == VolumeId(0) {
        return Err(E2BIG);
    }
    let waits_for_restore = request.parent_id == id.0 && kind == VolumeType::ReadWrite;
    let new = NewVolume {
        id,
        name,
        kind,
        parent: VolumeId(request.parent_id),
        quota_max_kib: NEW_QUOTA_KIB,
        with_root: !waits_for_restore,
        in_service: false,
        destroy_me: DESTROY_ME,
        now: server.now(),
    };
    let used = begin(server, id, partition, 0, "CreateVolume")?;
    match apart::create(server, partition, &new) {
        Ok(volume) => used.attach(&volume),
        Err(code) => {
            used.end();
            return Err(code);
        }
    }
    info!(volume = %id, name = %new.name, %partition, "a volume is created");
    Ok(CreateVolumeReply { volume_id: id.0, transaction: used.id() })
}

/// AFSVolDeleteVolume: deletes the transaction's volume. The transaction stays until it is ended.
pub(crate) fn delete(server: &VolumeServer, used: &Use<'_>, volume: &Volume) -> Result<(), AbortCode> {
    let id = used.volume_id();
    let outcome = server.volumes().delete(volume.id()).map_err(|error| codes::of(&error));
    match outcome {
        Ok(()) => info!(volume = %id, "a volume is deleted"),
        Err(AbortCode::VNOVOL) => return Err(ENOENT),
        Err(code) => return Err(code),
    }
    used.set_deleted();
    server.file_service().volume_changed(id);
    apart::succeed(server, id);
    Ok(())
}

/// AFSVolEndTrans. Makes the transaction's changes durable, whatever the durability policy, because a client
/// that moves a volume deletes the other copy next.
pub(crate) fn end(server: &VolumeServer, transaction: i32) -> Result<(), AbortCode> {
    let used = server.transactions().enter(transaction, "EndTrans").ok_or(ENOENT)?;
    let (id, partition) = (used.volume_id(), used.partition());
    used.end();
    apart::succeed(server, id);
    note_service(server, id)?;
    server.volumes().sync_partition(partition).map_err(|error| codes::of(&error))
}

/// Clears the `unseen` mark of a volume that was put into service by the header of a dump, without SetFlags.
fn note_service(server: &VolumeServer, id: VolumeId) -> Result<(), AbortCode> {
    let Ok(volume) = server.volumes().get(id) else { return Ok(()) };
    if volume.header().unseen.is_none() {
        return Ok(());
    }
    volume.update_header(|_| {}).map(drop).map_err(|error| codes::of(&error))
}

/// AFSVolNukeVolume: deletes a volume whatever its state, even while a transaction has it.
pub(crate) fn nuke(server: &VolumeServer, request: NukeVolumeRequest) -> Result<(), AbortCode> {
    let partition = server.partition(request.partition).map_err(|_| AbortCode::VOLSERNOVOL)?;
    let id = VolumeId(request.volume_id);
    let volume = find(server, id, partition).map_err(|_| ENOENT)?;
    current::volume(id.0);
    server.volumes().delete(volume.id()).map_err(|error| codes::of(&error))?;
    info!(volume = %id, %partition, "a volume is deleted by force");
    server.file_service().volume_changed(id);
    apart::succeed(server, id);
    Ok(())
}

/// Parses a volume name from the wire.
pub(crate) fn volume_name(name: &XdrString) -> Result<VolumeName, AbortCode> {
    name.as_str().and_then(|name| name.parse().ok()).ok_or(AbortCode::VOLSERBADNAME)
}

/// Parses a volume type from the wire.
pub(crate) fn kind(number: i32) -> Result<VolumeType, AbortCode> {
    u32::try_from(number).ok().and_then(VolumeType::from_wire).ok_or(EINVAL)
}
