//! The report of a run.

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

/// Results of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Title of the mix.
    pub title: String,
    /// Seed of the random order of operations.
    pub seed: u64,
    /// Number of clients in all groups.
    pub clients: usize,
    /// Number of volumes available.
    pub volumes: usize,
    /// Number of successful calls.
    pub calls: u64,
    /// Successful calls per second.
    pub calls_per_second: f64,
    /// Payload in both directions, in bytes.
    pub bytes: u64,
    /// Payload per second, in bytes.
    pub bytes_per_second: f64,
    /// Server CPU seconds per 10^9 bytes of payload, if known.
    pub server_cpu_per_gb: Option<f64>,
    /// Server CPU seconds per million calls, if known.
    pub server_cpu_per_million_calls: Option<f64>,
    /// Results of the groups, in the order of the mix.
    pub groups: Vec<GroupReport>,
    /// Data packets of all clients, including warm-up and shutdown.
    pub packets: Packets,
    /// Fraction of packets that were sent or received twice.
    pub repeated_share: f64,
    /// Datagrams that the kernel dropped at the clients' sockets.
    pub client_drops: u64,
    /// Resources used by the run.
    pub used: Used,
    /// The bottleneck of the run.
    pub limit: Limit,
}

/// Results of one group of clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// Name of the group.
    pub name: String,
    /// Number of clients.
    pub clients: usize,
    /// Number of successful calls.
    pub calls: u64,
    /// Payload of successful calls.
    pub bytes: u64,
    /// Latency of successful calls.
    pub latency: Distribution,
    /// Latency of the clients' first calls, whenever they were made; these are in no other figure.
    pub first_calls: Distribution,
    /// Results by kind of call.
    pub kinds: Vec<KindReport>,
    /// Calls that failed, by abort code.
    pub failures: BTreeMap<i32, u64>,
    /// Incorrect replies by kind of error; any is a fault of the server or the network.
    pub wrong: BTreeMap<&'static str, u64>,
    /// Latency of all calls over time.
    pub timeline: Vec<Interval>,
}

/// Results of one kind of call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindReport {
    /// Name of the call.
    pub call: &'static str,
    /// Latency from the first try to the end of the reply.
    #[serde(flatten)]
    pub latency: Distribution,
    /// Payload in bytes.
    pub bytes: u64,
    /// Number of tries that the server answered with "busy".
    pub busy: u64,
    /// Number of calls that failed or had incorrect replies.
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

    /// Returns the number of incorrect replies in all groups.
    pub fn wrong(&self) -> u64 {
        self.groups.iter().flat_map(|group| group.wrong.values()).sum()
    }

    /// Formats the report as text.
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
                "{}: first calls of {} clients, which the server identifies: half within {:.1} ms, all \
                within {:.1} ms",
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
