//! `cellar cluster addresses`.

use super::Addresses;
use super::place::{described, leases, of_node};
use crate::commands::Context;
use anyhow::{Context as _, Result, bail};
use cellar_config::{BucketSettings, ClusterSettings};
use cellar_server::buckets::connect;
use cluster::{NodeRecord, ServiceAddresses};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr};

/// The service addresses of a cluster.
#[derive(Debug, Serialize)]
struct Shown {
    service_addresses: Vec<Ipv4Addr>,
}

/// Reads the list of a cluster.
pub(super) fn listed(bucket: &BucketSettings) -> Result<ServiceAddresses> {
    cluster::read_service_addresses(&*connect(bucket)?, bucket.address.prefix())
        .with_context(|| format!("cannot read the service addresses in {}", described(bucket)))
}

/// Replaces the list of a cluster.
pub(super) fn replace(bucket: &BucketSettings, list: &ServiceAddresses) -> Result<()> {
    cluster::replace_service_addresses(&*connect(bucket)?, bucket.address.prefix(), list)
        .with_context(|| format!("cannot write the service addresses into {}", described(bucket)))
}

/// The addresses of machines that can be in a list only by mistake: the node that has such a service address would take it
/// away from the machine that is configured to have it.
pub(super) struct Taken<'a> {
    /// This node, and the addresses that its file server registers.
    pub(super) own: (&'a ClusterSettings, &'a [Ipv4Addr]),
    /// The leases of all nodes, also of those that do not run.
    pub(super) leases: &'a [NodeRecord],
    /// The service addresses so far. A machine that has one now may register it.
    pub(super) present: &'a ServiceAddresses,
}

impl Taken<'_> {
    /// Returns the list of these addresses.
    ///
    /// # Errors
    /// If one of them is a node's own, is named twice or cannot be a machine's, or there are too many.
    pub(super) fn check(&self, addresses: &[Ipv4Addr]) -> Result<ServiceAddresses> {
        let list = ServiceAddresses::new(addresses.to_vec())?;
        for address in list.addresses() {
            if let Some(whose) = self.whose(*address) {
                bail!(
                    "{address} cannot be a service address: it is {whose}. Service addresses move between the nodes; choose \
                     addresses that no machine is configured to have"
                );
            }
        }
        Ok(list)
    }

    /// Describes whose address it is, if it is a node's own.
    fn whose(&self, address: Ipv4Addr) -> Option<String> {
        let (own, registered) = self.own;
        let is_new = !self.present.addresses().contains(&address);
        if own.address == address {
            return Some(format!("the own address of the node {} (`cluster.address`)", own.node));
        }
        if is_new && registered.contains(&address) {
            return Some(format!("an address of this machine, the node {}", own.node));
        }
        let is_its = |record: &&NodeRecord| {
            // The first address of a lease is `cluster.address`.
            let own = if is_new {
                &record.addresses[..]
            } else {
                &record.addresses[..record.addresses.len().min(1)]
            };
            own.iter().any(|own| own.ip() == IpAddr::V4(address))
        };
        let record = self.leases.iter().find(is_its)?;
        Some(format!("an address of the node {}", record.node))
    }
}

/// Returns the addresses as text.
pub(super) fn joined(list: &ServiceAddresses) -> String {
    list.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn run(context: &Context, options: &Addresses) -> Result<()> {
    let (settings, cluster) = of_node(context)?;
    let is_replaced = options.none || !options.addresses.is_empty();
    let list = if is_replaced {
        // A list that cannot be read is replaced, too.
        let (leases, present) = (leases(&cluster.bucket)?, listed(&cluster.bucket).unwrap_or_default());
        let taken = Taken { own: (&cluster, &settings.announce), leases: &leases, present: &present };
        let list = taken.check(&options.addresses)?;
        replace(&cluster.bucket, &list)?;
        list
    } else {
        listed(&cluster.bucket)?
    };
    let sentence = match (list.addresses().is_empty(), is_replaced) {
        (true, _) => "there are no service addresses: clients call the nodes' own addresses".to_owned(),
        (false, true) => {
            format!("the service addresses are {}; nodes follow within ten seconds", joined(&list))
        }
        (false, false) => joined(&list),
    };
    context.format.done(&Shown { service_addresses: list.addresses().to_vec() }, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Incarnation, NodeState};
    use std::time::Duration;

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, last)
    }

    fn lease(node: &str, state: NodeState, addresses: &[u8]) -> NodeRecord {
        NodeRecord {
            node: node.parse().unwrap(),
            incarnation: Incarnation { nonce: 1, count: 1 },
            sequence: 1,
            state,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: addresses.iter().map(|last| (address(*last), 7010).into()).collect(),
            takes_addresses: true,
        }
    }

    #[test]
    fn addresses_of_nodes_are_no_service_addresses() {
        let own = ClusterSettings {
            bucket: BucketSettings::of("s3://b/c".parse().unwrap()),
            node: "fs1".parse().unwrap(),
            address: address(1),
            port: 7010,
            databases: None,
        };
        let leases = [
            lease("fs2", NodeState::Live, &[2, 22, 12]),
            lease("fs3", NodeState::Left, &[3]),
            lease("fs4", NodeState::Dead, &[]),
        ];
        // 11 is here now, and 12 was at fs2 when that was started.
        let present = ServiceAddresses::new(vec![address(11), address(12), address(3)]).unwrap();
        let taken = Taken {
            own: (&own, &[address(1), address(21), address(11)]),
            leases: &leases,
            present: &present,
        };
        let check = |last: &[u8]| taken.check(&last.iter().copied().map(address).collect::<Vec<_>>());
        assert_eq!(check(&[13, 12, 11]).unwrap().addresses(), [11, 12, 13].map(address));
        assert!(check(&[]).unwrap().addresses().is_empty());
        for (last, words) in [
            (&[13, 1][..], "192.0.2.1 cannot be a service address: it is the own address of the node fs1"),
            (&[21], "192.0.2.21 cannot be a service address: it is an address of this machine, the node fs1"),
            (&[2], "192.0.2.2 cannot be a service address: it is an address of the node fs2"),
            (&[22], "an address of the node fs2"),
            (&[3], "an address of the node fs3"),
            (&[13, 13], "192.0.2.13 is named more than once"),
            (&(31..47).collect::<Vec<_>>(), "16 service addresses; a file server has at most 15"),
        ] {
            let error = check(last).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
