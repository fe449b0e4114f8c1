//! The whole file service.

use crate::awaited::AwaitedPartitions;
use crate::config::FileServerConfig;
use crate::counters::{Counters, Operation, OperationCount, TransferCount};
use crate::environment::{CallbackNetwork, Clock, Environment, Reports, TransportFigures, VolumeLocator};
use crate::hosts::Hosts;
use crate::moved::MovedAnswers;
use crate::subject::Subjects;
use base::{Caller, Fid, Monotonic, Novelty, Repeats, UnixTime, VolumeId};
use callbacks::{HostInfo, Locks};
use parking_lot::{Mutex, MutexGuard};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use volume::Volumes;

/// Period in which a client that uses opcode 134 is logged only once, and maximum number of such clients
/// remembered.
const OLD_CLIENTS_PERIOD: Duration = Duration::from_secs(24 * 3600);
const OLD_CLIENTS_MAX: usize = 256;

/// The file service of one server; serves each call within [`serve`](Self::serve). All methods may be called from any
/// thread. Call [`maintain`](Self::maintain) every few minutes, and
/// [`volume_changed`](Self::volume_changed) when a volume changes other than through this service.
pub struct FileServer {
    config: Arc<FileServerConfig>,
    environment: Environment,
    hosts: Hosts,
    subjects: Subjects,
    /// File locks. The mutex is never held while waiting.
    locks: Mutex<Locks>,
    counters: Counters,
    moved: MovedAnswers,
    awaited: AwaitedPartitions,
    /// Clients that store access lists with the old opcode.
    old_clients: Mutex<Repeats<IpAddr>>,
    started: UnixTime,
}

impl FileServer {
    /// Creates a file service.
    pub fn new(config: FileServerConfig, environment: Environment) -> FileServer {
        let config = Arc::new(config);
        let membership = environment.membership.clone();
        FileServer {
            hosts: Hosts::new(environment.network.clone(), environment.clock.clone(), config.clone()),
            subjects: Subjects::new(membership, config.membership_lifetime),
            locks: Mutex::new(Locks::new(config.locks_max)),
            counters: Counters::default(),
            moved: MovedAnswers::default(),
            awaited: AwaitedPartitions::default(),
            old_clients: Mutex::new(Repeats::new(OLD_CLIENTS_PERIOD, OLD_CLIENTS_MAX)),
            started: environment.clock.unix(),
            config,
            environment,
        }
    }

    /// Makes calls wait for these reports instead of those between threads.
    #[must_use]
    pub fn with_reports(mut self, reports: Arc<dyn Reports>) -> FileServer {
        self.hosts.set_reports(reports);
        self
    }

    /// Logs a client that stores access lists with opcode 134. Such clients may store wrong lists
    /// (CVE-2018-7168), so other servers refuse the opcode.
    pub(crate) fn warn_of_old_store_acl(&self, caller: &Caller) {
        let novelty = self.old_clients.lock().check(caller.peer.ip(), self.clock().monotonic());
        if novelty == Novelty::New {
            tracing::warn!(
                peer = %caller.peer,
                identity = %caller.identity,
                "the client stores access lists with opcode 134 and may store wrong ones (CVE-2018-7168); \
                upgrade it"
            );
        }
    }

    /// Ends expired promises, and removes absent hosts, also from the durable lists of partitions, results of calls that
    /// no node repeats any more, and the records of expired locks.
    pub fn maintain(&self) {
        let now = self.clock().monotonic();
        self.hosts.state().maintain(now);
        self.forget_hosts(now);
        self.volumes().forget_results(now);
        self.forget_expired_locks(now);
    }

    /// Breaks all promises on `volume`, as required after a release or restore and before the volume is
    /// removed. Returns when every client has been notified or has timed out, also those that are being reset after a
    /// takeover.
    pub fn volume_changed(&self, volume: VolumeId) {
        let deliveries = self.hosts.state().break_volume(volume);
        self.hosts.send_all(deliveries);
        self.hosts.await_resets();
    }

    /// Records that `volume` moves to another server, so that clients look up its location, even after it is
    /// removed here.
    pub fn volume_moved(&self, volume: VolumeId) {
        self.moved.leaves(volume, self.clock().monotonic());
    }

    /// Drops all cached group memberships, so that changes take effect immediately.
    pub fn membership_changed(&self) {
        self.subjects.forget_all();
    }

    /// Returns the known hosts.
    pub fn client_hosts(&self) -> Vec<HostInfo> {
        self.hosts.state().hosts().collect()
    }

    /// Returns the counters of hosts and promises.
    pub fn callback_counters(&self) -> callbacks::Counters {
        self.hosts.state().counters()
    }

    /// Returns the UUIDs that two clients have used at the same time.
    pub fn shared_uuids(&self) -> Vec<callbacks::SharedUuid> {
        self.hosts.state().shared_uuids()
    }

    /// Returns counts and times of one kind of call.
    pub fn operation_count(&self, operation: Operation) -> OperationCount {
        self.counters.operation(operation)
    }

    /// Returns the counts of data sent to clients and received from clients.
    pub fn transfer_counts(&self) -> [TransferCount; 2] {
        self.counters.transfers()
    }

    pub(crate) fn config(&self) -> &FileServerConfig {
        &self.config
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(crate) fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    pub(crate) fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock()
    }

    pub(crate) fn lock_count(&self, now: Monotonic, fid: Fid) -> i32 {
        self.locks.lock().count(now, fid)
    }

    /// Returns the lock count of each fid.
    pub(crate) fn lock_counts(&self, now: Monotonic, fids: &[Fid]) -> Vec<i32> {
        let locks = self.locks();
        fids.iter().map(|fid| locks.count(now, *fid)).collect()
    }

    pub(crate) fn moved(&self) -> &MovedAnswers {
        &self.moved
    }

    pub(crate) fn awaited(&self) -> &AwaitedPartitions {
        &self.awaited
    }

    pub(crate) fn network(&self) -> &dyn CallbackNetwork {
        &*self.environment.network
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.environment.clock
    }

    pub(crate) fn volumes(&self) -> &Volumes {
        &self.environment.volumes
    }

    pub(crate) fn locator(&self) -> Option<&dyn VolumeLocator> {
        self.environment.locator.as_deref()
    }

    pub(crate) fn transport(&self) -> TransportFigures {
        (self.environment.transport)()
    }

    pub(crate) fn process_kib(&self) -> u64 {
        (self.environment.process_kib)()
    }

    pub(crate) fn started(&self) -> UnixTime {
        self.started
    }
}
