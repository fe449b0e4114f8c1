//! The plan of transfers between cells.

/// A plan for a number of cells, counted from 0 in their configured order: each cell has one source, and no
/// cell serves more than `fanout` others.
///
/// The plan is a complete tree, filled level by level, so that with `fanout` of at least 2 no cell is further
/// from the source than the logarithm of the number of cells to that base, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    cells: usize,
    fanout: usize,
}

impl Tree {
    /// Creates the plan for `cells` cells; a `fanout` of 0 counts as 1.
    pub fn new(cells: usize, fanout: usize) -> Tree {
        Tree { cells, fanout: fanout.max(1) }
    }

    /// Returns the cell from which this one gets the volume; `None` for the source.
    pub fn parent(&self, cell: usize) -> Option<usize> {
        (cell / self.fanout).checked_sub(1)
    }

    /// Returns the cells that this one serves; `None` means the source.
    pub fn children(&self, of: Option<usize>) -> std::ops::Range<usize> {
        let first = of.map_or(0, |cell| (cell + 1).saturating_mul(self.fanout));
        first.min(self.cells)..first.saturating_add(self.fanout).min(self.cells)
    }

    /// Returns the number of transfers from the source to this cell; 1 for cells that the source serves.
    pub fn depth(&self, cell: usize) -> usize {
        std::iter::successors(Some(cell), |&cell| self.parent(cell)).count()
    }

    /// Returns the largest depth.
    pub fn height(&self) -> usize {
        self.cells.checked_sub(1).map_or(0, |last| self.depth(last))
    }
}
