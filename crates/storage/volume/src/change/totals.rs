//! Updates totals as part of every transaction.

use crate::VolumeError;
use crate::change::transaction::Transaction;
use base::VnodeId;
use std::collections::BTreeMap;
use volume_records::totals::{Step, Totals, UNFOLDED_MAX, Unfolded, fold};
use volume_records::{codec, families, keys};

/// The effect of a change on totals.
#[derive(Default)]
pub(crate) struct Change {
    /// Changes of directories that are not in their records.
    parts: BTreeMap<VnodeId, Totals>,
    /// Records to be written; `None` deletes.
    pub(crate) records: BTreeMap<VnodeId, Option<Totals>>,
}

impl Change {
    fn add(&mut self, directory: VnodeId, more: Totals) {
        let part = self.parts.entry(directory).or_default();
        *part = part.plus(more);
    }

    fn subtract(&mut self, directory: VnodeId, less: Totals) {
        self.add(directory, Totals::default().minus(less));
    }
}

impl Transaction<'_> {
    /// Adds the effect of `steps` on totals to the batch and the counters. Totals that turn out to be damaged
    /// are dropped and counted again later; they do not prevent changes of the volume.
    pub(crate) fn keep_totals(&mut self, steps: &[Step]) -> Result<Change, VolumeError> {
        let Some(unfolded) = self.counters.unfolded else { return Ok(Change::default()) };
        match self.change_totals(&unfolded, steps) {
            Ok(change) => {
                self.write_totals(&change)?;
                self.counters.unfolded = Unfolded::new(change.parts.iter().map(|(at, part)| (*at, *part)));
                Ok(change)
            }
            Err(VolumeError::Damaged { key, what }) => {
                let volume = self.volume.id();
                tracing::error!(%volume, %key, what, "counting the totals of directories again");
                self.counters.unfolded = None;
                Ok(Change::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Updates the caches after a commit.
    pub(crate) fn keep_totals_in_memory(&mut self, change: Change, steps: Vec<Step>) {
        let (shared, instance) = (&self.volume.shared, self.view.instance);
        for (directory, totals) in change.records {
            shared.caches.put_totals(instance, directory, totals, self.view.read_view.epoch);
        }
        if self.counters.unfolded.is_some() {
            return;
        }
        match &mut self.writer.noted {
            Some(noted) => noted.extend(steps),
            None => _ = shared.uncounted.lock().insert(self.volume.id()),
        }
    }

    fn change_totals(&self, unfolded: &Unfolded, steps: &[Step]) -> Result<Change, VolumeError> {
        let mut change = Change { parts: unfolded.map(), ..Change::default() };
        for step in steps {
            self.apply(&mut change, step)?;
        }
        change.parts.retain(|_, part| !part.is_zero());
        let most = self.volume.shared.options.unfolded_directories.min(UNFOLDED_MAX);
        if change.parts.len() > most {
            self.fold(&mut change, most)?;
        }
        Ok(change)
    }

    fn apply(&self, change: &mut Change, step: &Step) -> Result<(), VolumeError> {
        match *step {
            Step::Add(directory, more) => change.add(directory, more),
            Step::Made { directory, parent, own } => {
                change.records.insert(directory, Some(own));
                change.add(parent, own.as_child());
            }
            Step::Moved { directory, from, to } => {
                let moved = self.volume.stored_totals(directory)?.as_child();
                change.subtract(from, moved);
                change.add(to, moved);
            }
            Step::Removed { directory, parent } => {
                // The unfolded rest of its totals was not yet applied to its ancestors.
                change.subtract(parent, self.volume.stored_totals(directory)?.as_child());
                change.parts.remove(&directory);
                change.records.insert(directory, None);
            }
        }
        Ok(())
    }

    /// Writes records until at most `most` / 2 directories have unfolded changes.
    fn fold(&self, change: &mut Change, most: usize) -> Result<(), VolumeError> {
        let sums = fold(&mut change.parts, most, |at| self.directory_above(at))?;
        for (directory, more) in sums.into_iter().filter(|(_, more)| !more.is_zero()) {
            let old = match change.records.get(&directory) {
                Some(Some(made)) => *made,
                _ => self.volume.stored_totals(directory)?,
            };
            change.records.insert(directory, Some(old.plus(more)));
        }
        Ok(())
    }

    fn directory_above(&self, directory: VnodeId) -> Result<Option<VnodeId>, VolumeError> {
        let parent = self.parent_of(directory)?;
        let parent = parent.ok_or_else(|| self.volume.totals_damage(directory, "of no directory"))?;
        Ok(Some(parent).filter(|parent| *parent != VnodeId(0)))
    }

    fn write_totals(&mut self, change: &Change) -> Result<(), VolumeError> {
        let (caches, instance) = (&self.volume.shared.caches, self.view.instance);
        let epoch = self.view.read_view.epoch;
        for (directory, totals) in &change.records {
            let prefix = keys::vnode(self.volume.group.id, *directory);
            let value = totals.as_ref().map(codec::put_totals);
            match value {
                // A record written before in this epoch is replaced without a lookup of older versions.
                Some(value) if caches.has_totals_of(instance, *directory, epoch) => {
                    self.batch.put(families::TOTALS, keys::versioned(&prefix, epoch), value);
                }
                value => _ = self.write(families::TOTALS, &prefix, value)?,
            }
        }
        Ok(())
    }
}
