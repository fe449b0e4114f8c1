//! The lease that makes this server the owner of a partition in a bucket (docs/design/cluster.md).

use super::Ownership;
use super::around::refuse_cluster;
use super::opening::connect;
use super::resets::reset_name;
use crate::cluster::Node;
use crate::threads::wait;
use anyhow::{Context, Result};
use base::HostUuid;
use cellar_config::BucketSettings;
use cellar_config::cluster::host_node_name;
use cluster::{AcquireError, Member, MemberConfig, Owner, OwnerEvent, PartitionName, Reset};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use store::{Partition, Tenure};
use volume::{ListedHost, Permit};

/// Interval at which a wait checks whether there is something new to log.
const REPORT: Duration = Duration::from_secs(5);

/// Interval at which a bucket that does not answer is asked again for clusters.
const INTERVAL: Duration = Duration::from_secs(1);

/// Who owns a partition: a member of its own, or the node of a cluster.
pub(super) struct Holder<'a> {
    /// The file server's addresses, for other servers to read.
    pub(super) addresses: &'a [SocketAddr],
    /// See [`MemberConfig::process_file`].
    pub(super) process_file: Option<PathBuf>,
    /// The node, whose lease counts instead of one for each partition.
    pub(super) node: Option<&'a Arc<Node>>,
}

impl Holder<'_> {
    /// A command, which receives no calls.
    pub(super) const COMMAND: Holder<'static> = Holder { addresses: &[], process_file: None, node: None };
}

/// A lease and the ownership of one partition. Dropping it gives both up, which waits for the bucket at most twice a TTL:
/// drop the partition before.
pub(super) struct Lease {
    address: String,
    tenure: Tenure,
    /// Dead once the partition is closed.
    partition: Weak<Partition>,
    /// Present until it is dropped.
    ownership: Option<Arc<Owned>>,
    /// Leaves when the last reference is dropped, after the ownership was given up.
    _member: Arc<Member>,
}

/// An ownership, as volumes ask about it.
struct Owned {
    owner: Arc<Owner>,
    node: Option<Arc<Node>>,
}

impl Permit for Owned {
    fn may_answer(&self) -> bool {
        self.owner.may_answer()
    }

    fn may_change(&self) -> bool {
        self.owner.may_change()
    }

    fn has_ended(&self) -> bool {
        self.owner.has_ended()
    }
}

impl Ownership for Owned {
    fn begin(&self, owed: &[ListedHost]) {
        if let Some(node) = &self.node {
            node.opened(&self.owner);
        }
        self.owner.opened(owed.iter().map(reset_name).collect());
    }

    fn reset_done(&self, client: HostUuid, is_reset: bool) {
        self.owner.reset_done(client, if is_reset { Reset::Acknowledged } else { Reset::Unreachable });
    }

    fn end(&self) {
        self.owner.superseded();
    }
}

impl Lease {
    /// Waits until this process owns the partition at an address; `None` soon after `ending` is set.
    ///
    /// # Errors
    /// If the bucket's client cannot be set up, the bucket refuses requests, or the place belongs to a cluster and this process is not
    /// one of its nodes.
    pub(super) fn acquire(
        settings: &BucketSettings,
        holder: Holder<'_>,
        ending: &AtomicBool,
    ) -> Result<Option<Lease>> {
        let address = settings.address.to_string();
        let (place, partition) = settings.lease_place()?;
        let Holder { addresses, process_file, node } = holder;
        let is_allowed = settings.leases.is_some() || refuse_cluster(settings)?;
        let member = if let Some(node) = node {
            Arc::clone(node.member())
        } else {
            let config = MemberConfig {
                folder: place.address.prefix().to_owned(),
                process_file,
                addresses: addresses.to_vec(),
                ..MemberConfig::new(host_node_name())
            };
            let member = Member::start(connect(&place)?, config).context("cannot wait for its lease")?;
            Arc::new(member)
        };
        if !is_allowed && !wait_for_answer(settings, (&address, &partition), &member, ending)? {
            return Ok(None);
        }
        let Some(owner) = wait_for((&address, &partition), &member, node, ending)? else { return Ok(None) };
        tracing::info!(address, epoch = %owner.epoch(), "this server owns the partition");
        let tenure = Tenure::until(Instant::now());
        follow(&owner, address.clone(), tenure.clone());
        let ownership = Some(Arc::new(Owned { owner: Arc::new(owner), node: node.cloned() }));
        Ok(Some(Lease { address, tenure, partition: Weak::new(), ownership, _member: member }))
    }

    /// Returns the time during which the stores of the partition answer.
    pub(super) fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// Returns the ownership of the partition, once it is open. Nothing is answered before [`Ownership::begin`].
    pub(super) fn opened(&mut self, partition: &Arc<Partition>) -> Arc<dyn Ownership> {
        self.partition = Arc::downgrade(partition);
        let ownership = self.ownership.as_ref().expect("it is there until the end");
        Arc::clone(ownership) as Arc<dyn Ownership>
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // From here on, nothing is answered or written, even if something still refers to the partition.
        self.tenure.end();
        let is_open = self.partition.strong_count() > 0;
        let Some(owned) = self.ownership.take() else { return };
        let is_released = match &owned.node {
            // The lease goes on, so no other node would take the partition. The next owner fences what still uses the database.
            Some(node) => {
                node.closed(owned.owner.partition());
                let has_ended = owned.owner.has_ended();
                owned.owner.hand_over() || has_ended
            }
            None => !is_open && owned.owner.hand_over(),
        };
        if !is_released {
            let address = &self.address;
            tracing::warn!(
                address,
                is_open,
                "the partition was not given up; other servers wait for the end of its lease"
            );
        }
    }
}

/// Makes the tenure follow the ownership.
fn follow(owner: &Owner, address: String, tenure: Tenure) {
    owner.watch(move |event| match event {
        OwnerEvent::Held { until } => _ = tenure.extend(until),
        OwnerEvent::Lapsed => {
            tracing::warn!(address, "the lease could not be renewed in time; calls wait until it is");
        }
        OwnerEvent::Resumed { until } => {
            tracing::info!(address, "the lease was renewed; calls go on");
            tenure.extend(until);
        }
        OwnerEvent::Lost { why } => {
            tracing::error!(address, why, "this server does not own the partition any more");
            tenure.end();
        }
    });
}

/// Waits until the bucket says that the place belongs to no cluster, and logs why it does not answer. Returns false soon after `ending`
/// is set.
fn wait_for_answer(
    settings: &BucketSettings,
    (address, partition): (&str, &PartitionName),
    member: &Member,
    ending: &AtomicBool,
) -> Result<bool> {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || log_wait((address, "this server is on standby"), member, partition, &is_done));
        let answer = loop {
            if !wait(ending, INTERVAL) {
                break Ok(false);
            }
            match refuse_cluster(settings) {
                Ok(false) => {}
                answer => break answer,
            }
        };
        drop(done);
        answer
    })
}

/// Waits for the ownership. Returns `None` soon after `ending` is set. A node waits for its turn; when another node gets the
/// partition, it waits for the next one.
fn wait_for(
    (address, partition): (&str, &PartitionName),
    member: &Member,
    node: Option<&Arc<Node>>,
    ending: &AtomicBool,
) -> Result<Option<Owner>, AcquireError> {
    let standing = if node.is_some() { "another node serves it" } else { "this server is on standby" };
    let is_ending = || ending.load(Ordering::Relaxed);
    loop {
        if node.is_some_and(|node| !node.await_turn(partition, ending)) {
            return Ok(None);
        }
        let is_over = || is_ending() || node.is_some_and(|node| node.is_served_elsewhere(partition));
        match acquire_logged((address, standing), member, partition, &is_over) {
            Ok(owner) => return Ok(Some(owner)),
            Err(AcquireError::Stopped) if is_ending() => return Ok(None),
            Err(AcquireError::Stopped) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the ownership until `is_over`, and logs for which server; `address.1` says what that means.
fn acquire_logged(
    address: (&str, &'static str),
    member: &Member,
    partition: &PartitionName,
    is_over: &dyn Fn() -> bool,
) -> Result<Owner, AcquireError> {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || log_wait(address, member, partition, &is_done));
        let acquired = member.acquire_until(partition, is_over);
        drop(done);
        acquired
    })
}

/// Returns what a wait means; `standing` if another owner was seen.
fn standing_of(has_owner: bool, has_failure: bool, standing: &str) -> &str {
    match (has_owner, has_failure) {
        (true, _) => standing,
        (false, true) => "requests to the bucket fail",
        (false, false) => "no owner is known yet",
    }
}

fn log_wait(
    (address, standing): (&str, &str),
    member: &Member,
    partition: &PartitionName,
    is_done: &Receiver<()>,
) {
    let mut last = None;
    while is_done.recv_timeout(REPORT) == Err(RecvTimeoutError::Timeout) {
        let Some(status) = member.status() else { return };
        let known = status.partitions.into_iter().find(|one| one.partition == *partition);
        let (owner, has_lease) = (known.and_then(|known| known.owner), status.lease_left.is_some());
        let state = Some((owner.clone(), has_lease, status.failure.is_some()));
        if state != last {
            let reason = status.failure.map(|failure| failure.to_string());
            let standing = standing_of(owner.is_some(), reason.is_some(), standing);
            let owner = owner.map_or_else(|| "unknown".to_owned(), |owner| owner.to_string());
            tracing::warn!(address, owner, has_lease, reason, "waiting to own the partition; {standing}");
        }
        last = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::until;
    use cellar_config::SharedLeases;

    fn settings(folder: &std::path::Path) -> BucketSettings {
        BucketSettings::of(format!("file://{}", folder.display()).parse().unwrap())
    }

    #[test]
    fn a_second_server_waits_until_the_first_has_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let go_on = AtomicBool::new(false);
        let first = Lease::acquire(&settings, Holder::COMMAND, &go_on).unwrap().unwrap();
        assert!(first.ownership.as_ref().is_some_and(|owned| !owned.may_answer()), "it is not open");
        let ending = AtomicBool::new(true);
        assert!(Lease::acquire(&settings, Holder::COMMAND, &ending).unwrap().is_none());
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| Lease::acquire(&settings, Holder::COMMAND, &go_on).unwrap().unwrap());
            std::thread::sleep(Duration::from_millis(500));
            assert!(!waiting.is_finished());
            let tenure = first.tenure();
            drop(first);
            assert!(tenure.has_ended());
            drop(waiting.join().unwrap());
        });
    }

    #[test]
    fn a_partition_of_a_cluster_is_left_to_its_nodes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        let (cluster, own) = (settings(folder.path()), settings(&folder.path().join("b")));
        let record = cluster::ClusterRecord::new("example.org".parse().unwrap(), vec!["b".parse().unwrap()]);
        cluster::create_cluster(&*connect(&cluster).unwrap(), "", &record.unwrap()).unwrap();
        let refused =
            Lease::acquire(&own, Holder::COMMAND, &AtomicBool::new(false)).err().unwrap().to_string();
        assert!(refused.contains("belongs to the cluster of the cell example.org"), "{refused}");
        assert!(!folder.path().join("b/owner").exists());
        let leases = Some(SharedLeases { address: cluster.address, partition: "b".parse().unwrap() });
        let node = BucketSettings { leases, ..own };
        assert!(Lease::acquire(&node, Holder::COMMAND, &AtomicBool::new(false)).unwrap().is_some());
    }

    #[test]
    fn changes_wait_for_the_resets_of_clients() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let mut lease = Lease::acquire(&settings, Holder::COMMAND, &AtomicBool::new(false)).unwrap().unwrap();
        let config = store::PartitionConfig::default();
        let place = tempfile::tempdir().unwrap();
        let partition = Arc::new(Partition::open(place.path(), &config).unwrap());
        let client =
            |number: u8, uuid| ListedHost { address: SocketAddr::from(([10, 0, 0, number], 7001)), uuid };
        let uuid = HostUuid([1; 16]);
        let owed = [client(1, Some(uuid)), client(2, Some(uuid)), client(3, None)];
        let ownership = lease.opened(&partition);
        assert!(!ownership.may_answer());
        ownership.begin(&owed);
        until("reads are answered", || ownership.may_answer());
        assert!(!ownership.may_change());
        ownership.reset_done(uuid, true);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ownership.may_change(), "one is left");
        ownership.reset_done(HostUuid::default(), false);
        until("changes are answered", || ownership.may_change());
        drop((partition, ownership));
    }
}
