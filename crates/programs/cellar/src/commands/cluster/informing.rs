//! Whether the nodes know of a change of the cluster's partitions.

use super::place::{leases, servers_of};
use afs_idl::vol;
use anyhow::{Result, bail};
use base::{AbortCode, PartitionId, SecurityLevel};
use cell_client::describe::describe;
use cell_client::network::{AfsNetwork, local_authentication_at};
use cellar_config::{BucketSettings, Role, Settings};
use cluster::{NodeName, NodeRecord, NodeState};
use cluster_proto::LIST_OUTDATED;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// For how long nodes may take to read the list.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

/// Interval between two questions.
const INTERVAL: Duration = Duration::from_millis(400);

/// For how long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A lease that has not changed for so long is not renewed now.
const RENEWED: Duration = Duration::from_secs(3);

/// Asks the nodes which partitions they have.
pub(super) struct Nodes<'a> {
    bucket: &'a BucketSettings,
    network: AfsNetwork,
}

/// The leases that were seen, with the time of the last change.
#[derive(Default)]
struct Seen(BTreeMap<NodeName, (NodeRecord, Instant)>);

impl Seen {
    /// Notes the leases of nodes that may run, and forgets others. Commands have leases without addresses.
    fn note(&mut self, records: Vec<NodeRecord>, now: Instant) {
        let mut before = std::mem::take(&mut self.0);
        for record in records {
            if record.state != NodeState::Live || record.addresses.is_empty() {
                continue;
            }
            let seen = match before.remove(&record.node) {
                Some((known, since)) if known == record => (known, since),
                _ => (record, now),
            };
            self.0.insert(seen.0.node.clone(), seen);
        }
    }

    /// Returns the nodes that have to know a change that was made `age` ago. One that does not renew its lease does not rely on what it
    /// has read before, once that is outdated.
    fn relevant(&self, age: Duration, now: Instant) -> impl Iterator<Item = &NodeRecord> {
        let is_renewed = move |since: Instant| now.saturating_duration_since(since) < RENEWED;
        let counts = move |since: Instant| age < LIST_OUTDATED || is_renewed(since);
        self.0.values().filter(move |(_, since)| counts(*since)).map(|(record, _)| record)
    }
}

impl<'a> Nodes<'a> {
    pub(super) fn new(settings: &Settings, bucket: &'a BucketSettings) -> Result<Nodes<'a>> {
        let security = local_authentication_at(&settings.keys, SecurityLevel::Encrypted)?;
        Ok(Nodes { bucket, network: AfsNetwork::start(Some(security))? })
    }

    /// Waits until all nodes that run have these partitions, or do not have them any more.
    ///
    /// # Errors
    /// If they do not, or do not answer.
    pub(super) fn wait(&self, partitions: &[PartitionId], has: bool) -> Result<()> {
        let (begun, mut seen, mut known) = (Instant::now(), Seen::default(), BTreeSet::new());
        loop {
            let now = Instant::now();
            seen.note(leases(self.bucket)?, now);
            let relevant = seen.relevant(begun.elapsed(), now);
            let asked: Vec<&NodeRecord> = relevant
                .filter(|record| !known.contains(&(record.node.clone(), record.incarnation)))
                .collect();
            let mut why = Vec::new();
            for (record, answer) in self.ask_all(&asked) {
                match answer {
                    Ok(all) if partitions.iter().all(|one| all.contains(one) == has) => {
                        known.insert((record.node.clone(), record.incarnation));
                    }
                    Ok(_) => why.push(format!("{} does not follow (is its program older?)", record.node)),
                    Err(code) => why.push(format!("{}: {}", record.node, describe(code))),
                }
            }
            // A process that is started again is asked again.
            if why.is_empty() {
                return Ok(());
            }
            if begun.elapsed() >= KNOWN_WITHIN {
                bail!("not all nodes know of the change: {}", why.join("; "));
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Asks nodes at the same time.
    fn ask_all<'r>(
        &self,
        nodes: &[&'r NodeRecord],
    ) -> Vec<(&'r NodeRecord, Result<Vec<PartitionId>, AbortCode>)> {
        thread::scope(|scope| {
            let ask = |record: &'r NodeRecord| scope.spawn(move || (record, self.ask(record)));
            let asking: Vec<_> = nodes.iter().map(|record| ask(record)).collect();
            asking.into_iter().map(|one| one.join().expect("asking does not panic")).collect()
        })
    }

    /// Returns the partitions that a node has.
    ///
    /// # Errors
    /// If it does not answer at any of its addresses.
    pub(super) fn ask(&self, node: &NodeRecord) -> Result<Vec<PartitionId>, AbortCode> {
        let mut last = AbortCode::RX_CALL_DEAD;
        for server in servers_of(node) {
            let address = SocketAddr::from((server, Role::Vol.port()));
            let connection = self.network.connect_within(address, vol::SERVICE_ID, PATIENCE);
            match vol::x_list_partitions(&*connection, &vol::XListPartitionsRequest) {
                Ok(reply) => {
                    let index = |index: &i32| u32::try_from(*index).ok().and_then(PartitionId::from_index);
                    return Ok(reply.partitions.iter().filter_map(index).collect());
                }
                Err(code) => last = code,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Incarnation;

    fn record(node: &str, sequence: u64, state: NodeState) -> NodeRecord {
        NodeRecord {
            node: node.parse().unwrap(),
            incarnation: Incarnation { nonce: 1, count: 1 },
            sequence,
            state,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec![([192, 0, 2, 1], 7010).into()],
            takes_addresses: false,
        }
    }

    #[test]
    fn nodes_that_may_rely_on_the_list_count() {
        let begun = Instant::now();
        let mut seen = Seen::default();
        for second in 0..=9 {
            let runs = record("runs", second, NodeState::Live);
            let records = [runs, record("silent", 1, NodeState::Live), record("dead", 1, NodeState::Dead)];
            let command = NodeRecord { addresses: Vec::new(), ..record("command", second, NodeState::Live) };
            seen.note(records.into_iter().chain([command]).collect(), begun + Duration::from_secs(second));
        }
        let names = |age: u64| {
            let (age, now) = (Duration::from_secs(age), begun + Duration::from_secs(9));
            seen.relevant(age, now).map(|record| record.node.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(8), ["runs", "silent"], "it may go on with what it has read");
        assert_eq!(names(9), ["runs"]);
    }
}
