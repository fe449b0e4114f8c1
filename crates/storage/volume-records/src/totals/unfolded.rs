//! Changes of directory totals that are not yet in the records.

use super::Totals;
use base::VnodeId;
use std::collections::BTreeMap;

/// Maximum number of directories with unfolded changes. A higher limit means fewer writes of records, but
/// makes the counters, which every change writes, larger.
pub const UNFOLDED_MAX: usize = 16;

/// At most [`UNFOLDED_MAX`] directories, each with a change of totals that applies to it and its ancestors
/// and is not yet in their records. Stored with the volume's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfolded {
    count: usize,
    parts: [(VnodeId, Totals); UNFOLDED_MAX],
}

impl Default for Unfolded {
    fn default() -> Unfolded {
        Unfolded { count: 0, parts: [(VnodeId(0), Totals::default()); UNFOLDED_MAX] }
    }
}

impl Unfolded {
    /// Returns `None` if there are too many parts.
    pub fn new(parts: impl IntoIterator<Item = (VnodeId, Totals)>) -> Option<Unfolded> {
        let mut all = Unfolded::default();
        for part in parts {
            *all.parts.get_mut(all.count)? = part;
            all.count += 1;
        }
        Some(all)
    }

    /// Returns the directories with their changes.
    pub fn iter(&self) -> impl Iterator<Item = (VnodeId, Totals)> {
        self.parts.iter().copied().take(self.count)
    }

    /// Returns the change of each directory.
    pub fn map(&self) -> BTreeMap<VnodeId, Totals> {
        self.iter().collect()
    }

    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of directories.
    pub fn len(&self) -> usize {
        self.count
    }
}
