//! Finds the volumes of a partition, and loads them when they are needed.

use crate::core::group::Group;
use crate::core::index::{Found, ToLoad};
use crate::core::shared::{Partition, Shared};
use crate::core::volume::Volume;
use crate::interface::error::damage;
use crate::{VolumeError, VolumeHeader};
use base::{VolumeId, VolumeName, VolumeType};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::KeyRange;
use volume_records::codec::{self, Counters, StoredHeader};
use volume_records::epochs::Epochs;
use volume_records::is_parked;
use volume_records::{ReadView, families, keys};

/// Returns the read views that a stored volume adds to [`Epochs::others`]; none for a read-write volume.
pub(crate) fn readers(stored: &StoredHeader) -> Vec<ReadView> {
    if stored.header.kind == VolumeType::ReadWrite { vec![] } else { vec![stored.read_view.clone()] }
}

/// Loads a group with all its volumes.
pub(crate) fn load(
    shared: &Arc<Shared>,
    home: &Arc<Partition>,
    to_load: &ToLoad,
) -> Result<Vec<Volume>, VolumeError> {
    let stored: Vec<_> =
        to_load.members.iter().map(|&id| load_header(home, id)).collect::<Result<_, VolumeError>>()?;
    let mut epochs = Epochs::without_volumes();
    for (stored, _) in &stored {
        epochs.current = epochs.current.max(stored.read_view.epoch);
        if stored.header.kind == VolumeType::ReadWrite {
            epochs.is_read_write_gone = false;
            epochs.rollbacks = Arc::clone(&stored.read_view.rollbacks);
        }
        epochs.others.extend(readers(stored));
    }
    let group = Arc::new(Group::new(to_load.group, epochs, Arc::clone(&home.handle.chunks)));
    let volume = |(stored, counters)| Volume::new(shared, home, Arc::clone(&group), stored, &counters);
    Ok(stored.into_iter().map(volume).collect())
}

fn load_header(home: &Partition, id: VolumeId) -> Result<(StoredHeader, Counters), VolumeError> {
    let (header, counters) = (keys::header(id), keys::counters(id));
    let damaged = |key: &[u8]| damage(families::VOLUMES, key, "a volume's header or counters");
    let mut values = home.handle.meta.get_many(families::VOLUMES, &[&counters, &header])?.into_iter();
    let mut next = |key: &[u8]| values.next().flatten().ok_or_else(|| damaged(key));
    let value = codec::get_counters(&next(&counters)?).ok_or_else(|| damaged(&counters))?;
    let stored = codec::get_header(&next(&header)?, &value).ok_or_else(|| damaged(&header))?;
    Ok((stored, value))
}

/// Finds all volumes of a partition, sorted by group.
pub(crate) fn find(home: &Partition) -> Result<Vec<Found>, VolumeError> {
    home.load_receipts()?;
    let mut found = Vec::new();
    each_header(home, &mut |id, value| {
        let (group, is_marked) = codec::header_place(value)?;
        found.push(Found { group, id, is_marked });
        Some(())
    })?;
    found.sort_unstable_by_key(|found| (found.group, found.id));
    Ok(found)
}

/// Returns at most `most` headers from `from` on, `None` for unreadable ones, and the id to continue from.
pub(crate) fn headers(home: &Partition, from: VolumeId, most: usize) -> Result<Page, VolumeError> {
    // Reads both tables at one moment. Snapshot reads do not fill the caches.
    let state = home.handle.meta.snapshot();
    let mut found: Vec<(VolumeId, Vec<u8>)> = Vec::new();
    let (_, to) = keys::registry_range(keys::Registry::Header);
    let range = KeyRange { from: &keys::header(from), to: &to, reverse: false };
    state.scan(families::VOLUMES, range, &mut |key, value| {
        found.extend(volume_of(key).map(|id| (id, value.to_vec())));
        if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let Some(&(last, _)) = found.last() else { return Ok((vec![], None)) };
    let mut counters = HashMap::with_capacity(found.len());
    let (from, to) = (keys::counters(from), keys::counters(last));
    let to = [&to[..], &[0]].concat();
    state.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |key, value| {
        counters.extend(volume_of(key).zip(codec::get_counters(value)));
        ControlFlow::Continue(())
    })?;
    let next = (found.len() == most).then(|| last.0.checked_add(1).map(VolumeId)).flatten();
    let read = |(id, value): (VolumeId, Vec<u8>)| {
        let stored = counters.get(&id).and_then(|counters| codec::get_header(&value, counters));
        if stored.is_none() {
            tracing::error!(volume = %id, partition = %home.handle.id, "a volume's header cannot be read");
        }
        (id, stored.map(|stored| stored.header))
    };
    Ok((found.into_iter().map(read).collect(), next))
}

/// Headers in id order, and the id to continue from.
type Page = (Vec<(VolumeId, Option<VolumeHeader>)>, Option<VolumeId>);

/// Finds the volume with this name.
pub(crate) fn find_name(home: &Partition, name: &VolumeName) -> Result<Option<VolumeId>, VolumeError> {
    let mut found = None;
    each_header(home, &mut |id, value| {
        // A parked volume has the name of another one.
        if codec::header_name(value)? == *name && !is_parked(id) {
            found = Some(id);
        }
        Some(())
    })?;
    Ok(found)
}

/// Receives a volume and its header record; returns `None` if the record is damaged.
type Take<'a> = dyn FnMut(VolumeId, &[u8]) -> Option<()> + 'a;

/// Calls `take` with every header of a partition.
fn each_header(home: &Partition, take: &mut Take<'_>) -> Result<(), VolumeError> {
    let (from, to) = keys::registry_range(keys::Registry::Header);
    // Snapshot reads do not fill the caches.
    let state = home.handle.meta.snapshot();
    state.scan(families::VOLUMES, KeyRange::ascending(&from, &to), &mut |key, value| {
        if volume_of(key).and_then(|id| take(id, value)).is_none() {
            let error = damage(families::VOLUMES, key, "a volume's header");
            tracing::error!(%error, partition = %home.handle.id, "a volume cannot be used");
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn volume_of(key: &[u8]) -> Option<VolumeId> {
    Some(VolumeId(u32::from_be_bytes(key.get(9..)?.try_into().ok()?)))
}
