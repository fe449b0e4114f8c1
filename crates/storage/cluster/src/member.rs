//! Members and owners, as the rest of the program uses them.

use crate::driver::{Counters, Driver, Input};
use crate::gate::{Deadline, Gate, OwnerEvent, Watcher};
use crate::history::History;
use crate::process::ProcessFile;
use crate::routes::Routes;
use crate::troubles::RequestFailure;
use base::HostUuid;
use cluster_proto::{
    CallKind, Epoch, Incarnation, NodeName, NodeRecord, NodeState, PartitionName, PartitionStatus, Refusal,
    Reset, Route, Takeover, Timing,
};
use object_store::ObjectStore;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Name of the thread.
const THREAD: &str = "cellar-lease";

/// Time between checks whether to stop waiting.
const CHECK: Duration = Duration::from_millis(50);

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The node's name. Of two processes with the same name, one waits until the other's lease has ended.
    pub node: NodeName,
    /// The folder of the bucket in which the leases are, as `nodes/NAME`. Processes that share a partition
    /// have the same.
    pub folder: String,
    /// A local file of this node, by which a restarted process knows that the one before has ended: it does not wait
    /// for that one's lease. Its folder must exist.
    pub process_file: Option<PathBuf>,
    /// Where this node receives calls of other nodes.
    pub addresses: Vec<SocketAddr>,
    /// Whether this node can take service addresses.
    pub takes_addresses: bool,
    /// Times.
    pub timing: Timing,
    /// Gets what happens. Events for which it has no room are lost.
    pub events: Option<SyncSender<MemberEvent>>,
}

/// Something that happens to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// It has a lease.
    Joined,
    /// Its membership was ended by another node, or replaced by a process of the same name.
    Lost,
    /// It has evicted another node.
    Evicted(NodeName),
    /// A partition came to it or left it.
    Takeover(Box<Takeover>),
}

impl MemberConfig {
    /// Returns the settings of a node whose lease is at the top of the bucket.
    pub fn new(node: NodeName) -> MemberConfig {
        let timing = Timing::default();
        MemberConfig {
            node,
            folder: String::new(),
            process_file: None,
            addresses: Vec::new(),
            takes_addresses: false,
            timing,
            events: None,
        }
    }
}

/// Why a partition is not this process's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AcquireError {
    /// The caller has set the flag.
    #[error("the wait for the partition was ended")]
    Stopped,
    /// The bucket refuses a request, or an object cannot be used.
    #[error("the object {object} cannot be used: {why}")]
    Trouble {
        /// The object's name.
        object: String,
        /// The reason.
        why: String,
    },
    /// This process has it already, or waits for it.
    #[error("this process has the partition already")]
    Held,
    /// The member has left.
    #[error("this process has left the cluster")]
    Ended,
}

/// The state of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The node's name.
    pub node: NodeName,
    /// For how long the lease is still valid; `None` if it is not.
    pub lease_left: Option<Duration>,
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
    /// Counts since the start.
    pub counters: Counters,
    /// The last request to the bucket that failed, for as long as none about the same object has succeeded, at most
    /// a TTL.
    pub failure: Option<RequestFailure>,
}

/// This process as one node. It has a thread that renews the lease; dropping it leaves.
pub struct Member {
    inputs: UnboundedSender<Input>,
    deadline: Arc<Deadline>,
    routes: Arc<Routes>,
    is_alone: bool,
    /// Taken by the first that waits for its end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Member")
    }
}

impl Member {
    /// Starts the thread, which begins to join. `bucket` should be a client of its own: it is used from the thread's
    /// runtime only.
    ///
    /// # Errors
    /// If no thread or runtime can be started, or the process file cannot be used.
    pub fn start(bucket: Arc<dyn ObjectStore>, config: MemberConfig) -> io::Result<Member> {
        let (inputs, receiver) = unbounded_channel();
        let (deadline, routes) = (Arc::<Deadline>::default(), Arc::<Routes>::default());
        let MemberConfig { node, folder, process_file, addresses, takes_addresses, timing, events } = config;
        let nonce = rand::random();
        // Another process with the lock runs; its lease is waited for.
        let process = match process_file {
            Some(path) => ProcessFile::lock(&path, nonce).map_err(|error| named(&error, &path))?,
            None => None,
        };
        let ended = process.as_ref().and_then(|process| process.ended);
        let is_alone = process.is_some();
        let config =
            cluster_proto::MemberConfig { node, nonce, ended, folder, addresses, takes_addresses, timing };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let published = (Arc::clone(&deadline), Arc::clone(&routes));
        let driver = Driver::new(bucket, config, published, receiver, inputs.clone()).reporting(events);
        let run = move || {
            runtime.block_on(driver.run());
            // Requests that are never answered do not delay the end.
            runtime.shutdown_background();
            drop(process);
        };
        let thread = std::thread::Builder::new().name(THREAD.into()).spawn(run)?;
        Ok(Member { inputs, deadline, routes, is_alone, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until this process owns the partition: at once if it is free, a TTL after the last sign of life of an owner
    /// that has died. Then open its database, which must fence earlier writers.
    ///
    /// # Errors
    /// `Stopped` soon after `stop` is set; the others at once. The bucket being away is no error.
    pub fn acquire(&self, partition: &PartitionName, stop: &AtomicBool) -> Result<Owner, AcquireError> {
        self.acquire_until(partition, &|| stop.load(Relaxed))
    }

    /// Like [`acquire`](Self::acquire), until `is_over` returns true, which is called many times in a second.
    ///
    /// # Errors
    /// `Stopped` if it is over; the others at once.
    pub fn acquire_until(
        &self,
        partition: &PartitionName,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Owner, AcquireError> {
        let gate = Arc::new(Gate::new(&self.deadline));
        let (waiting, answer) = channel();
        self.send(Input::Acquire(partition.clone(), Arc::clone(&gate), waiting));
        let owner = |epoch| Owner {
            partition: partition.clone(),
            epoch,
            gate: Arc::clone(&gate),
            inputs: self.inputs.clone(),
            successor: Mutex::default(),
            is_released: AtomicBool::new(false),
        };
        loop {
            match answer.recv_timeout(CHECK) {
                Ok(Ok(epoch)) => return Ok(owner(epoch)),
                Ok(Err(error)) => {
                    if error != AcquireError::Held {
                        self.send(Input::Abandon(partition.clone()));
                    }
                    return Err(error);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(AcquireError::Ended),
                Err(RecvTimeoutError::Timeout) if is_over() => {
                    self.send(Input::Abandon(partition.clone()));
                    // If it was acquired in this moment, it is given up.
                    drop(answer.recv().map(|acquired| acquired.map(owner)));
                    return Err(AcquireError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Whether no other process of this node ran on this machine at the start, as far as the process file shows. If one did,
    /// what it has left at the machine's interfaces is its own until this member has a lease.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Whether the lease is valid.
    pub fn has_lease(&self) -> bool {
        self.deadline.is_ahead()
    }

    /// Returns the state; `None` after the thread has ended.
    pub fn status(&self) -> Option<Status> {
        let (reply, status) = channel();
        self.send(Input::Status(reply));
        status.recv().ok()
    }

    /// Returns what has happened since the start; `None` after the thread has ended.
    pub fn history(&self) -> Option<History> {
        let (reply, history) = channel();
        self.send(Input::History(reply));
        history.recv().ok()
    }

    /// Follows a partition: this process learns where it is served, for [`route`](Self::route). Partitions that are
    /// acquired are followed anyway.
    pub fn follow(&self, partition: &PartitionName) {
        self.send(Input::Follow(partition.clone()));
    }

    /// No longer follows a partition. Without effect while this process has it or waits for it.
    pub fn unfollow(&self, partition: &PartitionName) {
        self.send(Input::Unfollow(partition.clone()));
    }

    /// Returns the way of a client's call to a partition, which has been here for `age`. Asks the lease's thread, unless
    /// it has published a route to another node.
    pub fn route(&self, partition: &PartitionName, kind: CallKind, age: Duration) -> Route {
        if let Some(route) = self.routes.find(partition) {
            return route;
        }
        let (reply, route) = channel();
        self.send(Input::Route(partition.clone(), kind, age, reply));
        route.recv().unwrap_or(Route::Refuse(Refusal::Silent))
    }

    /// Says in the lease, from its next renewal on, whether this node can take service addresses.
    pub fn set_takes_addresses(&self, takes: bool) {
        self.send(Input::TakesAddresses(takes));
    }

    /// Returns the present membership; `None` after the thread has ended.
    pub fn incarnation(&self) -> Option<Incarnation> {
        let (reply, incarnation) = channel();
        self.send(Input::Identity(reply));
        incarnation.recv().ok()
    }

    /// Reads the lease of a node from the bucket; `None` if it has none.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn lease(&self, node: &NodeName) -> Result<Option<NodeRecord>, String> {
        let (reply, lease) = channel();
        self.send(Input::Lease(node.clone(), reply));
        lease.recv().unwrap_or_else(|_| Err("this process has left the cluster".into()))
    }

    /// Evicts a node whose lease was seen unchanged for much longer than its lifetime. Nothing happens if the node renews it, or this
    /// one has none itself. Without this call, nodes are evicted only if something is [wanted](Self::acquire) that they own.
    pub fn evict(&self, silent: NodeRecord) {
        self.send(Input::Evict(silent));
    }

    /// Removes the lease of a node that has left or is dead from the bucket, so that nothing is known of it any more. Returns false if
    /// the lease has changed. A process of this node that comes back joins anew.
    ///
    /// # Errors
    /// Why the bucket does not do it; it may be removed nevertheless.
    pub fn remove_lease(&self, lease: &NodeRecord) -> Result<bool, String> {
        if lease.state == NodeState::Live {
            return Ok(false);
        }
        let (reply, removed) = channel();
        self.send(Input::RemoveLease(lease.clone(), reply));
        removed.recv().unwrap_or_else(|_| Err("this process has left the cluster".into()))
    }

    /// Gives everything up and leaves, so that other nodes need not wait. Owners have to be released before. Waits for
    /// the bucket, at most a TTL.
    pub fn leave(&self) {
        self.send(Input::Leave);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // If it has panicked, the lease ends by itself.
            _ = thread.join();
        }
    }

    fn send(&self, input: Input) {
        // It fails after the thread has ended; then nothing is owned either.
        _ = self.inputs.send(input);
    }
}

fn named(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The ownership of a partition, in one epoch. Dropping it gives the partition up: close the database before.
pub struct Owner {
    partition: PartitionName,
    epoch: Epoch,
    gate: Arc<Gate>,
    inputs: UnboundedSender<Input>,
    /// The node that is to have the partition; nothing waits under the lock.
    successor: Mutex<Option<NodeName>>,
    is_released: AtomicBool,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({}, epoch {})", self.partition, self.epoch)
    }
}

impl Owner {
    /// Returns the epoch of the ownership.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the partition.
    pub fn partition(&self) -> &PartitionName {
        &self.partition
    }

    /// Begins to answer reads, after the database was opened; changes too if `hosts` is empty. `hosts` is the
    /// partition's durable list of hosts that may hold promises of earlier owners. Returns those that have to be reset:
    /// all, each once.
    pub fn opened(&self, mut hosts: Vec<HostUuid>) -> Vec<HostUuid> {
        hosts.sort_unstable();
        hosts.dedup();
        let (done, is_done) = channel();
        self.send(Input::Opened(self.partition.clone(), self.epoch, hosts.clone(), done));
        // It fails if the member has left; then nothing is answered.
        _ = is_done.recv();
        hosts
    }

    /// Reports that a host was reset, or does not answer. After the last one changes are answered.
    pub fn reset_done(&self, host: HostUuid, outcome: Reset) {
        self.send(Input::ResetDone(self.partition.clone(), self.epoch, host, outcome));
    }

    /// Whether a reply to a read may be sent; to be called for replies only, since the first one is noted as the end of a
    /// takeover. Ask after the state that the reply shows was read. Costs two relaxed loads and a reading of the clock.
    pub fn may_answer(&self) -> bool {
        self.gate.may_answer(CallKind::Read)
    }

    /// The same for a reply to a change.
    pub fn may_change(&self) -> bool {
        self.gate.may_answer(CallKind::Change)
    }

    /// Whether calls of this kind are answered now.
    pub fn accepts(&self, kind: CallKind) -> bool {
        self.gate.accepts(kind)
    }

    /// Whether the ownership has ended for good.
    pub fn has_ended(&self) -> bool {
        self.gate.has_ended()
    }

    /// Calls `watcher` with everything that happens to the ownership, on the lease's thread; it must not block. The first
    /// event is the present state. A later watcher replaces it.
    pub fn watch(&self, watcher: impl Fn(OwnerEvent) + Send + Sync + 'static) {
        let watcher: Watcher = Box::new(watcher);
        self.send(Input::Watch(self.partition.clone(), self.epoch, watcher));
    }

    /// Reports that the engine was fenced: another process has opened the database.
    pub fn superseded(&self) {
        self.send(Input::Superseded(self.partition.clone(), self.epoch));
    }

    /// Begins to give the partition up, for the node `to` if one is named: calls that have begun may still be answered, and
    /// no other is accepted ([`Member::route`]). Then close the database, and [release](Self::release) it.
    pub fn drain(&self, to: Option<NodeName>) {
        self.successor.lock().clone_from(&to);
        self.send(Input::Drain(self.partition.clone(), self.epoch, to));
    }

    /// Gives the partition up after its database was closed, for the node `to` if one is named: other nodes then wait a
    /// TTL before they take it. Waits for the bucket, at most a TTL; after that, other nodes wait for the end of the
    /// lease. Returns whether it was given up in time.
    pub fn release(self, to: Option<NodeName>) -> bool {
        *self.successor.lock() = to;
        self.hand_over()
    }

    /// Gives the partition up like [`release`](Self::release), for the node that [`drain`](Self::drain) has named, if any. Nothing may be
    /// answered with the database any more; if it is still open, the next owner fences it.
    pub fn hand_over(&self) -> bool {
        if self.is_released.swap(true, Relaxed) {
            return false;
        }
        let (done, is_done) = channel();
        let to = self.successor.lock().take();
        self.send(Input::Release(self.partition.clone(), self.epoch, to, Some(done)));
        is_done.recv_timeout(RELEASE_LIMIT).is_ok()
    }

    fn send(&self, input: Input) {
        // It fails after the thread has ended; then nothing is owned either.
        _ = self.inputs.send(input);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !*self.is_released.get_mut() {
            let to = self.successor.get_mut().take();
            self.send(Input::Release(self.partition.clone(), self.epoch, to, None));
        }
    }
}

/// How long an owner waits for the bucket when it gives a partition up.
const RELEASE_LIMIT: Duration = Duration::from_secs(6);

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_proto::{Holder, OwnerRecord};
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    /// Longest wait, far below the lease's TTL.
    const LIMIT: Duration = Duration::from_secs(60);

    /// A bucket in which a process of node `a` owns `p` by a lease that is valid for long.
    fn left_behind(incarnation: Incarnation) -> Arc<InMemory> {
        let node: NodeName = "a".parse().unwrap();
        let lease = NodeRecord {
            node: node.clone(),
            incarnation,
            sequence: 1,
            state: NodeState::Live,
            ttl: cluster_proto::TTL_MAX,
            replaced: None,
            addresses: Vec::new(),
            takes_addresses: false,
        };
        let owner = OwnerRecord { epoch: Epoch(4), holder: Holder::Owned { node, incarnation } };
        let bucket = Arc::new(InMemory::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            bucket.put(&"nodes/a".into(), lease.encode().into()).await.unwrap();
            bucket.put(&"p/owner".into(), owner.encode().into()).await.unwrap();
        });
        bucket
    }

    #[test]
    fn a_restarted_process_does_not_wait_for_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("process");
        drop(ProcessFile::lock(&path, 7).unwrap());
        let bucket = left_behind(Incarnation { nonce: 7, count: 2 });
        let start = || {
            let config =
                MemberConfig { process_file: Some(path.clone()), ..MemberConfig::new("a".parse().unwrap()) };
            Member::start(Arc::clone(&bucket) as _, config).unwrap()
        };
        let member = start();
        let stop = AtomicBool::new(false);
        let acquired = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| member.acquire(&"p".parse().unwrap(), &stop));
            let end = std::time::Instant::now() + LIMIT;
            while !waiting.is_finished() && std::time::Instant::now() < end {
                std::thread::sleep(CHECK);
            }
            stop.store(true, Relaxed);
            waiting.join().unwrap()
        });
        assert_eq!(acquired.map(|owner| owner.epoch()), Ok(Epoch(5)));
        assert!(start().status().is_some_and(|status| status.lease_left.is_none()), "the first one runs");
    }
}
