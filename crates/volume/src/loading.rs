//! Finding the volumes of a partition, and reading them when they are needed.

use crate::epochs::{Epochs, damage};
use crate::group::Group;
use crate::index::{Found, ToLoad};
use crate::record::{self, Counters, StoredHeader};
use crate::shared::{Partition, Shared};
use crate::sight::Sight;
use crate::volume::Volume;
use crate::{VolumeError, keys};
use base::{VolumeId, VolumeName, VolumeType};
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Family, KeyRange};

/// What a volume sees that its group's writer must respect.
pub(crate) fn readers(stored: &StoredHeader) -> Vec<Sight> {
    if stored.header.kind == VolumeType::ReadWrite { vec![] } else { vec![stored.sight.clone()] }
}

/// A group with all its volumes.
pub(crate) fn load(
    shared: &Arc<Shared>,
    home: &Arc<Partition>,
    to_load: &ToLoad,
) -> Result<Vec<Volume>, VolumeError> {
    let stored: Vec<_> =
        to_load.members.iter().map(|&id| load_header(home, id)).collect::<Result<_, VolumeError>>()?;
    let mut epochs = Epochs::without_volumes();
    for (stored, _) in &stored {
        epochs.current = epochs.current.max(stored.sight.epoch);
        if stored.header.kind == VolumeType::ReadWrite {
            epochs.is_read_write_gone = false;
            epochs.turns = Arc::clone(&stored.sight.turns);
        }
        epochs.others.extend(readers(stored));
    }
    let group = Arc::new(Group::new(to_load.group, epochs, Arc::clone(&home.handle.chunks)));
    let volume = |(stored, counters)| Volume::new(shared, home, Arc::clone(&group), stored, &counters);
    Ok(stored.into_iter().map(volume).collect())
}

fn load_header(home: &Partition, id: VolumeId) -> Result<(StoredHeader, Counters), VolumeError> {
    let (header, counters) = (keys::header(id), keys::counters(id));
    let damaged = |key: &[u8]| damage(Family::Volumes, key, "a volume's header or counters");
    let get = |key: &[u8]| home.handle.meta.get(Family::Volumes, key)?.ok_or_else(|| damaged(key));
    let value = record::get_counters(&get(&counters)?).ok_or_else(|| damaged(&counters))?;
    let stored = record::get_header(&get(&header)?, &value).ok_or_else(|| damaged(&header))?;
    Ok((stored, value))
}

/// Where all volumes of a partition are, sorted by their groups.
pub(crate) fn find(home: &Partition) -> Result<Vec<Found>, VolumeError> {
    let mut found = Vec::new();
    each_header(home, &mut |id, value| {
        let (group, is_marked) = record::header_place(value)?;
        found.push(Found { group, id, is_marked });
        Some(())
    })?;
    found.sort_unstable_by_key(|found| (found.group, found.id));
    Ok(found)
}

/// The volume of this name.
pub(crate) fn find_name(home: &Partition, name: &VolumeName) -> Result<Option<VolumeId>, VolumeError> {
    let mut found = None;
    each_header(home, &mut |id, value| {
        if record::header_name(value)? == *name {
            found = Some(id);
        }
        Some(())
    })?;
    Ok(found)
}

/// Takes a volume and its header's record; `None` says that it is damaged.
type Take<'a> = dyn FnMut(VolumeId, &[u8]) -> Option<()> + 'a;

/// Calls `take` with every header of a partition.
fn each_header(home: &Partition, take: &mut Take<'_>) -> Result<(), VolumeError> {
    let (from, to) = keys::registry_range(keys::Registry::Header);
    // What a snapshot reads does not stay in the caches.
    let state = home.handle.meta.snapshot();
    state.scan(Family::Volumes, KeyRange::ascending(&from, &to), &mut |key, value| {
        if volume_of(key).and_then(|id| take(id, value)).is_none() {
            let error = damage(Family::Volumes, key, "a volume's header");
            tracing::error!(%error, partition = %home.handle.id, "a volume cannot be used");
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn volume_of(key: &[u8]) -> Option<VolumeId> {
    Some(VolumeId(u32::from_be_bytes(key.get(9..)?.try_into().ok()?)))
}
