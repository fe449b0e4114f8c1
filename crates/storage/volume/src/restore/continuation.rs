//! Resumes an interrupted transfer on top of the data already received.
//!
//! The new contents are overlaid on the received data, as on a volume's contents
//! ([`overlaying`](crate::restore::overlay)), in the next epoch of its group. So data that was received before and
//! is sent or referred to again is not written again and never stored twice. Received data that is not in the
//! new contents is deleted in that epoch.
//!
//! Received data is in a separate group, or on top of the volume's contents in the volume's group. A vnode
//! that is unchanged in the volume is already in place only in the second case, and only if no part of it was
//! received; otherwise it is read from the volume and stored as if it had been sent.

use crate::VolumeError;
use crate::core::volume::Volume;
use crate::interface::error::damage;
use crate::restore::overlay::Base;
use crate::restore::receipts::{Noted, Received};
use crate::restore::restoration::Restoration;
use base::VnodeId;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, Family, KeyRange};
use volume_records::codec::{self, Job};
use volume_records::keys::{self, FileKey};
use volume_records::{ReadView, families};

/// Previously received data that a transfer continues.
pub(crate) struct Continued {
    /// Keeps the received data from being purged.
    received: Received,
    /// Whether the data is in its own group.
    is_beside: bool,
    /// Vnodes with received data: status, names or contents.
    vnodes: HashSet<VnodeId>,
    /// Files with received contents, by vnode and uniquifier.
    files: HashSet<(VnodeId, u32)>,
}

/// Starts laying new contents over data received in its own group; returns `noted` if the data is not in its
/// own group.
pub(crate) fn begin_beside(
    target: &Arc<Volume>,
    received: Received,
    noted: Noted,
) -> Result<ControlFlow<Restoration, Noted>, VolumeError> {
    let meta = &*target.home.handle.meta;
    let (group, came) = (received.group(), received.epoch());
    let job = keys::job(&codec::put_job(&Job::Group { group }));
    let epoch = came.checked_add(1).filter(|_| group != target.group.id);
    let (Some(epoch), Some(_)) = (epoch, meta.get(families::VOLUMES, &job)?) else {
        return Ok(ControlFlow::Continue(noted));
    };
    let mut batch = Batch::new();
    let noted = noted.begin(&mut batch, group, epoch, Some(&received));
    let continued = Continued::new(target, received, None)?;
    meta.commit(batch)?;
    let base = Base::of_received(ReadView::up_to(came), continued);
    let mut restoration = Restoration::new(Arc::clone(target), group, epoch, Some(base));
    restoration.noted = Some(noted);
    Ok(ControlFlow::Break(restoration))
}

impl Continued {
    /// Reads which vnodes were received. Their records are newer than `below`, or in a separate group.
    pub(crate) fn new(
        target: &Volume,
        received: Received,
        below: Option<&ReadView>,
    ) -> Result<Continued, VolumeError> {
        let is_beside = below.is_none();
        let after = below.map_or(0, |below| below.epoch);
        let mut continued = Continued { received, is_beside, vnodes: HashSet::new(), files: HashSet::new() };
        let (from, to) = keys::group_range(continued.received.group());
        // Scans of a snapshot do not fill the caches.
        let state = target.home.handle.meta.snapshot();
        for family in [families::VNODES, families::ENTRIES, families::EXTENTS] {
            let mut damaged = None;
            state.scan(family, KeyRange::ascending(&from, &to), &mut |key, _| {
                let found = keys::split(key).filter(|&(_, born)| born > after);
                if found.is_some_and(|(prefix, _)| continued.note(family, prefix).is_none()) {
                    damaged = Some(key.to_vec());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            if let Some(key) = damaged {
                return Err(damage(family, &key, "a record of received data"));
            }
        }
        Ok(continued)
    }

    /// Records that something of a vnode was received.
    fn note(&mut self, family: Family, prefix: &[u8]) -> Option<()> {
        let word = |at: usize| Some(u32::from_be_bytes(prefix.get(at..at + 4)?.try_into().ok()?));
        let vnode = VnodeId(word(8)?);
        self.vnodes.insert(vnode);
        if family == families::EXTENTS {
            self.files.insert((vnode, word(12)?));
        }
        Some(())
    }

    /// Returns whether the vnode as the volume has it is visible, unchanged by the received data.
    pub(crate) fn shows(&self, vnode: VnodeId) -> bool {
        !self.is_beside && !self.vnodes.contains(&vnode)
    }

    /// Returns the job that purges superseded data once the new contents are in use, if it was in its own
    /// group.
    pub(crate) fn leftover(&self) -> Option<Job> {
        let (group, epoch) = (self.received.group(), self.received.epoch());
        self.is_beside.then_some(Job::Versions { group, epoch })
    }
}

impl Restoration {
    /// Deletes received data of vnodes that the new contents lack.
    pub(crate) fn delete_received(&mut self) -> Result<(), VolumeError> {
        let Some(continued) = self.base.as_ref().and_then(Base::continued) else { return Ok(()) };
        let is_gone = |&&(vnode, unique): &&(VnodeId, u32)| self.unique_of(vnode) != Some(unique);
        let files: Vec<_> = continued.files.iter().filter(is_gone).copied().collect();
        let is_gone = |&&vnode: &&VnodeId| vnode.0 % 2 == 1 && self.unique_of(vnode).is_none();
        let directories: Vec<_> = continued.vnodes.iter().filter(is_gone).copied().collect();
        let group = self.group;
        for (vnode, unique) in files {
            let file = FileKey { group, vnode, unique };
            self.delete_below(families::EXTENTS, file.extents(0, u64::MAX))?;
        }
        directories
            .into_iter()
            .try_for_each(|vnode| self.delete_below(families::ENTRIES, keys::entry_range(group, vnode)))
    }
}
