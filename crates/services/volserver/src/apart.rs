//! Handles one volume on two partitions: while `vos move` moves it between them, and while `vos release` puts
//! a read-only volume on a partition other than that of the read-write volume.
//!
//! CreateVolume with an id that exists on another partition creates a parked volume: transactions, restores
//! and listings know it by id and partition, file service does not. It takes the id over when the other
//! volume is deleted. So clients can never write to both, and everything can be undone until the older one is
//! deleted. See `volume::Volumes::take_place` for the state after a crash.
//!
//! Clone creates such a volume too: `vos release` clones the read-write volume under the read-only id if no
//! read-only volume is on its partition, and deletes the clone at the end. File service uses the read-only
//! volume that is complete; if several are, the one with the later contents.
//!
//! The other partition may be that of another server ([`OtherOwners`](crate::OtherOwners)). Then, too, the new volume is
//! parked until the other one is deleted, whatever the type: of two servers only one knows both headers. If it is not
//! known whether there is another one, a volume that waits for a restore and a clone are parked, and take their place as
//! soon as that is known. A volume that is used as it is created, with a root directory, is not created then: its client
//! would find an entry in the location database, and no volume.

use crate::codes;
use crate::creating::begin;
use crate::server::{VolumeServer, is_doomed};
use base::{AbortCode, VolumeId, VolumeType};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};
use volume::{CloneVolume, NewVolume, Volume, VolumeError, VolumeHeader};

/// How long a creation waits until it is known whether another server has the id.
const KNOWN_WITHIN: Duration = Duration::from_secs(15);

/// Creates a volume, parked if its id is in use on another partition.
///
/// # Errors
/// VBUSY if the volume is to be used at once, and it is not known whether its id is in use. Nothing was created then.
pub(crate) fn create(
    server: &VolumeServer,
    partition: base::PartitionId,
    new: &NewVolume,
) -> Result<Arc<Volume>, AbortCode> {
    let volumes = server.volumes();
    let is_parked = match is_only_elsewhere(server, new.id, KNOWN_WITHIN) {
        Some(is_elsewhere) => is_elsewhere,
        None if new.with_root => {
            warn!(volume = %new.id, %partition, "a volume is not created: another partition may have this id, and is not \
                served now, or its owner does not answer");
            return Err(AbortCode::VBUSY);
        }
        None => true,
    };
    check_takes_volumes(server, partition)?;
    let created = if is_parked {
        volumes.create_parked(partition, new)
    } else {
        match volumes.create(partition, new) {
            Err(VolumeError::VolumeExists(_)) => volumes.create_apart(partition, new),
            created => created,
        }
    };
    created.map_err(|error| codes::of(&error))
}

/// Refuses a volume in a partition that is being removed. Ask it immediately before the volume is created.
fn check_takes_volumes(server: &VolumeServer, partition: base::PartitionId) -> Result<(), AbortCode> {
    match server.other_owners().map_or(Some(true), |others| others.takes_volumes(partition)) {
        Some(true) => Ok(()),
        Some(false) => {
            warn!(%partition, "a volume is not created: the partition is being removed");
            Err(AbortCode::VOLSERILLEGAL_PARTITION)
        }
        None => {
            warn!(%partition, "a volume is not created: it is not known now whether the partition is being removed");
            Err(AbortCode::VBUSY)
        }
    }
}

/// Whether another server has a volume with this id, and this server has none; `None` if that is not known after `wait`.
fn is_only_elsewhere(server: &VolumeServer, number: VolumeId, wait: Duration) -> Option<bool> {
    match server.other_owners() {
        Some(others) if server.volumes().partition_of(number).is_none() => others.has(number, wait),
        _ => Some(false),
    }
}

/// Whether another server may have a volume with this id, and this server has none.
fn may_be_only_elsewhere(server: &VolumeServer, number: VolumeId) -> bool {
    is_only_elsewhere(server, number, Duration::ZERO) != Some(false)
}

/// Lets a parked volume take over the id of a volume that was deleted, here or at another server.
pub(crate) fn deleted(server: &VolumeServer, number: VolumeId) {
    succeed(server, number);
    if let Some(others) = server.other_owners() {
        others.volume_deleted(number);
    }
}

/// Lets a completed parked volume take over an id that is no longer in use. If a transaction has the volume,
/// this is called again when the transaction ends.
pub(crate) fn succeed(server: &VolumeServer, number: VolumeId) {
    match server.volumes().apart_from(number) {
        Ok(apart) => apart.iter().for_each(|volume| take_place(server, volume)),
        Err(error) => warn!(volume = %number, %error, "a parked volume cannot be read"),
    }
}

/// Calls [`succeed`] for all parked volumes.
pub(crate) fn succeed_all(server: &VolumeServer) {
    match server.volumes().all_apart() {
        Ok(apart) => apart.iter().for_each(|volume| take_place(server, volume)),
        Err(error) => warn!(%error, "parked volumes cannot be read"),
    }
}

/// Creates a read-only clone, parked if its id is in use on another partition.
pub(crate) fn clone(
    server: &VolumeServer,
    source: VolumeId,
    new: &CloneVolume,
    change: impl Fn(&mut VolumeHeader),
) -> Result<Arc<Volume>, VolumeError> {
    let volumes = server.volumes();
    if may_be_only_elsewhere(server, new.id) && new.kind == VolumeType::ReadOnly {
        return volumes.clone_parked(source, new, change);
    }
    match volumes.clone_volume_with(source, new, &change) {
        Err(VolumeError::VolumeExists(_)) => volumes.clone_apart(source, new, &change),
        cloned => cloned,
    }
}

fn take_place(server: &VolumeServer, volume: &Arc<Volume>) {
    let (number, partition) = (volume.header().number(), volume.partition());
    if is_doomed(volume) || may_be_only_elsewhere(server, number) {
        return;
    }
    let Ok(used) = begin(server, number, partition, 0, "TakePlace") else { return };
    let placed = match server.volumes().take_place(volume) {
        Ok(None) => displace(server, volume),
        placed => placed,
    };
    match placed {
        Ok(Some(_)) => {
            info!(volume = %number, %partition, "a volume replaces the one on another partition");
            server.file_service().volume_changed(number);
        }
        // The other volume still exists, or this one was deleted.
        Ok(None) | Err(VolumeError::NoVolume(_)) => {}
        Err(error) => warn!(volume = %number, %partition, %error, "a volume cannot replace the other yet"),
    }
    used.end();
}

/// Lets a read-only volume take over the id of one that is incomplete or has older contents. Returns `None`
/// if it does not apply.
fn displace(server: &VolumeServer, volume: &Arc<Volume>) -> Result<Option<Arc<Volume>>, VolumeError> {
    let number = volume.header().number();
    let holder = server.volumes().get_any_state(number)?;
    if !is_better(volume, &holder) {
        return Ok(None);
    }
    let Ok(used) = begin(server, number, holder.partition(), 0, "TakePlace") else { return Ok(None) };
    let displaced = server.volumes().displace(volume, &holder);
    used.end();
    displaced.map(Some)
}

/// Returns whether `volume` should be used instead. Both dates were set by the server of the read-write
/// volume and copied along with the contents.
fn is_better(volume: &Volume, than: &Volume) -> bool {
    let (new, old) = (volume.header(), than.header());
    let are_read_only = new.kind == VolumeType::ReadOnly && old.kind == VolumeType::ReadOnly;
    let is_later = (new.created, new.updated) > (old.created, old.updated);
    are_read_only && new.in_service && (is_doomed(than) || is_later)
}
