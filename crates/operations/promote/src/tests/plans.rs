//! Tests of the tree's properties.

use crate::Tree;
use proptest::prelude::*;

/// Returns the steps that a complete tree of this out-degree needs for a number of cells.
fn logarithm(cells: usize, fanout: usize) -> usize {
    let (mut height, mut level, mut reached) = (0, 1, 0);
    while reached < cells {
        level *= fanout;
        reached += level;
        height += 1;
    }
    height
}

proptest! {
    #[test]
    fn each_cell_has_one_source_and_nobody_serves_too_many(cells in 0usize..500, fanout in 1usize..9) {
        let tree = Tree::new(cells, fanout);
        let mut sources = vec![0; cells];
        for holder in std::iter::once(None).chain((0..cells).map(Some)) {
            let children = tree.children(holder);
            prop_assert!(children.len() <= fanout);
            for child in children {
                prop_assert_eq!(tree.parent(child), holder);
                prop_assert!(holder.is_none_or(|holder| holder < child), "no circles");
                sources[child] += 1;
            }
        }
        prop_assert!(sources.iter().all(|&count| count == 1));
        prop_assert_eq!(tree.height(), logarithm(cells, fanout));
    }
}

#[test]
fn eighty_cells_are_four_transfers_deep_with_three_each() {
    let tree = Tree::new(80, 3);
    assert_eq!(tree.children(None), 0..3);
    assert_eq!(tree.height(), 4);
    assert_eq!((tree.parent(2), tree.parent(3), tree.parent(79)), (None, Some(0), Some(25)));
}
