//! `cellar cluster status`.

use super::began::Beginning;
use super::place::{address_owners, ask, of_node, surveyed};
use crate::commands::Context;
use crate::commands::stat::figures::Show;
use crate::output::{Format, Row, line};
use afs_idl::vol;
use anyhow::Result;
use base::PartitionId;
use cell_client::{CellClient, Interface};
use cellar_config::{ClusterSettings, Settings};
use cluster::{Holder, NodeRecord, NodeSeen, NodeState, OwnerRecord, Survey};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// For how long the file servers of all nodes may take to answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// What is shown as the name of the cell's databases.
const DATABASES: &str = "databases";

/// What is shown of a cluster.
#[derive(Debug, PartialEq, Serialize)]
struct Shown {
    bucket: String,
    nodes: Vec<NodeRow>,
    partitions: Vec<PartitionRow>,
    service_addresses: Vec<AddressRow>,
}

/// A node.
#[derive(Debug, PartialEq, Serialize)]
struct NodeRow {
    node: String,
    /// `live`, `silent` (does not renew its lease), `left` or `dead`.
    state: &'static str,
    /// Where other nodes call it.
    addresses: Vec<String>,
    /// Time since its lease was seen to change; `None` if it did not change.
    lease_changed_seconds: Option<f64>,
    /// Letters of the partitions that it owns, and `databases` if it has the cell's databases open.
    partitions: Vec<String>,
    /// Whether it can take service addresses.
    takes_addresses: bool,
    /// What its file server answers: its version, or an error; `None` if it was not asked.
    server: Option<String>,
    /// Whether that is a version.
    #[serde(skip)]
    is_version: bool,
    /// Letters of the cluster's partitions that it knows, whichever node owns them; `None` if it did not say.
    knows: Option<Vec<String>>,
    /// Whether something of its answer has not arrived in time.
    is_late: bool,
}

/// What a node's file server has answered; nothing if it was not asked.
#[derive(Clone, Debug, Default)]
struct Answer {
    server: Option<String>,
    is_version: bool,
    began: Vec<Beginning>,
    /// The partitions that it serves; `None` if it did not say.
    serves: Option<Vec<PartitionId>>,
    /// Letters of the cluster's partitions that it knows; `None` if it did not say.
    knows: Option<Vec<String>>,
    /// Whether something of it has not arrived in time.
    is_late: bool,
}

impl Answer {
    /// What is known of a node until it answers.
    fn missing() -> Answer {
        let server = format!("the server does not answer within {} s", ANSWERED_WITHIN.as_secs());
        Answer { server: Some(server), is_late: true, ..Answer::default() }
    }

    /// Returns the word for a partition that this node owns.
    fn state(&self, id: PartitionId) -> &'static str {
        match (&self.server, &self.serves) {
            (Some(_), _) if !self.is_version => "owner does not answer",
            (_, Some(serves)) if !serves.contains(&id) => "opening",
            _ => OWNED,
        }
    }
}

/// The state of a partition that a live node owns and serves.
const OWNED: &str = "owned";

/// A partition, or the cell's databases.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct PartitionRow {
    /// Its name, or `databases`.
    partition: String,
    pub(super) state: String,
    pub(super) owner: Option<String>,
    epoch: Option<u64>,
    /// How this ownership began; `None` if its owner does not report it.
    began: Option<Beginning>,
}

/// A service address.
#[derive(Debug, PartialEq, Serialize)]
struct AddressRow {
    address: Ipv4Addr,
    state: String,
    node: Option<String>,
    epoch: Option<u64>,
}

impl Row for AddressRow {
    const COLUMNS: &'static [&'static str] = &["SERVICE ADDRESS", "STATE", "NODE", "EPOCH"];

    fn cells(&self) -> Vec<String> {
        let AddressRow { address, state, node, epoch } = self;
        let epoch = epoch.map(|epoch| epoch.to_string());
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        vec![address.to_string(), state.clone(), or_none(node.clone()), or_none(epoch)]
    }
}

impl Row for NodeRow {
    const COLUMNS: &'static [&'static str] = &["NODE", "STATE", "ADDRESS", "LEASE CHANGED", "OWNS", "SERVER"];

    fn cells(&self) -> Vec<String> {
        let or_none = |text: String| if text.is_empty() { "-".into() } else { text };
        let changed = self.lease_changed_seconds.map(|seconds| format!("{seconds:.1} s ago"));
        vec![
            self.node.clone(),
            self.state.into(),
            or_none(self.addresses.join(" ")),
            changed.unwrap_or_else(|| "not seen".into()),
            or_none(self.partitions.join(" ")),
            or_none(self.server.clone().unwrap_or_default()),
        ]
    }
}

impl Row for PartitionRow {
    const COLUMNS: &'static [&'static str] = &["PARTITION", "STATE", "OWNER", "EPOCH", "SINCE"];

    fn cells(&self) -> Vec<String> {
        let epoch = self.epoch.map(|epoch| epoch.to_string());
        vec![
            self.partition.clone(),
            self.state.clone(),
            self.owner.clone().unwrap_or_else(|| "-".into()),
            epoch.unwrap_or_else(|| "-".into()),
            self.began.as_ref().map_or_else(|| "-".into(), Beginning::text),
        ]
    }
}

/// Shows the cluster of a node.
pub(super) fn status(context: &Context) -> Result<()> {
    let (settings, cluster) = of_node(context)?;
    let survey = surveyed(&settings, &cluster)?;
    let addresses = address_owners(&cluster)?;
    let shown = Shown::new(&settings, &cluster, (&survey, &addresses), asked(context, &survey.nodes));
    if context.format == Format::Json {
        return context.format.done(&shown, "");
    }
    line(format!("cluster {}", shown.bucket))?;
    if shown.nodes.is_empty() {
        line("no node has been started yet")?;
    } else {
        context.format.rows(&shown.nodes)?;
    }
    if shown.has_versions() {
        line("the nodes run different versions: upgrade the others, one after the other")?;
    }
    for node in shown.nodes.iter().filter(|node| node.is_version && node.is_late) {
        let seconds = ANSWERED_WITHIN.as_secs();
        line(format!(
            "{} has not said everything within {seconds} s: how its ownerships began, or which partitions it knows, is missing",
            node.node
        ))?;
    }
    context.format.rows(&shown.partitions)?;
    if let Some(differing) = shown.differing() {
        line(differing)?;
    }
    if shown.service_addresses.is_empty() {
        return Ok(());
    }
    context.format.rows(&shown.service_addresses)?;
    let unable = shown.nodes.iter().filter(|node| node.state == "live" && !node.takes_addresses);
    for node in unable {
        line(format!("{} takes no service addresses; its log says why", node.node))?;
    }
    Ok(())
}

/// Asks the file servers of all nodes that may run, at the same time, for a limited time.
fn asked(context: &Context, nodes: &[NodeSeen]) -> Vec<Answer> {
    let mut answers = vec![Answer::default(); nodes.len()];
    // Without a client, the bucket's answer is shown nevertheless.
    let Ok(client) = context.observer() else { return answers };
    let (client, (sender, receiver)) = (Arc::new(client), channel());
    // An anonymous caller does not learn which partitions a node serves.
    let is_told = !context.is_anonymous();
    for (index, seen) in nodes.iter().enumerate().filter(|(_, seen)| seen.record.state == NodeState::Live) {
        answers[index] = Answer::missing();
        let (client, sender, node) = (Arc::clone(&client), sender.clone(), seen.record.clone());
        // It ends with the process if the node does not answer.
        drop(thread::spawn(move || {
            ask_one(&client, &node, is_told, |answer| _ = sender.send((index, answer)));
        }));
    }
    drop(sender);
    collect(&receiver, answers, Instant::now() + ANSWERED_WITHIN)
}

/// Asks the file server of a node; reports what it has answered after each question.
fn ask_one(client: &CellClient, node: &NodeRecord, is_told: bool, report: impl Fn(Answer)) {
    let (server, info) = match ask(client, node) {
        Ok(answered) => answered,
        Err(why) => return report(Answer { server: Some(why), ..Answer::default() }),
    };
    let ids = info.partitions.iter().filter_map(|one| PartitionId::from_index(one.id)).collect();
    let mut answer = Answer {
        server: Some(info.version.to_string()),
        is_version: true,
        serves: is_told.then_some(ids),
        is_late: true,
        ..Answer::default()
    };
    report(answer.clone());
    answer.knows = known_partitions(client, server);
    report(answer.clone());
    report(Answer { began: Beginning::of(client, server), is_late: false, ..answer });
}

/// Replaces answers by those that arrive until all senders have ended, or it is this late.
fn collect(receiver: &Receiver<(usize, Answer)>, mut answers: Vec<Answer>, end: Instant) -> Vec<Answer> {
    while let Ok((index, answer)) = receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
        answers[index] = answer;
    }
    answers
}

/// Returns the letters of the partitions that a node knows.
fn known_partitions(client: &CellClient, server: Ipv4Addr) -> Option<Vec<String>> {
    let connection = client.connection(server, Interface::Volumes);
    let reply = vol::x_list_partitions(&*connection, &vol::XListPartitionsRequest).ok()?;
    let id = |index: &i32| PartitionId::from_index(u32::try_from(*index).ok()?);
    Some(reply.partitions.iter().filter_map(id).map(PartitionId::letters).collect())
}

impl Shown {
    /// Describes the partitions that each node knows, if they are not the same.
    fn differing(&self) -> Option<String> {
        let known: Vec<(&str, String)> = self
            .nodes
            .iter()
            .filter_map(|node| Some((node.node.as_str(), node.knows.as_ref()?.join(", "))))
            .collect();
        let (_, first) = known.first()?;
        if known.iter().all(|(_, letters)| letters == first) {
            return None;
        }
        let nodes: Vec<String> = known.iter().map(|(node, letters)| format!("{node} {letters}")).collect();
        Some(format!(
            "the nodes know different partitions: {}. They follow the cluster's within seconds, unless they do not reach the bucket \
             or their program is older",
            nodes.join("; ")
        ))
    }

    /// Whether the nodes that have answered run different versions.
    fn has_versions(&self) -> bool {
        let mut versions: Vec<_> =
            self.nodes.iter().filter(|node| node.is_version).map(|node| &node.server).collect();
        versions.sort_unstable();
        versions.dedup();
        versions.len() > 1
    }

    fn new(
        settings: &Settings,
        cluster: &ClusterSettings,
        (survey, addresses): (&Survey, &[(Ipv4Addr, Option<OwnerRecord>)]),
        answers: Vec<Answer>,
    ) -> Shown {
        let began: Vec<Beginning> = answers.iter().flat_map(|answer| answer.began.clone()).collect();
        let owners: Vec<(PartitionId, Option<&OwnerRecord>)> = settings
            .partitions
            .iter()
            .map(|partition| partition.id)
            .zip(survey.owners.iter().map(|(_, owner)| owner.as_ref()))
            .collect();
        let databases = cluster.databases_place().and_then(|place| {
            let owner = survey.owners.iter().find(|(name, _)| name == place)?;
            Some(owner.1.as_ref())
        });
        let partition = |(id, owner): &(PartitionId, Option<&OwnerRecord>)| {
            let row = PartitionRow::new(id.to_string(), *owner, &survey.nodes);
            let of_owner = survey.nodes.iter().position(|seen| is_owned_by(seen, *owner));
            match of_owner.filter(|_| row.state == OWNED) {
                Some(index) => PartitionRow { state: answers[index].state(*id).into(), ..row },
                None => row,
            }
        };
        let partitions: Vec<PartitionRow> = owners.iter().map(partition).collect();
        let has_databases = |seen: &NodeSeen| databases.is_some_and(|owner| is_owned_by(seen, owner));
        let owned = |seen: &NodeSeen| {
            let databases = has_databases(seen).then(|| DATABASES.to_owned());
            owned_by(seen, &owners).map(PartitionId::letters).chain(databases).collect()
        };
        let node = |(seen, answer): (&NodeSeen, Answer)| NodeRow {
            node: seen.record.node.to_string(),
            state: state_of(seen),
            addresses: seen.record.addresses.iter().map(ToString::to_string).collect(),
            lease_changed_seconds: seen.changed.map(|time| (time.as_secs_f64() * 10.0).round() / 10.0),
            partitions: owned(seen),
            takes_addresses: seen.record.takes_addresses,
            server: answer.server,
            is_version: answer.is_version,
            knows: answer.knows,
            is_late: answer.is_late,
        };
        Shown {
            bucket: cluster.bucket.address.to_string(),
            nodes: survey.nodes.iter().zip(answers).map(node).collect(),
            partitions: partitions
                .into_iter()
                .chain(databases.map(|owner| PartitionRow::new(DATABASES.into(), owner, &survey.nodes)))
                .map(|row| row.with(&began))
                .collect(),
            service_addresses: addresses
                .iter()
                .map(|(address, owner)| AddressRow::new(*address, owner.as_ref(), &survey.nodes))
                .collect(),
        }
    }
}

/// Returns the word for a lease.
pub(super) fn state_of(seen: &NodeSeen) -> &'static str {
    match (seen.record.state, seen.changed) {
        (NodeState::Live, Some(_)) => "live",
        (NodeState::Live, None) => "silent",
        (NodeState::Left, _) => "left",
        (NodeState::Dead, _) => "dead",
    }
}

/// Returns the text of a time.
pub(super) fn when(time: SystemTime) -> String {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Show::Moment.text(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns what a node owns in its present membership.
pub(super) fn owned_by<'a, T: Copy>(
    seen: &'a NodeSeen,
    owners: &'a [(T, Option<&OwnerRecord>)],
) -> impl Iterator<Item = T> + 'a {
    owners.iter().filter(move |(_, owner)| is_owned_by(seen, *owner)).map(|(id, _)| *id)
}

/// Whether a node is the owner in its present membership.
pub(super) fn is_owned_by(seen: &NodeSeen, owner: Option<&OwnerRecord>) -> bool {
    let is_live = seen.record.state == NodeState::Live;
    let own = seen.record.incarnation;
    let is_own =
        |owner: &OwnerRecord| matches!(owner.holder, Holder::Owned { incarnation, .. } if incarnation == own);
    is_live && owner.is_some_and(is_own)
}

/// Returns the words for the owner of something, and the owner.
fn state_of_owner(owner: Option<&OwnerRecord>, nodes: &[NodeSeen]) -> (String, Option<String>) {
    match owner.map(|owner| &owner.holder) {
        None => ("never served".into(), None),
        Some(Holder::Free { successor: None }) => ("free".into(), None),
        Some(Holder::Free { successor: Some(node) }) => (format!("free for {node}"), None),
        Some(Holder::Owned { node, incarnation }) => {
            let of_owner = nodes.iter().find(|seen| seen.record.incarnation == *incarnation);
            let state = match of_owner.map(state_of) {
                Some("live") => OWNED,
                Some("silent") => "owner is silent",
                _ => "owner has ended",
            };
            (state.into(), Some(node.to_string()))
        }
    }
}

impl PartitionRow {
    pub(super) fn new(partition: String, owner: Option<&OwnerRecord>, nodes: &[NodeSeen]) -> PartitionRow {
        let (state, name) = state_of_owner(owner, nodes);
        let epoch = owner.map(|owner| owner.epoch.0);
        PartitionRow { partition, state, owner: name, epoch, began: None }
    }

    /// Adds how the ownership began, if that is among these.
    fn with(self, all: &[Beginning]) -> PartitionRow {
        let is_its =
            |began: &&Beginning| began.partition == self.partition && Some(began.epoch) == self.epoch;
        let began = all.iter().find(is_its).filter(|_| self.owner.is_some()).cloned();
        PartitionRow { began, ..self }
    }
}

impl AddressRow {
    fn new(address: Ipv4Addr, owner: Option<&OwnerRecord>, nodes: &[NodeSeen]) -> AddressRow {
        let (state, node) = state_of_owner(owner, nodes);
        AddressRow { address, state, node, epoch: owner.map(|owner| owner.epoch.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Epoch, Incarnation};

    fn seen(node: &str, nonce: u128, state: NodeState, changed: Option<f64>) -> NodeSeen {
        let record = NodeRecord {
            node: node.parse().unwrap(),
            incarnation: Incarnation { nonce, count: 1 },
            sequence: 1,
            state,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec!["[2001:db8::1]:7010".parse().unwrap(), "192.0.2.1:7010".parse().unwrap()],
            takes_addresses: false,
        };
        NodeSeen { record, changed: changed.map(Duration::from_secs_f64), written: SystemTime::UNIX_EPOCH }
    }

    fn owner(node: &str, nonce: u128) -> OwnerRecord {
        let incarnation = Incarnation { nonce, count: 1 };
        OwnerRecord { epoch: Epoch(7), holder: Holder::Owned { node: node.parse().unwrap(), incarnation } }
    }

    #[test]
    fn a_partition_is_owned_once_its_owner_serves_it() {
        let [b, c]: [PartitionId; 2] = ["b", "c"].map(|letters| letters.parse().unwrap());
        let version = Answer { server: Some("Cellar".into()), is_version: true, ..Answer::default() };
        let serving = Answer { serves: Some(vec![b]), ..version.clone() };
        assert_eq!([serving.state(b), serving.state(c)], ["owned", "opening"]);
        assert_eq!([version.state(b), Answer::default().state(b)], ["owned"; 2], "it is not known");
        let silent = Answer { server: Some("the server does not answer".into()), ..Answer::default() };
        assert_eq!(silent.state(b), "owner does not answer");
    }

    #[test]
    fn nodes_that_do_not_answer_in_time_are_left_out() {
        let (sender, receiver) = channel();
        let answers = || vec![Answer::default(), Answer::missing(), Answer::missing(), Answer::missing()];
        let part =
            Answer { server: Some("Cellar".into()), is_version: true, is_late: true, ..Answer::default() };
        let whole = Answer { knows: Some(Vec::new()), is_late: false, ..part.clone() };
        sender.send((1, part.clone())).unwrap();
        sender.send((2, part)).unwrap();
        sender.send((1, whole.clone())).unwrap();
        let begun = Instant::now();
        let collected = collect(&receiver, answers(), begun + Duration::from_millis(50));
        assert!(begun.elapsed() >= Duration::from_millis(50), "a sender is left");
        let shown = |all: &[Answer]| all.iter().map(|one| (one.is_version, one.is_late)).collect::<Vec<_>>();
        assert_eq!(shown(&collected), [(false, false), (true, false), (true, true), (false, true)]);
        assert_eq!(collected[3].server.as_deref(), Some("the server does not answer within 5 s"));
        assert_eq!(collected[3].state("b".parse().unwrap()), "owner does not answer");
        sender.send((3, whole)).unwrap();
        drop(sender);
        let collected = collect(&receiver, answers(), begun + Duration::from_secs(3600));
        assert_eq!(shown(&collected)[3], (true, false), "all have answered");
    }

    #[test]
    fn nodes_that_know_different_partitions_are_named() {
        let node = |name: &str, knows: Option<&[&str]>| NodeRow {
            node: name.into(),
            state: "live",
            addresses: Vec::new(),
            lease_changed_seconds: None,
            partitions: Vec::new(),
            takes_addresses: false,
            server: None,
            is_version: false,
            knows: knows.map(|knows| knows.iter().map(ToString::to_string).collect()),
            is_late: false,
        };
        let differing = |nodes: Vec<NodeRow>| {
            let (partitions, service_addresses) = Default::default();
            Shown { bucket: String::new(), nodes, partitions, service_addresses }.differing()
        };
        let same = vec![node("x", Some(&["a", "b"])), node("y", None), node("z", Some(&["a", "b"]))];
        assert_eq!(differing(same), None);
        let other = differing(vec![node("x", Some(&["a", "b"])), node("z", Some(&["a"]))]).unwrap();
        assert!(other.contains("x a, b; z a."), "{other}");
    }

    #[test]
    fn states_follow_from_leases_and_owners() {
        let nodes = [
            seen("alive", 1, NodeState::Live, Some(0.44)),
            seen("dead", 2, NodeState::Dead, None),
            seen("gone", 3, NodeState::Left, Some(1.0)),
            seen("quiet", 4, NodeState::Live, None),
        ];
        assert_eq!(nodes.each_ref().map(state_of), ["live", "dead", "left", "silent"]);
        let free = |successor: Option<&str>| OwnerRecord {
            epoch: Epoch(7),
            holder: Holder::Free { successor: successor.map(|name| name.parse().unwrap()) },
        };
        let id: PartitionId = "b".parse().unwrap();
        for (of, state, name) in [
            (owner("alive", 1), "owned", Some("alive")),
            (owner("alive", 9), "owner has ended", Some("alive")),
            (owner("dead", 2), "owner has ended", Some("dead")),
            (owner("quiet", 4), "owner is silent", Some("quiet")),
            (free(None), "free", None),
            (free(Some("alive")), "free for alive", None),
        ] {
            let shown = PartitionRow::new(id.to_string(), Some(&of), &nodes);
            assert_eq!((&*shown.state, shown.owner.as_deref(), shown.epoch), (state, name, Some(7)));
        }
        let shown = PartitionRow::new(id.to_string(), None, &nodes);
        assert_eq!(shown.cells(), ["/vicepb", "never served", "-", "-", "-"]);
        let address = Ipv4Addr::new(192, 0, 2, 11);
        let shown = AddressRow::new(address, Some(&owner("alive", 1)), &nodes);
        assert_eq!(shown.cells(), ["192.0.2.11", "owned", "alive", "7"]);
        let shown = AddressRow::new(address, None, &nodes);
        assert_eq!(shown.cells(), ["192.0.2.11", "never served", "-", "-"]);
        let (alive, dead) = (owner("alive", 1), owner("dead", 2));
        let owners = [(id, Some(&alive)), ("c".parse().unwrap(), Some(&dead)), ("d".parse().unwrap(), None)];
        let owned =
            |node: usize| owned_by(&nodes[node], &owners).map(PartitionId::letters).collect::<Vec<_>>();
        assert_eq!([owned(0), owned(1), owned(3)], [vec!["b".to_owned()], vec![], vec![]]);
    }
}
