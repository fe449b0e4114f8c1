//! All rules. Each returns an empty list if its problem is not present.

mod bucket;
mod caches;
mod cell;
mod clients;
mod cluster;
mod elsewhere;
mod network;
mod openafs;
mod refusals;
mod registration;
mod store;
mod volumes;
mod workers;

use crate::finding::Finding;
use crate::snapshot::Snapshot;

/// A rule: returns the findings about one problem.
pub(crate) type Rule = fn(&Snapshot) -> Vec<Finding>;

/// The order does not matter.
pub(crate) const ALL: &[Rule] = &[
    network::dropped,
    network::small_buffers,
    network::dropped_elsewhere,
    network::saturated_lanes,
    network::sent_again,
    workers::exhausted,
    workers::turned_away,
    workers::starving_user,
    workers::hot_volume,
    workers::bugs,
    bucket::away,
    bucket::slow,
    store::slow_disk,
    store::failing_disk,
    store::buffered,
    store::full,
    store::offline,
    store::read_only,
    store::damaged,
    store::faults,
    volumes::contended,
    volumes::waited_for,
    volumes::slow_loads,
    volumes::slow_removal,
    volumes::unreclaimed,
    clients::unanswered,
    clients::late,
    clients::promises_exhausted,
    clients::shared_uuids,
    clients::slow_takers,
    refusals::refused,
    caches::too_small,
    caches::cold,
    registration::taken,
    registration::copied,
    registration::left_out,
    registration::absent,
    cluster::silent_nodes,
    cluster::dead_nodes,
    cluster::no_redundancy,
    cluster::unowned_partitions,
    cluster::one_owner,
    cluster::versions,
    cluster::sent_again,
    cluster::slow_takeovers,
    cluster::lapses,
    cluster::slow_bucket,
    cluster::clock_rates,
    cell::renamed,
    cell::orphans,
    cell::clones,
    cell::missing,
    cell::silent,
    cell::locks,
    cell::transactions,
    elsewhere::clocks,
    elsewhere::jobs,
    elsewhere::processors,
    elsewhere::audit,
    openafs::threads,
    openafs::packets,
    openafs::sent_again,
    openafs::turned_away,
    openafs::buffers,
    openafs::callback_space,
    openafs::slow_operations,
];
