//! Allocates vnode numbers: even for files and links, odd for directories. Freed low numbers are reused, so
//! that dumps and clients' tables stay dense.
//!
//! Only the highest number ever used is stored. Free numbers below it are found by scanning the vnode
//! records, some thousand numbers at a time, and only if many must be free.

use crate::VolumeError;
use base::VnodeId;
use std::ops::ControlFlow;
use store::MetaStore;
use volume_records::{ReadView, epochs, families, keys};

/// Numbers scanned in one search.
const SEARCH_NUMBERS: u32 = 8192;

/// Location of a volume's vnodes.
pub(crate) struct Place<'a> {
    pub(crate) meta: &'a dyn MetaStore,
    pub(crate) group: u64,
    pub(crate) read_view: &'a ReadView,
}

/// Known free numbers of one class.
pub(crate) struct Numbers {
    first: u32,
    free: Vec<u32>,
    cursor: u32,
}

impl Numbers {
    pub(crate) fn files() -> Numbers {
        Numbers { first: 2, free: Vec::new(), cursor: 2 }
    }

    pub(crate) fn directories() -> Numbers {
        Numbers { first: 1, free: Vec::new(), cursor: 1 }
    }

    /// Allocates an unused number. `next` is the lowest never used, `live` the count in use.
    pub(crate) fn take(
        &mut self,
        place: &Place<'_>,
        next: &mut u32,
        live: u64,
    ) -> Result<VnodeId, VolumeError> {
        if self.free.is_empty() && self.is_worth_a_search(*next, live) {
            self.search(place, *next)?;
        }
        if let Some(number) = self.free.pop() {
            return Ok(VnodeId(number));
        }
        let number = *next;
        *next = number.checked_add(2).ok_or(VolumeError::Invalid("the volume has no vnode number left"))?;
        Ok(VnodeId(number))
    }

    /// Returns whether a quarter of the numbers, and some thousand, are free.
    fn is_worth_a_search(&self, next: u32, live: u64) -> bool {
        let used = u64::from((next - self.first) / 2);
        let free = used.saturating_sub(live);
        free > 4096 && free > used / 4 || next > u32::MAX - 2
    }

    fn search(&mut self, place: &Place<'_>, next: u32) -> Result<(), VolumeError> {
        if self.cursor >= next {
            self.cursor = self.first;
        }
        let end = next.min(self.cursor.saturating_add(SEARCH_NUMBERS));
        let from = keys::vnode(place.group, VnodeId(self.cursor));
        let to = keys::vnode(place.group, VnodeId(end));
        let mut taken = Vec::new();
        epochs::scan(place.meta, families::VNODES, (&from, &to), place.read_view, &mut |prefix, _| {
            taken.extend(keys::vnode_of(prefix).map(|vnode| vnode.0));
            ControlFlow::Continue(())
        })?;
        let candidates = (self.cursor..end).step_by(2).filter(|number| taken.binary_search(number).is_err());
        self.free = candidates.filter(|&number| number != VnodeId::ROOT.0).collect();
        self.free.reverse();
        self.cursor = end + (end ^ self.first) % 2;
        Ok(())
    }
}
