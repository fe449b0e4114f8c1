//! The servers on standby for this one: their addresses are registered with its own, so that clients know
//! them before it dies.

use super::Others;
use super::opening::connect;
use anyhow::{Context, Result};
use cellar_config::{BucketSettings, Settings};
use cluster::{NodeName, NodeRecord, NodeState, read_nodes};
use object_store::ObjectStore;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Interval at which the leases are read.
const PERIOD: Duration = Duration::from_secs(10);

/// For how long after the last change of its lease a server is on standby. A lease is renewed every second.
const FRESH: Duration = Duration::from_secs(30);

/// For how long a node of a cluster stays registered that does not run, or whose lease does not change: it may be restarting, or
/// its machine is. Also for how long a lease is watched that was never seen to change.
const KEPT: Duration = Duration::from_secs(600);

/// Longer than the time between two renewals of a lease.
const RENEWED: Duration = Duration::from_millis(1500);

/// For how long the bucket may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the leases of the other servers.
pub(crate) struct Standbys {
    client: Arc<dyn ObjectStore>,
    folder: String,
    runtime: Runtime,
    next: Instant,
    seen: Seen,
    last_error: String,
}

impl Standbys {
    /// Returns what reads those of a server whose partitions are all in buckets; `None` for any other.
    pub(super) fn of(settings: &Settings, own: NodeName) -> Result<Option<Standbys>> {
        let Some(first) = super::shared(settings) else { return Ok(None) };
        Standbys::at(first, own).map(Some)
    }

    /// Returns what reads the leases at a place.
    ///
    /// # Errors
    /// If no runtime can be started, or the bucket's client cannot be set up.
    pub(crate) fn at(bucket: &BucketSettings, own: NodeName) -> Result<Standbys> {
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a thread")?;
        Ok(Standbys {
            client: connect(bucket)?,
            folder: bucket.address.prefix().to_owned(),
            runtime,
            next: Instant::now(),
            seen: Seen { own, nodes: BTreeMap::new() },
            last_error: String::new(),
        })
    }

    /// Reads the leases twice, so that those that are renewed are known from the beginning.
    pub(super) fn meet(&mut self) {
        self.addresses();
        if !self.seen.nodes.is_empty() {
            std::thread::sleep(RENEWED);
            self.next = Instant::now();
            self.addresses();
        }
    }

    /// Returns their addresses. While the bucket does not answer, nothing changes.
    pub(super) fn addresses(&mut self) -> Vec<Ipv4Addr> {
        self.by_server().concat()
    }

    /// Returns the addresses of each.
    pub(crate) fn by_server(&mut self) -> Vec<Vec<Ipv4Addr>> {
        self.look();
        self.seen.by_server()
    }

    /// Returns the addresses of the other nodes of a cluster, for the registration.
    pub(super) fn nodes(&mut self) -> Others {
        self.look();
        self.seen.others(Instant::now())
    }

    /// Reads the leases if it is time.
    fn look(&mut self) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + PERIOD;
            match self.read() {
                Ok(records) => {
                    self.last_error.clear();
                    self.seen.note(records, Instant::now());
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != self.last_error {
                        tracing::warn!(error, "cannot read which servers are on standby");
                    }
                    self.last_error = error;
                }
            }
        }
    }

    fn read(&self) -> Result<Vec<NodeRecord>> {
        let read = async { timeout(PATIENCE, read_nodes(&*self.client, &self.folder)).await };
        Ok(self.runtime.block_on(read).with_context(|| format!("no answer within {PATIENCE:?}"))??)
    }
}

/// What was seen of the leases.
struct Seen {
    own: NodeName,
    nodes: BTreeMap<NodeName, Node>,
}

struct Node {
    record: NodeRecord,
    /// When the lease was first seen.
    found: Instant,
    /// When the lease was last seen to differ from before; a lease that never changes may be years old.
    changed: Option<Instant>,
    is_fresh: bool,
}

impl Seen {
    fn note(&mut self, records: Vec<NodeRecord>, now: Instant) {
        let mut before = std::mem::take(&mut self.nodes);
        for record in records {
            let known = before.remove(&record.node);
            if record.node == self.own {
                continue;
            }
            let found = known.as_ref().map_or(now, |node| node.found);
            let changed = match known {
                Some(node) if node.record == record || record.state != NodeState::Live => node.changed,
                Some(_) => Some(now),
                None => None,
            };
            self.keep(record, (found, changed), now);
        }
        // A lease that is missing may be in the middle of being replaced.
        for node in before.into_values().filter(|node| node.is_fresh) {
            self.keep(node.record, (node.found, node.changed), now);
        }
    }

    fn keep(&mut self, record: NodeRecord, (found, changed): (Instant, Option<Instant>), now: Instant) {
        let is_live = record.state == NodeState::Live;
        let is_fresh =
            is_live && changed.is_some_and(|changed| now.saturating_duration_since(changed) < FRESH);
        self.nodes.insert(record.node.clone(), Node { record, found, changed, is_fresh });
    }

    fn others(&self, now: Instant) -> Others {
        let is_kept = |since: Instant| now.saturating_duration_since(since) < KEPT;
        let mut others = Others::default();
        for node in self.nodes.values() {
            match node.changed {
                Some(changed) if is_kept(changed) => others.known.extend(addresses(&node.record)),
                None if is_kept(node.found) => others.unseen.extend(addresses(&node.record)),
                _ => {}
            }
        }
        others
    }

    fn by_server(&self) -> Vec<Vec<Ipv4Addr>> {
        let fresh = self.nodes.values().filter(|node| node.is_fresh);
        fresh.map(|node| addresses(&node.record).collect()).collect()
    }

    #[cfg(test)]
    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.by_server().concat()
    }
}

/// Returns the IPv4 addresses in a lease.
fn addresses(record: &NodeRecord) -> impl Iterator<Item = Ipv4Addr> + '_ {
    record.addresses.iter().filter_map(|address| match address.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Member, MemberConfig};

    fn at(second: u64, from: Instant) -> Instant {
        from + Duration::from_secs(second)
    }

    fn record(node: &str, sequence: u64, state: NodeState) -> NodeRecord {
        NodeRecord {
            node: node.parse().unwrap(),
            incarnation: "0000000000000000000000000000abcd.1".parse().unwrap(),
            sequence,
            state,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec!["192.0.2.7:7000".parse().unwrap(), "[2001:db8::7]:7000".parse().unwrap()],
            takes_addresses: false,
        }
    }

    #[test]
    fn only_servers_that_renew_their_leases_count() {
        let mut seen = Seen { own: "a".parse().unwrap(), nodes: BTreeMap::new() };
        let begun = Instant::now();
        let standby = [Ipv4Addr::new(192, 0, 2, 7)];
        let live =
            |sequence| vec![record("a", sequence, NodeState::Live), record("b", sequence, NodeState::Live)];
        seen.note(live(1), begun);
        assert!(seen.addresses().is_empty(), "it may have died long ago");
        seen.note(live(2), at(10, begun));
        assert_eq!(seen.addresses(), standby);
        seen.note(live(2), at(30, begun));
        assert_eq!(seen.addresses(), standby);
        seen.note(live(2), at(40, begun));
        assert!(seen.addresses().is_empty(), "it does not renew its lease");
        seen.note(live(3), at(50, begun));
        assert_eq!(seen.addresses(), standby);
        seen.note(Vec::new(), at(79, begun));
        assert_eq!(seen.addresses(), standby, "it was missed");
        seen.note(Vec::new(), at(80, begun));
        assert!(seen.addresses().is_empty(), "it is gone");
        seen.note(live(4), at(81, begun));
        assert_eq!(seen.addresses(), standby);
        seen.note(vec![record("b", 4, NodeState::Left)], at(82, begun));
        assert!(seen.addresses().is_empty());
    }

    #[test]
    fn a_node_stays_registered_while_it_restarts() {
        let mut seen = Seen { own: "a".parse().unwrap(), nodes: BTreeMap::new() };
        let begun = Instant::now();
        let address = vec![Ipv4Addr::new(192, 0, 2, 7)];
        let known = || Others { known: address.clone(), unseen: vec![] };
        let unseen = || Others { known: vec![], unseen: address.clone() };
        let lease = |sequence, state| vec![record("b", sequence, state)];
        seen.note(lease(1, NodeState::Live), begun);
        assert_eq!(seen.others(begun), unseen(), "it may be years old");
        assert_eq!(seen.others(at(599, begun)), unseen());
        assert_eq!(seen.others(at(600, begun)), Others::default());
        seen.note(lease(2, NodeState::Live), at(610, begun));
        assert_eq!(seen.others(at(610, begun)), known());
        for state in [NodeState::Left, NodeState::Dead] {
            seen.note(lease(3, state), at(700, begun));
            assert_eq!(seen.others(at(1209, begun)), known(), "it was stopped");
            assert!(seen.addresses().is_empty());
        }
        assert_eq!(seen.others(at(1210, begun)), Others::default());
        seen.note(lease(4, NodeState::Live), at(1220, begun));
        assert_eq!(seen.others(at(1220, begun)), known());
        seen.note(Vec::new(), at(1260, begun));
        assert_eq!(seen.others(at(1260, begun)), known(), "its lease is being replaced");
        seen.note(Vec::new(), at(1270, begun));
        assert_eq!(seen.others(at(1270, begun)), Others::default(), "its lease was removed");
    }

    #[test]
    fn leases_are_read_from_the_bucket() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = BucketSettings::of(format!("file://{}", folder.path().display()).parse().unwrap());
        let addresses = vec!["192.0.2.9:7000".parse().unwrap()];
        let config = MemberConfig { addresses, ..MemberConfig::new("b".parse().unwrap()) };
        let _other = Member::start(connect(&bucket).unwrap(), config).unwrap();
        let mut standbys = Standbys::at(&bucket, "a".parse().unwrap()).unwrap();
        standbys.meet();
        let end = Instant::now() + Duration::from_secs(60);
        while standbys.addresses() != [Ipv4Addr::new(192, 0, 2, 9)] {
            assert!(Instant::now() < end, "{}", standbys.last_error);
            std::thread::sleep(Duration::from_millis(100));
            standbys.next = Instant::now();
        }
    }
}
