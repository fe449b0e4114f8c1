//! Versioned records: reading at an epoch, and writing without affecting clones.
//!
//! A volume at epoch E sees the newest version of every record that was born in E or before. Only the
//! read-write volume of a group writes, always at the group's newest epoch C. A superseded version stays if a
//! clone sees it and is dropped otherwise. A deletion that would expose an older version leaves an empty
//! value. A volume that was rolled back does not see the epochs in between ([`ReadView`]).

use crate::error::damage;
use crate::{ReadView, RecordError, Rollback, keys};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, Family, KeyRange, MetaStore};

/// Receives the prefix and value of a record.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Receives the prefix, birth epoch and value of a record.
pub type VisitBorn<'a> = dyn FnMut(&[u8], u64, &[u8]) -> ControlFlow<()> + 'a;

/// Returns the visible version of a record with its birth epoch; `None` if missing or deleted.
pub fn get(
    meta: &dyn MetaStore,
    family: Family,
    prefix: &[u8],
    read_view: &ReadView,
) -> Result<Option<(u64, Bytes)>, RecordError> {
    if read_view.epoch == keys::FIRST_EPOCH {
        let value = meta.get(family, &keys::versioned(prefix, keys::FIRST_EPOCH))?;
        return Ok(value.filter(|value| !value.is_empty()).map(|value| (keys::FIRST_EPOCH, value)));
    }
    let mut from_epoch = read_view.epoch;
    loop {
        let (from, to) = keys::versions(prefix, from_epoch);
        let mut found = None;
        meta.scan(family, KeyRange::ascending(&from, &to), &mut |key, value| {
            found = keys::split(key).map(|(_, born)| (born, Bytes::copy_from_slice(value)));
            ControlFlow::Break(())
        })?;
        let Some((born, value)) = found else { return Ok(None) };
        match read_view.hiding(born) {
            Some(rollback) => from_epoch = rollback.after,
            None => return Ok(Some((born, value)).filter(|(_, value)| !value.is_empty())),
        }
    }
}

/// Calls `visit` with prefix and value of every visible record between `from` and `to`, until it breaks.
pub fn scan(
    meta: &dyn MetaStore,
    family: Family,
    range: (&[u8], &[u8]),
    read_view: &ReadView,
    visit: &mut Visit<'_>,
) -> Result<(), RecordError> {
    scan_born(meta, family, range, read_view, &mut |prefix, _, value| visit(prefix, value))
}

/// Like [`scan`], and also passes the version's birth epoch.
pub fn scan_born(
    meta: &dyn MetaStore,
    family: Family,
    range: (&[u8], &[u8]),
    read_view: &ReadView,
    visit: &mut VisitBorn<'_>,
) -> Result<(), RecordError> {
    scan_some(meta, family, range, read_view, u64::MAX, visit)
}

/// Like [`scan_born`], reading at most `versions_max` versions, visible or not.
pub fn scan_some(
    meta: &dyn MetaStore,
    family: Family,
    (from, to): (&[u8], &[u8]),
    read_view: &ReadView,
    versions_max: u64,
    visit: &mut VisitBorn<'_>,
) -> Result<(), RecordError> {
    let mut seen: Vec<u8> = Vec::new();
    let (mut damaged, mut left) = (None, versions_max);
    meta.scan(family, KeyRange::ascending(from, to), &mut |key, value| {
        left = match left.checked_sub(1) {
            Some(left) => left,
            None => return ControlFlow::Break(()),
        };
        let Some((prefix, born)) = keys::split(key) else {
            damaged = Some(key.to_vec());
            return ControlFlow::Break(());
        };
        if prefix == seen || !read_view.sees(born) {
            return ControlFlow::Continue(());
        }
        seen.clear();
        seen.extend_from_slice(prefix);
        if value.is_empty() { ControlFlow::Continue(()) } else { visit(prefix, born, value) }
    })?;
    damaged.map_or(Ok(()), |key| Err(damage(family, &key, "a key that is too short")))
}

/// The epochs of a group, as its writer needs to know them.
#[derive(Clone, Debug)]
pub struct Epochs {
    /// The epoch to write at: the group's newest.
    pub current: u64,
    /// Rollbacks in the writer's history.
    pub rollbacks: Arc<[Rollback]>,
    /// Read views of the group's other volumes; their epochs are all older.
    pub others: Vec<ReadView>,
    /// Whether the group has no read-write volume, so that no volume reads at `current`.
    pub is_read_write_gone: bool,
}

impl Epochs {
    /// Creates the epochs of a group before its volumes are known.
    pub fn without_volumes() -> Epochs {
        let ReadView { epoch, rollbacks } = ReadView::up_to(keys::FIRST_EPOCH);
        Epochs { current: epoch, rollbacks, others: Vec::new(), is_read_write_gone: true }
    }

    /// Returns the writer's read view.
    pub fn writer(&self) -> ReadView {
        ReadView { epoch: self.current, rollbacks: Arc::clone(&self.rollbacks) }
    }

    /// Sets the writer's read view; its epoch is the group's newest.
    pub fn take_writer(&mut self, read_view: ReadView) {
        self.current = read_view.epoch;
        self.rollbacks = read_view.rollbacks;
        self.is_read_write_gone = false;
    }

    /// Returns the read views of all volumes.
    pub fn readers(&self) -> Vec<ReadView> {
        let writer = (!self.is_read_write_gone).then(|| self.writer());
        self.others.iter().cloned().chain(writer).collect()
    }

    /// Returns whether no volume has been rolled back.
    fn is_straight(&self) -> bool {
        self.rollbacks.is_empty() && self.others.iter().all(|other| other.rollbacks.is_empty())
    }

    /// Returns whether another volume sees the version born at this epoch, which the writer saw.
    fn is_seen(&self, versions: &[(u64, bool)], born: u64) -> bool {
        self.others.iter().filter(|other| other.epoch >= born).any(|other| {
            // Without rollbacks no newer version can hide it.
            let is_straight = other.rollbacks.is_empty() && self.rollbacks.is_empty();
            is_straight || other.newest(versions).is_some_and(|at| versions[at].0 == born)
        })
    }

    /// Writes `value` (or, with `None`, the deletion) of a record at the current epoch. Returns whether the
    /// previously visible version is gone for good, so that chunks that only it named can be released.
    pub fn write(
        &self,
        meta: &dyn MetaStore,
        batch: &mut Batch,
        family: Family,
        prefix: &[u8],
        value: Option<Vec<u8>>,
    ) -> Result<bool, RecordError> {
        let key = keys::versioned(prefix, self.current);
        if self.current == keys::FIRST_EPOCH {
            match value {
                Some(value) => batch.put(family, key, value),
                None => batch.delete(family, key),
            }
            return Ok(true);
        }
        let versions = self.versions(meta, family, prefix)?;
        let writer = self.writer();
        let mut mine = versions.iter().copied().filter(|&(born, _)| writer.sees(born));
        let newest = mine.next();
        let is_gone = newest.is_none_or(|(born, _)| born == self.current || !self.is_seen(&versions, born));
        let left = if is_gone { mine.next() } else { newest };
        let gone = newest.filter(|&(born, _)| is_gone && born != self.current).map(|(born, _)| born);
        if let Some(born) = gone {
            batch.delete(family, keys::versioned(prefix, born));
        }
        let is_put = value.is_some() || left.is_some_and(|(_, is_live)| is_live);
        if !self.is_straight() {
            let kept = versions.iter().filter(|&&(born, _)| born != self.current && Some(born) != gone);
            let now = is_put.then_some((self.current, value.is_some()));
            let after: Vec<(u64, bool)> = now.into_iter().chain(kept.copied()).collect();
            for born in idle_deletions(&after, &self.readers()) {
                batch.delete(family, keys::versioned(prefix, born));
            }
        }
        match value {
            Some(value) => batch.put(family, key, value),
            None if is_put => batch.put(family, key, []),
            None => batch.delete(family, key),
        }
        Ok(is_gone)
    }

    /// Returns birth epoch and liveness of every version of a record, newest first.
    fn versions(
        &self,
        meta: &dyn MetaStore,
        family: Family,
        prefix: &[u8],
    ) -> Result<Vec<(u64, bool)>, RecordError> {
        let (from, to) = keys::versions(prefix, self.current);
        let mut found = Vec::new();
        meta.scan(family, KeyRange::ascending(&from, &to), &mut |key, value| {
            found.extend(keys::split(key).map(|(_, born)| (born, !value.is_empty())));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// Returns the births of a record's deletions that hide nothing: without them every reader sees the same.
fn idle_deletions(versions: &[(u64, bool)], readers: &[ReadView]) -> Vec<u64> {
    let hides = |at: usize, reader: &ReadView| {
        let mut older = versions[at + 1..].iter();
        older.any(|&(born, is_live)| is_live && reader.sees(born))
    };
    let is_idle = |&at: &usize| {
        let mut sees_it = readers.iter().filter(|reader| reader.newest(versions) == Some(at));
        !versions[at].1 && !sees_it.any(|reader| hides(at, reader))
    };
    (0..versions.len()).filter(is_idle).map(|at| versions[at].0).collect()
}

/// Returns the births of the versions of a record, given newest first as birth and liveness, that no reader
/// needs.
pub fn unneeded(versions: &[(u64, bool)], readers: &[ReadView]) -> Vec<u64> {
    let mut is_needed = vec![false; versions.len()];
    for at in readers.iter().filter_map(|reader| reader.newest(versions)) {
        is_needed[at] |= versions[at].1;
    }
    // A deletion is needed if it hides an older version that another reader still needs.
    for reader in readers {
        let Some(at) = reader.newest(versions).filter(|&at| !versions[at].1) else { continue };
        let would_show =
            |older: usize| versions[older].1 && is_needed[older] && reader.sees(versions[older].0);
        if (at + 1..versions.len()).any(would_show) {
            is_needed[at] = true;
        }
    }
    let dropped = versions.iter().zip(is_needed).filter(|(_, is_needed)| !is_needed);
    dropped.map(|(&(born, _), _)| born).collect()
}

#[cfg(test)]
mod tests;
