//! The same volume on two partitions: while `vos move` carries it from one to the other, and while `vos release`
//! brings a read-only one to another partition than that of the read-write volume.
//!
//! CreateVolume of a number that another partition has makes a volume that is held apart: transactions,
//! restores and listings know it by number and partition, file service does not. It takes the place of the
//! other one when that is deleted. So there is no moment at which clients may write to either of two, and
//! until the older one is deleted all can be undone. See `volume::Volumes::take_place` for what a crash leaves.
//!
//! Clone makes such a volume too: `vos release` clones the read-write volume with the number of the read-only
//! ones if none of them is beside it, and deletes the clone in the end. File service gets the read-only volume
//! that is whole; if several are, the one with the later contents.

use crate::codes;
use crate::creating::begin;
use crate::server::{VolumeServer, is_doomed};
use base::{AbortCode, VolumeId, VolumeType};
use std::sync::Arc;
use tracing::{info, warn};
use volume::{CloneVolume, NewVolume, Volume, VolumeError, VolumeHeader};

/// A new volume, or one that is held apart if its number is in use on another partition.
pub(crate) fn create(
    server: &VolumeServer,
    partition: base::PartitionId,
    new: &NewVolume,
) -> Result<Arc<Volume>, AbortCode> {
    let volumes = server.volumes();
    let created = match volumes.create(partition, new) {
        Err(VolumeError::VolumeExists(_)) => volumes.create_apart(partition, new),
        created => created,
    };
    created.map_err(|error| codes::of(&error))
}

/// Gives a number that no volume has any more to the finished one that is held apart for it, unless a
/// transaction has that: then it is called again at the end of it.
pub(crate) fn succeed(server: &VolumeServer, number: VolumeId) {
    match server.volumes().apart_from(number) {
        Ok(apart) => apart.iter().for_each(|volume| take_place(server, volume)),
        Err(error) => warn!(volume = %number, %error, "a volume that is held apart cannot be read"),
    }
}

/// The same for all numbers.
pub(crate) fn succeed_all(server: &VolumeServer) {
    match server.volumes().all_apart() {
        Ok(apart) => apart.iter().for_each(|volume| take_place(server, volume)),
        Err(error) => warn!(%error, "volumes that are held apart cannot be read"),
    }
}

/// A read-only clone, or one that is held apart if its number is in use on another partition.
pub(crate) fn clone(
    server: &VolumeServer,
    source: VolumeId,
    new: &CloneVolume,
    change: impl Fn(&mut VolumeHeader),
) -> Result<Arc<Volume>, VolumeError> {
    let volumes = server.volumes();
    match volumes.clone_volume_with(source, new, &change) {
        Err(VolumeError::VolumeExists(_)) => volumes.clone_apart(source, new, &change),
        cloned => cloned,
    }
}

fn take_place(server: &VolumeServer, volume: &Arc<Volume>) {
    let (number, partition) = (volume.header().number(), volume.partition());
    if is_doomed(volume) {
        return;
    }
    let Ok(used) = begin(server, number, partition, 0, "TakePlace") else { return };
    let placed = match server.volumes().take_place(volume) {
        Ok(None) => displace(server, volume),
        placed => placed,
    };
    match placed {
        Ok(Some(_)) => {
            info!(volume = %number, %partition, "a volume takes the place of the one on another partition");
            server.file_service().volume_changed(number);
        }
        // The other one is still there, or it was deleted itself.
        Ok(None) | Err(VolumeError::NoVolume(_)) => {}
        Err(error) => warn!(volume = %number, %partition, %error, "a volume cannot take its place yet"),
    }
    used.end();
}

/// A read-only volume takes the number of one that is not whole, or of older contents. `None` if it does not.
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

/// Both dates were set by the server of the read-write volume, and came along with the contents.
fn is_better(volume: &Volume, than: &Volume) -> bool {
    let (new, old) = (volume.header(), than.header());
    let are_read_only = new.kind == VolumeType::ReadOnly && old.kind == VolumeType::ReadOnly;
    let is_later = (new.created, new.updated) > (old.created, old.updated);
    are_read_only && new.in_service && (is_doomed(than) || is_later)
}
