//! Returns the statuses of several vnodes at once, as listings request them.

use crate::core::vnode_read_ahead::GAP_MAX;
use crate::core::volume::expect;
use crate::{VnodeStatus, Volume, VolumeError};
use afs_format::acl::Acl;
use base::{Fid, VnodeId};
use parking_lot::RwLockReadGuard;
use std::ops::ControlFlow;
use std::sync::Arc;
use volume_records::codec::{self, Vnode};
use volume_records::{epochs, families, keys};

/// Maximum number range of one scan, including vnodes in between, before writers get a turn.
const SPAN_MAX: u32 = 512;
/// Maximum number of versions that a scan reads; with many snapshots, vnodes are looked up individually.
const VERSIONS_MAX: u64 = 1024;

/// A vnode's status and the access list that governs it.
pub type Governed = (VnodeStatus, Arc<Acl>);

impl Volume {
    /// Returns [`Volume::status_and_acl`] of several vnodes, in order, all from one moment.
    pub fn statuses_and_acls(&self, fids: &[Fid]) -> Vec<Result<Governed, VolumeError>> {
        let mut publish = self.group.publish.read();
        let found = self.vnodes_at_hand(fids).unwrap_or_else(|| {
            self.read_together(fids, &mut publish);
            fids.iter().map(|fid| self.vnode(*fid)).collect()
        });
        let mut governor = None;
        let look_up = |fid| self.vnode(fid);
        found.into_iter().map(|vnode| self.with_governor(vnode?, &mut governor, look_up)).collect()
    }

    /// Like [`Volume::statuses_and_acls`], but only if all vnodes exist and are cached, their last changes
    /// are durable, and no change to the group is being published. Never blocks, and no change takes effect before
    /// `use_status` returns. `None` allows no conclusion about the vnodes.
    pub fn with_cached_statuses<T>(
        &self,
        fids: &[Fid],
        use_status: impl FnOnce(&[Governed]) -> Option<T>,
    ) -> Option<T> {
        let _publish = self.group.publish.try_read()?;
        if !fids.iter().all(|fid| self.is_durable(fid.vnode)) {
            return None;
        }
        let mut governor = None;
        let look_up = |fid| self.vnode_at_hand(fid).ok_or(VolumeError::Busy(self.id()));
        let mut governed = |vnode: Result<_, _>| self.with_governor(vnode?, &mut governor, look_up);
        let found = self.vnodes_at_hand(fids)?.into_iter().map(|vnode| governed(vnode).ok());
        use_status(&found.collect::<Option<Vec<Governed>>>()?)
    }

    /// Returns all of them if they are cached.
    fn vnodes_at_hand(&self, fids: &[Fid]) -> Option<Vec<Result<Vnode, VolumeError>>> {
        let vnodes = self.shared.caches.try_vnodes(self.instance(), fids)?;
        let check =
            |(vnode, fid): (Vnode, &Fid)| self.check_is_there().and_then(|()| expect(Some(vnode), *fid));
        Some(vnodes.into_iter().zip(fids).map(check).collect())
    }

    /// Returns a vnode's status and access list. `last` caches the governor of the previous one, which is
    /// usually the same.
    fn with_governor(
        &self,
        vnode: Vnode,
        last: &mut Option<(Fid, Arc<Acl>)>,
        look_up: impl FnOnce(Fid) -> Result<Vnode, VolumeError>,
    ) -> Result<Governed, VolumeError> {
        let status = vnode.status;
        if let Some(acl) = vnode.acl {
            return Ok((status, acl));
        }
        let governor = Fid { volume: self.id(), vnode: status.parent, unique: status.parent_unique };
        if let Some((fid, acl)) = last
            && *fid == governor
        {
            return Ok((status, Arc::clone(acl)));
        }
        let acl = look_up(governor)?.acl.ok_or(VolumeError::NotDirectory)?;
        *last = Some((governor, Arc::clone(&acl)));
        Ok((status, acl))
    }

    /// Caches missing vnodes, and those between them. Unreadable ones are skipped; the later lookup reports
    /// the error. Lets writers run in between.
    pub(crate) fn read_together(&self, fids: &[Fid], publish: &mut RwLockReadGuard<'_, ()>) {
        let instance = self.instance();
        let is_missing = |number: &VnodeId| self.shared.caches.vnode(instance, *number).is_none();
        let mut missing: Vec<VnodeId> = fids.iter().map(|fid| fid.vnode).filter(is_missing).collect();
        missing.sort_unstable();
        missing.dedup();
        for (first, last) in ranges(&missing) {
            if first != last && self.shared.caches.try_vnode(instance, last).is_none() {
                let ahead = self.vnodes_ahead.ahead_of(first);
                let read_to = self.read_range(first, VnodeId(last.0.saturating_add(ahead)));
                self.vnodes_ahead.go_on(read_to, ahead);
                RwLockReadGuard::bump(publish);
            }
        }
        for number in missing {
            if self.shared.caches.try_vnode(self.instance(), number).is_none() {
                _ = self.vnode_by_number(number);
                RwLockReadGuard::bump(publish);
            }
        }
    }

    /// Caches the vnodes of a range. Returns the last one that was read.
    fn read_range(&self, first: VnodeId, last: VnodeId) -> VnodeId {
        let (view, mut read_to) = (self.view(), first);
        let (from, to) = (keys::vnode(self.group.id, first), keys::behind_vnode(self.group.id, last));
        let mut keep = |prefix: &[u8], born: u64, value: &[u8]| {
            let number = keys::vnode_of(prefix);
            read_to = number.unwrap_or(read_to);
            if let Some(mut vnode) = number.and_then(|number| codec::get_vnode(number, value))
                && self.shared.caches.try_vnode(view.instance, vnode.status.vnode).is_none()
            {
                view.read_view.lift(&mut vnode.status, born);
                self.shared.caches.put_vnode(view.instance, vnode);
            }
            ControlFlow::Continue(())
        };
        let range = (&from[..], &to[..]);
        let (meta, read_view) = (self.meta(), &view.read_view);
        if let Err(error) =
            epochs::scan_some(meta, families::VNODES, range, read_view, VERSIONS_MAX, &mut keep)
        {
            tracing::debug!(volume = %self.id(), %error, "cannot read several vnodes at once");
        }
        read_to
    }
}

/// Splits sorted numbers into ranges to read together, each given by its first and last number.
fn ranges(numbers: &[VnodeId]) -> Vec<(VnodeId, VnodeId)> {
    let mut ranges: Vec<(VnodeId, VnodeId)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((first, last)) if number.0 - last.0 <= GAP_MAX && number.0 - first.0 < SPAN_MAX => {
                *last = number;
            }
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_lie_close_are_read_together() {
        let ranges_of = |numbers: &[u32]| -> Vec<(u32, u32)> {
            let numbers: Vec<VnodeId> = numbers.iter().map(|number| VnodeId(*number)).collect();
            ranges(&numbers).into_iter().map(|(first, last)| (first.0, last.0)).collect()
        };
        assert_eq!(ranges_of(&[]), []);
        assert_eq!(ranges_of(&[7]), [(7, 7)]);
        assert_eq!(ranges_of(&[2, 4, 36, 69, 70]), [(2, 36), (69, 70)]);
        let many: Vec<u32> = (0..600).map(|number| 2 * number).collect();
        assert_eq!(ranges_of(&many), [(0, 510), (512, 1022), (1024, 1198)]);
        assert_eq!(ranges_of(&[0, u32::MAX - 1, u32::MAX]), [(0, 0), (u32::MAX - 1, u32::MAX)]);
    }
}
