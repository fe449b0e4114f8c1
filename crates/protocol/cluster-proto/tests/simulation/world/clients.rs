//! What clients do, and what they may see.

use super::{CALL_LIMIT, Event, FILES, Happening, QUIET_AT, Way, World};
use crate::simulation::client::{Cached, Call, Pending, Reply};
use crate::simulation::clock::{MS, SECOND};
use cluster_proto::CallKind;
use rand::Rng;

impl World {
    pub(super) fn step(&mut self, client: usize) {
        if self.now > QUIET_AT {
            return;
        }
        if self.clients[client].pending.is_some() {
            return;
        }
        let partition = self.rng.random_range(0..self.partitions.len());
        let file = self.rng.random_range(0..FILES);
        let kind = if self.rng.random_bool(0.35) { CallKind::Change } else { CallKind::Read };
        let cached = self.clients[client].cache.get(&(partition, file)).copied();
        if let (CallKind::Read, Some(cached)) = (kind, cached) {
            self.read_cache(client, partition, file, cached);
            return self.rest(client);
        }
        if self.clients[client].is_cut {
            return self.rest(client);
        }
        self.operations += 1;
        let call = Call { client, attempt: 0, partition, file, kind, operation: self.operations };
        self.attempt(call);
    }

    pub(super) fn rest(&mut self, client: usize) {
        let pause = self.rng.random_range(50 * MS..1500 * MS);
        self.plan(pause, Happening::Step(client));
    }

    pub(super) fn read_cache(&mut self, client: usize, partition: usize, file: usize, cached: Cached) {
        self.report.cached_reads += 1;
        let newest = self.acknowledged[partition][file];
        if cached.version >= newest {
            return;
        }
        if self.clients[client].is_excused {
            self.report.excused += 1;
            return;
        }
        self.violate(|| {
            format!(
                "c{client} reads version {} of p{partition} f{file} under a promise; version {newest} was acknowledged",
                cached.version
            )
        });
    }

    /// Sends a call, to any node.
    pub(super) fn attempt(&mut self, call: Call) {
        let client = call.client;
        let version_min =
            self.shown[call.partition][call.file].max(self.acknowledged[call.partition][call.file]);
        let count = self.nodes.len();
        let random = self.rng.random_range(0..count);
        let switches = self.rng.random_bool(0.2);
        let here = &mut self.clients[client];
        if switches {
            here.preferred = random;
        }
        here.attempts += 1;
        let call = Call { attempt: here.attempts, ..call };
        here.pending = Some(Pending { call, resets: here.resets, version_min });
        let (node, is_cut) = (here.preferred % count, here.is_cut);
        self.plan(CALL_LIMIT, Happening::Deadline { client, attempt: call.attempt });
        let is_up = self.nodes[node].member.is_some();
        let is_lost = self.is_lost(Way::FromClient { client, node });
        if !is_cut && is_up && !self.nodes[node].is_cut && !is_lost {
            let after = self.rng.random_range(MS / 10..20 * MS);
            self.at_node(after, node, Event::Call { call, front: None });
        } else if !is_cut && !is_up {
            // The port is closed: the next address at once.
            self.clients[client].preferred = node + 1;
            self.plan(100 * MS, Happening::Deadline { client, attempt: call.attempt });
        }
    }

    /// A call was not answered in time, or begins anew.
    pub(super) fn retry(&mut self, client: usize, attempt: u64) {
        let here = &mut self.clients[client];
        let Some(pending) = here.pending.filter(|pending| pending.call.attempt == attempt) else { return };
        here.preferred += 1;
        self.attempt(pending.call);
    }

    pub(super) fn reply_arrives(&mut self, client: usize, attempt: u64, reply: Reply) {
        let here = &mut self.clients[client];
        let Some(pending) = here.pending.filter(|pending| pending.call.attempt == attempt) else { return };
        if here.is_cut {
            return;
        }
        let Call { partition, file, operation, .. } = pending.call;
        match reply {
            Reply::Restarting => {
                self.plan(SECOND, Happening::Deadline { client, attempt });
                return;
            }
            Reply::Value { version, operation, is_promised } => {
                self.report.reads += 1;
                self.check_read(client, pending, version, operation);
                let here = &mut self.clients[client];
                if is_promised && here.resets == pending.resets {
                    here.cache.insert((partition, file), Cached { version });
                }
                here.pending = None;
                let shown = &mut self.shown[partition][file];
                *shown = (*shown).max(version);
            }
            Reply::Changed { version } => {
                here.pending = None;
                // The own change ends the own promise, as a break does.
                here.break_promise(partition, file);
                let newest = &mut self.acknowledged[partition][file];
                *newest = (*newest).max(version);
                if self.databases[partition].contents.operations.get(&operation) != Some(&(file, version)) {
                    self.violate(|| {
                        format!("the acknowledged change {operation} of p{partition} f{file} is not there")
                    });
                }
            }
        }
        self.rest(client);
    }

    pub(super) fn check_read(&mut self, client: usize, pending: Pending, version: u64, operation: u64) {
        let Call { partition, file, .. } = pending.call;
        let least = pending.version_min;
        if version < least {
            self.violate(|| {
                format!("c{client} gets version {version} of p{partition} f{file}; version {least} was known before")
            });
        }
        let made = self.databases[partition].contents.operations.get(&operation);
        if version > 0 && made != Some(&(file, version)) {
            self.violate(|| {
                format!("version {version} of p{partition} f{file} was shown and is not durable")
            });
        }
    }
}
