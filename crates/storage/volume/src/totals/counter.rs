//! Counts the totals of a volume that has none: one from an older version of the program, or one whose totals
//! were found to be damaged.
//!
//! All vnodes are read at one moment, while changes of the volume continue. Changes since that moment are
//! recorded and applied to the count, which is written some hundred directories at a time; the last batch
//! marks the totals as complete. Until then the records are not used, and after a crash they are counted
//! again.

use crate::VolumeError;
use crate::core::group::Writer;
use crate::core::volume::Volume;
use crate::interface::error::damage;
use base::{VnodeId, VolumeType};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use store::{Batch, Family, Frozen};
use volume_records::codec::{self, Counters};
use volume_records::totals::{OwnSums, Step, Totals, Unfolded};
use volume_records::{ReadView, epochs, families, keys};

/// Records written while holding the writer lock.
const WRITE_RECORDS: usize = 256;

/// A directory, with sums over it and everything below.
struct Counted {
    parent: VnodeId,
    totals: Totals,
}

/// The state of a count.
#[derive(Default)]
pub(crate) struct Count {
    directories: HashMap<VnodeId, Counted>,
    /// Existing and removed directories whose record is still to be written.
    unwritten: BTreeSet<VnodeId>,
}

impl Count {
    fn of(mut sums: OwnSums) -> Count {
        let parents = sums.parents().clone();
        let counted =
            |(directory, totals)| Some((directory, Counted { parent: *parents.get(&directory)?, totals }));
        let directories: HashMap<_, _> = sums.totals().filter_map(counted).collect();
        let unwritten = directories.keys().copied().collect();
        Count { directories, unwritten }
    }

    fn add(&mut self, directory: VnodeId, more: Totals) {
        let mut at = directory;
        for _ in 0..self.directories.len() {
            let Some(counted) = self.directories.get_mut(&at).filter(|_| !more.is_zero()) else { return };
            counted.totals = counted.totals.plus(more);
            self.unwritten.insert(at);
            at = counted.parent;
        }
    }

    fn subtract(&mut self, directory: VnodeId, less: Totals) {
        self.add(directory, Totals::default().minus(less));
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Add(directory, more) => self.add(directory, more),
            Step::Made { directory, parent, own } => {
                self.directories.insert(directory, Counted { parent, totals: own });
                self.unwritten.insert(directory);
                self.add(parent, own.as_child());
            }
            Step::Moved { directory, from, to } => {
                let Some(counted) = self.directories.get_mut(&directory) else { return };
                counted.parent = to;
                let moved = counted.totals.as_child();
                self.subtract(from, moved);
                self.add(to, moved);
            }
            Step::Removed { directory, parent } => {
                let Some(counted) = self.directories.remove(&directory) else { return };
                self.unwritten.insert(directory);
                self.subtract(parent, counted.totals.as_child());
            }
        }
    }
}

impl Volume {
    /// Counts the totals if they are unknown; returns whether they are known afterwards. Those of an old
    /// clone stay unknown, because nothing can be written at its epoch. A rollback ends the count.
    pub(crate) fn count_totals(&self) -> Result<bool, VolumeError> {
        let result = self.begin_count().and_then(|state| {
            let Some(state) = state else { return Ok(self.is_counted()) };
            let mut count = self.count(&state)?;
            drop(state);
            while !self.write_some(&mut count)? {}
            Ok(self.is_counted())
        });
        self.group.writer.lock().noted = None;
        result
    }

    /// Starts recording changes.
    fn begin_count(&self) -> Result<Option<(ReadView, Frozen<'_>)>, VolumeError> {
        let mut writer = self.group.writer.lock();
        self.check_is_there()?;
        if self.is_counted() || !self.is_written(&writer) {
            return Ok(None);
        }
        writer.noted = Some(Vec::new());
        Ok(Some((self.view().read_view, Frozen::of(self.meta()))))
    }

    /// Returns whether records can be written at this volume's epoch: it is the read-write volume, or a
    /// restored copy whose group has no other epoch.
    fn is_written(&self, writer: &Writer) -> bool {
        let epochs = &writer.epochs;
        let is_only = epochs.is_read_write_gone && epochs.current == keys::FIRST_EPOCH;
        self.view().read_view == epochs.writer() && (self.kind() == VolumeType::ReadWrite || is_only)
    }

    fn count(&self, state: &(ReadView, Frozen<'_>)) -> Result<Count, VolumeError> {
        let mut sums = OwnSums::default();
        let mut damaged = None;
        self.scan_state(state, families::VNODES, &mut |prefix, value| {
            let vnode = keys::vnode_of(prefix).and_then(|number| codec::get_vnode(number, value));
            match vnode {
                Some(vnode) => sums.add(&vnode.status),
                None => damaged = Some(damage(families::VNODES, prefix, "the vnode")),
            }
        })?;
        let mut count = Count::of(sums);
        // An earlier count may have left records of deleted directories.
        self.scan_state(state, families::TOTALS, &mut |prefix, _| {
            count.unwritten.extend(keys::vnode_of(prefix));
        })?;
        damaged.map_or(Ok(count), Err)
    }

    fn scan_state(
        &self,
        (read_view, state): &(ReadView, Frozen<'_>),
        family: Family,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), VolumeError> {
        let (from, to) = keys::group_range(self.group.id);
        epochs::scan(state, family, (&from, &to), read_view, &mut |prefix, value| {
            visit(prefix, value);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Writes some of the counted records. Returns whether the count is finished: either the totals are
    /// complete and in use, or the count is void because the volume's view has changed.
    fn write_some(&self, count: &mut Count) -> Result<bool, VolumeError> {
        let mut writer = self.group.writer.lock();
        self.check_is_there()?;
        if !self.is_written(&writer) {
            return Ok(true);
        }
        let Some(steps) = writer.noted.as_mut().map(std::mem::take) else { return Ok(true) };
        for step in steps {
            count.apply(&step);
        }
        let mut batch = Batch::new();
        self.put_some(&writer, &mut batch, count)?;
        let is_done = count.unwritten.is_empty();
        if is_done {
            let counters = Counters { unfolded: Some(Unfolded::default()), ..self.counters() };
            batch.put(families::VOLUMES, keys::counters(self.id()), codec::put_counters(&counters));
        }
        let publish = self.group.publish.write();
        self.meta().commit(batch)?;
        if is_done {
            self.change_live(|live| live.set_unfolded(Some(&Unfolded::default())));
        }
        drop((publish, writer));
        Ok(is_done)
    }

    fn put_some(&self, writer: &Writer, batch: &mut Batch, count: &mut Count) -> Result<(), VolumeError> {
        for _ in 0..WRITE_RECORDS {
            let Some(directory) = count.unwritten.pop_first() else { break };
            let totals = count.directories.get(&directory).map(|counted| counted.totals);
            let prefix = keys::vnode(self.group.id, directory);
            let value = totals.as_ref().map(codec::put_totals);
            writer.epochs.write(self.meta(), batch, families::TOTALS, &prefix, value)?;
            self.shared.caches.put_totals(self.view().instance, directory, totals, 0);
        }
        Ok(())
    }
}
