//! One node of the cluster: its lease, what it sees of others, and its partitions.

use crate::hosts::{Hosts, Promise, Reset};
use crate::lease::{Lease, LeaseChange};
use crate::names::{Epoch, Incarnation, NodeName, PartitionName};
use crate::ownership::{Ownership, View};
use crate::peers::{Peers, object};
use crate::phase::{CallKind, Phase, PhaseEvent};
use crate::records::{NodeRecord, NodeState};
use crate::request::{Action, Answer, Notice, RequestId};
use crate::route::{Call, Forward, Refusal, Route, Via};
use crate::timing::Timing;
use base::{HostUuid, Monotonic};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// Greatest number of silent nodes that are evicted at a time.
const SILENT_MAX: usize = 64;

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The node's name.
    pub node: NodeName,
    /// A random number of this process.
    pub nonce: u128,
    /// The number of an earlier process of this node that has certainly ended. Its lease is not waited for.
    pub ended: Option<u128>,
    /// The folder of the bucket in which `nodes/` is. It may be empty.
    pub folder: String,
    /// Where the node receives calls of other nodes; at most
    /// [`ADDRESSES_MAX`](crate::ADDRESSES_MAX), further ones are not published.
    pub addresses: Vec<SocketAddr>,
    /// Whether the node can take service addresses, for its lease.
    pub takes_addresses: bool,
    /// Times.
    pub timing: Timing,
}

/// What is known of a partition at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The partition.
    pub partition: PartitionName,
    /// Its phase here.
    pub phase: Phase,
    /// Since when.
    pub since: Monotonic,
    /// The own epoch, in phases from `Claiming` on; else that of the owner, if it is known.
    pub epoch: Epoch,
    /// The owner according to the bucket.
    pub owner: Option<NodeName>,
    /// The node that is to have it next according to the bucket, if it is free.
    pub successor: Option<NodeName>,
}

/// Another node, as far as it is watched here: an owner of partitions that this node follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its name.
    pub node: NodeName,
    /// Where it receives calls of other nodes.
    pub addresses: Vec<SocketAddr>,
    /// The state in its lease; `None` if that was not read yet, or cannot be used.
    pub state: Option<NodeState>,
    /// When its lease was last seen to change.
    pub changed: Monotonic,
    /// Mean time between its renewals by this node's clock, over a minute or more; `None` if that is not known yet. Requests
    /// that the other node has repeated shorten it.
    pub renewal: Option<Duration>,
}

/// The protocol at one node, without I/O, clock or threads.
///
/// All times are of the node's own monotonic clock, which may be up to
/// [`CLOCK_RATE_PERCENT`](crate::CLOCK_RATE_PERCENT) fast or slow, but counts all time, also while the process or the
/// machine sleeps.
///
/// The shell calls [`poll`](Member::poll) until it returns `None`, after every call of another method and at
/// [`next_time`](Member::next_time). It does what the returned [`Action`]s say, in their order, and reports the outcomes.
/// `now` of a `poll` that returns a request must have been read before the request is sent: the lease counts from it.
/// Reports about an ownership that has ended change nothing; they may come late or twice.
///
/// A call takes the way that [`route`](Member::route) returns. Before a reply is sent,
/// [`may_answer`](Member::may_answer) must be true *after* the state that the reply shows was read. The shell
/// may keep [`deadline`](Member::deadline) and the phase where a thread without this object can read them.
#[derive(Debug)]
pub struct Member {
    timing: Timing,
    lease: Lease,
    peers: Peers,
    partitions: BTreeMap<PartitionName, Ownership>,
    /// Leases that were seen unchanged for long, of nodes that have nothing that is wanted here, and since when that is known.
    silent: BTreeMap<NodeName, (NodeRecord, Monotonic)>,
    actions: VecDeque<Action>,
    requests: u64,
    /// Whether the lease was valid when that was last checked.
    was_valid: bool,
    is_leaving: bool,
}

impl Member {
    /// Creates a member, which begins to join.
    pub fn new(config: MemberConfig, now: Monotonic) -> Member {
        let MemberConfig { node, nonce, ended, folder, mut addresses, takes_addresses, timing } = config;
        addresses.truncate(crate::ADDRESSES_MAX);
        let name = object(&folder, &node);
        Member {
            timing,
            lease: Lease::new(node, nonce, (addresses, takes_addresses), name, timing, now).after(ended),
            peers: Peers::new(folder, timing),
            partitions: BTreeMap::new(),
            silent: BTreeMap::new(),
            actions: VecDeque::new(),
            requests: 0,
            was_valid: false,
            is_leaving: false,
        }
    }

    /// Returns the current membership.
    pub fn incarnation(&self) -> Incarnation {
        self.lease.incarnation
    }

    /// Returns the time until which this node relies on its lease; `None` without one.
    pub fn deadline(&self) -> Option<Monotonic> {
        self.lease.until()
    }

    /// Whether the lease is valid.
    pub fn has_lease(&self, now: Monotonic) -> bool {
        self.lease.is_valid(now)
    }

    /// Whether the member has left, after [`leave`](Member::leave).
    pub fn has_left(&self) -> bool {
        self.lease.has_left()
    }

    /// Whether the node can take service addresses, for the lease from its next renewal on.
    pub fn set_takes_addresses(&mut self, takes: bool) {
        self.lease.takes_addresses = takes;
    }

    /// Follows a partition: this node learns where it is served.
    pub fn follow(&mut self, now: Monotonic, partition: &PartitionName) {
        self.partitions.entry(partition.clone()).or_insert_with(|| Ownership::new(partition.clone(), now));
    }

    /// No longer follows a partition, which is not the cluster's any more. Without effect while this node has it or wants it.
    pub fn unfollow(&mut self, now: Monotonic, partition: &PartitionName) {
        let is_done = |own: &Ownership| matches!(own.phase, Phase::Remote | Phase::Waiting) && !own.is_wanted;
        if self.partitions.get(partition).is_some_and(is_done) {
            self.partitions.remove(partition);
            self.watch_peers(now);
        }
    }

    /// Takes a partition when no node has it, now and whenever its owner is gone.
    pub fn want(&mut self, now: Monotonic, partition: &PartitionName) {
        self.follow(now, partition);
        if let Some(own) = self.partitions.get_mut(partition).filter(|_| !self.is_leaving) {
            own.want();
        }
        self.watch_peers(now);
    }

    /// Gives a partition up, for `successor` if one is named: other nodes then wait a TTL before they take it. This
    /// node no longer wants it, but still follows it.
    pub fn release(&mut self, now: Monotonic, partition: &PartitionName, successor: Option<NodeName>) {
        let Some(own) = self.partitions.get_mut(partition) else { return };
        own.release(successor);
        own.apply(PhaseEvent::Release, now, &mut self.actions);
        self.watch_peers(now);
    }

    /// Evicts a node whose lease the shell has seen unchanged for long, although nothing is wanted that it has, after a whole TTL
    /// from the first call on; not if the lease changes, and not if that of this node lapses: the bucket may have been away.
    pub fn evict(&mut self, now: Monotonic, silent: NodeRecord) {
        let is_known = self.silent.get(&silent.node).is_some_and(|(known, _)| *known == silent);
        let has_room = self.silent.len() < SILENT_MAX && !is_known;
        if silent.state == NodeState::Live && silent.node != self.lease.node && has_room && !self.is_leaving {
            self.silent.insert(silent.node.clone(), (silent, now));
            self.watch_peers(now);
        }
    }

    /// Gives everything up, and then leaves.
    pub fn leave(&mut self, now: Monotonic) {
        self.is_leaving = true;
        let names: Vec<PartitionName> = self.partitions.keys().cloned().collect();
        for name in &names {
            self.release(now, name, None);
        }
    }

    /// The partition's database is open; `hosts` is its durable list of hosts that may hold promises.
    pub fn opened(
        &mut self,
        now: Monotonic,
        partition: &PartitionName,
        epoch: Epoch,
        hosts: impl IntoIterator<Item = HostUuid>,
    ) {
        let Some(own) = owned(&mut self.partitions, partition, epoch) else { return };
        if own.apply(PhaseEvent::Opened, now, &mut self.actions) {
            own.open_succeeded();
            own.hosts = Hosts::owing(hosts);
            own.reset_hosts(now, &mut self.actions);
        }
    }

    /// The partition's database cannot be opened now, and is not open. It is tried again in a later epoch.
    pub fn not_opened(&mut self, now: Monotonic, partition: &PartitionName, epoch: Epoch) {
        let timing = self.timing;
        let Some(own) = owned(&mut self.partitions, partition, epoch) else { return };
        if own.apply(PhaseEvent::NotOpened, now, &mut self.actions) {
            own.open_failed(now, timing);
        }
        // It was given up or has ended meanwhile: there is nothing to close.
        own.apply(PhaseEvent::Drained, now, &mut self.actions);
        own.apply(PhaseEvent::Closed, now, &mut self.actions);
    }

    /// A host was reset, or does not answer.
    pub fn reset_done(
        &mut self,
        now: Monotonic,
        partition: &PartitionName,
        epoch: Epoch,
        host: HostUuid,
        outcome: Reset,
    ) {
        let Some(own) = owned(&mut self.partitions, partition, epoch) else { return };
        own.hosts.reset_done(host, outcome);
        own.reset_hosts(now, &mut self.actions);
    }

    /// The calls have ended and the database is closed, as [`Action::Drain`] asked.
    pub fn drained(&mut self, now: Monotonic, partition: &PartitionName, epoch: Epoch) {
        let Some(own) = owned(&mut self.partitions, partition, epoch) else { return };
        own.apply(PhaseEvent::Drained, now, &mut self.actions);
        // The membership has ended meanwhile.
        own.apply(PhaseEvent::Closed, now, &mut self.actions);
    }

    /// The database is closed, as [`Action::Close`] asked.
    pub fn closed(&mut self, now: Monotonic, partition: &PartitionName, epoch: Epoch) {
        let Some(own) = owned(&mut self.partitions, partition, epoch) else { return };
        own.apply(PhaseEvent::Closed, now, &mut self.actions);
    }

    /// Another process has opened the database: the ownership has ended.
    pub fn superseded(&mut self, now: Monotonic, partition: &PartitionName, epoch: Epoch) {
        let Some(own) = owned(&mut self.partitions, partition, epoch) else { return };
        own.apply(PhaseEvent::Superseded, now, &mut self.actions);
    }

    /// Asks whether a reply to a host may contain a promise.
    pub fn promise(&mut self, partition: &PartitionName, epoch: Epoch, host: HostUuid) -> Promise {
        let own = owned(&mut self.partitions, partition, epoch);
        own.filter(|own| own.phase.accepts(CallKind::Read))
            .map_or(Promise::Never, |own| own.hosts.promise(host))
    }

    /// A host is in the partition's durable list, or could not be put into it.
    pub fn recorded(&mut self, partition: &PartitionName, epoch: Epoch, host: HostUuid, is_durable: bool) {
        if let Some(own) = owned(&mut self.partitions, partition, epoch) {
            own.hosts.recorded(host, is_durable);
        }
    }

    /// A host did not answer a break: it is reset before its next call is executed.
    pub fn unreachable(&mut self, partition: &PartitionName, epoch: Epoch, host: HostUuid) {
        if let Some(own) = owned(&mut self.partitions, partition, epoch) {
            own.hosts.unreachable(host);
        }
    }

    /// Begins to forget a host that holds no promise. If it returns true, the shell removes the host from the durable
    /// list, and calls [`forgotten`](Member::forgotten). A removal and a later record must become durable in this order.
    pub fn forget(&mut self, partition: &PartitionName, epoch: Epoch, host: HostUuid) -> bool {
        owned(&mut self.partitions, partition, epoch).is_some_and(|own| own.hosts.forget(host))
    }

    /// The removal of a host from the durable list is durable.
    pub fn forgotten(&mut self, partition: &PartitionName, epoch: Epoch, host: HostUuid) {
        if let Some(own) = owned(&mut self.partitions, partition, epoch) {
            own.hosts.forgotten(host);
        }
    }

    /// Whether the reply to a call of this kind, executed here in this epoch, may be sent.
    pub fn may_answer(
        &self,
        now: Monotonic,
        partition: &PartitionName,
        epoch: Epoch,
        kind: CallKind,
    ) -> bool {
        let own = self.partitions.get(partition).filter(|own| own.epoch == epoch);
        self.lease.is_valid(now) && own.is_some_and(|own| own.phase.answers(kind))
    }

    /// Returns the phase of a partition, and the epoch of this node's ownership.
    pub fn phase(&self, partition: &PartitionName) -> Option<(Phase, Epoch)> {
        self.partitions.get(partition).map(|own| (own.phase, own.epoch))
    }

    /// Returns what is known of all partitions.
    pub fn status(&self) -> Vec<PartitionStatus> {
        let status = |own: &Ownership| {
            let owner = own.owner();
            let is_own = !matches!(own.phase, Phase::Remote | Phase::Waiting);
            PartitionStatus {
                partition: own.name.clone(),
                phase: own.phase,
                since: own.since,
                epoch: owner.filter(|_| !is_own).map_or(own.epoch, |(_, _, epoch)| epoch),
                owner: owner.map(|(node, ..)| node.clone()),
                successor: own.next_owner().cloned(),
            }
        };
        self.partitions.values().map(status).collect()
    }

    /// Returns what is seen of the nodes that own partitions elsewhere.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.peers.status()
    }

    /// Returns the way of a call.
    pub fn route(&mut self, now: Monotonic, partition: &PartitionName, call: Call) -> Route {
        let (lease, peers, timing) = (&self.lease, &self.peers, self.timing);
        let Some(own) = self.partitions.get_mut(partition) else {
            return Route::Refuse(Refusal::NoPartition);
        };
        let held = hold(now, call.since, lease.is_valid(now), timing);
        if own.phase.has_database() {
            if let Via::Front(epoch) = call.via
                && epoch != own.epoch
            {
                let known = (lease.node.clone(), own.epoch);
                if epoch > own.epoch {
                    self.lease.doubt();
                }
                return Route::Refuse(Refusal::NotOwner(Some(known)));
            }
            let is_admitted = call.host.is_none_or(|host| own.hosts.admit(host));
            own.reset_hosts(now, &mut self.actions);
            let is_open = lease.is_valid(now) && own.phase.accepts(call.kind);
            return if is_open && is_admitted { Route::Local(own.epoch) } else { held };
        }
        if let Via::Front(_) = call.via {
            let other = own.other_owner(lease).map(|(node, _, epoch)| (node.clone(), epoch));
            return Route::Refuse(Refusal::NotOwner(other));
        }
        own.forward(View { now, timing, lease, peers }).map_or(held, Route::from)
    }

    /// Returns the owners to which [`route`](Self::route) sends calls of clients, for each partition of another node.
    /// This is so until the next event, or the end of [`Forward::until`].
    pub fn forwards(&self, now: Monotonic) -> BTreeMap<PartitionName, Forward> {
        let view = View { now, timing: self.timing, lease: &self.lease, peers: &self.peers };
        let remote = self.partitions.iter().filter(|(_, own)| !own.phase.has_database());
        remote.filter_map(|(name, own)| Some((name.clone(), own.forward(view)?))).collect()
    }

    /// Returns the next thing to do.
    pub fn poll(&mut self, now: Monotonic) -> Option<Action> {
        self.tick(now);
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let id = RequestId(self.requests + 1);
        let may_evict = self.lease.is_valid(now);
        let lease = self.lease.request(now, id);
        let peers = lease.or_else(|| self.peers.request(now, id, may_evict));
        let request = peers.or_else(|| {
            let view = View { now, timing: self.timing, lease: &self.lease, peers: &self.peers };
            self.partitions.values_mut().find_map(|own| own.request(view, id))
        })?;
        self.requests += 1;
        Some(Action::Request(request))
    }

    /// Returns when [`poll`](Member::poll) has something to do without another event.
    pub fn next_time(&self, now: Monotonic) -> Option<Monotonic> {
        let view = View { now, timing: self.timing, lease: &self.lease, peers: &self.peers };
        let partitions = self.partitions.values().filter_map(|own| own.next_time(view)).min();
        let lapse = self.lease.until().filter(|_| self.was_valid);
        let peers = self.peers.next_time(self.lease.is_valid(now));
        [self.lease.next_time(), peers, partitions, lapse].into_iter().flatten().min()
    }

    /// Takes the outcome of a request. An outcome that was reported before changes nothing.
    pub fn answer(&mut self, now: Monotonic, id: RequestId, answer: Answer) {
        if self.lease.has_asked(id) {
            let change = self.lease.answer(now, answer);
            return self.lease_changed(now, change);
        }
        let view = View { now, timing: self.timing, lease: &self.lease, peers: &self.peers };
        if let Some(own) = self.partitions.values_mut().find(|own| own.has_asked(id)) {
            own.answer(view, answer, &mut self.actions);
        } else {
            let notice = self.peers.answer(now, id, answer);
            self.actions.extend(notice.map(Action::Notice));
        }
        self.watch_peers(now);
    }

    fn lease_changed(&mut self, now: Monotonic, change: Option<LeaseChange>) {
        let notice = match change {
            None => return,
            Some(LeaseChange::Joined) => {
                self.was_valid = self.lease.is_valid(now);
                Notice::Joined(self.lease.incarnation)
            }
            Some(LeaseChange::Left) => Notice::Left,
            Some(LeaseChange::Trouble(why)) => {
                Notice::Trouble { object: self.lease.object().to_owned(), why }
            }
            Some(LeaseChange::NameTaken(addresses)) => Notice::NameTaken(addresses),
            Some(LeaseChange::Lost(incarnation)) => {
                self.was_valid = false;
                self.silent.clear();
                for own in self.partitions.values_mut() {
                    own.apply(PhaseEvent::Lost, now, &mut self.actions);
                }
                Notice::Lost(incarnation)
            }
        };
        self.actions.push_back(Action::Notice(notice));
    }

    /// Follows what time alone changes.
    fn tick(&mut self, now: Monotonic) {
        let is_valid = self.lease.is_valid(now);
        if is_valid != self.was_valid && self.lease.is_held() {
            self.was_valid = is_valid;
            self.silent.clear();
            let notice = if is_valid { Notice::Resumed } else { Notice::Lapsed };
            self.actions.push_back(Action::Notice(notice));
        }
        let view = View { now, timing: self.timing, lease: &self.lease, peers: &self.peers };
        for own in self.partitions.values_mut() {
            own.tick(view, &mut self.actions);
        }
        let is_done = |own: &Ownership| matches!(own.phase, Phase::Remote | Phase::Waiting);
        if self.is_leaving && self.partitions.values().all(is_done) {
            self.lease.leave();
        }
    }

    /// Watches the nodes that own partitions elsewhere, and evicts those whose partitions are wanted here, or that are silent.
    fn watch_peers(&mut self, now: Monotonic) {
        let mut needed: BTreeMap<NodeName, BTreeSet<Incarnation>> = BTreeMap::new();
        for own in self.partitions.values().filter(|own| !own.phase.has_database()) {
            let Some((node, incarnation, _)) = own.other_owner(&self.lease) else { continue };
            let evict = needed.entry(node.clone()).or_default();
            if own.is_wanted {
                evict.insert(incarnation);
            }
        }
        self.silent.retain(|_, (seen, _)| self.peers.may_be(seen));
        for (node, (seen, since)) in &self.silent {
            let evict = needed.entry(node.clone()).or_default();
            if now.since(*since) >= self.timing.wait(seen.ttl.max(self.timing.ttl())) {
                evict.insert(seen.incarnation);
            }
        }
        self.peers.watch(&needed, now);
    }
}

/// Returns the partition if this node's ownership has this epoch.
fn owned<'a>(
    partitions: &'a mut BTreeMap<PartitionName, Ownership>,
    partition: &PartitionName,
    epoch: Epoch,
) -> Option<&'a mut Ownership> {
    partitions.get_mut(partition).filter(|own| own.epoch == epoch)
}

/// Returns what happens to a call that cannot go on.
fn hold(now: Monotonic, since: Monotonic, has_lease: bool, timing: Timing) -> Route {
    match (now.since(since) >= timing.hold_limit(), has_lease) {
        (false, _) => Route::Hold,
        (true, true) => Route::Refuse(Refusal::Restarting),
        (true, false) => Route::Refuse(Refusal::Silent),
    }
}
