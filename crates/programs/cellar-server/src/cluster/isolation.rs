//! Whether this node reaches any other one. If it does not, it may have to leave the clients to the others
//! ([`cluster_proto::Isolation`]).

use super::Node;
use super::folder::Folder;
use super::peers::Peers;
use crate::buckets::connect;
use crate::threads::{thread, wait};
use afs_idl::ClientConnection;
use afs_idl::client::heard;
use afs_idl::cluster::{LOCATE_VOLUME, LocateVolumeRequest};
use anyhow::Result;
use cellar_config::Settings;
use cluster::{Incarnation, NodeName, PartitionName, ReachRecord, read_reach, write_reach};
use cluster_proto::{Isolation, Other, Owned, Standing, Ways, heirs, share_out};
use clusterserver::{Ownership, wire_node};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two decisions.
const PERIOD: Duration = Duration::from_secs(1);

/// Time between two questions to a node. One that is not answered fails after three seconds.
const QUESTIONS: Duration = Duration::from_secs(3);

/// Maximum number of nodes that are asked at the same time.
const ASKED_MAX: usize = 64;

/// Maximum number of addresses with connections; beyond it all are dropped.
const LINKS_MAX: usize = 256;

/// Time after which what a node has published is published again.
const REPUBLISHED: Duration = Duration::from_secs(30);

/// For how long the bucket may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Another node that renews its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherNode {
    pub(super) name: NodeName,
    pub(super) incarnation: Incarnation,
    /// Where it receives calls of other nodes.
    pub(super) address: SocketAddr,
    /// All its addresses.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) takes_addresses: bool,
}

/// The thread that asks other nodes.
struct Watch {
    node: Arc<Node>,
    peers: Arc<Peers>,
    records: Records,
    isolation: Isolation,
    links: HashMap<SocketAddr, Arc<dyn ClientConnection>>,
    questions: Arc<Questions>,
    asked: BTreeMap<NodeName, Instant>,
    /// The packets of clients that were counted last, while a node is not reached.
    packets: Option<u64>,
    last: Standing,
}

/// The answers of other nodes; nothing waits under the locks.
struct Questions {
    ways: Mutex<Ways>,
    /// The nodes whose answers are awaited.
    open: Mutex<BTreeSet<NodeName>>,
}

/// The nodes' records in the bucket.
struct Records {
    folder: Folder,
    /// What this node has published last, and when.
    published: Option<(ReachRecord, Instant)>,
}

impl Node {
    /// Begins to ask other nodes, until `ending` is set.
    ///
    /// # Errors
    /// If the bucket's client cannot be set up.
    pub(crate) fn begin_isolation(
        self: &Arc<Self>,
        peers: &Arc<Peers>,
        settings: &Settings,
        ending: &Arc<AtomicBool>,
    ) -> Result<Option<JoinHandle<()>>> {
        let Some(cluster) = &settings.cluster else { return Ok(None) };
        let folder = Folder::new(connect(&cluster.bucket)?, cluster.folder())?;
        let ways = Mutex::new(Ways::new(self.name().clone()));
        let mut watch = Watch {
            node: Arc::clone(self),
            peers: Arc::clone(peers),
            records: Records { folder, published: None },
            isolation: Isolation::default(),
            links: HashMap::new(),
            questions: Arc::new(Questions { ways, open: Mutex::default() }),
            asked: BTreeMap::new(),
            packets: None,
            last: Standing::default(),
        };
        let ending = Arc::clone(ending);
        Ok(Some(thread("isolation", move || {
            while wait(&ending, PERIOD) {
                watch.look();
            }
        })))
    }
}

impl Watch {
    fn look(&mut self) {
        let known = self.node.addresses().others();
        self.note_clients(known.as_deref().unwrap_or_default());
        for other in known.iter().flatten() {
            self.ask(other);
        }
        let has_lease = self.node.member().has_lease();
        let standing = known.filter(|_| has_lease).map_or(self.last, |known| self.decide(&known));
        if standing != self.last {
            report(standing);
            self.node.addresses().set_standing(standing);
            self.last = standing;
        }
    }

    /// Notes whether clients have sent something, while a node is not reached.
    fn note_clients(&mut self, others: &[OtherNode]) {
        let is_cut = {
            let ways = self.questions.ways.lock();
            others.iter().any(|other| !ways.reaches(rx::now(), &other.name))
        };
        if !is_cut {
            self.packets = None;
            return;
        }
        let of_nodes: BTreeSet<IpAddr> =
            others.iter().flat_map(|other| other.addresses.iter().copied()).collect();
        let packets = self.node.addresses().packets_of_clients(&of_nodes);
        let before = self.packets.replace(packets);
        if before.is_some_and(|before| packets > before) {
            self.questions.ways.lock().client_sent(rx::now());
        }
    }

    /// Returns the standing, the last one if something is not known.
    fn decide(&mut self, known: &[OtherNode]) -> Standing {
        let (_, own) = self.node.members().node();
        let record = self.questions.ways.lock().record(rx::now(), own, known.iter().map(|other| &other.name));
        if !self.records.publish(record, self.last == Standing::Leaves) {
            return self.last;
        }
        let is_silent = self.questions.ways.lock().is_silent(rx::now());
        let mut others = BTreeMap::new();
        for OtherNode { name, incarnation, takes_addresses, .. } in known {
            let reach = if is_silent { self.records.of(name, *incarnation) } else { Ok(None) };
            let reach = match reach {
                Ok(reach) => reach,
                Err(error) => {
                    // The group is not known.
                    tracing::debug!(node = %name, %error, "cannot read which nodes another one reaches");
                    return self.last;
                }
            };
            others.insert(name.clone(), Other { takes_addresses: *takes_addresses, reach });
        }
        let standing = {
            let ways = self.questions.ways.lock();
            self.isolation.step(rx::now(), &ways, Some(&others))
        };
        if standing == Standing::Leaves {
            self.leave(&others);
        }
        standing
    }

    /// Asks another node, if it is time to.
    fn ask(&mut self, other: &OtherNode) {
        let is_due = self.asked.get(&other.name).is_none_or(|asked| asked.elapsed() >= QUESTIONS);
        let may_ask = is_due && {
            let mut open = self.questions.open.lock();
            open.len() < ASKED_MAX && open.insert(other.name.clone())
        };
        if !may_ask {
            return;
        }
        if self.asked.len() >= LINKS_MAX {
            self.asked.clear();
        }
        self.asked.insert(other.name.clone(), Instant::now());
        let (link, question, name) = (self.link(other.address), self.question(), other.name.clone());
        let questions = Arc::clone(&self.questions);
        // It ends by itself within the call's limit.
        drop(thread("isolation-ask", move || {
            // A node that refuses, or cannot decide, has answered, too.
            if let Some(heard) = heard(&*link, LOCATE_VOLUME, &question) {
                questions.ways.lock().answered(&name, heard);
            }
            questions.open.lock().remove(&name);
        }));
    }

    fn link(&mut self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        if self.links.len() >= LINKS_MAX && !self.links.contains_key(&address) {
            self.links.clear();
        }
        self.links.entry(address).or_insert_with(|| self.peers.link(address)).clone()
    }

    /// Returns a call that has no effect: no node owns anything in this epoch.
    fn question(&self) -> LocateVolumeRequest {
        let partitions = self.node.partitions();
        let partition = partitions.first().map_or("", |(_, place)| place.as_str());
        LocateVolumeRequest {
            node: wire_node(&self.node.members().node()),
            partition: partition.into(),
            epoch: 0,
            volume: 0,
        }
    }

    /// Gives up everything that this node owns, for nodes to which the clients are left.
    fn leave(&self, others: &BTreeMap<NodeName, Other>) {
        let Some(status) = self.node.member().status() else { return };
        let takers: BTreeSet<NodeName> = heirs(self.node.name(), others)
            .into_iter()
            .filter(|heir| others[*heir].takes_addresses)
            .cloned()
            .collect();
        let shared = self.node.shared();
        let owners: BTreeMap<PartitionName, Option<NodeName>> = status
            .partitions
            .into_iter()
            .filter(|one| shared.iter().any(|(_, place)| *place == one.partition))
            .map(|one| (one.partition, one.owner))
            .collect();
        let mut heirs = share_out(&owners, &takers);
        for (what, place) in shared.into_iter().filter(|(what, _)| self.node.owns(*what)) {
            if let Some(heir) = heirs.remove(&place) {
                // It may have been asked for already.
                drop(self.node.handovers().ask(what, heir));
            }
        }
    }
}

impl Records {
    /// Publishes the record of this node, if that has changed or was long ago: a late request may have replaced it. A node that has not
    /// reached any other since its start says so once it leaves everything to the others. Returns whether the others can read which nodes
    /// this one reaches.
    fn publish(&mut self, record: ReachRecord, leaves: bool) -> bool {
        let is_due = match &self.published {
            Some((published, at)) => *published != record || at.elapsed() >= REPUBLISHED,
            None => leaves || !record.reached().is_empty(),
        };
        let is_known = self.published.as_ref().is_none_or(|(published, _)| {
            published.reached() == record.reached() && published.incarnation == record.incarnation
        });
        if !is_due {
            return is_known;
        }
        match self.folder.ask(PATIENCE, async |client, name| write_reach(client, name, &record).await) {
            Ok(()) => {
                self.published = Some((record, Instant::now()));
                true
            }
            Err(error) => {
                tracing::debug!(%error, "cannot write which nodes this one reaches");
                is_known && self.published.is_some()
            }
        }
    }

    /// Reads what another node has published in its present membership.
    fn of(&self, node: &NodeName, incarnation: Incarnation) -> Result<Option<ReachRecord>> {
        let read = self.folder.ask(PATIENCE, async |client, name| read_reach(client, name, node).await);
        Ok(read?.filter(|record| record.incarnation == incarnation))
    }
}

fn report(standing: Standing) {
    match standing {
        Standing::Serves => tracing::info!("this node serves clients like the others"),
        Standing::Leaves => tracing::error!(
            "this node reaches no other one, and the others reach each other: it gives up its partitions and service addresses, and \
             takes none; check the network, and the cluster's port in firewalls"
        ),
    }
}

impl Node {
    /// Returns everything that the nodes share, with its place in the bucket.
    fn shared(&self) -> Vec<(Owned, PartitionName)> {
        let partitions = self.partitions().into_iter().map(|(id, place)| (Owned::Partition(id), place));
        let databases = self.databases_place().map(|place| (Owned::Databases, place.clone()));
        partitions.chain(databases).collect()
    }
}
