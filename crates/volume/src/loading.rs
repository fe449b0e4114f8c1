//! Reading the headers of a partition's volumes.

use crate::epochs::{Epochs, damage};
use crate::group::Group;
use crate::record::{self, Counters, StoredHeader};
use crate::shared::{Partition, Shared};
use crate::volume::Volume;
use crate::{VolumeError, keys};
use base::{VolumeId, VolumeType};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Family, KeyRange};

/// Epochs of a group's volumes that its writer must respect.
pub(crate) fn readers(stored: &StoredHeader) -> Vec<u64> {
    if stored.header.kind == VolumeType::ReadWrite { vec![] } else { vec![stored.epoch] }
}

/// All volumes of one partition.
pub(crate) fn load(shared: &Arc<Shared>, home: &Arc<Partition>) -> Result<Vec<Volume>, VolumeError> {
    let stored = load_headers(home)?;
    let mut groups: HashMap<u64, Epochs> = HashMap::new();
    for (stored, _) in &stored {
        let epochs = groups.entry(stored.group).or_insert(Epochs::without_volumes());
        epochs.current = epochs.current.max(stored.epoch);
        epochs.is_read_write_gone &= stored.header.kind != VolumeType::ReadWrite;
        epochs.others.extend(readers(stored));
    }
    let chunks = &home.handle.chunks;
    let groups: HashMap<u64, Arc<Group>> = groups
        .into_iter()
        .map(|(id, epochs)| (id, Arc::new(Group::new(id, epochs, Arc::clone(chunks)))))
        .collect();
    let volume = |(stored, counters): (StoredHeader, Counters)| {
        let group = Arc::clone(&groups[&stored.group]);
        Volume::new(shared, home, group, stored, &counters)
    };
    Ok(stored.into_iter().map(volume).collect())
}

fn load_headers(home: &Partition) -> Result<Vec<(StoredHeader, Counters)>, VolumeError> {
    let mut all_counters = BTreeMap::new();
    each(home, keys::Registry::Counters, &mut |key, value| {
        let counters = record::get_counters(value)?;
        all_counters.insert(key.to_vec(), counters);
        Some(())
    })?;
    let mut found = Vec::new();
    each(home, keys::Registry::Header, &mut |key, value| {
        let id = VolumeId(u32::from_be_bytes(key.get(9..)?.try_into().ok()?));
        let counters = *all_counters.get(&keys::counters(id))?;
        found.push((record::get_header(value, &counters)?, counters));
        Some(())
    })?;
    Ok(found)
}

/// Takes key and value of a record.
type Take<'a> = dyn FnMut(&[u8], &[u8]) -> Option<()> + 'a;

/// Calls `take` with every record of one sort in the registry; `None` says that it is damaged.
fn each(home: &Partition, what: keys::Registry, take: &mut Take<'_>) -> Result<(), VolumeError> {
    let (from, to) = keys::registry_range(what);
    let mut damaged = None;
    home.handle.meta.scan(Family::Volumes, KeyRange::ascending(&from, &to), &mut |key, value| {
        if take(key, value).is_some() {
            return ControlFlow::Continue(());
        }
        damaged = Some(damage(Family::Volumes, key, "a volume's header or counters"));
        ControlFlow::Break(())
    })?;
    damaged.map_or(Ok(()), Err)
}
