//! Cuts of single ways: what one party sends to another is lost, while everything else arrives.

use super::{CLIENTS, Happening, World};
use crate::simulation::clock::SECOND;
use rand::Rng;

/// A way that may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// From one node to another, not back.
    Between { from: usize, to: usize },
    /// Between a node and the bucket.
    ToBucket(usize),
    /// From a client to a node.
    FromClient { client: usize, node: usize },
    /// From a node to a client.
    ToClient { node: usize, client: usize },
}

impl World {
    pub(super) fn is_lost(&self, way: Way) -> bool {
        self.lost.contains(&way)
    }

    /// Whether a node does not reach the bucket.
    pub(super) fn is_apart(&self, node: usize) -> bool {
        self.bucket.is_away || self.is_lost(Way::ToBucket(node))
    }

    /// Cuts ways for a while: one of them, or all between a node and the others.
    pub(super) fn part(&mut self, node: usize) {
        let (nodes, client) = (self.nodes.len(), self.rng.random_range(0..CLIENTS));
        let other = (node + self.rng.random_range(1..nodes)) % nodes;
        let ways = match self.rng.random_range(0..6) {
            0 => vec![Way::Between { from: node, to: other }],
            1 => vec![Way::Between { from: other, to: node }],
            2 => vec![Way::ToBucket(node)],
            3 => vec![Way::FromClient { client, node }],
            4 => vec![Way::ToClient { node, client }],
            // It reaches the bucket and clients, but no other node.
            _ => (0..nodes)
                .filter(|other| *other != node)
                .flat_map(|other| {
                    [Way::Between { from: node, to: other }, Way::Between { from: other, to: node }]
                })
                .collect(),
        };
        self.report.partings += 1;
        let span = self.rng.random_range(SECOND..20 * SECOND);
        self.trace(|_| format!("{ways:?} are cut"));
        self.lost.extend(&ways);
        self.plan(span, Happening::Mended(ways));
    }

    pub(super) fn mend(&mut self, ways: &[Way]) {
        self.trace(|_| format!("{ways:?} are mended"));
        self.lost.retain(|way| !ways.contains(way));
    }
}
