//! The node's figures.

use super::{Calls, Node};
use crate::observed::{nanoseconds, peer_figures};
use cluster::{Cause, History, PartitionName, PastTakeover, Stage};
use events::Figures as _;
use events::catalogue::{
    ClusterFigures, NodeFigures, OWNERSHIP_CAUSES, PeerFigures, TAKEOVER_STAGES, TakeoverFigures,
};
use observe::{Sheet, Table};
use rx::PeerReport;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::UNIX_EPOCH;

impl Node {
    /// Returns the row of this node; none after it has left the cluster.
    pub(crate) fn cluster(&self, calls: Option<&Calls>) -> Sheet<ClusterFigures> {
        let mut sheet = Sheet::new(Table::Cluster.labels());
        let Some(history) = self.member().history() else { return sheet };
        let owns = |place: &PartitionName| self.members().serves(place);
        let partitions = self.partitions();
        let places = || partitions.iter().map(|(_, place)| place);
        let is_unserved = |place: &&PartitionName| !owns(place) && !self.is_served_elsewhere(place);
        let counted = calls.map(Calls::counters).unwrap_or_default();
        let nodes = self.addresses().nodes();
        let figures = ClusterFigures {
            nodes_live: nodes.live,
            nodes_silent: nodes.silent,
            nodes_dead: nodes.dead,
            isolated: self.addresses().is_leaving().into(),
            partitions: partitions.len() as u64,
            owned: places().filter(|place| owns(place)).count() as u64,
            unserved: places().filter(is_unserved).count() as u64,
            forwarded: counted.forwarded,
            forward: counted.forward_ns,
            forwards_refused: counted.refused,
            forwards_unknown: counted.unknown,
            forwards_failed: counted.given_up,
            reads: counted.reads,
            read: counted.read_bytes,
            reads_failed: counted.reads_failed,
            writes: counted.writes,
            written: counted.written_bytes,
            writes_failed: counted.writes_failed,
            relayed: counted.relayed_bytes,
            executed: counted.executed,
            executed_before: counted.found,
            sent_through: counted.sent_through,
            sent_directly: counted.sent_directly,
            strangers: counted.strangers,
            ..of_history(history)
        };
        sheet.push([self.name().as_str()], figures);
        sheet
    }

    /// Returns the other nodes that own partitions, or have called this one. `peers` are those of the cluster's port.
    pub(crate) fn nodes(&self, calls: Option<&Calls>, peers: &[PeerReport]) -> Sheet<NodeFigures> {
        let mut sheet = Sheet::new(Table::Nodes.labels());
        let Some(history) = self.member().history() else { return sheet };
        let mut addresses: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
        for (node, of_node) in calls.map(Calls::callers).unwrap_or_default() {
            addresses.insert(node.to_string(), of_node);
        }
        for node in history.nodes.iter().filter(|node| !node.addresses.is_empty()) {
            addresses.insert(node.node.clone(), node.addresses.clone());
        }
        addresses.remove(self.name().as_str());
        let owned = self.owned();
        for (node, of_node) in addresses {
            let traffic = traffic(peers, &of_node);
            let watched = history.nodes.iter().find(|watched| watched.node == node);
            let figures = NodeFigures {
                owned: owned.get(&node).copied().unwrap_or(0),
                silence: watched.map_or(0, |watched| nanoseconds(watched.silent)),
                renewal: watched.and_then(|watched| watched.renewal).map_or(0, nanoseconds),
                ..of_peer(traffic)
            };
            let address = of_node.first().map(ToString::to_string).unwrap_or_default();
            sheet.push([node, address], figures);
        }
        sheet
    }

    /// Returns the numbers of partitions that each node owns, according to the bucket.
    fn owned(&self) -> BTreeMap<String, u64> {
        let (mut owned, partitions) = (BTreeMap::new(), self.partitions());
        for one in self.member().status().map(|status| status.partitions).unwrap_or_default() {
            let is_partition = partitions.iter().any(|(_, place)| *place == one.partition);
            if let Some(owner) = one.owner.filter(|_| is_partition) {
                *owned.entry(owner.to_string()).or_default() += 1;
            }
        }
        owned
    }

    /// Returns the last partitions that came to this node or left it.
    pub(crate) fn takeovers(&self) -> Sheet<TakeoverFigures> {
        let mut sheet = Sheet::new(Table::Takeovers.labels());
        for past in self.member().history().iter().flat_map(|history| &history.last) {
            let takeover = &past.takeover;
            let other = takeover.other.as_ref().map(ToString::to_string).unwrap_or_default();
            let (epoch, cause) = (takeover.epoch.to_string(), takeover.cause.name().to_owned());
            sheet.push([self.display_name(&takeover.partition), epoch, cause, other], of_takeover(past));
        }
        sheet
    }

    /// Returns the name of a partition for display, or the rest of the place of anything else that is owned.
    pub(super) fn display_name(&self, place: &PartitionName) -> String {
        let partitions = self.partitions();
        let partition = partitions.iter().find(|(_, own)| own == place);
        partition.map_or_else(|| place_below(place, &partitions), |(id, _)| id.to_string())
    }
}

/// Returns the part of a place below the cluster's folder, which is that of the partitions.
fn place_below(place: &PartitionName, partitions: &[(base::PartitionId, PartitionName)]) -> String {
    let folder = partitions.first().and_then(|(_, first)| first.as_str().rsplit_once('/'));
    let rest = folder.and_then(|(folder, _)| place.as_str().strip_prefix(folder)?.strip_prefix('/'));
    rest.unwrap_or(place.as_str()).to_owned()
}

fn of_history(history: History) -> ClusterFigures {
    let counters = history.counters;
    let mut ownerships = [0; OWNERSHIP_CAUSES.len()];
    ownerships.copy_from_slice(&history.causes[..OWNERSHIP_CAUSES.len()]);
    let mut takeover_stages = [0; TAKEOVER_STAGES.len()];
    takeover_stages.copy_from_slice(&history.stages[..TAKEOVER_STAGES.len()]);
    ClusterFigures {
        renewals: counters.renewals,
        lapses: counters.lapses,
        lapse_age: history.since_lapse.map_or(0, nanoseconds),
        losses: counters.losses,
        evictions: counters.evictions,
        lease: history.lease_left.map_or(0, nanoseconds),
        ttl: nanoseconds(history.ttl),
        ownerships,
        given_up: history.causes[Cause::GivenUp as usize],
        fences: history.causes[Cause::Fenced as usize],
        takeover: history.takeovers,
        takeover_stages,
        bucket: history.requests,
        bucket_late: counters.late,
        bucket_unknown: counters.unknown,
        bucket_conflicts: counters.conflicts,
        ..ClusterFigures::default()
    }
}

fn of_takeover(past: &PastTakeover) -> TakeoverFigures {
    let PastTakeover { takeover, began, age, answered } = past;
    let stage = |stage| nanoseconds(takeover.stage(stage));
    TakeoverFigures {
        began: nanoseconds(began.duration_since(UNIX_EPOCH).unwrap_or_default()),
        age: nanoseconds(*age),
        total: nanoseconds(takeover.total()),
        detect: stage(Stage::Detect),
        evict: stage(Stage::Evict),
        claim: stage(Stage::Claim),
        open: stage(Stage::Open),
        reset: stage(Stage::Reset),
        close: stage(Stage::Close),
        free: stage(Stage::Free),
        answered: answered.map_or(0, nanoseconds),
        complete: takeover.is_complete.into(),
    }
}

/// Returns the traffic with a node. Counts of several addresses are added; the path is that of the address with the most
/// packets.
fn traffic(peers: &[PeerReport], addresses: &[SocketAddr]) -> PeerFigures {
    let has = |ip: IpAddr| addresses.iter().any(|address| address.ip() == ip);
    let mut of_node: Vec<PeerFigures> =
        peers.iter().filter(|peer| has(peer.address.ip())).map(peer_figures).collect();
    of_node.sort_by_key(|peer| std::cmp::Reverse(peer.received_packets));
    let mut all = of_node.into_iter();
    let Some(mut traffic) = all.next() else { return PeerFigures::default() };
    let path = traffic.clone();
    all.for_each(|other| traffic.add(&other));
    PeerFigures {
        round_trip: path.round_trip,
        variation: path.variation,
        timeout: path.timeout,
        window: path.window,
        congestion_window: path.congestion_window,
        packet: path.packet,
        ..traffic
    }
}

fn of_peer(peer: PeerFigures) -> NodeFigures {
    NodeFigures {
        received_packets: peer.received_packets,
        received: peer.received,
        data_sent: peer.data_sent,
        data_resent: peer.data_resent,
        stalls: peer.stalls,
        sent: peer.sent,
        opened: peer.opened,
        connections: peer.connections,
        round_trips: peer.round_trips,
        round_trip: peer.round_trip,
        variation: peer.variation,
        timeout: peer.timeout,
        window: peer.window,
        congestion_window: peer.congestion_window,
        packet: peer.packet,
        ..NodeFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::roster;
    use cluster::{Epoch, Takeover};
    use cluster_proto::Standing;
    use rx::PeerCounters;
    use std::time::{Duration, SystemTime};

    #[test]
    fn names_are_those_of_the_protocol() {
        let causes: Vec<&str> =
            Cause::ALL.iter().filter(|cause| cause.is_gain()).map(|cause| cause.name()).collect();
        assert_eq!(causes, OWNERSHIP_CAUSES);
        let stages = Stage::ALL.map(|stage| format!("{stage:?}").to_lowercase());
        assert_eq!(stages[..TAKEOVER_STAGES.len()], TAKEOVER_STAGES);
    }

    /// Commands give nothing to it then.
    #[test]
    fn a_node_says_that_it_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::start(&roster::tests::settings(&folder)).unwrap().unwrap();
        let isolated =
            || -> Vec<u64> { node.cluster(None).rows.iter().map(|row| row.figures.isolated).collect() };
        assert_eq!(isolated(), [0]);
        node.addresses().set_standing(Standing::Leaves);
        assert_eq!(isolated(), [1]);
        node.addresses().set_standing(Standing::Serves);
        assert_eq!(isolated(), [0]);
        node.leave();
    }

    #[test]
    fn the_stages_of_a_takeover_add_up() {
        let stages = [6000, 20, 30, 700, 250, 0, 0].map(Duration::from_millis);
        let takeover = Takeover {
            partition: "cell/b".parse().unwrap(),
            epoch: Epoch(7),
            cause: Cause::Died,
            other: None,
            began: base::Monotonic(1),
            stages,
            is_complete: true,
        };
        let (began, age) = (SystemTime::UNIX_EPOCH + Duration::from_secs(100), Duration::from_secs(60));
        let past = PastTakeover { takeover, began, age, answered: Some(Duration::from_millis(6800)) };
        let figures = of_takeover(&past);
        let sum = figures.detect + figures.evict + figures.claim + figures.open + figures.reset;
        assert_eq!((figures.total, sum), (7_000_000_000, 7_000_000_000));
        assert_eq!((figures.began, figures.answered, figures.complete), (100_000_000_000, 6_800_000_000, 1));
    }

    #[test]
    fn other_owned_places_have_their_names() {
        let place = |name: &str| name.parse::<PartitionName>().unwrap();
        let partitions = [("b".parse().unwrap(), place("cells/example.org/b"))];
        for (name, shown) in [
            ("cells/example.org/databases", "databases"),
            ("cells/example.org/addresses/192.0.2.7", "addresses/192.0.2.7"),
            ("elsewhere/b", "elsewhere/b"),
        ] {
            assert_eq!(place_below(&place(name), &partitions), shown);
        }
        assert_eq!(place_below(&place("databases"), &[("b".parse().unwrap(), place("b"))]), "databases");
    }

    #[test]
    fn traffic_is_that_of_all_addresses_of_a_node() {
        let peer = |address: &str, received, rtt_ms| PeerReport {
            address: address.parse().unwrap(),
            connections: 2,
            counters: PeerCounters { received, resent: 1, stalls: 3, ..PeerCounters::default() },
            rtt: Duration::from_millis(rtt_ms),
            rtt_variation: Duration::ZERO,
            timeout: Duration::ZERO,
            window_packets: 32,
            congestion_window_packets: 16,
            packet_bytes: 1444,
        };
        let peers =
            [peer("192.0.2.1:7010", 5, 9), peer("192.0.2.2:7010", 70, 2), peer("192.0.2.3:7010", 1000, 50)];
        let addresses = ["192.0.2.1:7010", "192.0.2.2:7010"].map(|address| address.parse().unwrap());
        let figures = of_peer(traffic(&peers, &addresses));
        assert_eq!((figures.received_packets, figures.data_resent, figures.stalls), (75, 2, 6));
        assert_eq!((figures.round_trip, figures.window, figures.connections), (2_000_000, 32, 4));
        assert_eq!(of_peer(traffic(&peers, &[])), NodeFigures::default());
    }
}
