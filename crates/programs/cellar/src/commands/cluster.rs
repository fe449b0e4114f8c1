//! `cellar cluster`: several nodes that serve the partitions in a bucket as one file server.

#[cfg(feature = "bucket")]
mod addresses;
#[cfg(feature = "bucket")]
mod balancing;
#[cfg(feature = "bucket")]
mod began;
#[cfg(feature = "bucket")]
mod contents;
#[cfg(feature = "bucket")]
mod informing;
#[cfg(feature = "bucket")]
mod joining;
#[cfg(feature = "bucket")]
mod keying;
#[cfg(feature = "bucket")]
mod moving;
mod observing;
#[cfg(feature = "bucket")]
mod partitions;
#[cfg(feature = "bucket")]
mod place;
#[cfg(feature = "bucket")]
mod removing;
#[cfg(feature = "bucket")]
mod section;
#[cfg(feature = "bucket")]
mod sharing;
#[cfg(feature = "bucket")]
mod status;

pub(super) use observing::observe;

use super::Context;
use super::bucket::Reach;
use anyhow::Result;
use base::{BucketAddress, PartitionId};
use clap::{Args, Subcommand};
use cluster_proto::{NodeName, Owned};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Manage a cluster: several servers (nodes) that serve the partitions in a bucket as one file server.
#[derive(Subcommand)]
pub enum Cluster {
    /// Create a cluster in a bucket, with this server as its first node.
    ///
    /// Tests the bucket, writes the cluster's partitions into it, and adds the section `[cluster]` to the configuration,
    /// /etc/cellar/cellar.toml unless --config names another one. That file must have the cell's name and key.
    /// If it has the roles pt and vl, and this server has no databases yet, the cell's databases will be in the bucket, too:
    /// every node serves them, and none is needed by the others.
    /// Entries of `[partitions]` whose folder does not exist become comments, since a node has no other partitions.
    Init(Init),
    /// Make this server a node of a cluster.
    ///
    /// Tests the bucket, tries the cell's key with the nodes that run, takes the partitions from the bucket, and adds the
    /// section `[cluster]` to the configuration, /etc/cellar/cellar.toml unless --config names another one. If the cell's
    /// databases are in the bucket, it also adds the roles pt and vl.
    Join(Join),
    /// Let this node serve the cell's databases from the bucket, and move them there if it has them on its disk.
    ///
    /// For a cluster whose databases are not in the bucket. Stop the server that has them, run this command there, and start
    /// it again. Then run it on each other node and restart that one. It adds `databases = true` to the section `[cluster]` of
    /// the configuration, and the roles pt and vl.
    ShareDatabases,
    /// Show or replace the cluster's service addresses, which move to survivors.
    ///
    /// Nodes follow the new list within ten seconds.
    Addresses(Addresses),
    /// Show the partitions of the cluster, add some or remove some.
    ///
    /// Nodes that run follow without a restart.
    Partitions(Partitions),
    /// Show the nodes of the cluster and the owners of its partitions and service addresses, as the bucket has them. Takes some seconds.
    Status,
    /// Move a partition to another node. Calls for its volumes wait meanwhile. For superusers.
    Move(Move),
    /// Move all partitions of a node to the others, and the cell's databases, for maintenance. For superusers.
    Drain(Drain),
    /// Move partitions so that all nodes that run have equally many, with as few moves as possible. For superusers.
    ///
    /// The cell's databases count as a partition, and stay where they are.
    Balance(Balance),
    /// Let the cluster forget a node that was stopped, or has died and does not come back. For superusers.
    ///
    /// A running node removes its lease, so that `status`, `cellar doctor` and the metrics do not show it any more. A
    /// node of this name can join again later.
    Remove(Remove),
}

/// Create a cluster in a bucket, with this server as its first node.
#[derive(Args)]
pub struct Init {
    /// Place of the cluster, like s3://BUCKET/CELL or file:///FOLDER.
    pub bucket: BucketAddress,
    /// Letters of the partitions, separated by commas. As each has one owner, at least as many as nodes.
    #[arg(long, value_delimiter = ',', default_values = ["a", "b", "c"])]
    pub partitions: Vec<PartitionId>,
    /// Addresses at which clients call the cluster, separated by commas, unused so far and in the network of the nodes'
    /// addresses; the nodes' own addresses by default. Each is at one living node; there should be at least as many as nodes.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub service_addresses: Vec<Ipv4Addr>,
    /// Move the databases that this server has into the bucket. It must not run. Without this option, they stay here.
    #[arg(long, conflicts_with = "local_databases")]
    pub databases: bool,
    /// Keep the cell's databases on this server's disk, also if there are none yet.
    #[arg(long)]
    pub local_databases: bool,
    /// Take what is in the partitions' folders of the bucket, from a cluster that was there. Without this option, a folder that is not
    /// empty is refused.
    #[arg(long)]
    pub adopt: bool,
    /// Settings of the node.
    #[command(flatten)]
    pub node: NodeOptions,
}

/// Show or replace the cluster's service addresses.
#[derive(Args)]
pub struct Addresses {
    /// All service addresses, separated by commas. Without any, the present ones are shown.
    #[arg(value_delimiter = ',')]
    pub addresses: Vec<Ipv4Addr>,
    /// Use the nodes' own addresses.
    #[arg(long, conflicts_with = "addresses")]
    pub none: bool,
}

/// Show or change the partitions of the cluster.
#[derive(Args)]
pub struct Partitions {
    /// What to change. Without it, the partitions are shown.
    #[command(subcommand)]
    pub change: Option<PartitionsChange>,
}

/// A change of the partitions.
#[derive(Subcommand)]
pub enum PartitionsChange {
    /// Add partitions to the cluster.
    ///
    /// Every node that runs learns of them before one serves them. They are added to this node's configuration, too; on another
    /// node, the command adds to that one's configuration what the cluster has already.
    Add(AddPartitions),
    /// Remove partitions without volumes from the cluster.
    ///
    /// What is in their folders of the bucket stays. They are removed from this node's configuration, too; on another node, the command
    /// removes from that one's configuration what the cluster does not have any more. For superusers.
    Remove(RemovePartitions),
}

/// Add partitions to the cluster.
#[derive(Args)]
pub struct AddPartitions {
    /// Letters of the partitions, separated by commas.
    #[arg(value_delimiter = ',', required = true)]
    pub partitions: Vec<PartitionId>,
    /// Take what is in a partition's folder of the bucket, from a partition that was removed. Without this option, a folder that is not
    /// empty is refused.
    #[arg(long)]
    pub adopt: bool,
    /// File with the key by which they are encrypted. It may be left out if all other partitions have one key: they get that.
    #[arg(long, value_name = "FILE")]
    pub encryption_key: Option<PathBuf>,
}

/// Remove partitions from the cluster.
#[derive(Args)]
pub struct RemovePartitions {
    /// Letters of the partitions, separated by commas.
    #[arg(value_delimiter = ',', required = true)]
    pub partitions: Vec<PartitionId>,
}

/// Make this server a node of a cluster.
#[derive(Args)]
pub struct Join {
    /// Place of the cluster, as it was given to `cellar cluster init`.
    pub bucket: BucketAddress,
    /// This machine has the cell's databases on its disk. Without this option, a server with the roles pt or vl is refused
    /// if the databases are not in the bucket.
    #[arg(long)]
    pub databases: bool,
    /// Settings of the node.
    #[command(flatten)]
    pub node: NodeOptions,
}

/// Settings of a node, for its configuration.
#[derive(Args, Default)]
pub struct NodeOptions {
    /// Name of this node, unique in the cluster; the machine's name by default.
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    /// Address at which other nodes call this one; by default the first that the file server registers.
    #[arg(long)]
    pub address: Option<Ipv4Addr>,
    /// UDP port for calls of other nodes; 7010 by default.
    #[arg(long)]
    pub port: Option<u16>,
    /// Folder on a local disk for what was read from the bucket; only memory by default.
    #[arg(long, value_name = "FOLDER")]
    pub cache: Option<PathBuf>,
    /// Size of that folder in MiB, for each partition.
    #[arg(long, value_name = "MIB", requires = "cache")]
    pub cache_mb: Option<u32>,
    /// File with the key by which the cluster's partitions are encrypted: 32 bytes or 64 hexadecimal digits (openssl rand
    /// -hex 32). All nodes need the same one.
    #[arg(long, value_name = "FILE")]
    pub encryption_key: Option<PathBuf>,
    /// How the bucket is reached.
    #[command(flatten)]
    pub reach: Reach,
}

/// Move a partition, or the cell's databases, to another node.
#[derive(Args)]
pub struct Move {
    /// Letters or name of the partition, like b or /vicepb, or `databases`.
    pub what: Owned,
    /// Name of the node that is to have it.
    pub node: NodeName,
}

/// Move all partitions of a node to the others, and the cell's databases.
#[derive(Args)]
pub struct Drain {
    /// Name of the node; by default the one that the configuration belongs to.
    pub node: Option<NodeName>,
}

/// Let the cluster forget a node.
#[derive(Args)]
pub struct Remove {
    /// Name of the node. It must not run.
    pub node: NodeName,
}

/// Move partitions so that all nodes that run have equally many.
#[derive(Args)]
pub struct Balance {
    /// Only show which partitions would move.
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the text says what to do.
#[cfg(feature = "bucket")]
pub fn run(context: &Context, command: &Cluster) -> Result<()> {
    let context = &context.or_packaged();
    match command {
        Cluster::Init(options) => joining::init(context, options),
        Cluster::Join(options) => joining::join(context, options),
        Cluster::ShareDatabases => sharing::run(context),
        Cluster::Addresses(options) => addresses::run(context, options),
        Cluster::Partitions(options) => partitions::run(context, options),
        Cluster::Status => status::status(context),
        Cluster::Move(options) => moving::move_one(context, options),
        Cluster::Drain(options) => moving::drain(context, options),
        Cluster::Balance(options) => balancing::run(context, options),
        Cluster::Remove(options) => removing::run(context, options),
    }
}

/// Refuses the command.
///
/// # Errors
/// Always: the program has no buckets.
#[cfg(not(feature = "bucket"))]
pub fn run(_: &Context, _: &Cluster) -> Result<()> {
    anyhow::bail!(cellar_server::buckets::WITHOUT)
}
