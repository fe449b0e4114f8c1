//! The way of calls through nodes, and messages to clients.

use super::{Event, Happening, Message, REACH_LIMIT, Way, World};
use crate::simulation::Sabotage;
use crate::simulation::client::{Call, Client, Reply};
use crate::simulation::clock::{MS, SECOND};
use crate::simulation::database::Record;
use crate::simulation::node::Held;
use cluster_proto::{CallKind, Epoch, Promise, Refusal, Reset, Route, Via};
use rand::Rng;

impl World {
    /// Routes the calls that are held; returns whether any of them changed something.
    pub(super) fn route_held(&mut self, node: usize) -> bool {
        let mut has_changed = false;
        for (held, is_new) in std::mem::take(&mut self.nodes[node].held) {
            has_changed |= self.route(node, held) || is_new;
        }
        has_changed
    }

    /// Returns whether something has changed.
    pub(super) fn route(&mut self, node: usize, held: Held) -> bool {
        let (now, call) = (self.local(node), held.call);
        let name = self.partitions[call.partition].clone();
        let via = held.front.map_or(Via::Client, |(_, epoch)| Via::Front(Epoch(epoch)));
        let host = Some(Client::host(call.client));
        if self.sabotage == Sabotage::AnswersBlindly
            && let Some((_, epoch)) =
                self.member(node).phase(&name).filter(|(phase, _)| phase.accepts(call.kind))
        {
            return self.execute(node, held, epoch);
        }
        let asked = cluster_proto::Call { kind: call.kind, host, via, since: held.since };
        let known = self.member(node).forwards(now).remove(&name).map(Route::from);
        let route = self.member(node).route(now, &name, asked);
        if via == Via::Client {
            let is_forwarded = matches!(route, Route::Forward { .. });
            assert_eq!(known, is_forwarded.then(|| route.clone()), "the published route");
        }
        match route {
            Route::Hold => self.nodes[node].held.push((held, false)),
            Route::Local(epoch) => return self.execute(node, held, epoch),
            Route::Forward { node: owner, epoch, .. } => {
                self.report.forwards += 1;
                let owner = self.names.iter().position(|name| *name == owner).expect("it exists");
                let is_lost = self.is_lost(Way::Between { from: node, to: owner });
                if !self.nodes[owner].is_cut && !self.nodes[node].is_cut && !is_lost {
                    let after = self.rng.random_range(MS / 10..5 * MS);
                    self.at_node(after, owner, Event::Call { call, front: Some((node, epoch.0)) });
                }
            }
            Route::Refuse(Refusal::NotOwner(_)) => {
                let Some((front, _)) = held.front else { return false };
                if self.is_lost(Way::Between { from: node, to: front }) {
                    return false;
                }
                let since = self.local(front);
                let after = self.rng.random_range(10 * MS..50 * MS);
                self.at_node(after, front, Event::NotOwner { call, since });
            }
            Route::Refuse(Refusal::Restarting) => self.respond(node, held, Reply::Restarting),
            Route::Refuse(Refusal::Silent | Refusal::NoPartition) => {}
        }
        false
    }

    pub(super) fn execute(&mut self, node: usize, held: Held, epoch: Epoch) -> bool {
        let call = held.call;
        let name = self.partitions[call.partition].clone();
        let Some(handle) = self.nodes[node].handles.get_mut(&call.partition) else {
            self.violate(|| format!("n{node} answers without a database"));
            return false;
        };
        if call.kind == CallKind::Change {
            handle.waiting.push_back(held);
            return handle.active.is_none();
        }
        let writer = handle.writer;
        let is_promised = match self.member(node).promise(&name, epoch, Client::host(call.client)) {
            Promise::Allowed => true,
            Promise::Never => false,
            Promise::Wait => {
                self.nodes[node].held.push((held, false));
                return false;
            }
            Promise::RecordFirst => {
                self.commit(node, call.partition, writer, Record::Host(call.client));
                if self.sabotage != Sabotage::RecordsLate {
                    self.nodes[node].held.push((held, false));
                    return false;
                }
                self.member(node).recorded(&name, epoch, Client::host(call.client), true);
                true
            }
        };
        if !self.may_answer(node, call.partition, CallKind::Read) {
            self.nodes[node].held.push((held, false));
            return false;
        }
        let handle = self.nodes[node].handles.get_mut(&call.partition).expect("it was there");
        let (version, operation) = handle.contents.files[call.file];
        if is_promised {
            handle.promises.entry(call.file).or_default().insert(call.client);
        }
        self.respond(node, held, Reply::Value { version, operation, is_promised });
        false
    }

    /// Sends a reply to a client, through the node that has forwarded its call.
    pub(super) fn respond(&mut self, node: usize, held: Held, reply: Reply) {
        let call: Call = held.call;
        let after = self.rng.random_range(MS / 10..20 * MS);
        let front = held.front.map_or(node, |(front, _)| front);
        let ways =
            [Way::Between { from: node, to: front }, Way::ToClient { node: front, client: call.client }];
        if ways.into_iter().any(|way| self.is_lost(way)) {
            return;
        }
        self.trace(|_| {
            format!("c{} is sent {reply:?} about p{} f{}", call.client, call.partition, call.file)
        });
        self.plan(after, Happening::Reply { client: call.client, attempt: call.attempt, reply });
    }

    /// Sends a message to a client, until it arrives or the client counts as unreachable.
    pub(super) fn tell(&mut self, node: usize, client: usize, message: Message) {
        match message {
            Message::Reset { .. } => self.report.resets += 1,
            Message::Break { .. } => self.report.breaks += 1,
        }
        let process = self.nodes[node].process;
        let after = self.rng.random_range(MS / 10..30 * MS);
        self.plan(after, Happening::Message { node, process, client, message, left: REACH_LIMIT });
    }

    pub(super) fn message(&mut self, node: usize, process: u64, client: usize, message: Message, left: u64) {
        let is_lost = self.is_lost(Way::ToClient { node, client });
        let here = &mut self.clients[client];
        let outcome = if here.is_cut || is_lost {
            if left > 0 {
                let (after, left) = (SECOND / 2, left.saturating_sub(SECOND / 2));
                return self.plan(after, Happening::Message { node, process, client, message, left });
            }
            here.is_excused = true;
            Reset::Unreachable
        } else {
            match message {
                Message::Reset { .. } => here.reset(),
                Message::Break { partition, file, .. } => here.break_promise(partition, file),
            }
            Reset::Acknowledged
        };
        self.trace(|_| format!("c{client} gets {message:?}: {outcome:?}"));
        let event = match message {
            Message::Reset { partition, epoch } => Event::ResetDone { partition, epoch, client, outcome },
            Message::Break { partition, writer, .. } => Event::Broken { partition, writer, client, outcome },
        };
        let after = self.rng.random_range(MS / 10..30 * MS);
        self.plan(after, Happening::AtNode { node, process, event });
    }

    pub(super) fn broken(
        &mut self,
        node: usize,
        partition: usize,
        writer: u64,
        client: usize,
        outcome: Reset,
    ) {
        let name = self.partitions[partition].clone();
        let here = &mut self.nodes[node];
        let Some(handle) = here.handles.get_mut(&partition).filter(|handle| handle.writer == writer) else {
            return;
        };
        let epoch = Epoch(handle.epoch);
        let Some(active) = &mut handle.active else { return };
        active.breaks.remove(&client);
        if outcome == Reset::Unreachable {
            self.member(node).unreachable(&name, epoch, Client::host(client));
        }
    }
}
