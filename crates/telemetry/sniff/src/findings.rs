//! Describes unusual observations in sentences.

use crate::report::{CallRow, ClientRow, Finding, Report, ServerRow};
use crate::traffic::{Flow, Traffic};

/// Minimum number of packets for a meaningful share.
const PACKETS_LEAST: u64 = 50;

/// Minimum number of calls for a meaningful share or percentile.
const CALLS_LEAST: u64 = 20;

/// Minimum share of retransmitted packets to report, in tenths of a percent. The network between servers and
/// clients should lose less than one packet in a thousand.
const RETRANSMITTED_PERMILLE: u64 = 1;

/// Minimum share of failed calls to report, in tenths of a percent.
const ABORTED_PERMILLE: u64 = 10;

/// Latency that a waiting user notices: a second.
const SLOW_US: u64 = 1_000_000;

/// Maximum number of findings of one kind.
const EACH_MAX: usize = 10;

/// Evaluates the counts. The most serious kinds come first.
pub(crate) fn find(report: &Report) -> Vec<Finding> {
    let sorts: [Vec<Finding>; 9] = [
        nothing(report).into_iter().collect(),
        capture(report),
        report.servers.iter().filter_map(unanswered).collect(),
        report.servers.iter().filter_map(silent).collect(),
        report.clients.iter().filter_map(busy).collect(),
        report.clients.iter().flat_map(losses).collect(),
        report.servers.iter().filter_map(windows).collect(),
        aborts(report),
        report.calls.iter().filter_map(slow).collect(),
    ];
    sorts.into_iter().flat_map(|sort| sort.into_iter().take(EACH_MAX)).collect()
}

fn finding(about: impl Into<String>, text: String) -> Finding {
    Finding { about: about.into(), text }
}

/// Formats a share as a percentage with one decimal.
fn share(part: u64, whole: u64) -> String {
    let permille = part.saturating_mul(1000).checked_div(whole).unwrap_or(0);
    format!("{}.{} % ({part} of {whole})", permille / 10, permille % 10)
}

fn is_worth(part: u64, whole: u64, permille: u64) -> bool {
    part > 0 && part.saturating_mul(1000) >= whole.saturating_mul(permille)
}

/// Reports that there is nothing to evaluate.
fn nothing(report: &Report) -> Option<Finding> {
    let captured = &report.captured;
    let text = if captured.frames == 0 {
        "no packets were seen: wrong interface, host or ports, or there are no calls".to_owned()
    } else {
        format!(
            "none of {} frames is Rx: {} are of other hosts or ports, {} are UDP but not Rx, {} are not UDP \
            over IPv4",
            captured.frames,
            captured.filtered,
            captured.not_rx,
            captured.unknown + captured.ipv6 + captured.other_protocols
        )
    };
    report.packets.is_empty().then(|| finding("the capture", text))
}

fn capture(report: &Report) -> Vec<Finding> {
    let captured = &report.captured;
    let mut found = Vec::new();
    let mut say = |count: u64, text: &str| {
        if count > 0 {
            found.push(finding("the capture", format!("{count} {text}")));
        }
    };
    say(captured.dropped, "frames were dropped by the kernel before they were seen: all figures are too low");
    say(
        report.total.calls.missing,
        "packets of calls were not captured: sizes are too low, and gaps may be artefacts of the capture",
    );
    say(
        captured.forgotten,
        "connections were dropped from the table to make space: their calls may be counted as unanswered",
    );
    say(
        captured.fragmented,
        "datagrams arrived in IP fragments: packets are longer than the path's MTU, and one lost fragment \
        loses the packet",
    );
    let repeated = report.total.from_client.repeated + report.total.from_server.repeated;
    say(
        repeated,
        "data packets arrived twice with the same serial number: repeated by the network, or captured twice",
    );
    found
}

fn unanswered(row: &ServerRow) -> Option<Finding> {
    let Traffic { calls, callbacks_unanswered, .. } = &row.traffic;
    let server = &row.server;
    let text = match (calls.unanswered, *callbacks_unanswered) {
        (0, _) => return None,
        (_, 0) => format!("{server} left calls unanswered: {}", share(calls.unanswered, calls.calls)),
        (_, callbacks) => format!(
            "client {server} does not answer callbacks: {}; calls that wait for them are slow",
            share(callbacks, calls.calls)
        ),
    };
    Some(finding(server, text))
}

/// Reports a server that receives requests repeatedly and has never sent anything.
fn silent(row: &ServerRow) -> Option<Finding> {
    let Traffic { calls, busy, aborts, challenges, from_client, from_server, .. } = &row.traffic;
    let said = from_server.data + from_server.acks + busy + aborts + challenges;
    let again = from_client.retransmitted + from_client.late;
    let server = &row.server;
    let text = format!(
        "{server} sends nothing: {again} of {} packets to it were retransmitted; it is not running, or its \
        packets take another path",
        from_client.data
    );
    (calls.unanswered == 0 && said == 0 && again > 0).then(|| finding(server, text))
}

fn busy(row: &ClientRow) -> Option<Finding> {
    let (client, busy) = (&row.client, row.traffic.busy);
    let text = format!(
        "client {client} got {busy} busy replies from the server, which is short of threads or connections"
    );
    (busy > 0).then(|| finding(client, text))
}

/// Reports retransmissions in either direction between a client and its servers.
fn losses(row: &ClientRow) -> Vec<Finding> {
    let client = &row.client;
    let text = |flow: &Flow, who: &str| {
        let again = flow.retransmitted + flow.late;
        let is_much = flow.data >= PACKETS_LEAST && is_worth(again, flow.data, RETRANSMITTED_PERMILLE);
        is_much.then(|| {
            format!(
                "{who} {}: {} were retransmitted, {} arrived late or in place of lost ones",
                share(again, flow.data),
                flow.retransmitted,
                flow.late
            )
        })
    };
    let to_server = text(&row.traffic.from_client, &format!("client {client} retransmits"));
    let to_client = text(&row.traffic.from_server, &format!("servers retransmit to client {client}"));
    [to_server, to_client].into_iter().flatten().map(|text| finding(client, text)).collect()
}

/// Reports packets that a server or its clients had no space for.
fn windows(row: &ServerRow) -> Option<Finding> {
    let server = &row.server;
    let refused = |flow: &Flow| flow.acks_exceeds_window + flow.acks_no_space;
    let by_server = refused(&row.traffic.from_server);
    let by_clients = refused(&row.traffic.from_client);
    let text = match (by_server, by_clients) {
        (0, 0) => return None,
        (0, count) => format!("clients of {server} had no buffer for {count} packets: they read slowly"),
        (count, _) => {
            format!("{server} had no buffer for {count} packets: its windows or buffers are too small")
        }
    };
    Some(finding(server, text))
}

fn aborts(report: &Report) -> Vec<Finding> {
    let rows = report.aborts.iter().filter_map(|row| {
        let kind = row.kind.to_string();
        let all = report.calls.iter().find(|call| call.kind == kind)?.counts.calls;
        let name = row.name.map_or_else(|| row.code.to_string(), |name| format!("{name} ({})", row.code));
        let is_much = all >= CALLS_LEAST && is_worth(row.calls, all, ABORTED_PERMILLE);
        is_much.then(|| finding(&kind, format!("{kind} ended with {name}: {}", share(row.calls, all))))
    });
    rows.collect()
}

fn slow(row: &CallRow) -> Option<Finding> {
    let (kind, first) = (&row.kind, row.first);
    let is_slow = row.counts.calls >= CALLS_LEAST && first.p99_us >= SLOW_US;
    let seconds = |us: u64| format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000);
    let (median, p99, max) = (seconds(first.p50_us), seconds(first.p99_us), seconds(first.max_us));
    let text = format!("{kind} is slow to answer first: median {median}, p99 {p99}, max {max}");
    is_slow.then(|| finding(kind, text))
}
