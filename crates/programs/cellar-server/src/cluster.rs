//! This server as a node of a cluster: all nodes are one file server, and each serves every volume
//! (docs/design/cluster.md).

#[cfg(feature = "bucket")]
mod addresses;
#[cfg(feature = "bucket")]
mod auditing;
#[cfg(feature = "bucket")]
mod databases;
#[cfg(feature = "bucket")]
mod figures;
#[cfg(feature = "bucket")]
mod folder;
#[cfg(feature = "bucket")]
mod foreign;
mod handovers;
#[cfg(feature = "bucket")]
mod isolation;
#[cfg(feature = "bucket")]
mod leases;
#[cfg(feature = "bucket")]
mod node;
#[cfg(feature = "bucket")]
mod others;
#[cfg(feature = "bucket")]
mod peers;
#[cfg(feature = "bucket")]
mod roster;
#[cfg(feature = "bucket")]
mod turns;
#[cfg(not(feature = "bucket"))]
mod without;

#[cfg(feature = "bucket")]
pub(crate) use databases::Databases;
pub(crate) use handovers::Handovers;
#[cfg(feature = "bucket")]
pub(crate) use node::Node;
#[cfg(feature = "bucket")]
pub(crate) use peers::{Calls, Peers};
#[cfg(feature = "bucket")]
pub(crate) use roster::{Means as RosterMeans, follow, with_listed_partitions};
#[cfg(not(feature = "bucket"))]
pub(crate) use without::{Calls, Databases, Node, Peers, RosterMeans, follow, with_listed_partitions};

use crate::threads::wait;
use adminserver::{Cluster, GiveUpError, RemoveNodeError};
use cluster_proto::{NodeName, Owned};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long an administrator's request waits until something is given up.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(50);

/// Longer than the time between two renewals of a lease.
const RENEWED: Duration = Duration::from_millis(1500);

/// Whether a call of Cellar's own service is one of the volume server's transfers (`idl/cellar.idl`).
pub(crate) fn is_transfer(opcode: u32) -> bool {
    (410..420).contains(&opcode)
}

/// What an administrator may ask of a node.
pub(crate) struct Administration {
    pub(crate) node: Arc<Node>,
    pub(crate) ending: Arc<AtomicBool>,
}

impl Cluster for Administration {
    fn give_up(&self, what: Owned, to: &NodeName) -> Result<(), GiveUpError> {
        if to == self.node.name() {
            return Err(GiveUpError::OwnName);
        }
        if !self.node.owns(what) {
            return Err(GiveUpError::NotOwned);
        }
        // A node whose process has died still has a lease, which does not change.
        let before = self.node.live(to)?;
        if !wait(&self.ending, RENEWED) || self.node.live(to)? == before {
            return Err(GiveUpError::NoNode);
        }
        let given_up = self.node.handovers().ask(what, to.clone()).ok_or(GiveUpError::Busy)?;
        match given_up.recv_timeout(GIVE_UP_LIMIT) {
            Ok(true) => Ok(()),
            Ok(false) => Err(GiveUpError::NotOwned),
            Err(_) => Err(GiveUpError::Late),
        }
    }

    fn remove(&self, node: &NodeName) -> Result<(), RemoveNodeError> {
        self.node.remove(node)
    }
}
