//! Computes the totals of directories from all vnodes of a volume.

use super::{Totals, spread};
use crate::VnodeStatus;
use base::VnodeId;
use std::collections::HashMap;
use std::convert::Infallible;

/// Sums for each directory on its own, collected from vnodes in any order.
#[derive(Default)]
pub struct OwnSums {
    own: HashMap<VnodeId, Totals>,
    parents: HashMap<VnodeId, VnodeId>,
}

impl OwnSums {
    /// Adds a vnode.
    pub fn add(&mut self, status: &VnodeStatus) {
        let totals = Totals::of(status);
        if status.is_directory() {
            self.add_to(status.vnode, totals);
            self.add_to(status.parent, Totals::default().as_child());
            self.parents.insert(status.vnode, status.parent);
        } else {
            self.add_to(status.parent, totals);
        }
    }

    fn add_to(&mut self, directory: VnodeId, more: Totals) {
        let sum = self.own.entry(directory).or_default();
        *sum = sum.plus(more);
    }

    /// Returns the parent of each directory.
    pub fn parents(&self) -> &HashMap<VnodeId, VnodeId> {
        &self.parents
    }

    /// Returns the totals of every directory, once.
    pub fn totals(&mut self) -> impl Iterator<Item = (VnodeId, Totals)> {
        let above = |at: VnodeId| Ok::<_, Infallible>(self.parents.get(&at).copied());
        let Ok(sums) = spread(std::mem::take(&mut self.own), above);
        sums.into_iter().filter(|(directory, _)| self.parents.contains_key(directory))
    }
}
