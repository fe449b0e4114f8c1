//! What `cellar doctor` examines of a cluster.

use anyhow::Result;
use cell_client::CellClient;
use cellar_config::{ClusterSettings, Settings};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Addresses of the nodes that run, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Addresses(Vec<(String, Vec<Ipv4Addr>)>);

impl Addresses {
    /// Describes the nodes without a registered address; none if no node has one: then the cluster has service addresses, or
    /// is not registered yet.
    pub(in crate::commands) fn absent(&self, registered: &BTreeSet<Ipv4Addr>) -> Vec<String> {
        let is_known = |addresses: &[Ipv4Addr]| addresses.iter().any(|address| registered.contains(address));
        if !self.0.iter().any(|(_, addresses)| is_known(addresses)) {
            return Vec::new();
        }
        let absent = self.0.iter().filter(|(_, addresses)| !is_known(addresses));
        absent
            .map(|(node, addresses)| {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                format!("{node} runs, and {} is not registered", addresses.join(" "))
            })
            .collect()
    }
}

/// Watches the cluster for two seconds, and asks the file servers of its nodes for their versions.
///
/// # Errors
/// If the bucket does not answer.
#[cfg(feature = "bucket")]
pub(in crate::commands) fn observe(
    settings: &Settings,
    cluster: &ClusterSettings,
    client: &CellClient,
) -> Result<(doctor::Cluster, Addresses)> {
    let survey = super::place::surveyed(settings, cluster)?;
    let versions = std::thread::scope(|scope| {
        let ask = |record: &cluster::NodeRecord| {
            let may_run = record.state == cluster::NodeState::Live;
            may_run
                .then(|| super::place::ask(client, record).ok())
                .flatten()
                .map(|(_, info)| info.version.to_string())
        };
        let asking: Vec<_> = survey.nodes.iter().map(|seen| scope.spawn(move || ask(&seen.record))).collect();
        asking.into_iter().map(|one| one.join().expect("asking does not panic")).collect()
    });
    Ok(described(settings, &survey, versions))
}

/// Reports that the program knows no clusters.
///
/// # Errors
/// Always.
#[cfg(not(feature = "bucket"))]
pub(in crate::commands) fn observe(
    _: &Settings,
    _: &ClusterSettings,
    _: &CellClient,
) -> Result<(doctor::Cluster, Addresses)> {
    anyhow::bail!(cellar_server::buckets::WITHOUT)
}

/// Describes a cluster. `versions` are those of the nodes' programs.
#[cfg(feature = "bucket")]
fn described(
    settings: &Settings,
    survey: &cluster::Survey,
    versions: Vec<Option<String>>,
) -> (doctor::Cluster, Addresses) {
    use super::place::servers_of;
    use super::status::{PartitionRow, state_of};
    let renews = |seen: &cluster::NodeSeen| state_of(seen) == "live";
    let partition = |(id, owner): (base::PartitionId, Option<&cluster::OwnerRecord>)| {
        let row = PartitionRow::new(id.to_string(), owner, &survey.nodes);
        let owner = row.owner.filter(|_| row.state == "owned");
        doctor::SharedPartition { name: id.to_string(), state: row.state, owner }
    };
    let ids = settings.partitions.iter().map(|partition| partition.id);
    let cluster = doctor::Cluster {
        nodes: survey.nodes.iter().zip(versions).filter_map(|(seen, version)| node(seen, version)).collect(),
        partitions: ids.zip(survey.owners.iter().map(|(_, owner)| owner.as_ref())).map(partition).collect(),
    };
    let running = survey.nodes.iter().filter(|seen| renews(seen));
    let addresses = running.map(|seen| (seen.record.node.to_string(), servers_of(&seen.record))).collect();
    (cluster, Addresses(addresses))
}

/// Describes a node; `None` for a command, whose lease has no addresses.
#[cfg(feature = "bucket")]
fn node(seen: &cluster::NodeSeen, version: Option<String>) -> Option<doctor::Node> {
    use super::status::{state_of, when};
    let cluster::NodeRecord { node, state, addresses, .. } = &seen.record;
    (!addresses.is_empty()).then(|| doctor::Node {
        name: node.to_string(),
        is_member: *state == cluster::NodeState::Live,
        renews: state_of(seen) == "live",
        dead_since: (*state == cluster::NodeState::Dead).then(|| when(seen.written)),
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "bucket")]
    #[test]
    fn dead_nodes_are_reported_and_commands_are_not() {
        use std::time::{Duration, SystemTime};
        let record = cluster::NodeRecord {
            node: "fs1".parse().unwrap(),
            incarnation: cluster::Incarnation { nonce: 1, count: 1 },
            sequence: 1,
            state: cluster::NodeState::Dead,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec!["192.0.2.1:7010".parse().unwrap()],
            takes_addresses: false,
        };
        let seen = |record| cluster::NodeSeen { record, changed: None, written: SystemTime::UNIX_EPOCH };
        let found = node(&seen(record.clone()), None).unwrap();
        assert!(!found.is_member && !found.renews);
        assert!(found.dead_since.is_some_and(|since| since.contains("1970") || since.contains("1969")));
        assert_eq!(node(&seen(cluster::NodeRecord { addresses: Vec::new(), ..record }), None), None);
    }

    #[test]
    fn a_node_without_a_registered_address_is_named() {
        let address = |number| Ipv4Addr::new(192, 0, 2, number);
        let addresses = Addresses(vec![
            ("fs1".into(), vec![address(1), address(11)]),
            ("fs2".into(), vec![address(2), address(12)]),
        ]);
        let absent = |registered: &[u8]| addresses.absent(&registered.iter().copied().map(address).collect());
        assert_eq!(absent(&[11]), ["fs2 runs, and 192.0.2.2 192.0.2.12 is not registered"]);
        assert_eq!(absent(&[11, 2]), [""; 0], "one address is enough");
        assert_eq!(absent(&[7]), [""; 0], "clients know the cluster by other addresses");
    }
}
