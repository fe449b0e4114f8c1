//! What the processes of nodes do around their members: requests, databases and changes.

use super::{CLIENTS, Event, Happening, Message, World, Write};
use crate::simulation::Sabotage;
use crate::simulation::bucket::Fate;
use crate::simulation::client::{Client, Reply};
use crate::simulation::clock::{Clock, MS, SECOND};
use crate::simulation::database::{Contents, Record};
use crate::simulation::node::{Active, Asked, Handle, Held};
use base::Monotonic;
use cluster_proto::{
    Action, Answer, CallKind, Epoch, Member, MemberConfig, Notice, Operation, PartitionName, Phase, Request,
    RequestId, Reset, Takeover, Timing,
};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

impl World {
    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].member.is_some() {
            return;
        }
        let rate = self.rate();
        let local = self.rng.random_range(0..1_000_000 * SECOND);
        let clock = Clock::new(self.now, local, rate);
        let timing = match self.sabotage {
            Sabotage::WaitsForNothing => Timing::default().without_wait(),
            Sabotage::HasNoMargin => Timing::default().without_margin(),
            _ => Timing::default(),
        };
        let nonce = self.rng.random();
        // A new machine does not know how the process before has ended.
        let ended = self.nodes[node].nonce.filter(|_| self.rng.random_bool(0.5));
        let config = MemberConfig {
            node: self.names[node].clone(),
            nonce,
            ended,
            folder: "cell".into(),
            addresses: Vec::new(),
            takes_addresses: false,
            timing,
        };
        let mut member = Member::new(config, clock.at(self.now));
        for partition in &self.partitions {
            member.want(clock.at(self.now), partition);
        }
        let here = &mut self.nodes[node];
        here.process += 1;
        here.nonce = Some(nonce);
        here.clock = clock;
        here.member = Some(member);
        self.trace(|_| format!("n{node} starts with rate {rate}"));
        self.pump(node);
    }

    pub(super) fn at_node(&mut self, after: u64, node: usize, event: Event) {
        let process = self.nodes[node].process;
        self.plan(after, Happening::AtNode { node, process, event });
    }

    pub(super) fn deliver(&mut self, node: usize, process: u64, event: Event) {
        let here = &mut self.nodes[node];
        if here.process != process || here.member.is_none() {
            return;
        }
        if here.is_stalled {
            here.deferred.push(event);
            return;
        }
        if let Event::Timer { at } = event {
            if here.timer != Some(at) {
                return;
            }
            here.timer = None;
        }
        self.take(node, event);
        self.pump(node);
    }

    pub(super) fn local(&self, node: usize) -> Monotonic {
        self.nodes[node].clock.at(self.now)
    }

    pub(super) fn member(&mut self, node: usize) -> &mut Member {
        self.nodes[node].member.as_mut().expect("the process runs")
    }

    pub(super) fn take(&mut self, node: usize, event: Event) {
        let now = self.local(node);
        match event {
            Event::Timer { .. } => {}
            Event::Answered(id, answer) => self.answered(node, id, answer),
            Event::Opened { partition, epoch, writer, contents } => {
                self.opened(node, partition, epoch, writer, contents);
            }
            Event::Committed { partition, writer, record, is_done } => {
                self.committed(node, partition, writer, record, is_done);
            }
            Event::ResetDone { partition, epoch, client, outcome } => {
                let name = self.partitions[partition].clone();
                self.member(node).reset_done(now, &name, epoch, Client::host(client), outcome);
            }
            Event::Broken { partition, writer, client, outcome } => {
                self.broken(node, partition, writer, client, outcome);
            }
            Event::Call { call, front } => {
                self.nodes[node].held.push((Held { call, since: now, front }, true));
            }
            Event::NotOwner { call, since } => {
                self.nodes[node].held.push((Held { call, since, front: None }, true));
            }
            Event::Want(partition) => {
                let name = self.partitions[partition].clone();
                self.member(node).want(now, &name);
            }
        }
    }

    pub(super) fn answered(&mut self, node: usize, id: RequestId, answer: Answer) {
        let now = self.local(node);
        let Some(asked) = self.nodes[node].asked.remove(&id) else { return };
        let renewed = asked.renews && matches!(answer, Answer::Written(_));
        self.report.renewals += u64::from(renewed);
        self.member(node).answer(now, id, answer);
        self.publish(node);
        if self.sabotage == Sabotage::CountsFromAnswers && renewed {
            let here = &mut self.nodes[node];
            here.published.deadline = here.published.deadline.map(|_| now + Timing::default().trust());
        }
    }

    pub(super) fn publish(&mut self, node: usize) {
        let here = &mut self.nodes[node];
        let deadline = here.member.as_ref().and_then(Member::deadline);
        let is_sabotaged = self.sabotage == Sabotage::CountsFromAnswers;
        if !is_sabotaged || deadline.is_none() || here.published.deadline.is_none() {
            here.published.deadline = deadline;
        }
    }

    /// Does everything that a node has to do now.
    pub(super) fn pump(&mut self, node: usize) {
        loop {
            let now = self.local(node);
            while let Some(action) = self.member(node).poll(now) {
                self.act(node, action);
            }
            self.publish(node);
            self.finish_changes(node);
            if !self.route_held(node) {
                break;
            }
        }
        let now = self.local(node);
        let here = &self.nodes[node];
        let member = here.member.as_ref().expect("the process runs");
        let limit = Timing::default().hold_limit();
        let held = here.held.iter().map(|(held, _)| held.since + limit).filter(|end| *end > now);
        let next = member.next_time(now).into_iter().chain(held).min();
        if member.has_left() && here.held.is_empty() {
            self.nodes[node].crash();
            return;
        }
        let Some(next) = next else { return };
        let at = here.clock.real(next).max(self.now + MS / 10);
        if here.timer.is_none_or(|timer| at < timer || timer <= self.now) {
            self.nodes[node].timer = Some(at);
            self.at_node(at - self.now, node, Event::Timer { at });
        }
    }

    pub(super) fn act(&mut self, node: usize, action: Action) {
        match action {
            Action::Request(request) => self.send(node, request),
            Action::Open(partition, epoch) => self.open(node, self.index(&partition), epoch),
            Action::Reset(partition, epoch, host) => {
                let (partition, client) = (self.index(&partition), Client::number_of(host));
                if self.sabotage == Sabotage::ResetsNobody {
                    let outcome = Reset::Acknowledged;
                    self.at_node(MS, node, Event::ResetDone { partition, epoch, client, outcome });
                } else {
                    self.tell(node, client, Message::Reset { partition, epoch });
                }
            }
            Action::Drain(partition, epoch) => {
                let index = self.index(&partition);
                if let Some(handle) = self.nodes[node].handles.get_mut(&index) {
                    handle.is_draining = true;
                } else {
                    let now = self.local(node);
                    self.member(node).drained(now, &partition, epoch);
                }
            }
            Action::Close(partition, epoch) => {
                let index = self.index(&partition);
                self.nodes[node].handles.remove(&index);
                let now = self.local(node);
                self.member(node).closed(now, &partition, epoch);
            }
            Action::Notice(notice) => self.notice(node, &notice),
        }
    }

    pub(super) fn index(&self, partition: &PartitionName) -> usize {
        self.partitions.iter().position(|name| name == partition).expect("it exists")
    }

    pub(super) fn notice(&mut self, node: usize, notice: &Notice) {
        match notice {
            Notice::Lapsed => self.report.lapses += 1,
            Notice::Resumed => self.report.resumes += 1,
            Notice::Lost(_) => self.report.losses += 1,
            Notice::Evicted(..) => self.report.evictions += 1,
            Notice::Phase(_, Phase::Serving, epoch) if *epoch > Epoch(1) => self.report.takeovers += 1,
            Notice::Takeover(takeover) => self.measured(node, takeover),
            Notice::Trouble { object, why } => {
                let (object, why) = (object.clone(), why.clone());
                self.violate(|| format!("n{node} has trouble with {object}: {why}"));
            }
            _ => {}
        }
        self.trace(|_| format!("n{node} {notice:?}"));
    }

    /// Checks the times of a takeover.
    fn measured(&mut self, node: usize, takeover: &Takeover) {
        let now = self.local(node);
        if takeover.began + takeover.total() > now {
            let takeover = takeover.clone();
            self.violate(|| format!("n{node} measures {takeover:?} at {now:?}"));
        }
    }

    pub(super) fn send(&mut self, node: usize, request: Request) {
        let Request { id, object, operation } = request;
        let own = format!("cell/nodes/{}", self.names[node]);
        let is_write = operation != Operation::Read;
        self.trace(|_| {
            let kind = match &operation {
                Operation::Read => "reads",
                Operation::Create(_) => "creates",
                Operation::Replace(..) => "replaces",
            };
            format!("n{node} {kind} {object}")
        });
        self.nodes[node].asked.insert(id, Asked { renews: is_write && object == own });
        if self.sabotage == Sabotage::EvictsNobody && is_write && object != own && object.contains("nodes/") {
            let tag = cluster_proto::Tag::default();
            self.at_node(MS, node, Event::Answered(id, Answer::Written(tag)));
            return;
        }
        let (process, is_apart) = (self.nodes[node].process, self.is_apart(node));
        let Fate { done, again, answered, lie } = self.bucket.fate(&mut self.rng, is_apart);
        let limit =
            self.nodes[node].clock.real(self.local(node) + Timing::default().request_limit()) - self.now;
        let late = Event::Answered(id, Answer::Unknown("no answer in time".into()));
        self.at_node(limit, node, late);
        if let Some(again) = again {
            let (object, operation) = (object.clone(), operation.clone());
            self.plan(again, Happening::Apply { object, operation, answer_to: None });
        }
        if is_write && self.nodes[node].stalls_at_renewal {
            self.stall(node);
        }
        let is_true = lie.is_none();
        if let (Some(lie), Some(answered)) = (lie, answered) {
            self.at_node(answered, node, Event::Answered(id, lie));
        }
        let Some(done) = done else { return };
        let back = answered.filter(|_| is_true).map(|answered| answered.saturating_sub(done));
        let answer_to = back.map(|back| (node, process, id, back));
        self.plan(done, Happening::Apply { object, operation, answer_to });
    }

    pub(super) fn open(&mut self, node: usize, partition: usize, epoch: Epoch) {
        self.writers += 1;
        let (writer, process) = (self.writers, self.nodes[node].process);
        let fails = self.is_apart(node) || (self.bucket.is_bad && self.rng.random_bool(0.1));
        let (there, back) =
            (self.rng.random_range(20 * MS..2 * SECOND), self.rng.random_range(MS..2 * SECOND));
        if fails {
            let event = Event::Opened { partition, epoch, writer, contents: None };
            self.at_node(there + back, node, event);
        } else {
            self.plan(there, Happening::Open { node, process, partition, epoch, writer, back });
        }
    }

    pub(super) fn opened(
        &mut self,
        node: usize,
        partition: usize,
        epoch: Epoch,
        writer: u64,
        contents: Option<Box<Contents>>,
    ) {
        let (now, name) = (self.local(node), self.partitions[partition].clone());
        let Some(contents) = contents else {
            return self.member(node).not_opened(now, &name, epoch);
        };
        if self.member(node).phase(&name) != Some((Phase::Opening, epoch)) {
            // It was given up meanwhile: nothing uses the database.
            return;
        }
        let hosts: Vec<_> = contents.hosts.iter().map(|host| Client::host(*host)).collect();
        let handle = Handle {
            writer,
            epoch: epoch.0,
            contents: *contents,
            promises: BTreeMap::new(),
            waiting: VecDeque::new(),
            active: None,
            is_draining: false,
            written_at: 0,
        };
        self.nodes[node].handles.insert(partition, handle);
        self.member(node).opened(now, &name, epoch, hosts);
    }

    pub(super) fn commit(&mut self, node: usize, partition: usize, writer: u64, record: Record) {
        let process = self.nodes[node].process;
        let is_late = self.bucket.is_bad && self.rng.random_bool(0.03);
        let most = if is_late { 30 * SECOND } else { 30 * MS };
        let (there, back) = (self.rng.random_range(MS..most), self.rng.random_range(MS..10 * MS));
        let now = self.now;
        let Some(handle) = self.nodes[node].handles.get_mut(&partition) else { return };
        handle.written_at = handle.written_at.max(now + there) + 1;
        let there = handle.written_at - now;
        self.plan(there, Happening::Append(partition, Some(Write { node, process, writer, record, back })));
    }

    /// Writes what has arrived at a database, in the order of arrival. While the bucket is away, or not reached, processes repeat
    /// their writes, as long as they run.
    pub(super) fn append(&mut self, partition: usize) {
        let (late, arrived): (Vec<Write>, Vec<Write>) = std::mem::take(&mut self.arrived[partition])
            .into_iter()
            .partition(|write| self.is_apart(write.node));
        let nodes = &self.nodes;
        self.arrived[partition] =
            late.into_iter().filter(|write| nodes[write.node].process == write.process).collect();
        if !self.arrived[partition].is_empty() {
            self.plan(SECOND / 2, Happening::Append(partition, None));
        }
        for write in arrived {
            let Write { node, process, writer, record, back } = write;
            let is_fenced = self.sabotage != Sabotage::IsNotFenced;
            match self.databases[partition].append(writer, record, is_fenced) {
                Ok(is_done) => {
                    self.report.fenced += u64::from(!is_done);
                    self.trace(|_| format!("p{partition} takes {record:?}: {is_done}"));
                    let event = Event::Committed { partition, writer, record, is_done };
                    self.plan(back, Happening::AtNode { node, process, event });
                }
                Err(text) => self.violate(|| format!("p{partition}: {text}")),
            }
        }
    }

    pub(super) fn committed(
        &mut self,
        node: usize,
        partition: usize,
        writer: u64,
        record: Record,
        is_done: bool,
    ) {
        let (now, name) = (self.local(node), self.partitions[partition].clone());
        let here = &mut self.nodes[node];
        let Some(handle) = here.handles.get_mut(&partition).filter(|handle| handle.writer == writer) else {
            return;
        };
        let epoch = Epoch(handle.epoch);
        if !is_done {
            return self.member(node).superseded(now, &name, epoch);
        }
        match record {
            Record::Host(host) => {
                handle.contents.hosts.insert(host);
                self.member(node).recorded(&name, epoch, Client::host(host), true);
            }
            Record::Forgotten(host) => {
                handle.contents.hosts.remove(&host);
                self.member(node).forgotten(&name, epoch, Client::host(host));
            }
            Record::Change { file, version, operation, .. } => {
                handle.contents.files[file] = (version, operation);
                handle.contents.operations.insert(operation, (file, version));
                let writer_client = handle.active.as_ref().map(|active| active.held.call.client);
                // Those of now: a promise that is made while the break is under way is a new one.
                let mut breaks = handle.promises.remove(&file).unwrap_or_default();
                breaks.retain(|client| Some(*client) != writer_client);
                if let Some(active) = &mut handle.active {
                    active.is_durable = true;
                    active.breaks.clone_from(&breaks);
                }
                for client in breaks {
                    self.tell(node, client, Message::Break { partition, writer, file });
                }
            }
        }
    }

    /// Acknowledges changes that are durable and whose breaks are answered, and begins the next ones.
    pub(super) fn finish_changes(&mut self, node: usize) {
        for partition in 0..self.partitions.len() {
            self.finish_change(node, partition);
            self.begin_change(node, partition);
            let handle = self.nodes[node].handles.get(&partition);
            let Some(handle) = handle.filter(|handle| handle.is_draining && handle.active.is_none()) else {
                continue;
            };
            let epoch = Epoch(handle.epoch);
            let handle = self.nodes[node].handles.remove(&partition).expect("it was there");
            self.nodes[node].held.extend(handle.waiting.into_iter().map(|held| (held, true)));
            let (now, name) = (self.local(node), self.partitions[partition].clone());
            self.member(node).drained(now, &name, epoch);
        }
    }

    pub(super) fn may_answer(&self, node: usize, partition: usize, kind: CallKind) -> bool {
        let here = &self.nodes[node];
        let phase = here.member.as_ref().and_then(|member| member.phase(&self.partitions[partition]));
        let is_blind = self.sabotage == Sabotage::AnswersBlindly;
        here.can_answer(self.now, phase, is_blind) && phase.is_some_and(|(phase, _)| phase.answers(kind))
    }

    pub(super) fn finish_change(&mut self, node: usize, partition: usize) {
        let may_answer = self.may_answer(node, partition, CallKind::Change);
        let Some(handle) = self.nodes[node].handles.get_mut(&partition) else { return };
        let is_done = |active: &mut Active| active.is_durable && active.breaks.is_empty() && may_answer;
        let Some(active) = handle.active.take_if(is_done) else { return };
        self.report.changes += 1;
        self.forget_hosts(node, partition);
        self.respond(node, active.held, Reply::Changed { version: active.version });
    }

    /// Removes hosts that hold no promise from the durable list, sometimes.
    fn forget_hosts(&mut self, node: usize, partition: usize) {
        if self.rng.random_bool(0.5) {
            return;
        }
        let name = self.partitions[partition].clone();
        let Some(handle) = self.nodes[node].handles.get(&partition) else { return };
        let (epoch, writer) = (Epoch(handle.epoch), handle.writer);
        let holders: BTreeSet<usize> = handle.promises.values().flatten().copied().collect();
        for client in (0..CLIENTS).filter(|client| !holders.contains(client)) {
            if self.member(node).forget(&name, epoch, Client::host(client)) {
                self.report.forgotten += 1;
                self.commit(node, partition, writer, Record::Forgotten(client));
            }
        }
    }

    pub(super) fn begin_change(&mut self, node: usize, partition: usize) {
        let may_answer = self.may_answer(node, partition, CallKind::Change);
        let Some(handle) = self.nodes[node].handles.get_mut(&partition) else { return };
        if handle.active.is_some() || handle.is_draining || !may_answer {
            return;
        }
        let Some(held) = handle.waiting.pop_front() else { return };
        let call = held.call;
        if let Some((_, version)) = handle.contents.operations.get(&call.operation) {
            // A repeated call finds its own result.
            let reply = Reply::Changed { version: *version };
            self.report.repeats += 1;
            return self.respond(node, held, reply);
        }
        let version = handle.contents.files[call.file].0 + 1;
        let record =
            Record::Change { file: call.file, version, operation: call.operation, epoch: handle.epoch };
        handle.active = Some(Active { held, version, is_durable: false, breaks: BTreeSet::new() });
        let writer = handle.writer;
        self.commit(node, partition, writer, record);
    }
}
