//! Records with versions: reading at an epoch, and writing without harm to clones.
//!
//! A volume at epoch E sees of every record the newest version that was born in E or before. Only
//! the read-write volume of a group writes, always at the group's newest epoch C. Where the version
//! it supersedes is seen by a clone (born in B, and a clone's epoch is in B..C) it stays; otherwise
//! it is dropped. A deletion that would bring an older version back to light leaves an empty value.

use crate::{VolumeError, keys};
use bytes::Bytes;
use std::ops::ControlFlow;
use store::{Batch, Family, KeyRange, MetaStore};

/// Takes prefix and value of a record.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// The newest version of a record at `epoch`; `None` if there is none or it is deleted.
pub(crate) fn get(
    meta: &dyn MetaStore,
    family: Family,
    prefix: &[u8],
    epoch: u64,
) -> Result<Option<Bytes>, VolumeError> {
    if epoch == keys::FIRST_EPOCH {
        return Ok(meta.get(family, &keys::versioned(prefix, epoch))?.filter(|value| !value.is_empty()));
    }
    let (from, to) = keys::versions(prefix, epoch);
    let mut found = None;
    meta.scan(family, KeyRange::ascending(&from, &to), &mut |_, value| {
        found = (!value.is_empty()).then(|| Bytes::copy_from_slice(value));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Calls `visit` with prefix and value of every record between `from` and `to` as it is at `epoch`,
/// until it breaks.
pub(crate) fn scan(
    meta: &dyn MetaStore,
    family: Family,
    (from, to): (&[u8], &[u8]),
    epoch: u64,
    visit: &mut Visit<'_>,
) -> Result<(), VolumeError> {
    let mut seen: Vec<u8> = Vec::new();
    let mut damaged = None;
    meta.scan(family, KeyRange::ascending(from, to), &mut |key, value| {
        let Some((prefix, born)) = keys::split(key) else {
            damaged = Some(key.to_vec());
            return ControlFlow::Break(());
        };
        if born > epoch || prefix == seen {
            return ControlFlow::Continue(());
        }
        seen.clear();
        seen.extend_from_slice(prefix);
        if value.is_empty() { ControlFlow::Continue(()) } else { visit(prefix, value) }
    })?;
    damaged.map_or(Ok(()), |key| Err(damage(family, &key, "a key that is too short")))
}

/// The error for a record that cannot be read.
pub(crate) fn damage(family: Family, key: &[u8], what: &'static str) -> VolumeError {
    VolumeError::Damaged { key: format!("{} {key:02x?}", family.name()), what }
}

/// The epochs that a writer must respect.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    /// The one to write at: the group's newest.
    pub(crate) current: u64,
    /// Those of the group's other volumes, all older.
    pub(crate) others: Vec<u64>,
    /// Nobody reads at `current`.
    pub(crate) is_read_write_gone: bool,
}

impl Epochs {
    /// Of a group before its volumes are known.
    pub(crate) fn without_volumes() -> Epochs {
        Epochs { current: keys::FIRST_EPOCH, others: Vec::new(), is_read_write_gone: true }
    }

    /// At which epochs anybody reads.
    pub(crate) fn readers(&self) -> Vec<u64> {
        let writer = (!self.is_read_write_gone).then_some(self.current);
        self.others.iter().copied().chain(writer).collect()
    }

    fn is_seen(&self, born: u64) -> bool {
        self.others.iter().any(|&epoch| epoch >= born)
    }

    /// Writes `value` (or, with `None`, the deletion) of a record at the current epoch. Returns
    /// whether the version that was seen before is gone for good, so that what only it named can be
    /// released.
    pub(crate) fn write(
        &self,
        meta: &dyn MetaStore,
        batch: &mut Batch,
        family: Family,
        prefix: &[u8],
        value: Option<Vec<u8>>,
    ) -> Result<bool, VolumeError> {
        let key = keys::versioned(prefix, self.current);
        if self.current == keys::FIRST_EPOCH {
            match value {
                Some(value) => batch.put(family, key, value),
                None => batch.delete(family, key),
            }
            return Ok(true);
        }
        let versions = self.versions(meta, family, prefix)?;
        let newest = versions.first().copied();
        let older_is_live = |skip: usize| versions.get(skip).is_some_and(|&(_, is_live)| is_live);
        let is_gone = newest.is_none_or(|(born, _)| born == self.current || !self.is_seen(born));
        if let Some((born, _)) = newest.filter(|&(born, _)| is_gone && born != self.current) {
            batch.delete(family, keys::versioned(prefix, born));
        }
        match value {
            Some(value) => batch.put(family, key, value),
            None if older_is_live(usize::from(is_gone && newest.is_some())) => batch.put(family, key, []),
            None => batch.delete(family, key),
        }
        Ok(is_gone)
    }

    /// Birth and liveness of every version of a record, newest first.
    fn versions(
        &self,
        meta: &dyn MetaStore,
        family: Family,
        prefix: &[u8],
    ) -> Result<Vec<(u64, bool)>, VolumeError> {
        let (from, to) = keys::versions(prefix, self.current);
        let mut found = Vec::new();
        meta.scan(family, KeyRange::ascending(&from, &to), &mut |key, value| {
            found.extend(keys::split(key).map(|(_, born)| (born, !value.is_empty())));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// Which versions of one record, given newest first as birth and liveness, no reader at `epochs`
/// needs.
pub(crate) fn unneeded(versions: &[(u64, bool)], epochs: &[u64]) -> Vec<u64> {
    let mut newer = u64::MAX;
    let mut kept: Vec<(u64, bool)> = Vec::new();
    let mut dropped = Vec::new();
    for &(born, is_live) in versions {
        let is_read = epochs.iter().any(|&epoch| (born..newer).contains(&epoch));
        newer = born;
        if is_read { kept.push((born, is_live)) } else { dropped.push(born) }
    }
    // A deletion below which nothing is left hides nothing.
    while let Some((born, _)) = kept.pop_if(|(_, is_live)| !*is_live) {
        dropped.push(born);
    }
    dropped
}

#[cfg(test)]
mod tests;
