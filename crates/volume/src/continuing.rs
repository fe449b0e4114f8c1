//! Going on with what came of a transfer that was cut off, in the place where it lies.
//!
//! The new contents are laid over what had come, as over a volume's ([`overlaying`](crate::overlaying)), and are
//! born in the next epoch of its group. So what had come and comes again, or is referred to, is not written once more, and is
//! never there twice. What had come and is not in the new contents is deleted in that epoch.
//!
//! What had come lies in a group of its own, or over the volume's contents in the volume's group. A vnode that the new contents
//! have as the volume has it is where it must be only in the second case, and only if nothing of it had come; else
//! it is read from the volume and put as if it was sent.

use crate::keys::{self, FileKey};
use crate::overlaying::Base;
use crate::received::{Noted, Received};
use crate::record::{self, Job};
use crate::restoring::Restoration;
use crate::sight::Sight;
use crate::volume::Volume;
use crate::{VolumeError, epochs};
use base::VnodeId;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::{Batch, Family, KeyRange};

/// What had come.
pub(crate) struct Continued {
    /// Keeps it there.
    received: Received,
    /// It lies in a group of its own.
    is_beside: bool,
    /// Vnodes of which something had come: status, names or data.
    vnodes: HashSet<VnodeId>,
    /// Of which files data had come, with their uniquifiers.
    files: HashSet<(VnodeId, u32)>,
}

/// Begins to lay new contents over what came in a group of its own; gives `noted` back if it did not.
pub(crate) fn begin_beside(
    target: &Arc<Volume>,
    received: Received,
    noted: Noted,
) -> Result<ControlFlow<Restoration, Noted>, VolumeError> {
    let meta = &*target.home.handle.meta;
    let (group, came) = (received.group(), received.epoch());
    let job = keys::job(&record::put_job(&Job::Group { group }));
    let epoch = came.checked_add(1).filter(|_| group != target.group.id);
    let (Some(epoch), Some(_)) = (epoch, meta.get(Family::Volumes, &job)?) else {
        return Ok(ControlFlow::Continue(noted));
    };
    let mut batch = Batch::new();
    let noted = noted.begin(&mut batch, group, epoch, Some(&received));
    let continued = Continued::new(target, received, None)?;
    meta.commit(batch)?;
    let base = Base::of_received(Sight::up_to(came), continued);
    let mut restoration = Restoration::new(Arc::clone(target), group, epoch, Some(base));
    restoration.noted = Some(noted);
    Ok(ControlFlow::Break(restoration))
}

impl Continued {
    /// What came, which lies over `below` or in a group of its own.
    pub(crate) fn new(
        target: &Volume,
        received: Received,
        below: Option<&Sight>,
    ) -> Result<Continued, VolumeError> {
        let is_beside = below.is_none();
        let after = below.map_or(0, |below| below.epoch);
        let mut continued = Continued { received, is_beside, vnodes: HashSet::new(), files: HashSet::new() };
        let (from, to) = keys::group_range(continued.received.group());
        // A snapshot's scans leave the caches to others.
        let state = target.home.handle.meta.snapshot();
        for family in [Family::Vnodes, Family::Entries, Family::Extents] {
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
                return Err(epochs::damage(family, &key, "a record of what came"));
            }
        }
        Ok(continued)
    }

    /// Something of a vnode had come.
    fn note(&mut self, family: Family, prefix: &[u8]) -> Option<()> {
        let word = |at: usize| Some(u32::from_be_bytes(prefix.get(at..at + 4)?.try_into().ok()?));
        let vnode = VnodeId(word(8)?);
        self.vnodes.insert(vnode);
        if family == Family::Extents {
            self.files.insert((vnode, word(12)?));
        }
        Some(())
    }

    /// Whether a vnode of the volume is seen through what came as it is.
    pub(crate) fn shows(&self, vnode: VnodeId) -> bool {
        !self.is_beside && !self.vnodes.contains(&vnode)
    }

    /// What is to be purged when it is in use, if it was in a group of its own.
    pub(crate) fn leftover(&self) -> Option<Job> {
        let (group, epoch) = (self.received.group(), self.received.epoch());
        self.is_beside.then_some(Job::Versions { group, epoch })
    }
}

impl Restoration {
    /// Deletes what had come of vnodes that the new contents do not have, and that had not come whole.
    pub(crate) fn delete_what_came(&mut self) -> Result<(), VolumeError> {
        let Some(continued) = self.base.as_ref().and_then(Base::continued) else { return Ok(()) };
        let is_gone = |&&(vnode, unique): &&(VnodeId, u32)| self.unique_of(vnode) != Some(unique);
        let files: Vec<_> = continued.files.iter().filter(is_gone).copied().collect();
        let is_gone = |&&vnode: &&VnodeId| vnode.0 % 2 == 1 && self.unique_of(vnode).is_none();
        let directories: Vec<_> = continued.vnodes.iter().filter(is_gone).copied().collect();
        let group = self.group;
        for (vnode, unique) in files {
            let file = FileKey { group, vnode, unique };
            self.delete_below(Family::Extents, file.extents(0, u64::MAX))?;
        }
        directories
            .into_iter()
            .try_for_each(|vnode| self.delete_below(Family::Entries, keys::entry_range(group, vnode)))
    }
}
