//! Opens transactions, creates volumes and deletes them.

use crate::apart;
use crate::codes::{self, E2BIG, EINVAL, ENOENT};
use crate::server::{DESTROY_ME, VolumeServer, note_volume};
use crate::transactions::{Refusal, Use};
use afs_idl::vol::{self, attach_mode};
use base::{AbortCode, CallContext, PartitionId, VolumeId, VolumeName, VolumeType};
use std::sync::Arc;
use tracing::info;
use volume::{NewVolume, Volume};
use xdr::XdrString;

/// Initial quota of a new volume in KiB.
const NEW_QUOTA_KIB: u64 = 5000;

/// Attach modes, of which a transaction must specify at least one.
const ATTACH_MODES: i32 =
    attach_mode::CREATE | attach_mode::BUSY | attach_mode::READ_ONLY | attach_mode::OFFLINE;

impl VolumeServer {
    /// CreateVolume: creates a volume that is marked for destruction and out of service until SetFlags changes that.
    /// Only a read-write volume whose parent is given as itself gets no root directory, because it waits for a
    /// restore.
    pub(crate) fn create_volume(
        &self,
        caller: &CallContext<'_>,
        request: vol::CreateVolumeRequest,
    ) -> Result<vol::CreateVolumeReply, AbortCode> {
        self.administer(caller, "CreateVolume")?;
        let name = volume_name(&request.name)?;
        let partition = self.partition(request.partition)?;
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
            now: self.now(),
        };
        let used = begin(self, id, partition, 0, "CreateVolume")?;
        note_volume(caller, id);
        match apart::create(self, partition, &new) {
            Ok(volume) => used.attach(&volume),
            Err(code) => {
                used.end();
                return Err(code);
            }
        }
        info!(volume = %id, name = %new.name, %partition, "a volume is created");
        Ok(vol::CreateVolumeReply { volume_id: id.0, transaction: used.id() })
    }

    /// DeleteVolume: deletes the transaction's volume. The transaction stays until it is ended.
    pub(crate) fn delete_volume(
        &self,
        caller: &CallContext<'_>,
        request: vol::DeleteVolumeRequest,
    ) -> Result<vol::DeleteVolumeReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "DeleteVolume")?;
        let id = used.volume_id();
        let outcome = self.volumes().delete(volume.id()).map_err(|error| codes::of(&error));
        match outcome {
            Ok(()) => info!(volume = %id, "a volume is deleted"),
            Err(AbortCode::VNOVOL) => return Err(ENOENT),
            Err(code) => return Err(code),
        }
        used.set_deleted();
        self.file_service().volume_changed(id);
        apart::deleted(self, id);
        Ok(vol::DeleteVolumeReply)
    }

    /// NukeVolume: deletes a volume whatever its state, even while a transaction has it.
    pub(crate) fn nuke_volume(
        &self,
        caller: &CallContext<'_>,
        request: vol::NukeVolumeRequest,
    ) -> Result<vol::NukeVolumeReply, AbortCode> {
        self.administer(caller, "NukeVolume")?;
        let partition = self.partition(request.partition).map_err(|_| AbortCode::VOLSERNOVOL)?;
        let id = VolumeId(request.volume_id);
        let volume = find(self, id, partition).map_err(|_| ENOENT)?;
        note_volume(caller, id);
        self.volumes().delete(volume.id()).map_err(|error| codes::of(&error))?;
        info!(volume = %id, %partition, "a volume is deleted by force");
        self.file_service().volume_changed(id);
        apart::deleted(self, id);
        Ok(vol::NukeVolumeReply)
    }

    /// TransCreate: opens a transaction on a volume.
    pub(crate) fn trans_create(
        &self,
        caller: &CallContext<'_>,
        request: vol::TransCreateRequest,
    ) -> Result<vol::TransCreateReply, AbortCode> {
        self.administer(caller, "TransCreate")?;
        if request.flags & ATTACH_MODES == 0 || request.partition < 0 {
            return Err(EINVAL);
        }
        // A partition that this server lacks has no volumes.
        let partition = self.partition(request.partition).map_err(|_| AbortCode::VNOVOL)?;
        let id = VolumeId(request.volume_id);
        let used = begin(self, id, partition, request.flags, "TransCreate")?;
        note_volume(caller, id);
        match find(self, id, partition) {
            Ok(volume) => used.attach(&volume),
            Err(code) => {
                used.end();
                return Err(code);
            }
        }
        Ok(vol::TransCreateReply { transaction: used.id() })
    }

    /// EndTrans. Makes the transaction's changes durable, whatever the durability policy, because a client that
    /// moves a volume deletes the other copy next.
    pub(crate) fn end_trans(
        &self,
        caller: &CallContext<'_>,
        request: vol::EndTransRequest,
    ) -> Result<vol::EndTransReply, AbortCode> {
        self.administer(caller, "EndTrans")?;
        let used = self.transactions().enter(request.transaction, "EndTrans").ok_or(ENOENT)?;
        let (id, partition) = (used.volume_id(), used.partition());
        note_volume(caller, id);
        used.end();
        apart::succeed(self, id);
        note_service(self, id)?;
        self.volumes().sync_partition(partition).map_err(|error| codes::of(&error))?;
        Ok(vol::EndTransReply { code: 0 })
    }
}

/// Enters a new transaction on the volume.
pub(crate) fn begin<'a>(
    server: &'a VolumeServer,
    volume: VolumeId,
    partition: PartitionId,
    flags: i32,
    procedure: &'static str,
) -> Result<Use<'a>, AbortCode> {
    let numbers = match server.other_owners() {
        None => None,
        // The partition has just got another owner.
        Some(others) => Some(others.transaction_numbers(partition).ok_or(AbortCode::VNOVOL)?),
    };
    let begun = server.transactions().begin((volume, partition), numbers, flags, procedure);
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

/// Clears the `unseen` mark of a volume that was put into service by the header of a dump, without SetFlags.
fn note_service(server: &VolumeServer, id: VolumeId) -> Result<(), AbortCode> {
    let Ok(volume) = server.volumes().get(id) else { return Ok(()) };
    if volume.header().unseen.is_none() {
        return Ok(());
    }
    volume.update_header(|_| {}).map(drop).map_err(|error| codes::of(&error))
}

/// Parses a volume name from the wire.
pub(crate) fn volume_name(name: &XdrString) -> Result<VolumeName, AbortCode> {
    name.as_str().and_then(|name| name.parse().ok()).ok_or(AbortCode::VOLSERBADNAME)
}

/// Parses a volume type from the wire.
pub(crate) fn kind(number: i32) -> Result<VolumeType, AbortCode> {
    u32::try_from(number).ok().and_then(VolumeType::from_wire).ok_or(EINVAL)
}
