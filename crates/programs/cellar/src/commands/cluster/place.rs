//! The cluster in its bucket.

use crate::commands::Context;
use afs_idl::cellar::{self, GetServerInfoReply, GetServerInfoRequest};
use anyhow::{Context as _, Result};
use cell_client::describe::describe;
use cell_client::{CellClient, Interface};
use cellar_config::{BucketSettings, ClusterSettings, Settings};
use cellar_server::buckets::connect;
use cluster::{ClusterRecord, NodeRecord, OwnerRecord, PartitionName, Survey, service_address_place};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// For how long leases are watched. Nodes renew them each second.
const WATCH: Duration = Duration::from_secs(2);

/// Returns the settings of a node, and those of its cluster. The partitions are those of the cluster, whatever the configuration lists.
pub(super) fn of_node(context: &Context) -> Result<(Settings, ClusterSettings)> {
    let (mut settings, cluster) = configured(context)?;
    if let Some(record) = record(&cluster.bucket)? {
        let partition = |id| {
            let known = settings.partitions.iter().find(|partition| partition.id == id);
            known.map_or_else(|| cluster.partition_settings(id, None), |known| Ok(known.clone()))
        };
        settings.partitions = record.partitions().into_iter().map(partition).collect::<Result<_, _>>()?;
    }
    Ok((settings, cluster))
}

/// Reads what the cluster in a bucket is; `None` if there is none, or it was not created by a command.
pub(super) fn record(bucket: &BucketSettings) -> Result<Option<ClusterRecord>> {
    cluster::read_cluster(&*connect(bucket)?, bucket.address.prefix())
        .with_context(|| format!("cannot read the cluster in {}", described(bucket)))
}

/// Returns the settings of a node as it is configured, and those of its cluster.
pub(super) fn configured(context: &Context) -> Result<(Settings, ClusterSettings)> {
    let settings = context.settings()?;
    let cluster = settings.cluster.clone().with_context(|| {
        format!(
            "{} has no section `[cluster]`: name the configuration of a node with --config, or make this server one \
             with `cellar cluster join`",
            settings.source
        )
    })?;
    Ok((settings, cluster))
}

/// Describes where a bucket is, for messages.
pub(super) fn described(bucket: &BucketSettings) -> String {
    match &bucket.endpoint {
        Some(endpoint) => format!("{} at {endpoint}", bucket.address),
        None => bucket.address.to_string(),
    }
}

/// Returns the places of all partitions, in the order of the settings, and that of the databases if they are in the bucket.
pub(super) fn partition_names(settings: &Settings, cluster: &ClusterSettings) -> Vec<PartitionName> {
    let partitions = settings.partitions.iter().map(|partition| cluster.partition(partition.id));
    partitions.chain(cluster.databases_place().cloned()).collect()
}

/// Watches the cluster for two seconds.
pub(super) fn surveyed(settings: &Settings, cluster: &ClusterSettings) -> Result<Survey> {
    let (client, names) = (connect(&cluster.bucket)?, partition_names(settings, cluster));
    cluster::survey(&*client, cluster.folder(), &names, WATCH)
        .with_context(|| format!("cannot read the cluster in {}", described(&cluster.bucket)))
}

/// Returns the service addresses, each with its owner's object.
pub(super) fn address_owners(cluster: &ClusterSettings) -> Result<Vec<(Ipv4Addr, Option<OwnerRecord>)>> {
    let list = super::addresses::listed(&cluster.bucket)?;
    let place = |address: &Ipv4Addr| service_address_place(cluster.folder(), *address);
    let places = list.addresses().iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let owners = cluster::read_owners(&*connect(&cluster.bucket)?, &places)
        .with_context(|| format!("cannot read the cluster in {}", described(&cluster.bucket)))?;
    Ok(list.addresses().iter().copied().zip(owners.into_iter().map(|(_, owner)| owner)).collect())
}

/// Watches the leases below a place for two seconds.
pub(super) fn surveyed_nodes(bucket: &BucketSettings) -> Result<Survey> {
    watched_nodes(bucket, WATCH)
}

/// Returns the leases of all nodes as they are now.
pub(super) fn leases(bucket: &BucketSettings) -> Result<Vec<NodeRecord>> {
    let seen = watched_nodes(bucket, Duration::ZERO)?.nodes;
    Ok(seen.into_iter().map(|seen| seen.record).collect())
}

fn watched_nodes(bucket: &BucketSettings, time: Duration) -> Result<Survey> {
    cluster::survey(&*connect(bucket)?, bucket.address.prefix(), &[], time)
        .with_context(|| format!("cannot read the cluster in {}", described(bucket)))
}

/// Asks a node's file server for its version and partitions, at each of the node's addresses until one answers. Returns that
/// address and the answer.
///
/// # Errors
/// Why none answers.
pub(super) fn ask(client: &CellClient, node: &NodeRecord) -> Result<(Ipv4Addr, GetServerInfoReply), String> {
    let mut why = String::from("its lease has no IPv4 address");
    for server in servers_of(node) {
        let connection = client.connection(server, Interface::Cellar);
        match cellar::get_server_info(&*connection, &GetServerInfoRequest) {
            Ok(info) => return Ok((server, info)),
            Err(code) => why = describe(code),
        }
    }
    Err(why)
}

/// Returns the addresses of a node. Its file server has AFS's port there.
pub(super) fn servers_of(node: &NodeRecord) -> Vec<Ipv4Addr> {
    let mut all = Vec::new();
    for address in &node.addresses {
        match address.ip() {
            IpAddr::V4(address) if !all.contains(&address) => all.push(address),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Incarnation, NodeState};

    #[test]
    fn each_address_is_asked_once() {
        let node = NodeRecord {
            node: "fs1".parse().unwrap(),
            incarnation: Incarnation { nonce: 1, count: 1 },
            sequence: 1,
            state: NodeState::Live,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: ["[2001:db8::1]:7010", "192.0.2.2:7010", "192.0.2.1:7010", "192.0.2.2:7000"]
                .map(|address| address.parse().unwrap())
                .into(),
            takes_addresses: false,
        };
        assert_eq!(servers_of(&node), [Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(192, 0, 2, 1)]);
    }
}
