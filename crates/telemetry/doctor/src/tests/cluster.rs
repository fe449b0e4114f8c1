//! Cases of clusters.

use super::{Case, MS, SECOND, registered, rows, with};
use crate::snapshot::*;
use events::catalogue::{ClusterFigures, NodeFigures, TakeoverFigures};

/// Returns a cluster of two nodes, each the owner of a partition, with one change.
fn cluster(change: impl FnOnce(&mut Cluster)) -> Snapshot {
    let node = |name: &str| Node {
        name: name.into(),
        is_member: true,
        renews: true,
        dead_since: None,
        version: Some("Cellar 0.2.0".into()),
    };
    let partition = |name: &str, owner: &str| SharedPartition {
        name: name.into(),
        state: "owned".into(),
        owner: Some(owner.into()),
    };
    let mut cluster = Cluster {
        nodes: vec![node("fs1"), node("fs2")],
        partitions: vec![partition("/vicepa", "fs1"), partition("/vicepb", "fs2")],
    };
    change(&mut cluster);
    with(|snapshot| snapshot.cluster = Some(cluster))
}

fn traffic(node: NodeFigures) -> Snapshot {
    with(|snapshot| snapshot.now.nodes = rows([("fs2 192.0.2.2:7010", node)]))
}

fn takeover(cause: &'static str, open: u64, age: u64) -> Snapshot {
    let (detect, reset) = (6 * SECOND, SECOND);
    let total = detect + open + reset;
    let row = TakeoverFigures { total, detect, open, reset, age, complete: 1, ..TakeoverFigures::default() };
    with(|snapshot| snapshot.now.takeovers = rows([(cause, row)]))
}

fn own(change: impl FnOnce(&mut ClusterFigures)) -> Snapshot {
    let mut node = ClusterFigures { renewals: 100, ttl: 6 * SECOND, ..ClusterFigures::default() };
    with(|snapshot| {
        snapshot.before.own_node = rows([("fs1", node.clone())]);
        change(&mut node);
        snapshot.now.own_node = rows([("fs1", node)]);
    })
}

fn late(count: u64) -> Snapshot {
    own(|node| {
        node.bucket_late = count;
        (0..9).for_each(|_| node.bucket.record(20 * MS));
        (0..count).for_each(|_| node.bucket.record(1500 * MS));
    })
}

fn renewal(ms: u64) -> Snapshot {
    let mut snapshot = own(|_| ());
    snapshot.now.nodes =
        rows([("fs2 192.0.2.2:7010", NodeFigures { renewal: ms * MS, ..NodeFigures::default() })]);
    snapshot
}

pub(super) fn cases() -> Vec<Case> {
    [node_cases(), figure_cases()].concat()
}

fn node_cases() -> Vec<Case> {
    let resent = |data_resent, data_sent| {
        let (round_trip, stalls) = (2 * MS, 7);
        NodeFigures { data_resent, data_sent, round_trip, stalls, ..NodeFigures::default() }
    };
    vec![
        (
            "node-not-registered",
            registered(Registration { absent: vec!["192.0.2.3 of fs3".into()], ..Registration::default() }),
            "192.0.2.3 of fs3",
            registered(Registration::default()),
        ),
        (
            "node-silent",
            cluster(|cluster| (cluster.nodes[1].renews, cluster.nodes[1].version) = (false, None)),
            "fs2 does not renew its lease, and its file server does not answer",
            // It has left, or was evicted.
            cluster(|cluster| (cluster.nodes[1].renews, cluster.nodes[1].is_member) = (false, false)),
        ),
        (
            "node-dead",
            cluster(|cluster| {
                (cluster.nodes[1].renews, cluster.nodes[1].is_member) = (false, false);
                cluster.nodes[1].dead_since = Some("2026-11-26 11:40:02".into());
            }),
            "fs2 is dead since 2026-11-26 11:40:02",
            // It was stopped.
            cluster(|cluster| (cluster.nodes[1].renews, cluster.nodes[1].is_member) = (false, false)),
        ),
        (
            "no-redundancy",
            cluster(|cluster| (cluster.nodes[1].renews, cluster.nodes[1].is_member) = (false, false)),
            "only fs1 runs; fs2 do not",
            // It has never had another node, or the others were removed.
            cluster(|cluster| _ = cluster.nodes.pop()),
        ),
        (
            "no-redundancy",
            cluster(|cluster| cluster.nodes.iter_mut().for_each(|node| node.renews = false)),
            "no node runs; fs1, fs2 do not",
            cluster(|_| ()),
        ),
        (
            "partition-unowned",
            cluster(|cluster| {
                let partition = &mut cluster.partitions[1];
                (partition.owner, partition.state) = (None, "owner has ended".into());
            }),
            "/vicepb: owner has ended",
            cluster(|_| ()),
        ),
        (
            "one-owner",
            cluster(|cluster| cluster.partitions[1].owner = Some("fs1".into())),
            "fs1 owns all 2 partitions; fs2 run and own none",
            // The other one does not run.
            cluster(|cluster| {
                cluster.partitions[1].owner = Some("fs1".into());
                cluster.nodes[1].renews = false;
            }),
        ),
        (
            "node-versions",
            cluster(|cluster| cluster.nodes[1].version = Some("Cellar 0.3.0".into())),
            "Cellar 0.3.0: fs2",
            cluster(|cluster| cluster.nodes[1].version = None),
        ),
        (
            "node-packets-sent-again",
            traffic(resent(20, 19_999)),
            "to fs2 192.0.2.2:7010: 20 of 19999 data packets retransmitted (0.1 %), round trip 2.00 ms, 7 stalls",
            traffic(resent(20, 20_000)),
        ),
    ]
}

fn figure_cases() -> Vec<Case> {
    vec![
        (
            "slow-takeover",
            takeover("/vicepb 7 died fs2", 5001 * MS, 60 * SECOND),
            "/vicepb from fs2, epoch 7, 60.0 s ago: 12.0 s (detect 6.00 s, evict -, claim -, open 5.00 s, reset 1.00 s)",
            takeover("/vicepb 7 died fs2", 5000 * MS, 60 * SECOND),
        ),
        // A move has no deadline of this kind, and what is long past is not reported.
        (
            "slow-takeover",
            takeover("/vicepb 7 died fs2", 9 * SECOND, 3600 * SECOND),
            "open 9.00 s",
            takeover("/vicepb 7 moved fs2", 9 * SECOND, 60 * SECOND),
        ),
        (
            "slow-takeover",
            takeover("/vicepb 7 died fs2", 9 * SECOND, 3600 * SECOND),
            "epoch 7",
            takeover("/vicepb 7 died fs2", 9 * SECOND, 3601 * SECOND),
        ),
        (
            "lease-lapsed",
            own(|node| (node.lapses, node.lapse_age) = (3, 60 * SECOND)),
            "fs1: 3 lapses since the start, the last 60.0 s ago; 100 renewals; evicted 0 times",
            own(|node| (node.lapses, node.lapse_age) = (3, 3601 * SECOND)),
        ),
        (
            "slow-bucket",
            late(1),
            "fs1: 1 of 10 requests took a quarter of the lease's lifetime (1.50 s) or longer; median 2",
            late(0),
        ),
        (
            "clock-rates",
            renewal(949),
            "fs2 192.0.2.2:7010 renews its lease every 949 ms by this node's clock, instead of 1.00 s",
            renewal(950),
        ),
        // A slow bucket delays renewals.
        ("clock-rates", renewal(900), "every 900 ms", renewal(1300)),
    ]
}
