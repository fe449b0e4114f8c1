//! Creates clones, and turns read-only volumes into read-write ones.

use crate::apart;
use crate::codes::{self, E2BIG, EINVAL, ENODEV, EXDEV};
use crate::creating::{begin, find, kind, volume_name};
use crate::server::{DESTROY_ME, VolumeServer, is_doomed, note_volume};
use afs_idl::vol;
use base::{AbortCode, CallContext, VolumeId, VolumeName, VolumeType};
use std::sync::Arc;
use tracing::info;
use volume::{CloneVolume, NewVolume, Volume, VolumeError, VolumeHeader};

impl VolumeServer {
    /// Clone: creates a clone that is marked for destruction and out of service until SetFlags changes that.
    pub(crate) fn clone_volume(
        &self,
        caller: &CallContext<'_>,
        request: vol::CloneVolumeRequest,
    ) -> Result<vol::CloneVolumeReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "Clone")?;
        let name = volume_name(&request.new_name)?;
        let kind = kind(request.new_type)?;
        let id = VolumeId(request.new_volume_id);
        if id == VolumeId(0) {
            return Err(E2BIG);
        }
        with_transaction(self, &volume, id, "Clone", || {
            check_source(&volume)?;
            let purged = purged(self, &volume, VolumeId(request.purge_volume_id))?;
            let new = CloneVolume { id, name, kind, now: self.now() };
            make(self, &volume, &new, purged.as_deref())?;
            remember(&volume, &new)
        })?;
        info!(volume = %volume.id(), clone = %id, "a volume is cloned");
        self.file_service().volume_changed(id);
        Ok(vol::CloneVolumeReply { new_volume_id: request.new_volume_id })
    }

    /// ReClone: brings an existing clone to the current state of the volume. The clone's use counts and copy date
    /// are kept.
    pub(crate) fn re_clone(
        &self,
        caller: &CallContext<'_>,
        request: vol::ReCloneRequest,
    ) -> Result<vol::ReCloneReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "ReClone")?;
        let id = VolumeId(request.clone_id);
        with_transaction(self, &volume, id, "ReClone", || reclone(self, &volume, id))?;
        info!(volume = %volume.id(), clone = %id, "a volume is cloned again");
        self.file_service().volume_changed(id);
        Ok(vol::ReCloneReply)
    }

    /// ConvertROtoRWvolume: turns a read-only volume into the read-write volume of its family.
    pub(crate) fn convert_ro_to_rw_volume(
        &self,
        caller: &CallContext<'_>,
        request: vol::ConvertRoToRwVolumeRequest,
    ) -> Result<vol::ConvertRoToRwVolumeReply, AbortCode> {
        self.administer(caller, "ConvertROtoRW")?;
        let partition = self.partition(request.partition)?;
        let id = VolumeId(request.volume_id);
        find(self, id, partition).map_err(|_| ENODEV)?;
        let used = begin(self, id, partition, 0, "ConvertROtoRW")?;
        note_volume(caller, id);
        let converted = find(self, id, partition).and_then(|found| {
            self.volumes().convert_to_read_write(found.id(), self.now()).map_err(|e| codes::of(&e))
        });
        used.end();
        let volume = converted?;
        info!(volume = %volume.id(), read_only = %id, "a read-only volume becomes the read-write one");
        self.file_service().volume_changed(id);
        self.file_service().volume_changed(volume.id());
        apart::succeed(self, id);
        Ok(vol::ConvertRoToRwVolumeReply)
    }
}

/// Runs `work` while no transaction can be opened on the clone.
fn with_transaction<T>(
    server: &VolumeServer,
    volume: &Volume,
    clone: VolumeId,
    procedure: &'static str,
    work: impl FnOnce() -> Result<T, AbortCode>,
) -> Result<T, AbortCode> {
    let used = begin(server, clone, volume.partition(), 0, procedure)?;
    let result = work();
    used.end();
    result
}

fn check_source(volume: &Volume) -> Result<(), AbortCode> {
    let is_offline = is_doomed(volume) || !volume.header().in_service;
    if is_offline { Err(AbortCode::VOFFLINE) } else { Ok(()) }
}

/// Returns the older clone that the new one replaces.
fn purged(server: &VolumeServer, volume: &Volume, id: VolumeId) -> Result<Option<Arc<Volume>>, AbortCode> {
    if id == VolumeId(0) {
        return Ok(None);
    }
    let purged = find(server, id, volume.partition())?;
    if purged.kind() != VolumeType::ReadOnly {
        return Err(EINVAL);
    }
    check_relation(volume, &purged)?;
    Ok(Some(purged))
}

fn check_relation(volume: &Volume, clone: &Volume) -> Result<(), AbortCode> {
    let is_related =
        volume.partition() == clone.partition() && volume.header().parent == clone.header().parent;
    if is_related { Ok(()) } else { Err(EXDEV) }
}

fn make(
    server: &VolumeServer,
    volume: &Volume,
    new: &CloneVolume,
    purged: Option<&Volume>,
) -> Result<(), AbortCode> {
    let volumes = server.volumes();
    let result = match purged {
        _ if new.kind == VolumeType::ReadWrite => copy(server, volume, new),
        Some(old) if old.header().number() == new.id => {
            volumes.reclone(volume.id(), old.id(), new.now, |header| {
                header.name = new.name.clone();
                header.created = header.copied;
                unfinished(header);
            })
        }
        _ => apart::clone(server, volume.id(), new, unfinished),
    };
    result.map_err(|error| codes::of(&error))?;
    match purged {
        Some(old) if old.header().number() != new.id => {
            volumes.delete(old.id()).map_err(|error| codes::of(&error))
        }
        _ => Ok(()),
    }
}

/// Creates a read-write clone. A family has only one writer, so this copies all contents; the parent is that
/// of the volume, as in OpenAFS.
fn copy(server: &VolumeServer, volume: &Volume, new: &CloneVolume) -> Result<Arc<Volume>, VolumeError> {
    let header = volume.header();
    let empty = NewVolume {
        id: new.id,
        name: new.name.clone(),
        kind: new.kind,
        parent: header.parent,
        quota_max_kib: header.quota_max_kib,
        with_root: false,
        in_service: false,
        destroy_me: DESTROY_ME,
        now: new.now,
    };
    let none = VolumeId(0);
    server.volumes().copy_volume(volume.id(), &empty, |source| {
        let mut header = VolumeHeader {
            id: new.id,
            name: new.name.clone(),
            kind: new.kind,
            clone: none,
            backup: none,
            restored_from: none,
            created: new.now,
            copied: new.now,
            snapshot: None,
            stands_for: None,
            unseen: None,
            ..source
        };
        unfinished(&mut header);
        header
    })
}

/// Initialises the header of a clone that is not in service yet.
fn unfinished(header: &mut VolumeHeader) {
    header.destroy_me = DESTROY_ME;
    header.in_service = false;
    match header.kind {
        VolumeType::Backup => header.backed_up = header.copied,
        // The latest clone of a read-only volume is itself.
        VolumeType::ReadOnly => header.clone = header.number(),
        VolumeType::ReadWrite => {}
    }
    header.day_use = 0;
    header.day_use_date = base::UnixTime(0);
    header.week_use = [0; 7];
}

/// Records the new clone in the header of the volume, as OpenAFS does. Jobs that make a temporary clone
/// afterwards restore the id of the location database.
fn remember(volume: &Volume, new: &CloneVolume) -> Result<(), AbortCode> {
    let updated = volume.update_header(|header| match new.kind {
        VolumeType::ReadOnly => header.clone = new.id,
        VolumeType::Backup => {
            header.backup = new.id;
            header.backed_up = new.now;
        }
        VolumeType::ReadWrite => {}
    });
    updated.map(drop).map_err(|error| codes::of(&error))
}

fn reclone(server: &VolumeServer, volume: &Volume, id: VolumeId) -> Result<(), AbortCode> {
    check_source(volume)?;
    let clone = find(server, id, volume.partition())?;
    check_relation(volume, &clone)?;
    let (old, now, kind) = (clone.header(), server.now(), clone.kind());
    let name = name_of_clone(&volume.header().name, kind).unwrap_or_else(|| old.name.clone());
    let recloned = server.volumes().reclone(volume.id(), clone.id(), now, |header| {
        header.name = name.clone();
        header.in_service = true;
        header.day_use = old.day_use;
        header.day_use_date = old.day_use_date;
        header.week_use = old.week_use;
        if kind == VolumeType::Backup {
            header.backed_up = header.created;
        }
    });
    let recloned = recloned.map_err(|error| codes::of(&error))?;
    if kind == VolumeType::Backup {
        remember(volume, &CloneVolume { id, name, kind, now: recloned.header().created })?;
    }
    Ok(())
}

/// Returns the usual name of a clone, if it is not too long.
fn name_of_clone(name: &VolumeName, kind: VolumeType) -> Option<VolumeName> {
    let ending = match kind {
        VolumeType::ReadOnly => ".readonly",
        VolumeType::Backup => ".backup",
        VolumeType::ReadWrite => return None,
    };
    format!("{name}{ending}").parse().ok()
}
