//! Whether this node reaches any other one. If it does not, it leaves the clients to the others ([`cluster_proto::Isolation`]).

use super::Node;
use super::peers::Peers;
use crate::threads::{thread, wait};
use afs_idl::ClientConnection;
use afs_idl::cluster::{LocateVolumeRequest, locate_volume};
use base::{AbortCode, Monotonic};
use cluster::{NodeName, PartitionName};
use cluster_proto::{Isolation, Others, Owned, Standing, share_out};
use clusterserver::{Ownership, wire_node};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause between two decisions, and number of them after which another node is asked again that has answered.
const PERIOD: Duration = Duration::from_secs(1);
const ASKED: u32 = 3;

/// Maximum number of nodes that are asked at the same time.
const ASKED_MAX: usize = 64;

/// Maximum number of addresses with connections; beyond it all are dropped.
const LINKS_MAX: usize = 256;

/// Another node that renews its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherNode {
    pub(super) name: NodeName,
    /// Where it receives calls of other nodes.
    pub(super) address: SocketAddr,
    pub(super) takes_addresses: bool,
}

/// The thread that asks other nodes.
struct Watch {
    node: Arc<Node>,
    peers: Arc<Peers>,
    isolation: Isolation,
    links: HashMap<SocketAddr, Arc<dyn ClientConnection>>,
    /// Where another node has answered last, and when.
    heard: Option<(SocketAddr, Monotonic)>,
    last: Standing,
}

impl Node {
    /// Begins to ask other nodes, until `ending` is set.
    pub(crate) fn begin_isolation(
        self: &Arc<Self>,
        peers: &Arc<Peers>,
        ending: &Arc<AtomicBool>,
    ) -> JoinHandle<()> {
        let (node, peers, ending) = (Arc::clone(self), Arc::clone(peers), Arc::clone(ending));
        let (isolation, links, last) = Default::default();
        let mut watch = Watch { node, peers, isolation, links, heard: None, last };
        thread("isolation", move || {
            let mut count: u32 = 0;
            while wait(&ending, PERIOD) {
                watch.look(count.is_multiple_of(ASKED));
                count = count.wrapping_add(1);
            }
        })
    }
}

impl Watch {
    fn look(&mut self, is_due: bool) {
        let known = self.node.addresses().others();
        let is_silent = self.heard.is_none_or(|(_, heard)| rx::now().since(heard) > PERIOD * (ASKED + 1));
        match self.heard.filter(|(address, _)| known.iter().any(|other| other.address == *address)) {
            Some((last, _)) if !is_silent && is_due => self.ask(&[last]),
            Some(_) if !is_silent => {}
            _ => self.ask(&known.iter().map(|other| other.address).collect::<Vec<_>>()),
        }
        // They have been read again meanwhile.
        let others = others(&self.node.addresses().others());
        let standing = if self.node.member().has_lease() {
            let heard = self.heard.map(|(_, heard)| heard);
            self.isolation.step(rx::now(), self.node.name(), &others, heard)
        } else {
            self.isolation = Isolation::default();
            Standing::Serves
        };
        if standing != self.last {
            report(standing);
            self.node.addresses().set_standing(standing);
            self.last = standing;
        }
        if standing == Standing::Leaves {
            self.leave(&others);
        }
    }

    /// Asks other nodes at the same time.
    fn ask(&mut self, addresses: &[SocketAddr]) {
        let links: Vec<_> = addresses.iter().take(ASKED_MAX).map(|address| self.link(*address)).collect();
        let question = self.question();
        let answered = std::thread::scope(|scope| {
            let ask = |link: Arc<dyn ClientConnection>| {
                let question = &question;
                scope.spawn(move || is_answer(locate_volume(&*link, question).map(drop)).then(|| link.peer()))
            };
            let asked: Vec<_> = links.into_iter().map(ask).collect();
            asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).last()
        });
        if let Some(address) = answered {
            self.heard = Some((address, rx::now()));
        }
    }

    fn link(&mut self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        if self.links.len() >= LINKS_MAX && !self.links.contains_key(&address) {
            self.links.clear();
        }
        self.links.entry(address).or_insert_with(|| self.peers.link(address)).clone()
    }

    /// Returns a call that has no effect: no node owns anything in this epoch.
    fn question(&self) -> LocateVolumeRequest {
        let partition = self.node.partitions().first().map_or("", |(_, place)| place.as_str());
        LocateVolumeRequest {
            node: wire_node(&self.node.members().node()),
            partition: partition.into(),
            epoch: 0,
            volume: 0,
        }
    }

    /// Asks for everything to be given up that this node owns, for those that others take.
    fn leave(&self, others: &Others) {
        let Some(status) = self.node.member().status() else { return };
        let shared = self.node.shared();
        let owners: BTreeMap<PartitionName, Option<NodeName>> = status
            .partitions
            .into_iter()
            .filter(|one| shared.iter().any(|(_, place)| *place == one.partition))
            .map(|one| (one.partition, one.owner))
            .collect();
        let mut heirs = share_out(&owners, &others.takers);
        for (what, place) in shared.into_iter().filter(|(what, _)| self.node.owns(*what)) {
            if let Some(heir) = heirs.remove(&place) {
                // It may have been asked for already.
                drop(self.node.handovers().ask(what, heir));
            }
        }
    }
}

fn report(standing: Standing) {
    match standing {
        Standing::Serves => tracing::info!("this node serves clients like the others"),
        Standing::Announces => {
            tracing::warn!("no other node answers this one, which reaches the bucket");
        }
        Standing::Leaves => tracing::error!(
            "this node reaches no other one: it gives up its partitions and service addresses, and takes none; check the \
             network, and the cluster's port in firewalls"
        ),
    }
}

/// Whether a call has reached a node. One that cannot decide about the call has answered, too.
fn is_answer(outcome: Result<(), AbortCode>) -> bool {
    !matches!(outcome, Err(AbortCode::RX_CALL_DEAD | AbortCode::RX_RESTARTING))
}

fn others(nodes: &[OtherNode]) -> Others {
    let takers = nodes.iter().filter(|node| node.takes_addresses);
    Others {
        live: nodes.iter().map(|node| node.name.clone()).collect(),
        takers: takers.map(|node| node.name.clone()).collect(),
    }
}

impl Node {
    /// Returns everything that the nodes share, with its place in the bucket.
    fn shared(&self) -> Vec<(Owned, PartitionName)> {
        let partitions = self.partitions().iter().map(|(id, place)| (Owned::Partition(*id), place));
        let databases = self.databases_place().map(|place| (Owned::Databases, place));
        partitions.chain(databases).map(|(what, place)| (what, place.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_is_no_answer() {
        assert!(is_answer(Ok(())) && is_answer(Err(AbortCode::VNOVOL)));
        assert!(is_answer(Err(AbortCode::RXKADUNKNOWNKEY)), "it is there");
        assert!(is_answer(Err(AbortCode::RX_CALL_TIMEOUT)), "it answers pings");
        assert!(!is_answer(Err(AbortCode::RX_CALL_DEAD)));
        assert!(!is_answer(Err(AbortCode::RX_RESTARTING)), "the own port is not open");
    }
}
