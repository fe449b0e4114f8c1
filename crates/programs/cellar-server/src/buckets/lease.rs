//! The lease that makes this server the owner of a partition in a bucket (docs/design/cluster.md).

use super::Ownership;
use super::opening::connect;
use anyhow::{Context, Result};
use cellar_config::BucketSettings;
use cluster::{AcquireError, Member, MemberConfig, NodeName, Owner, OwnerEvent, PartitionName};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use store::{Partition, Tenure};
use volume::Permit;

/// Interval at which a wait checks whether there is something new to log.
const REPORT: Duration = Duration::from_secs(5);

/// Longest name of a node in bytes.
const NODE_BYTES_MAX: usize = 64;

/// A lease and the ownership of one partition. Dropping it gives both up, which waits for the bucket at most twice a TTL:
/// drop the partition before.
pub(super) struct Lease {
    address: String,
    tenure: Tenure,
    /// Dead once the partition is closed.
    partition: Weak<Partition>,
    /// Present until it is dropped.
    ownership: Option<Arc<Owned>>,
    /// Leaves when it is dropped, after the ownership was given up.
    _member: Member,
}

/// An ownership, as volumes ask about it.
struct Owned(Owner);

impl Permit for Owned {
    fn may_answer(&self) -> bool {
        self.0.may_answer()
    }

    fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

impl Ownership for Owned {
    fn end(&self) {
        self.0.superseded();
    }
}

impl Lease {
    /// Waits until this process owns the partition at an address; `None` soon after `ending` is set. For `process_file`, see
    /// [`MemberConfig::process_file`].
    ///
    /// # Errors
    /// If the bucket's client cannot be set up, or the bucket refuses requests.
    pub(super) fn acquire(
        settings: &BucketSettings,
        addresses: &[SocketAddr],
        process_file: Option<PathBuf>,
        ending: &AtomicBool,
    ) -> Result<Option<Lease>> {
        let (address, prefix) = (settings.address.to_string(), settings.address.prefix());
        let partition: PartitionName = prefix.parse()?;
        let config = MemberConfig {
            folder: prefix.to_owned(),
            process_file,
            addresses: addresses.to_vec(),
            ..MemberConfig::new(node_name())
        };
        let member = Member::start(connect(settings)?, config).context("cannot wait for its lease")?;
        let owner = match acquire_logged(&address, &member, &partition, ending) {
            Ok(owner) => owner,
            Err(AcquireError::Stopped) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        tracing::info!(address, epoch = %owner.epoch(), "this server owns the partition");
        let tenure = Tenure::until(Instant::now());
        follow(&owner, address.clone(), tenure.clone());
        let ownership = Some(Arc::new(Owned(owner)));
        Ok(Some(Lease { address, tenure, partition: Weak::new(), ownership, _member: member }))
    }

    /// Returns the time during which the stores of the partition answer.
    pub(super) fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// Begins to answer calls, once the partition is open. There is no durable list of the hosts that hold promises, so
    /// none is reset here: a host is reset at its first call, as after each restart of a server.
    pub(super) fn opened(&mut self, partition: &Arc<Partition>) -> Arc<dyn Ownership> {
        self.partition = Arc::downgrade(partition);
        let ownership = self.ownership.as_ref().expect("it is there until the end");
        ownership.0.opened(Vec::new());
        Arc::clone(ownership) as Arc<dyn Ownership>
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // From here on, nothing is answered or written, even if something still refers to the partition.
        self.tenure.end();
        let is_open = self.partition.strong_count() > 0;
        let owner = self.ownership.take().and_then(Arc::into_inner);
        let is_released = !is_open && owner.is_some_and(|Owned(owner)| owner.release(None));
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

/// Waits for the ownership, and logs for which server.
fn acquire_logged(
    address: &str,
    member: &Member,
    partition: &PartitionName,
    ending: &AtomicBool,
) -> Result<Owner, AcquireError> {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || log_wait(address, member, &is_done));
        let acquired = member.acquire(partition, ending);
        drop(done);
        acquired
    })
}

fn log_wait(address: &str, member: &Member, is_done: &Receiver<()>) {
    let mut last = None;
    while is_done.recv_timeout(REPORT) == Err(RecvTimeoutError::Timeout) {
        let status = member.status();
        let owner = status.and_then(|status| status.partitions.into_iter().find_map(|one| one.owner));
        let has_lease = member.has_lease();
        let state = Some((owner.clone(), has_lease));
        if state != last {
            let owner = owner.map_or_else(|| "unknown".to_owned(), |owner| owner.to_string());
            tracing::warn!(
                address,
                owner,
                has_lease,
                "waiting to own the partition; this server is on standby"
            );
        }
        last = state;
    }
}

/// Returns the name of this machine as that of a node. Equal names of two machines do no harm: one waits for the other.
pub(super) fn node_name() -> NodeName {
    let host = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    node_name_of(&host)
}

fn node_name_of(host: &str) -> NodeName {
    let is_valid =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ".-_".contains(letter);
    let valid = |letter| if is_valid(letter) { letter } else { '-' };
    let name: String = host.chars().map(valid).take(NODE_BYTES_MAX).collect();
    name.parse().unwrap_or_else(|_| "node".parse().expect("a valid name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_name_gives_a_node() {
        let long = "n".repeat(300);
        for (host, name) in [
            ("afs1.example.org", "afs1.example.org"),
            ("größe 1/2", "gr--e-1-2"),
            ("", "node"),
            ("..", "node"),
            (&long, &long[..NODE_BYTES_MAX]),
        ] {
            assert_eq!(node_name_of(host).as_str(), name);
        }
        assert!(!node_name().as_str().is_empty());
    }

    fn settings(folder: &std::path::Path) -> BucketSettings {
        BucketSettings::of(format!("file://{}", folder.display()).parse().unwrap())
    }

    #[test]
    fn a_second_server_waits_until_the_first_has_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let go_on = AtomicBool::new(false);
        let first = Lease::acquire(&settings, &[], None, &go_on).unwrap().unwrap();
        assert!(first.ownership.as_ref().is_some_and(|owned| !owned.may_answer()), "it is not open");
        let ending = AtomicBool::new(true);
        assert!(Lease::acquire(&settings, &[], None, &ending).unwrap().is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Lease::acquire(&settings, &[], None, &go_on).unwrap().unwrap());
            std::thread::sleep(Duration::from_millis(500));
            assert!(!waiting.is_finished());
            let tenure = first.tenure();
            drop(first);
            assert!(tenure.has_ended());
            drop(waiting.join().unwrap());
        });
    }
}
