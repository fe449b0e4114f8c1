//! Families for tests, as the crates above would declare them.

use crate::Family;

pub(crate) const ITEMS: Family = Family::new(2, "items");

/// Its records name chunks.
pub(crate) const NAMES: Family = Family::new(4, "names");

/// As many as a server declares, in no order.
pub(crate) const ALL: [Family; 7] = [
    NAMES,
    ITEMS,
    Family::new(1, "one"),
    Family::new(3, "three"),
    Family::new(8, "eight"),
    Family::new(6, "six"),
    Family::new(7, "seven"),
];
