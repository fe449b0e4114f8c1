//! The thread of a member.

use crate::clock;
use crate::gate::{Deadline, Gate, OwnerEvent, Watcher};
use crate::history::{History, NodeWatched, Records};
use crate::member::{AcquireError, MemberEvent, Status};
use crate::reach;
use crate::request::{perform, remove};
use crate::routes::Routes;
use crate::troubles::{Failures, Troubles};
use base::{HostUuid, Monotonic};
use cluster_proto::{
    Action, Answer, Call, CallKind, Epoch, Incarnation, Member, NodeName, NodeRecord, Notice, Operation,
    PartitionName, Phase, Request, RequestId, Reset, Route, Timing, Via, lease_object,
};
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;

/// Longest wait for the next event.
const IDLE: Duration = Duration::from_secs(3600);

/// How often something has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// Requests of unknown outcome.
    pub unknown: u64,
    /// Requests that took a quarter of the TTL or longer; those without an answer are ended then.
    pub late: u64,
    /// Writes whose condition was not met.
    pub conflicts: u64,
    /// Renewals of the lease.
    pub renewals: u64,
    /// Times that the lease was not renewed in time.
    pub lapses: u64,
    /// Memberships that have ended because another node has evicted this one.
    pub losses: u64,
    /// Other nodes that this one has evicted.
    pub evictions: u64,
    /// Ownerships that have begun.
    pub acquired: u64,
}

/// What the thread receives.
pub(crate) enum Input {
    /// The answer to a request about an object, which took this time.
    Answer(RequestId, String, Answer, Duration),
    Acquire(PartitionName, Arc<Gate>, Sender<Result<Epoch, AcquireError>>),
    /// The wait for the partition was ended.
    Abandon(PartitionName),
    Opened(PartitionName, Epoch, Vec<HostUuid>, Sender<()>),
    ResetDone(PartitionName, Epoch, HostUuid, Reset),
    Superseded(PartitionName, Epoch),
    Watch(PartitionName, Epoch, Watcher),
    /// The partition is to be given up: no call begins any more.
    Drain(PartitionName, Epoch, Option<NodeName>),
    /// The database is closed.
    Release(PartitionName, Epoch, Option<NodeName>, Option<Sender<()>>),
    Status(Sender<Status>),
    History(Sender<History>),
    Follow(PartitionName),
    Unfollow(PartitionName),
    /// The way of a client's call that has been here for this time.
    Route(PartitionName, CallKind, Duration, Sender<Route>),
    TakesAddresses(bool),
    Identity(Sender<Incarnation>),
    Lease(NodeName, Sender<Result<Option<NodeRecord>, String>>),
    Evict(NodeRecord),
    RemoveLease(NodeRecord, Sender<Result<bool, String>>),
    Leave,
}

/// A partition that this process has or waits for.
struct Held {
    gate: Arc<Gate>,
    /// 0 until the partition is this process's.
    epoch: Epoch,
    waiting: Option<Sender<Result<Epoch, AcquireError>>>,
    /// Whether the user has closed the database.
    is_closed: bool,
    released: Option<Sender<()>>,
}

pub(crate) struct Driver {
    bucket: Arc<dyn ObjectStore>,
    folder: String,
    node: NodeName,
    member: Member,
    timing: Timing,
    deadline: Arc<Deadline>,
    /// The deadline that was published last.
    published: Option<Monotonic>,
    routes: Arc<Routes>,
    held: BTreeMap<PartitionName, Held>,
    inputs: UnboundedReceiver<Input>,
    answers: UnboundedSender<Input>,
    counters: Counters,
    records: Records,
    troubles: Troubles,
    failures: Failures,
    events: Option<SyncSender<MemberEvent>>,
    /// When the thread ends though the member has not left.
    leave_until: Option<Monotonic>,
}

impl Driver {
    pub(crate) fn new(
        bucket: Arc<dyn ObjectStore>,
        config: cluster_proto::MemberConfig,
        (deadline, routes): (Arc<Deadline>, Arc<Routes>),
        inputs: UnboundedReceiver<Input>,
        answers: UnboundedSender<Input>,
    ) -> Driver {
        Driver {
            bucket,
            folder: config.folder.clone(),
            node: config.node.clone(),
            timing: config.timing,
            member: Member::new(config, clock::now()),
            deadline,
            published: None,
            routes,
            held: BTreeMap::new(),
            inputs,
            answers,
            counters: Counters::default(),
            records: Records::default(),
            troubles: Troubles::default(),
            failures: Failures::default(),
            events: None,
            leave_until: None,
        }
    }

    /// Reports what happens.
    pub(crate) fn reporting(self, events: Option<SyncSender<MemberEvent>>) -> Driver {
        Driver { events, ..self }
    }

    /// Runs until the member has left, or cannot in time.
    pub(crate) async fn run(mut self) {
        loop {
            while let Some(action) = self.member.poll(clock::now()) {
                self.act(action);
            }
            self.publish();
            let now = clock::now();
            if self.member.has_left() || self.leave_until.is_some_and(|end| now >= end) {
                break;
            }
            let next = self.member.next_time(now).into_iter().chain(self.leave_until).min();
            let wait = next.map_or(IDLE, clock::until);
            if let Ok(input) = tokio::time::timeout(wait, self.inputs.recv()).await {
                let Some(input) = input else { break };
                self.take(input);
            }
            while let Ok(input) = self.inputs.try_recv() {
                self.take(input);
            }
        }
        self.end();
    }

    fn end(&mut self) {
        self.deadline.set(None);
        self.routes.publish(BTreeMap::new());
        for held in std::mem::take(&mut self.held).into_values() {
            held.gate.end("this process has left the cluster");
            if let Some(waiting) = held.waiting {
                _ = waiting.send(Err(AcquireError::Ended));
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Request(request) => {
                self.counters.requests += 1;
                let (bucket, answers, limit) =
                    (Arc::clone(&self.bucket), self.answers.clone(), self.timing.request_limit());
                tokio::spawn(async move {
                    let (id, object, begun) = (request.id, request.object.clone(), clock::now());
                    let answer = perform(&*bucket, request, limit).await;
                    _ = answers.send(Input::Answer(id, object, answer, clock::now().since(begun)));
                });
            }
            Action::Open(partition, epoch) => self.acquired(&partition, epoch),
            // The user got all hosts from `opened`, and reports each.
            Action::Reset(..) => {}
            Action::Drain(partition, epoch) => {
                if self.held.get(&partition).is_none_or(|held| held.is_closed || held.epoch != epoch) {
                    self.member.drained(clock::now(), &partition, epoch);
                }
            }
            Action::Close(partition, epoch) => self.close(&partition, epoch),
            Action::Notice(notice) => self.notice(notice),
        }
    }

    fn acquired(&mut self, partition: &PartitionName, epoch: Epoch) {
        self.counters.acquired += 1;
        let held = self.held.get_mut(partition);
        let is_taken = held.is_some_and(|held| {
            held.epoch = epoch;
            held.waiting.take().is_some_and(|waiting| waiting.send(Ok(epoch)).is_ok())
        });
        if !is_taken {
            // The wait was ended.
            self.held.remove(partition);
            self.member.release(clock::now(), partition, None);
        }
    }

    /// An ownership has ended. This process takes the partition again only when it is asked to.
    fn close(&mut self, partition: &PartitionName, epoch: Epoch) {
        let now = clock::now();
        self.member.release(now, partition, None);
        match self.held.get(partition).filter(|held| held.epoch == epoch && !held.is_closed) {
            Some(held) => held.gate.end("another process has taken over, or the lease was lost"),
            None => self.member.closed(now, partition, epoch),
        }
    }

    /// Reports an event; it is lost if nothing takes it.
    fn report(&self, event: MemberEvent) {
        if let Some(events) = &self.events {
            _ = events.try_send(event);
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Phase(partition, phase, _) => self.phase(&partition, phase),
            Notice::Lapsed => {
                self.counters.lapses += 1;
                self.records.lapsed();
                self.notify(|_| OwnerEvent::Lapsed);
            }
            Notice::Resumed => self.notify(|until| OwnerEvent::Resumed { until }),
            Notice::Lost(_) => {
                self.counters.losses += 1;
                self.report(MemberEvent::Lost);
            }
            Notice::Evicted(node, _) => {
                self.counters.evictions += 1;
                tracing::warn!(%node, "this node has found another one dead: its lease was not renewed");
                self.report(MemberEvent::Evicted(node));
            }
            Notice::Takeover(takeover) => {
                let held = self.held.get(&takeover.partition).filter(|held| held.epoch == takeover.epoch);
                let gate = held.filter(|_| takeover.cause.is_gain()).map(|held| Arc::clone(&held.gate));
                self.report(MemberEvent::Takeover(takeover.clone()));
                self.records.takeover(*takeover, gate);
            }
            Notice::Trouble { object, why } => self.trouble(&object, &why),
            Notice::Joined(_) => self.report(MemberEvent::Joined),
            Notice::NameTaken(addresses) => self.name_taken(&addresses),
            Notice::Left => {}
        }
    }

    /// An object cannot be used. All waits for partitions end with the reason; without any, it is logged.
    fn trouble(&mut self, object: &str, why: &str) {
        let mut is_returned = false;
        for waiting in self.held.values_mut().filter_map(|held| held.waiting.take()) {
            let (object, why) = (object.to_owned(), why.to_owned());
            is_returned |= waiting.send(Err(AcquireError::Trouble { object, why })).is_ok();
        }
        if !is_returned && self.troubles.is_news(clock::now(), object, why) {
            tracing::error!(object, "an object of the cluster cannot be used: {why}; trying again");
        }
    }

    /// Another process renews the lease of this node's name.
    fn name_taken(&mut self, addresses: &[SocketAddr]) {
        let (node, object) = (&self.node, lease_object(&self.folder, &self.node));
        let why = format!("another process has the name {node}");
        if self.troubles.is_news(clock::now(), &object, &why) {
            tracing::error!(
                ?addresses,
                "{why}: give one of the two nodes another name (`cluster.node`), or stop that process"
            );
        }
    }

    fn phase(&mut self, partition: &PartitionName, phase: Phase) {
        let Some(held) = self.held.get_mut(partition) else { return };
        held.gate.set_phase(phase);
        if phase == Phase::Remote && held.is_closed {
            // Dropping the sender, too, ends the wait of the user.
            _ = held.released.take().map(|released| released.send(()));
            self.held.remove(partition);
        }
    }

    /// Calls the watchers of all ownerships with an event that may contain the end of the lease.
    fn notify(&self, event: impl Fn(std::time::Instant) -> OwnerEvent) {
        let Some(until) = self.member.deadline() else { return };
        let until = clock::instant(until);
        for held in self.held.values().filter(|held| held.waiting.is_none() && !held.is_closed) {
            held.gate.notify(event(until));
        }
    }

    fn publish(&mut self) {
        let deadline = self.member.deadline();
        if deadline != self.published {
            self.counters.renewals += u64::from(deadline > self.published);
            self.published = deadline;
            self.deadline.set(deadline);
            self.notify(|until| OwnerEvent::Held { until });
        }
        self.routes.publish(self.member.forwards(clock::now()));
    }

    fn take(&mut self, input: Input) {
        let now = clock::now();
        match input {
            Input::Answer(id, object, answer, time) => self.answered(id, object, answer, time),
            Input::Acquire(partition, gate, waiting) => self.acquire(partition, gate, waiting),
            Input::Abandon(partition) => {
                if self.held.get(&partition).is_some_and(|held| held.epoch == Epoch(0)) {
                    self.held.remove(&partition);
                    self.member.release(now, &partition, None);
                }
            }
            Input::Opened(partition, epoch, hosts, done) => {
                self.member.opened(now, &partition, epoch, hosts);
                while let Some(action) = self.member.poll(clock::now()) {
                    self.act(action);
                }
                _ = done.send(());
            }
            Input::ResetDone(partition, epoch, host, outcome) => {
                self.member.reset_done(now, &partition, epoch, host, outcome);
            }
            Input::Superseded(partition, epoch) => self.member.superseded(now, &partition, epoch),
            Input::Watch(partition, epoch, watcher) => self.watch(&partition, epoch, watcher),
            Input::Drain(partition, epoch, to) => {
                if self.held.get(&partition).is_some_and(|held| held.epoch == epoch && !held.is_closed) {
                    self.member.release(now, &partition, to);
                }
            }
            Input::Release(partition, epoch, to, done) => self.release(&partition, epoch, to, done),
            Input::Status(reply) => _ = reply.send(self.status()),
            Input::History(reply) => _ = reply.send(self.history()),
            Input::Follow(partition) => self.member.follow(now, &partition),
            Input::Unfollow(partition) => {
                if !self.held.contains_key(&partition) {
                    self.member.unfollow(now, &partition);
                }
            }
            Input::Route(partition, kind, age, reply) => {
                let since =
                    Monotonic(now.0.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)));
                let call = Call { kind, host: None, via: Via::Client, since };
                _ = reply.send(self.member.route(now, &partition, call));
            }
            Input::TakesAddresses(takes) => self.member.set_takes_addresses(takes),
            Input::Identity(reply) => _ = reply.send(self.member.incarnation()),
            Input::Lease(node, reply) => self.read_lease(&node, reply),
            Input::Evict(silent) => self.member.evict(now, silent),
            Input::RemoveLease(lease, reply) => self.remove_lease(lease, reply),
            Input::Leave => {
                self.leave_until.get_or_insert(now + self.timing.ttl());
                self.member.leave(now);
            }
        }
    }

    fn answered(&mut self, id: RequestId, object: String, answer: Answer, time: Duration) {
        let now = clock::now();
        self.records.request(time);
        self.counters.late += u64::from(time >= self.timing.request_limit());
        self.counters.unknown += u64::from(matches!(answer, Answer::Unknown(_)));
        self.counters.conflicts += u64::from(answer == Answer::Conflict);
        self.failures.answered(now, object, &answer);
        // While the lease is valid, later requests make up for some that fail. Refusals are logged as troubles.
        let is_unknown = matches!(answer, Answer::Unknown(_));
        self.member.answer(now, id, answer);
        if is_unknown
            && !self.member.has_lease(now)
            && let Some(failure) = self.failures.news(now)
        {
            tracing::warn!(bucket = %self.bucket, object = failure.object, reason = failure.why,
                "a request to the bucket failed, and this process has no lease; trying again");
        }
    }

    /// Reads a lease from the bucket, in addition to the protocol's own requests.
    fn read_lease(&self, node: &NodeName, reply: Sender<Result<Option<NodeRecord>, String>>) {
        let object = lease_object(&self.folder, node);
        let request = Request { id: RequestId(0), object, operation: Operation::Read };
        let (bucket, limit, node) = (Arc::clone(&self.bucket), self.timing.request_limit(), node.clone());
        tokio::spawn(async move {
            _ = reply.send(match perform(&*bucket, request, limit).await {
                Answer::Found(_, bytes) => {
                    NodeRecord::decode(&node, &bytes).map(Some).map_err(|error| error.to_string())
                }
                Answer::Missing => Ok(None),
                Answer::Unknown(why) | Answer::Refused(why) => Err(why),
                Answer::Written(_) | Answer::Conflict => Err("the answer is not that of a read".into()),
            });
        });
    }

    /// Removes a lease from the bucket, if it is still this one.
    fn remove_lease(&self, lease: NodeRecord, reply: Sender<Result<bool, String>>) {
        let object = lease_object(&self.folder, &lease.node);
        let (bucket, limit) = (Arc::clone(&self.bucket), self.timing.request_limit());
        let reach = reach::path(&self.folder, &lease.node);
        tokio::spawn(async move {
            let removed = remove(&*bucket, &object, &lease.encode(), limit).await;
            if removed == Ok(true) {
                // It is not read without the lease.
                _ = timeout(limit, bucket.delete(&reach)).await;
            }
            _ = reply.send(removed);
        });
    }

    fn acquire(
        &mut self,
        partition: PartitionName,
        gate: Arc<Gate>,
        waiting: Sender<Result<Epoch, AcquireError>>,
    ) {
        if self.held.get(&partition).is_some_and(|held| !held.is_closed) {
            _ = waiting.send(Err(AcquireError::Held));
            return;
        }
        self.member.want(clock::now(), &partition);
        let held = Held { gate, epoch: Epoch(0), waiting: Some(waiting), is_closed: false, released: None };
        self.held.insert(partition, held);
    }

    fn watch(&mut self, partition: &PartitionName, epoch: Epoch, watcher: Watcher) {
        let Some(held) = self.held.get(partition).filter(|held| held.epoch == epoch) else {
            return watcher(OwnerEvent::Lost { why: "this process has left the cluster".into() });
        };
        if held.gate.has_ended() {
            return watcher(OwnerEvent::Lost { why: "it was lost before it was watched".into() });
        }
        if let Some(until) = self.member.deadline() {
            watcher(OwnerEvent::Held { until: clock::instant(until) });
        }
        held.gate.watch(watcher);
    }

    fn release(
        &mut self,
        partition: &PartitionName,
        epoch: Epoch,
        to: Option<NodeName>,
        done: Option<Sender<()>>,
    ) {
        let now = clock::now();
        let Some(held) = self.held.get_mut(partition).filter(|held| held.epoch == epoch) else { return };
        held.is_closed = true;
        held.released = done;
        self.member.release(now, partition, to);
        match self.member.phase(partition) {
            Some((Phase::Fenced, _)) => self.member.closed(now, partition, epoch),
            // The member is leaving, and waits for this.
            Some((Phase::Draining, _)) => self.member.drained(now, partition, epoch),
            _ => {}
        }
    }

    fn history(&self) -> History {
        History {
            counters: self.counters,
            nodes: self.member.nodes().into_iter().map(NodeWatched::new).collect(),
            ttl: self.timing.ttl(),
            lease_left: self.lease_left(),
            ..self.records.history()
        }
    }

    fn lease_left(&self) -> Option<Duration> {
        self.member.deadline().map(clock::until).filter(|left| !left.is_zero())
    }

    fn status(&self) -> Status {
        Status {
            node: self.node.clone(),
            lease_left: self.lease_left(),
            partitions: self.member.status(),
            counters: self.counters,
            failure: self.failures.recent(clock::now(), self.timing.ttl()).cloned(),
        }
    }
}
