//! `cellar cluster addresses`.

use super::Addresses;
use super::place::{described, of_node};
use crate::commands::Context;
use anyhow::{Context as _, Result};
use cellar_config::BucketSettings;
use cellar_server::buckets::connect;
use cluster::ServiceAddresses;
use serde::Serialize;
use std::net::Ipv4Addr;

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

/// Returns the addresses as text.
pub(super) fn joined(list: &ServiceAddresses) -> String {
    list.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn run(context: &Context, options: &Addresses) -> Result<()> {
    let (_, cluster) = of_node(context)?;
    let is_replaced = options.none || !options.addresses.is_empty();
    let list = if is_replaced {
        let list = ServiceAddresses::new(options.addresses.clone())?;
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
