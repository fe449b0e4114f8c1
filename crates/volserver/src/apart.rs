//! The same volume on two partitions: while `vos move` carries it from one to the other.
//!
//! CreateVolume of a number that another partition has makes a volume that is held apart: transactions,
//! restores and listings know it by number and partition, file service does not. It takes the place of the
//! other one when that is deleted. So there is no moment at which clients may write to either of two, and
//! until the older one is deleted all can be undone. See `volume::Volumes::take_place` for what a crash leaves.

use crate::codes;
use crate::creating::begin;
use crate::server::{VolumeServer, is_doomed};
use base::{AbortCode, VolumeId};
use std::sync::Arc;
use tracing::{info, warn};
use volume::{NewVolume, Volume, VolumeError};

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

fn take_place(server: &VolumeServer, volume: &Arc<Volume>) {
    let (number, partition) = (volume.header().number(), volume.partition());
    if is_doomed(volume) {
        return;
    }
    let Ok(used) = begin(server, number, partition, 0, "TakePlace") else { return };
    match server.volumes().take_place(volume) {
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
