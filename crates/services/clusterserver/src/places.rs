//! The partitions of volumes that other nodes own.

use crate::environment::Environment;
use crate::links::Links;
use crate::questions::Questions;
use crate::wire;
use afs_idl::cluster;
use base::{AbortCode, Monotonic, VolumeId};
use cluster_proto::{CallKind, NodeName, PartitionName, Route};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long nodes are not asked again for a volume that none of them has.
const ABSENT: Duration = Duration::from_secs(1);

/// How long they are not asked again for a volume that a node did not answer about. Calls for it are held meanwhile.
const UNKNOWN: Duration = Duration::from_millis(250);

/// How long a volume that was just there is not said to be absent: it may be moving between partitions.
const MOVING: Duration = Duration::from_secs(2);

/// Maximum number of volumes that are remembered, found and moving; beyond it all are forgotten.
const VOLUMES_MAX: usize = 65_536;

/// Maximum number of volumes that were not found and are remembered; beyond it all are forgotten. There may be any number
/// of them, which must not displace the others.
const MISSES_MAX: usize = 16_384;

/// Where a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In a partition of another node, as far as is known.
    In(PartitionName),
    /// In no partition that has an owner.
    Nowhere,
    /// A node does not answer, or a partition has no owner at present.
    Unknown,
    /// Other nodes are not asked: the client has named too many volumes that do not exist.
    NotAsked,
}

#[derive(Default)]
struct Known {
    found: HashMap<VolumeId, PartitionName>,
    /// Volumes that were not found, with the end of the time for which this is relied on.
    missed: HashMap<VolumeId, (Found, Monotonic)>,
    /// When a volume was no longer where it had been.
    left: HashMap<VolumeId, Monotonic>,
    questions: Questions,
}

impl Known {
    fn get(&self, now: Monotonic, volume: VolumeId) -> Option<Found> {
        if let Some(partition) = self.found.get(&volume) {
            return Some(Found::In(partition.clone()));
        }
        self.missed.get(&volume).filter(|(_, until)| now < *until).map(|(found, _)| found.clone())
    }

    fn make_room(&mut self) {
        if self.found.len() + self.left.len() >= VOLUMES_MAX {
            self.found.clear();
            self.left.clear();
        }
    }

    fn miss(&mut self, volume: VolumeId, found: Found, until: Monotonic) {
        if self.missed.len() >= MISSES_MAX {
            self.missed.clear();
        }
        self.missed.insert(volume, (found, until));
    }
}

pub(crate) struct Places {
    environment: Environment,
    links: Arc<Links>,
    /// What nodes have said; no call is made under the lock.
    known: Mutex<Known>,
}

impl Places {
    pub(crate) fn new(environment: Environment, links: Arc<Links>) -> Places {
        Places { environment, links, known: Mutex::default() }
    }

    /// Returns the partition of a volume that is not here. Asks all owners if it is not known, at a limited rate if the
    /// client at this address has named it.
    pub(crate) fn find(&self, volume: VolumeId, client: Option<IpAddr>) -> Found {
        let now = (self.environment.now)();
        let mut known = self.known.lock();
        if let Some(found) = known.get(now, volume) {
            return found;
        }
        if !client.is_none_or(|client| known.questions.may_ask(now, client)) {
            return Found::NotAsked;
        }
        drop(known);
        let found = self.ask(volume);
        let now = (self.environment.now)();
        let mut known = self.known.lock();
        let is_moving = known.left.get(&volume).is_some_and(|at| now.since(*at) < MOVING);
        let found = if is_moving && found == Found::Nowhere { Found::Unknown } else { found };
        match &found {
            Found::In(partition) => {
                known.make_room();
                known.missed.remove(&volume);
                known.left.remove(&volume);
                known.found.insert(volume, partition.clone());
            }
            Found::Nowhere => {
                if let Some(client) = client {
                    known.questions.was_in_vain(now, client);
                }
                known.miss(volume, found.clone(), now + ABSENT);
            }
            Found::Unknown | Found::NotAsked => known.miss(volume, found.clone(), now + UNKNOWN),
        }
        found
    }

    /// Forgets the place of a volume, because its owner does not know it.
    pub(crate) fn forget(&self, volume: VolumeId) {
        if self.known.lock().found.remove(&volume).is_some() {
            self.left(volume);
        }
    }

    /// Records that a volume is not any more where it was.
    pub(crate) fn left(&self, volume: VolumeId) {
        let mut known = self.known.lock();
        known.make_room();
        known.left.insert(volume, (self.environment.now)());
    }

    /// Returns the partitions of other nodes, and whether there are some whose owner is not known. Those that are served
    /// here are known from the list of volumes.
    pub(crate) fn owners(&self) -> (Vec<Owner>, bool) {
        let ownership = &self.environment.ownership;
        let (mut owners, mut is_uncertain) = (Vec::new(), !ownership.knows_all());
        for partition in ownership.partitions() {
            match ownership.route(&partition, CallKind::Read, Duration::ZERO) {
                Route::Refuse(_) => {}
                Route::Local(_) | Route::Hold => {
                    is_uncertain |= ownership.own(&partition).is_none_or(|own| own.is_draining);
                }
                Route::Forward { node, epoch, addresses } => {
                    owners.push(Owner { node, partition, epoch: epoch.0, addresses });
                }
            }
        }
        (owners, is_uncertain)
    }

    /// Asks the owners of all partitions of other nodes for a volume.
    pub(crate) fn ask(&self, volume: VolumeId) -> Found {
        let (owners, mut is_uncertain) = self.owners();
        let node = wire::node(&self.environment.ownership.node());
        for owner in owners {
            let Some(address) = owner.addresses.first() else {
                is_uncertain = true;
                continue;
            };
            let request = cluster::LocateVolumeRequest {
                node: node.clone(),
                partition: owner.partition.as_str().into(),
                epoch: owner.epoch,
                volume: volume.0,
            };
            match cluster::locate_volume(&*self.links.to(*address), &request) {
                Ok(_) => return Found::In(owner.partition),
                Err(AbortCode::VNOVOL) => {}
                Err(_) => is_uncertain = true,
            }
        }
        if is_uncertain { Found::Unknown } else { Found::Nowhere }
    }
}

/// The owner of a partition.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) node: NodeName,
    pub(crate) partition: PartitionName,
    pub(crate) epoch: u64,
    pub(crate) addresses: Vec<SocketAddr>,
}
