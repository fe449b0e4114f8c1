//! What a run found.

use super::Options;
use super::latency::{Distribution, GroupMeasured, Interval, Measured, kinds};
use super::mix::Mix;
use crate::rxperf::Packets;
use crate::watch::{Limit, Used};
use base::AbortCode;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The mix's title.
    pub title: String,
    /// What decided the order of operations.
    pub seed: u64,
    /// Clients of all groups.
    pub clients: usize,
    /// Volumes that were there to work in.
    pub volumes: usize,
    /// Calls that went well.
    pub calls: u64,
    /// The same per second.
    pub calls_per_second: f64,
    /// Payload in both directions.
    pub bytes: u64,
    /// The same per second.
    pub bytes_per_second: f64,
    /// CPU seconds of the server by 10^9 bytes, if it is known and there were any.
    pub server_cpu_per_gb: Option<f64>,
    /// CPU seconds of the server by a million calls, likewise.
    pub server_cpu_per_million_calls: Option<f64>,
    /// The groups, in the mix's order.
    pub groups: Vec<GroupReport>,
    /// Data packets of all clients, warm-up and farewell included.
    pub packets: Packets,
    /// Packets that came or went twice, by all packets.
    pub repeated_share: f64,
    /// Datagrams that the kernel dropped at the clients' sockets.
    pub client_drops: u64,
    /// What the run used.
    pub used: Used,
    /// What kept it from being faster.
    pub limit: Limit,
}

/// One group of clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// Its clients.
    pub clients: usize,
    /// Calls that went well.
    pub calls: u64,
    /// Payload that they moved.
    pub bytes: u64,
    /// Times of all of them.
    pub latency: Distribution,
    /// Times of the clients' first calls, whenever they were; they are in no other figure.
    pub first_calls: Distribution,
    /// By kind of call.
    pub kinds: Vec<KindReport>,
    /// Calls that failed, by abort code.
    pub failures: BTreeMap<i32, u64>,
    /// Replies that were not right, by what was wrong in them; any is a fault of the server or the
    /// network.
    pub wrong: BTreeMap<&'static str, u64>,
    /// All calls over time.
    pub timeline: Vec<Interval>,
}

/// One kind of call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindReport {
    /// The call's name.
    pub call: &'static str,
    /// From the first try to the end of the reply.
    #[serde(flatten)]
    pub latency: Distribution,
    /// Payload.
    pub bytes: u64,
    /// Tries that the server answered with "busy".
    pub busy: u64,
    /// Calls that failed or whose replies were not right.
    pub failed: u64,
}

impl Report {
    pub(super) fn new(mix: &Mix, options: &Options, measured: &Measured, used: Used) -> Report {
        let calls: u64 = measured.groups.iter().map(GroupMeasured::calls).sum();
        let bytes: u64 = measured.groups.iter().map(GroupMeasured::payload).sum();
        let seconds = used.seconds.max(1e-9);
        let per = |amount: f64| used.server_cpu.filter(|_| amount > 0.0).map(|cpu| cpu / amount);
        let groups = mix.groups.iter().zip(&measured.groups).enumerate();
        Report {
            title: mix.title.clone(),
            seed: options.seed,
            clients: mix.clients(),
            volumes: options.volumes.len(),
            calls,
            calls_per_second: calls as f64 / seconds,
            bytes,
            bytes_per_second: bytes as f64 / seconds,
            server_cpu_per_gb: per(bytes as f64 / 1e9),
            server_cpu_per_million_calls: per(calls as f64 / 1e6),
            groups: groups
                .map(|(number, (group, found))| GroupReport {
                    name: group.name.clone(),
                    clients: group.clients,
                    calls: found.calls(),
                    bytes: found.payload(),
                    latency: found.latency(),
                    first_calls: found.first.as_ref().map(Distribution::of).unwrap_or_default(),
                    kinds: kinds(found).map(kind).collect(),
                    failures: found.failures.clone(),
                    wrong: found.wrong.clone(),
                    timeline: measured.timeline(number),
                })
                .collect(),
            packets: measured.packets,
            repeated_share: measured.packets.repeated_share(),
            client_drops: measured.client_drops,
            limit: used.limit(),
            used,
        }
    }

    /// Replies that were not right, of all groups.
    pub fn wrong(&self) -> u64 {
        self.groups.iter().flat_map(|group| group.wrong.values()).sum()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: {} clients, seed {}, {:.1} s\n{:.0} calls/s, {:.1} MB/s",
            self.title,
            self.clients,
            self.seed,
            self.used.seconds,
            self.calls_per_second,
            self.bytes_per_second / 1e6
        );
        if let Some(cpu) = self.server_cpu_per_gb {
            let _ = write!(text, "; server {cpu:.2} CPU s per GB");
        }
        if let Some(cpu) = self.server_cpu_per_million_calls {
            let _ = write!(text, "; server {cpu:.1} CPU s per million calls");
        }
        let _ = write!(text, "\n{}\n", self.table());
        for group in &self.groups {
            let first = &group.first_calls;
            let _ = writeln!(
                text,
                "{}: first calls of {} clients, who are asked who they are: half within {:.1} ms, all within {:.1} ms",
                group.name,
                first.calls,
                first.p50_us / 1e3,
                first.max_us / 1e3
            );
            for (code, count) in &group.failures {
                let _ = writeln!(text, "{}: {count} calls failed with {:?}", group.name, AbortCode(*code));
            }
            for (what, count) in &group.wrong {
                let _ = writeln!(text, "{}: {count} replies were wrong: {what}", group.name);
            }
        }
        let _ = write!(
            text,
            "{}; packets repeated {:.3} %; clients' sockets dropped {}\nlimit: {}",
            self.used,
            self.repeated_share * 100.0,
            self.client_drops,
            self.limit
        );
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        let header =
            ["group", "call", "calls/s", "MB/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "busy", "failed"];
        table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
        table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        let seconds = self.used.seconds.max(1e-9);
        let milliseconds = |microseconds: f64| format!("{:.3}", microseconds / 1e3);
        for group in &self.groups {
            for kind in &group.kinds {
                table.add_row([
                    group.name.clone(),
                    kind.call.to_owned(),
                    format!("{:.1}", kind.latency.calls as f64 / seconds),
                    format!("{:.1}", kind.bytes as f64 / 1e6 / seconds),
                    milliseconds(kind.latency.p50_us),
                    milliseconds(kind.latency.p90_us),
                    milliseconds(kind.latency.p99_us),
                    milliseconds(kind.latency.max_us),
                    kind.busy.to_string(),
                    kind.failed.to_string(),
                ]);
            }
        }
        table
    }
}

fn kind((kind, found): (super::step::CallKind, &super::latency::KindMeasured)) -> KindReport {
    KindReport {
        call: kind.name(),
        latency: found.latency.as_ref().map(Distribution::of).unwrap_or_default(),
        bytes: found.payload,
        busy: found.busy,
        failed: found.failed,
    }
}
