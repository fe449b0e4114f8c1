//! A cluster of servers: its nodes, their leases, takeovers, and the traffic between them.

use crate::finding::Finding;
use crate::snapshot::{Cluster, Labels, Node, SharedPartition, Snapshot};
use crate::text::{percent, time};
use events::catalogue::TakeoverFigures;
use std::collections::BTreeMap;

/// Tolerated retransmissions per thousand packets between nodes.
const RESENT_PERMILLE_MAX: u64 = 1;

/// Minimum number of retransmissions for a meaningful result.
const RESENT_MIN: u64 = 20;

/// Longest time after which another node is to serve the partitions of one that has died.
const TAKEOVER_NS_MAX: u64 = 12_000_000_000;

/// Takeovers and lapses that are older are not reported.
const LATELY_NS: u64 = 3600 * 1_000_000_000;

/// Deviation of a clock's rate that is reported, in percent. The protocol survives 10 percent.
const RATE_PERCENT: u64 = 5;

/// Number of renewals in a lifetime of a lease.
const RENEWALS: u64 = 6;

/// Share of a lease's lifetime that most requests to the bucket may take.
const BUCKET_SHARE: u64 = 4;

fn nodes(snapshot: &Snapshot) -> impl Iterator<Item = &Node> {
    snapshot.cluster.iter().flat_map(|cluster| &cluster.nodes)
}

/// Reports nodes that do not renew their leases and have not left.
pub(crate) fn silent_nodes(snapshot: &Snapshot) -> Vec<Finding> {
    let is_silent = |node: &&Node| node.is_member && !node.renews;
    let says = |node: &Node| match &node.version {
        Some(version) => {
            format!("{} does not renew its lease; its file server answers ({version})", node.name)
        }
        None => format!("{} does not renew its lease, and its file server does not answer", node.name),
    };
    let evidence: Vec<String> = nodes(snapshot).filter(is_silent).map(says).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "node-silent",
        weight: 72,
        what: "Nodes of the cluster are silent.".into(),
        evidence,
        cause: "The machine is down, the process has died or stands still, or the node does not reach the bucket. \
            After 6 seconds the others take its partitions over; with each further node that dies less is left."
            .into(),
        remedy: "Start the node again, or restore its way to the bucket (`cellar bucket probe`). After a minute the \
            others find it dead; if it is gone for good, remove it then (`cellar cluster remove NODE`)."
            .into(),
    }]
}

/// Reports nodes that another one has found dead, and that have not come back.
pub(crate) fn dead_nodes(snapshot: &Snapshot) -> Vec<Finding> {
    let says = |node: &Node| Some(format!("{} is dead since {}", node.name, node.dead_since.as_ref()?));
    let evidence: Vec<String> = nodes(snapshot).filter_map(says).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "node-dead",
        weight: 68,
        what: "Nodes of the cluster have died and not come back.".into(),
        evidence,
        cause: "Another node has taken over what it owned, or has found its lease unchanged for a minute. The time is that of the \
            bucket's clock."
            .into(),
        remedy: "Start the node again; it joins by itself. If it is gone for good, remove it: `cellar cluster remove \
            NODE`."
            .into(),
    }]
}

/// Reports a cluster in which no other node can take over.
pub(crate) fn no_redundancy(snapshot: &Snapshot) -> Vec<Finding> {
    let all: Vec<&Node> = nodes(snapshot).collect();
    let live: Vec<&str> = all.iter().filter(|node| node.renews).map(|node| &*node.name).collect();
    if all.len() < 2 || live.len() >= 2 {
        return vec![];
    }
    let others: Vec<&str> = all.iter().filter(|node| !node.renews).map(|node| &*node.name).collect();
    let live = live.first().map_or_else(|| "no node runs".to_owned(), |live| format!("only {live} runs"));
    vec![Finding {
        problem: "no-redundancy",
        weight: 74,
        what: "No other node of the cluster could take over.".into(),
        evidence: vec![format!("{live}; {} do not", others.join(", "))],
        cause: "The other nodes were stopped or have died. If this one fails, too, nothing is served.".into(),
        remedy: "Start another node, or add one with `cellar cluster join`. If the cluster is to have one node from now \
            on, remove the others: `cellar cluster remove NODE`."
            .into(),
    }]
}

/// Reports partitions that no living node owns.
pub(crate) fn unowned_partitions(snapshot: &Snapshot) -> Vec<Finding> {
    let partitions = snapshot.cluster.iter().flat_map(|cluster| &cluster.partitions);
    let is_unowned = |partition: &&SharedPartition| partition.owner.is_none();
    let says = |partition: &SharedPartition| format!("{}: {}", partition.name, partition.state);
    let evidence: Vec<String> = partitions.filter(is_unowned).map(says).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "partition-unowned",
        weight: 90,
        what: "Partitions of the cluster are served by no node.".into(),
        evidence,
        cause: "Calls for their volumes wait. A node takes such a partition within some seconds, if one runs, reaches \
            the bucket and can open it."
            .into(),
        remedy: "Run the command again. If the partition stays without an owner, the log of each running node says \
            why it cannot be opened; `cellar stat takeovers` shows attempts that came to no end."
            .into(),
    }]
}

/// Reports a node that owns everything while others run.
pub(crate) fn one_owner(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(Cluster { nodes, partitions }) = &snapshot.cluster else { return vec![] };
    let Some(owner) = partitions.first().and_then(|partition| partition.owner.as_ref()) else {
        return vec![];
    };
    let has_all = partitions.iter().all(|partition| partition.owner.as_ref() == Some(owner));
    let others: Vec<&str> =
        nodes.iter().filter(|node| node.renews && node.name != *owner).map(|node| &*node.name).collect();
    if partitions.len() < 2 || !has_all || others.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "one-owner",
        weight: 25,
        what: "One node of the cluster owns all partitions.".into(),
        evidence: vec![format!(
            "{owner} owns all {} partitions; {} run and own none",
            partitions.len(),
            others.join(", ")
        )],
        cause: "A node that comes back gets no partition by itself. All calls of the cluster are executed by one node, \
            and its death stops everything for some seconds."
            .into(),
        remedy: "`cellar cluster balance` gives the others their share; calls wait for about a second.".into(),
    }]
}

/// Reports nodes that run different programs.
pub(crate) fn versions(snapshot: &Snapshot) -> Vec<Finding> {
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes(snapshot).filter(|node| node.is_member) {
        if let Some(version) = &node.version {
            by_version.entry(version).or_default().push(&node.name);
        }
    }
    if by_version.len() < 2 {
        return vec![];
    }
    let says = |(version, nodes): (&str, Vec<&str>)| format!("{version}: {}", nodes.join(", "));
    vec![Finding {
        problem: "node-versions",
        weight: 22,
        what: "The nodes of the cluster run different versions of the program.".into(),
        evidence: by_version.into_iter().map(says).collect(),
        cause: "An upgrade is under way, or a node was left out.".into(),
        remedy: "Upgrade the remaining nodes, one after the other: `cellar cluster drain NODE`, then the package, then \
            a restart."
            .into(),
    }]
}

/// Reports retransmissions between nodes.
pub(crate) fn sent_again(snapshot: &Snapshot) -> Vec<Finding> {
    let (nodes, _) = snapshot.nodes();
    let mut evidence = Vec::new();
    for (labels, node) in &nodes {
        let too_many = node.data_resent * 1000 > node.data_sent * RESENT_PERMILLE_MAX;
        if too_many && node.data_resent >= RESENT_MIN {
            evidence.push(format!(
                "to {}: {} of {} data packets retransmitted ({}), round trip {}, {} stalls of the window",
                labels.join(" "),
                node.data_resent,
                node.data_sent,
                percent(node.data_resent, node.data_sent),
                time(node.round_trip),
                node.stalls
            ));
        }
    }
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "node-packets-sent-again",
        weight: 48,
        what: "Packets between nodes of the cluster are lost.".into(),
        evidence,
        cause: "The network between the nodes loses packets, or a node drops them because its receive buffer is small. \
            Each loss delays forwarded calls."
            .into(),
        remedy: "Run `cellar doctor` on the other node, too. Check its network port (`ethtool -S`) and \
            net.core.rmem_max; `cellar stat cluster --interval 5` shows which node it is."
            .into(),
    }]
}

/// Describes a takeover from a node that died, if it is of the last hour and was slow.
fn slow_takeover((labels, row): &(Labels, TakeoverFigures)) -> Option<String> {
    let [partition, epoch, cause, node] =
        [0, 1, 2, 3].map(|place| labels.get(place).map_or("", String::as_str));
    let is_slow = row.total > TAKEOVER_NS_MAX && row.age <= LATELY_NS;
    if !is_slow || cause != "died" {
        return None;
    }
    let [age, total, detect, evict, claim, open, reset] =
        [row.age, row.total, row.detect, row.evict, row.claim, row.open, row.reset].map(time);
    Some(format!(
        "{partition} from {node}, epoch {epoch}, {age} ago: {total} (detect {detect}, evict {evict}, claim {claim}, open \
         {open}, reset {reset})"
    ))
}

/// Reports takeovers of the last hour that were slow, with the time of each stage.
pub(crate) fn slow_takeovers(snapshot: &Snapshot) -> Vec<Finding> {
    let evidence: Vec<String> = snapshot.now.takeovers.0.iter().filter_map(slow_takeover).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "slow-takeover",
        weight: 52,
        what: "Partitions of a node that died were taken over late.".into(),
        evidence,
        cause: "`detect` is the lifetime of the lease (6 seconds), and longer if this node did not reach the bucket. \
            `evict` and `claim` are requests to the bucket. `open` reads the partition's metadata and its list of \
            volumes; `reset` waits up to 3 seconds for clients that do not answer."
            .into(),
        remedy: "For `evict`, `claim` and `open`, see `bucket` in `cellar stat cluster`: a slow bucket, or one far away, \
            delays all three. A local cache (`cluster.cache`) shortens `open`. For `reset`, see `cellar stat callbacks`: \
            clients that are gone leave the list after some hours."
            .into(),
    }]
}

/// Reports leases that were not renewed in time.
pub(crate) fn lapses(snapshot: &Snapshot) -> Vec<Finding> {
    let (now, _) = &snapshot.now.own_node;
    let mut evidence = Vec::new();
    for (labels, node) in now {
        if node.lapses > 0 && node.lapse_age <= LATELY_NS {
            evidence.push(format!(
                "{}: {} lapses since the start, the last {} ago; {} renewals; evicted {} times",
                labels.join(" "),
                node.lapses,
                time(node.lapse_age),
                node.renewals,
                node.losses
            ));
        }
    }
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "lease-lapsed",
        weight: 66,
        what: "This node could not renew its lease in time.".into(),
        evidence,
        cause: "The bucket did not answer for about 5 seconds, or the process stood still: the machine was suspended, \
            migrated, or had no memory left. Meanwhile the node answers nothing, and after a second more the others \
            evict it."
            .into(),
        remedy: "See `bucket` in `cellar stat cluster`, and the bucket's own log at the times of the warning `the lease \
            could not be renewed in time`. If the machine stood still, look for the cause there (`dmesg`)."
            .into(),
    }]
}

/// Reports a bucket whose round trip is a large part of a lease's lifetime.
pub(crate) fn slow_bucket(snapshot: &Snapshot) -> Vec<Finding> {
    let (now, _) = snapshot.own_node();
    let mut evidence = Vec::new();
    for (labels, node) in &now {
        if node.bucket_late == 0 {
            continue;
        }
        evidence.push(format!(
            "{}: {} of {} requests took a quarter of the lease's lifetime ({}) or longer; median {}, 99th percentile {}; {} \
             of unknown outcome",
            labels.join(" "),
            node.bucket_late,
            node.bucket.count(),
            time(node.ttl / BUCKET_SHARE),
            time(node.bucket.quantile(500)),
            time(node.bucket.quantile(990)),
            node.bucket_unknown
        ));
    }
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "slow-bucket",
        weight: 62,
        what: "The bucket is too slow for the leases of the cluster.".into(),
        evidence,
        cause: "A request that takes this long is ended and repeated. After three in a row the lease lapses, and the \
            node answers nothing."
            .into(),
        remedy: "Look for load on the bucket's server, and for losses on the way to it (`cellar bucket probe` measures \
            each operation). Keep the bucket near the nodes."
            .into(),
    }]
}

/// Reports nodes whose clocks run at another rate.
pub(crate) fn clock_rates(snapshot: &Snapshot) -> Vec<Finding> {
    let Some((_, own)) = snapshot.now.own_node.0.first() else { return vec![] };
    let expected = own.ttl / RENEWALS;
    let mut evidence = Vec::new();
    for (labels, node) in &snapshot.now.nodes.0 {
        // A renewal that comes late says nothing about a clock.
        let is_fast = node.renewal > 0 && node.renewal * 100 < expected * (100 - RATE_PERCENT);
        if is_fast {
            evidence.push(format!(
                "{} renews its lease every {} by this node's clock, instead of {}",
                labels.join(" "),
                time(node.renewal),
                time(expected)
            ));
        }
    }
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "clock-rates",
        weight: 70,
        what: "The clocks of two nodes run at different rates.".into(),
        evidence,
        cause: "The other machine's clock is fast, or this one's is slow. Leases are safe as long as the rates of two \
            clocks differ by less than a fifth: each may be 10 percent wrong. A node whose requests to the bucket fail \
            often, and are repeated, looks the same."
            .into(),
        remedy: "Compare both clocks with a third one for some minutes (`chronyc tracking`, `adjtimex --print`: tick and \
            frequency). Set the clock source of a virtual machine as its hypervisor recommends."
            .into(),
    }]
}
