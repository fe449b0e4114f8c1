//! Who gets the volume from whom.

/// A plan for a number of cells, counted from 0 in the order in which they were named: each has one
/// source, and nobody serves more than `fanout` others.
///
/// It is a complete tree, filled level by level, so that with `fanout` of at least 2 no cell is further from
/// the source than the logarithm of their number to that base, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    cells: usize,
    fanout: usize,
}

impl Tree {
    /// The plan for `cells` cells; a `fanout` of 0 counts as 1.
    pub fn new(cells: usize, fanout: usize) -> Tree {
        Tree { cells, fanout: fanout.max(1) }
    }

    /// The cell that this one gets the volume from; none if that is the source.
    pub fn parent(&self, cell: usize) -> Option<usize> {
        (cell / self.fanout).checked_sub(1)
    }

    /// The cells that this one serves; `None` asks for those of the source.
    pub fn children(&self, of: Option<usize>) -> std::ops::Range<usize> {
        let first = of.map_or(0, |cell| (cell + 1).saturating_mul(self.fanout));
        first.min(self.cells)..first.saturating_add(self.fanout).min(self.cells)
    }

    /// Transfers between the source and this cell: 1 for those that the source serves.
    pub fn depth(&self, cell: usize) -> usize {
        std::iter::successors(Some(cell), |&cell| self.parent(cell)).count()
    }

    /// The largest depth.
    pub fn height(&self) -> usize {
        self.cells.checked_sub(1).map_or(0, |last| self.depth(last))
    }
}
