//! The node: its lease, and the partitions that it serves.

use super::Handovers;
use super::addresses::Addresses;
use super::auditing::Auditing;
use super::foreign::{ForeignData, Suspended};
use super::turns::Turns;
use crate::buckets::{connect, process_file};
use crate::destinations;
use crate::environment::Way;
use crate::threads::wait;
use adminserver::{GiveUpError, RemoveNodeError};
use anyhow::{Context, Result};
use base::{BucketAddress, PartitionId};
use cellar_config::cluster::{ClusterSettings, is_of_this_machine};
use cellar_config::{PartitionSettings, Settings};
use cluster::{
    CallKind, Epoch, Member, MemberConfig, NodeName, NodeState, Owner, PartitionName, PartitionState, Route,
    Timing,
};
use cluster_proto::Owned;
use clusterserver::{Members, Ownership as _};
use parking_lot::RwLock;
use rx::Server;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of the file by which this node knows after a crash that the process before has ended.
const PROCESS_FILE: &str = "lease-cluster";

/// Interval between two readings of a partition's owner.
const LOOK: Duration = Duration::from_millis(200);

/// A partition of the cluster.
#[derive(Clone)]
struct Listed {
    id: PartitionId,
    /// Its place in the bucket.
    name: PartitionName,
    /// The address of its objects, with the server of the bucket.
    bucket: Option<(BucketAddress, Option<String>)>,
    /// `None` if it was removed from the cluster, and is being closed.
    state: Option<PartitionState>,
    /// Whether one of this letter was removed, and is being closed. It may have been added again since.
    is_closing: bool,
}

impl Listed {
    fn new(cluster: &ClusterSettings, partition: &PartitionSettings, state: PartitionState) -> Listed {
        let bucket = partition.place.bucket().map(|bucket| (bucket.address.clone(), bucket.endpoint.clone()));
        let (id, name) = (partition.id, cluster.partition(partition.id));
        Listed { id, name, bucket, state: Some(state), is_closing: false }
    }
}

/// This process as a node. The lease is given up by [`leave`](Self::leave), or when the last reference is dropped.
pub(crate) struct Node {
    name: NodeName,
    member: Arc<Member>,
    members: Arc<Members>,
    /// Nothing waits under the lock.
    partitions: RwLock<Vec<Listed>>,
    /// The place of the cell's databases, if they are in the bucket.
    databases: Option<PartitionName>,
    handovers: Handovers,
    addresses: Arc<Addresses>,
    /// Where this node's volume service is.
    volume_service: SocketAddrV4,
    turns: Turns,
    foreign: Arc<ForeignData>,
    auditing: Auditing,
    /// Connections from the cluster's port.
    pub(crate) way: Way,
}

impl Node {
    /// Begins to join the cluster, if the settings name one.
    ///
    /// # Errors
    /// If the bucket's client cannot be set up, or the process file cannot be used.
    pub(crate) fn start(settings: &Settings) -> Result<Option<Arc<Node>>> {
        let Some(cluster) = &settings.cluster else { return Ok(None) };
        let timing = Timing::default();
        let prepared = Addresses::prepare(settings, cluster.address);
        let (auditing, events, lists) = Auditing::new(cluster.socket_address());
        let config = MemberConfig {
            folder: cluster.folder().to_owned(),
            process_file: process_file(settings, PROCESS_FILE),
            addresses: addresses(cluster, &settings.announce),
            takes_addresses: prepared.is_able(),
            timing,
            events: Some(events),
            ..MemberConfig::new(cluster.node.clone())
        };
        let member = Member::start(connect(&cluster.bucket)?, config)
            .with_context(|| format!("cannot join the cluster in {}", cluster.bucket.address))?;
        let listed = |partition| Listed::new(cluster, partition, PartitionState::Served);
        let partitions: Vec<Listed> = settings.partitions.iter().map(listed).collect();
        let (name, member) = (cluster.node.clone(), Arc::new(member));
        let service = Addresses::of(prepared, name.clone(), Arc::clone(&member), (cluster.folder(), lists));
        let names: Vec<PartitionName> = partitions.iter().map(|listed| listed.name.clone()).collect();
        let shared = names.iter().chain(cluster.databases_place()).cloned().collect();
        let turns = Turns::new(name.clone(), shared, connect(&cluster.bucket)?, cluster.folder())?;
        let placed = settings.partitions.iter().map(|one| (one, cluster.partition(one.id)));
        let foreign = ForeignData::new(settings, placed)?;
        let members = Members::new(Arc::clone(&member), name.clone(), timing.hold_limit(), names);
        members.expect_changes();
        tracing::info!(node = %name, cluster = %cluster.bucket.address, address = %cluster.socket_address(),
            "joining the cluster");
        if !is_of_this_machine(cluster.address) {
            tracing::warn!(address = %cluster.address,
                "this machine does not have the address at which other nodes are to call it (`cluster.address`)");
        }
        Ok(Some(Arc::new(Node {
            name,
            member,
            members: Arc::new(members),
            partitions: RwLock::new(partitions),
            databases: cluster.databases_place().cloned(),
            handovers: Handovers::default(),
            addresses: Arc::new(service),
            volume_service: SocketAddrV4::new(cluster.address, destinations::PORT),
            turns,
            foreign,
            auditing,
            way: Way::default(),
        })))
    }

    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Ends the membership in order, after everything was given up. Waits for the bucket, at most a TTL.
    pub(crate) fn leave(&self) {
        self.member.leave();
    }

    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    pub(crate) fn handovers(&self) -> &Handovers {
        &self.handovers
    }

    /// Returns the file data of partitions that other nodes own.
    pub(super) fn foreign(&self) -> &Arc<ForeignData> {
        &self.foreign
    }

    /// Call it before a partition is opened here, and keep the result until it is closed.
    pub(crate) fn suspend_reads(&self, place: &PartitionName) -> Suspended {
        self.foreign.suspend(place)
    }

    pub(super) fn auditing(&self) -> &Auditing {
        &self.auditing
    }

    /// Returns the address of this node's volume service.
    pub(super) fn volume_service(&self) -> SocketAddrV4 {
        self.volume_service
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Begins to take service addresses for these ports, until `ending` is set.
    ///
    /// # Errors
    /// If the bucket's client cannot be set up.
    pub(crate) fn begin_addresses(
        &self,
        settings: &Settings,
        ending: &Arc<AtomicBool>,
        servers: &[Arc<Server>],
    ) -> Result<Option<JoinHandle<()>>> {
        self.addresses.begin(settings, ending, servers)
    }

    /// Gives the service addresses up for other nodes, before calls are refused.
    pub(crate) fn withdraw(&self) {
        self.addresses.withdraw();
    }

    /// Returns the service addresses to register instead of the nodes' own addresses, none for those; `None` while that
    /// is not known.
    pub(crate) fn registered(&self) -> Option<Vec<Ipv4Addr>> {
        self.addresses.registered()
    }

    /// A partition was added to the cluster, or has another state there.
    ///
    /// # Errors
    /// If the bucket's client cannot be set up, or no threads can be started.
    pub(super) fn list(
        &self,
        cluster: &ClusterSettings,
        partition: &PartitionSettings,
        (readable, state): (Option<&PartitionSettings>, PartitionState),
    ) -> Result<()> {
        let now = Listed::new(cluster, partition, state);
        let mut partitions = self.partitions.write();
        if let Some(listed) = partitions.iter_mut().find(|listed| listed.id == partition.id) {
            let was_removed = std::mem::replace(&mut listed.state, now.state).is_none();
            drop(partitions);
            if was_removed {
                self.members.follow(&now.name);
            }
            return Ok(());
        }
        drop(partitions);
        if let Some(readable) = readable {
            self.foreign.add(readable, now.name.clone())?;
        }
        self.turns.add(now.name.clone());
        self.members.follow(&now.name);
        let mut partitions = self.partitions.write();
        partitions.push(now);
        partitions.sort_by_key(|listed| listed.id);
        Ok(())
    }

    /// A partition was removed from the cluster. It is known until it is closed here; then call [`closed_for_good`](Self::closed_for_good).
    pub(super) fn unlist(&self, partition: PartitionId) {
        let mut partitions = self.partitions.write();
        let Some(listed) = partitions.iter_mut().find(|listed| listed.id == partition) else { return };
        (listed.state, listed.is_closing) = (None, true);
        let place = listed.name.clone();
        drop(partitions);
        // It is empty, however long its closing takes: a volume that is in no other partition does not exist.
        self.members.disregard(&place);
    }

    /// A partition that was removed is closed here. It is forgotten, unless it was added again meanwhile: volumes may be in that one.
    pub(super) fn closed_for_good(&self, partition: PartitionId) {
        let mut partitions = self.partitions.write();
        let Some(at) = partitions.iter().position(|listed| listed.id == partition) else { return };
        if partitions[at].state.is_some() {
            partitions[at].is_closing = false;
            return;
        }
        let listed = partitions.remove(at);
        drop(partitions);
        self.members.unfollow(&listed.name);
        self.turns.remove(&listed.name);
        self.foreign.remove(&listed.name);
    }

    /// Returns the partitions of the cluster with their states; `None` for those that were removed and are still being closed here.
    pub(super) fn states(&self) -> Vec<(PartitionId, Option<PartitionState>)> {
        self.partitions.read().iter().map(|listed| (listed.id, listed.state)).collect()
    }

    /// Returns the partitions that were removed, perhaps added again, and are still being closed here.
    pub(super) fn closing(&self) -> Vec<PartitionId> {
        self.partitions.read().iter().filter(|listed| listed.is_closing).map(|listed| listed.id).collect()
    }

    /// Returns the places of all partitions.
    pub(super) fn partitions(&self) -> Vec<(PartitionId, PartitionName)> {
        self.partitions.read().iter().map(|listed| (listed.id, listed.name.clone())).collect()
    }

    /// Returns the place of the cell's databases, if they are in the bucket.
    pub(super) fn databases_place(&self) -> Option<&PartitionName> {
        self.databases.as_ref()
    }

    /// Returns a partition's place in the bucket.
    pub(crate) fn place(&self, partition: PartitionId) -> Option<PartitionName> {
        let partitions = self.partitions.read();
        partitions.iter().find(|listed| listed.id == partition).map(|listed| listed.name.clone())
    }

    /// Returns the partitions of the cluster to which volumes can be added, or soon; not those whose predecessors are still being closed
    /// here.
    pub(crate) fn partition_ids(&self) -> Vec<PartitionId> {
        let takes = |listed: &&Listed| {
            !listed.is_closing
                && matches!(listed.state, Some(PartitionState::Adding | PartitionState::Served))
        };
        self.partitions.read().iter().filter(takes).map(|listed| listed.id).collect()
    }

    /// Whether a partition may get volumes; `None` if that is not known now.
    pub(super) fn takes_volumes(&self, partition: PartitionId) -> Option<bool> {
        let states = self.states();
        let state = states.iter().find(|(id, _)| *id == partition).and_then(|(_, state)| *state);
        let is_served = state == Some(PartitionState::Served);
        (!is_served || self.members.knows_all()).then_some(is_served)
    }

    /// Whether a partition was removed from the cluster, so that this node is to close it, also if it was added again since.
    pub(crate) fn is_removed(&self, partition: PartitionId) -> bool {
        !self.partitions.read().iter().any(|listed| listed.id == partition && !listed.is_closing)
    }

    /// Returns the prefix of a partition's objects in the bucket of another one; `None` if it is not in that bucket.
    pub(super) fn prefix_beside(&self, partition: PartitionId, beside: PartitionId) -> Option<String> {
        let partitions = self.partitions.read();
        let find = |id| partitions.iter().find(|listed| listed.id == id)?.bucket.as_ref();
        let ((address, endpoint), (other, its_endpoint)) = find(partition).zip(find(beside))?;
        let is_same = address.place() == other.place() && endpoint == its_endpoint;
        is_same.then(|| address.prefix().to_owned())
    }

    /// Whether this node serves it, and is not giving it up.
    pub(crate) fn owns(&self, what: Owned) -> bool {
        self.epoch_of(what).is_some()
    }

    /// Returns the ownership in which this node serves a partition, unless it is giving it up.
    pub(crate) fn epoch(&self, partition: PartitionId) -> Option<Epoch> {
        self.epoch_of(Owned::Partition(partition))
    }

    fn epoch_of(&self, what: Owned) -> Option<Epoch> {
        let own = self.place_of(what).and_then(|place| self.members.own(&place));
        own.filter(|own| !own.is_draining).map(|own| own.epoch)
    }

    fn place_of(&self, what: Owned) -> Option<PartitionName> {
        match what {
            Owned::Partition(partition) => self.place(partition),
            Owned::Databases => self.databases.clone(),
        }
    }

    /// Whether another node serves a partition, as far as is known.
    pub(crate) fn is_elsewhere(&self, partition: PartitionId) -> bool {
        self.place(partition).is_some_and(|place| self.is_served_elsewhere(&place))
    }

    pub(crate) fn is_served_elsewhere(&self, place: &PartitionName) -> bool {
        matches!(self.member.route(place, CallKind::Read, Duration::ZERO), Route::Forward { .. })
    }

    /// Waits until this node is to try to get a partition: no other serves it, and it is this node's turn, unless it leaves everything
    /// to the others. Returns false soon after `ending` is set.
    pub(crate) fn await_turn(&self, place: &PartitionName, ending: &AtomicBool) -> bool {
        let (mut vacant_since, mut last) = (None, None);
        loop {
            let Some(status) = self.member.status() else { return false };
            let known = status.partitions.iter().find(|one| one.partition == *place);
            let owner = known.and_then(|known| known.owner.clone());
            let is_served = self.is_served_elsewhere(place);
            if is_served || !self.member.has_lease() || self.addresses.is_leaving() {
                vacant_since = None;
            } else {
                let vacant = vacant_since.get_or_insert_with(Instant::now).elapsed();
                if self.turns.is_due(place, &status.partitions, vacant) {
                    return true;
                }
            }
            if is_served && owner != last {
                self.turns.served(place, owner.as_ref());
                tracing::info!(%place, owner = owner.as_ref().map(NodeName::as_str), "another node serves the partition");
                last = owner;
            }
            if !wait(ending, LOOK) {
                return false;
            }
        }
    }

    /// The volumes of a partition are known; calls are sent to this node from now on.
    pub(crate) fn opened(&self, owner: &Arc<Owner>) {
        self.turns.served(owner.partition(), Some(&self.name));
        self.members.opened(Arc::clone(owner));
    }

    /// A partition is closed here.
    pub(crate) fn closed(&self, place: &PartitionName) {
        self.members.closed(place);
    }

    /// Lets no call to it begin any more, to give it up for the node `to`; returns false if it is not served here.
    pub(crate) fn drain(&self, what: Owned, to: &NodeName) -> bool {
        self.place_of(what).is_some_and(|place| self.members.drain(&place, to.clone()))
    }

    /// Removes the lease of a node that was stopped or has died, unless it is the last owner of something: its owner's object is
    /// understood only with the lease.
    pub(crate) fn remove(&self, node: &NodeName) -> Result<(), RemoveNodeError> {
        let late = |why: String| {
            tracing::warn!(%node, why, "the lease of a node cannot be read or removed");
            RemoveNodeError::Late
        };
        let lease = self.member.lease(node).map_err(late)?.ok_or(RemoveNodeError::Unknown)?;
        if lease.state == NodeState::Live {
            return Err(RemoveNodeError::Member);
        }
        let status = self.member.status().ok_or(RemoveNodeError::Late)?;
        if status.partitions.iter().any(|one| one.owner.as_ref() == Some(node)) {
            return Err(RemoveNodeError::Owner);
        }
        let is_removed = self.member.remove_lease(&lease).map_err(late)?;
        is_removed.then_some(()).ok_or(RemoveNodeError::Member)
    }

    /// Returns the number of the last renewal of a node's lease.
    pub(crate) fn live(&self, node: &NodeName) -> Result<u64, GiveUpError> {
        match self.member.lease(node) {
            Ok(Some(lease)) if lease.state == NodeState::Live => Ok(lease.sequence),
            Ok(_) => Err(GiveUpError::NoNode),
            Err(why) => {
                tracing::warn!(%node, why, "the lease of a node cannot be read");
                Err(GiveUpError::Late)
            }
        }
    }
}

/// Returns where this node receives calls of other nodes, the configured address first. The others are those that its calls may come
/// from.
fn addresses(cluster: &ClusterSettings, announced: &[Ipv4Addr]) -> Vec<SocketAddr> {
    let others = announced.iter().copied().filter(|address| *address != cluster.address);
    let all = std::iter::once(cluster.address).chain(others);
    all.map(|address| SocketAddr::new(IpAddr::V4(address), cluster.port)).collect()
}
