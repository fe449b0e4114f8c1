//! Sockets and lanes.

use crate::finding::Finding;
use crate::network::{MORE_BUFFER, raise_limit, small_buffers as advice};
use crate::snapshot::{Labels, Snapshot};
use crate::text::{bytes, percent, sentence};
use events::catalogue::LaneFigures;

/// A lane that is idle for less than this percentage of the time will not keep up for long.
const IDLE_PERCENT_MIN: u64 = 10;

/// A lane without idle time that receives fewer datagrams per second is busy with something else.
const LANE_DATAGRAMS_MIN: u64 = 20;

/// Tolerated retransmissions per thousand packets (the limit in C5 of the requirements).
const RESENT_PERMILLE_MAX: u64 = 1;

/// Minimum number of retransmissions for a meaningful result.
const RESENT_MIN: u64 = 20;

fn name(labels: &Labels) -> String {
    labels.join(" lane ")
}

/// Reports datagrams dropped by the kernel at the server's sockets.
pub(crate) fn dropped(snapshot: &Snapshot) -> Vec<Finding> {
    let (lanes, _) = snapshot.lanes();
    let mut evidence: Vec<String> = Vec::new();
    for (labels, lane) in lanes.iter().filter(|(_, lane)| lane.kernel_drops > 0) {
        let all = lane.received_datagrams + lane.kernel_drops;
        evidence.push(format!(
            "{}: {} datagrams dropped, {}, {} of those that arrived",
            name(labels),
            lane.kernel_drops,
            snapshot.rate(lane.kernel_drops),
            percent(lane.kernel_drops, all)
        ));
    }
    if evidence.is_empty() {
        return vec![];
    }
    evidence.extend(buffer_evidence(snapshot));
    let small = snapshot.now.transport.and_then(|of| advice(of.buffer_kib, of.buffer_wanted_kib));
    vec![Finding {
        problem: "datagrams-dropped",
        weight: 80,
        what: "The kernel drops datagrams that clients send to the server.".into(),
        evidence,
        cause: "The receive buffer was full: it is too small for the number of clients, or the lane that \
            empties it was too busy (then it is reported as saturated). Dropped datagrams are retransmitted \
            after a timeout, so calls take seconds instead of milliseconds."
            .into(),
        remedy: sentence(&small.unwrap_or_else(|| MORE_BUFFER.into())),
    }]
}

fn buffer_evidence(snapshot: &Snapshot) -> Option<String> {
    let transport = snapshot.now.transport?;
    let limit = snapshot.machine.map_or_else(String::new, |machine| {
        format!("; net.core.rmem_max is {} KiB", machine.rmem_max_bytes / 1024)
    });
    Some(format!(
        "receive buffers of {} KiB, {} were requested{limit}; {} datagrams dropped since the server started",
        transport.buffer_kib, transport.buffer_wanted_kib, transport.dropped
    ))
}

/// Reports receive buffers smaller than requested.
pub(crate) fn small_buffers(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(transport) = snapshot.now.transport else { return vec![] };
    if advice(transport.buffer_kib, transport.buffer_wanted_kib).is_none() {
        return vec![];
    }
    vec![Finding {
        problem: "small-buffers",
        weight: if transport.dropped > 0 { 60 } else { 30 },
        what: "Receive buffers are smaller than the server requested.".into(),
        evidence: buffer_evidence(snapshot).into_iter().collect(),
        cause: "net.core.rmem_max of the server's machine is smaller, and the server has no permission to \
            exceed it."
            .into(),
        remedy: sentence(&raise_limit(transport.buffer_wanted_kib)),
    }]
}

/// Reports datagrams dropped at other sockets of the machine.
pub(crate) fn dropped_elsewhere(snapshot: &Snapshot) -> Vec<Finding> {
    let (lanes, _) = snapshot.lanes();
    let own: u64 = lanes.iter().map(|(_, lane)| lane.kernel_drops).sum();
    let reported = snapshot.now.transport.zip(snapshot.before.transport);
    let machine = reported.map(|(now, before)| now.machine_dropped.saturating_sub(before.machine_dropped));
    let all = machine.or(snapshot.machine.map(|machine| machine.udp_drops)).unwrap_or(0);
    let others = all.saturating_sub(own);
    if others == 0 {
        return vec![];
    }
    vec![Finding {
        problem: "datagrams-dropped-elsewhere",
        weight: 25,
        what: "The machine drops datagrams at sockets of other programs.".into(),
        evidence: vec![format!(
            "{all} datagrams dropped by all UDP sockets (RcvbufErrors and SndbufErrors of /proc/net/snmp), \
             {own} of them at Cellar's"
        )],
        cause: "Another program (an OpenAFS server, a client of AFS, a name server) reads its socket too \
            slowly, or its receive buffer is too small."
            .into(),
        remedy: "`ss -uampn` shows drops (d) and buffers (rb) by socket; OpenAFS's servers have the option \
            -udpsize, limited by net.core.rmem_max."
            .into(),
    }]
}

/// Reports lanes at their limit.
pub(crate) fn saturated_lanes(snapshot: &Snapshot) -> Vec<Finding> {
    let (lanes, _) = snapshot.lanes();
    // Figures that an older server does not report are 0.
    let tells =
        |labels: &Labels| snapshot.now.lanes.0.iter().any(|(other, lane)| other == labels && lane.idle > 0);
    let is_saturated = |lane: &LaneFigures| {
        snapshot.percent_of_span(lane.idle) < IDLE_PERCENT_MIN
            && u128::from(lane.received_datagrams) * 1_000_000_000
                >= u128::from(LANE_DATAGRAMS_MIN) * u128::from(snapshot.span_ns())
    };
    let busy: Vec<&(Labels, LaneFigures)> =
        lanes.iter().filter(|(labels, lane)| is_saturated(lane) && tells(labels)).collect();
    busy.into_iter().map(|(labels, lane)| saturated(snapshot, &lanes, labels, lane)).collect()
}

fn saturated(
    snapshot: &Snapshot,
    lanes: &[(Labels, LaneFigures)],
    labels: &Labels,
    lane: &LaneFigures,
) -> Finding {
    let siblings = lanes.iter().filter(|(other, _)| other.first() == labels.first()).count();
    let batches = lane.receive_batches.max(1);
    let evidence = format!(
        "{}: idle {} of the time; {} datagrams in ({} per system call), {} out, {}/s in, {}/s out; {} \
        handed over to it too late",
        name(labels),
        percent(lane.idle, snapshot.span_ns()),
        snapshot.rate(lane.received_datagrams),
        lane.received_datagrams / batches,
        snapshot.rate(lane.sent_datagrams),
        bytes(per_second(snapshot, lane.received)),
        bytes(per_second(snapshot, lane.sent)),
        lane.handover_drops
    );
    let cause = if siblings > 1 {
        "All traffic with one port of a peer goes through one lane, and this lane's peers send more than \
        one thread can handle. Every call of these peers waits in the socket, before it is counted as \
        waiting."
    } else {
        "One thread receives everything that arrives at this port, and it is saturated. Every call waits in \
        the socket, before it is counted as waiting; processors, disks and network may be idle meanwhile."
    };
    Finding {
        problem: "saturated-lane",
        weight: 75,
        what: format!("The lane {} is saturated.", name(labels)),
        evidence: vec![evidence],
        cause: cause.into(),
        remedy: format!(
            "Raise `rx.lanes` (the port has {siblings}) if processors are idle, and restart the server; \
            `cellar stat clients` shows the busiest clients. If processors are busy, the machine is too \
            small, or other programs use it."
        ),
    }
}

fn per_second(snapshot: &Snapshot, count: u64) -> u64 {
    (u128::from(count) * 1_000_000_000 / u128::from(snapshot.span_ns())) as u64
}

/// Reports retransmitted packets.
pub(crate) fn sent_again(snapshot: &Snapshot) -> Vec<Finding> {
    let lanes = Snapshot::total(&snapshot.lanes());
    let too_many = lanes.data_resent * 1000 > lanes.data_sent * RESENT_PERMILLE_MAX;
    if !too_many || lanes.data_resent < RESENT_MIN {
        return vec![];
    }
    vec![Finding {
        problem: "packets-sent-again",
        weight: 40,
        what: "The server has to retransmit packets.".into(),
        evidence: vec![format!(
            "{} of {} data packets retransmitted ({}), {} timeouts",
            lanes.data_resent,
            lanes.data_sent,
            percent(lanes.data_resent, lanes.data_sent),
            lanes.timeouts
        )],
        cause: "Packets are lost in the network, or clients drop them because their receive buffers are \
            small."
            .into(),
        remedy:
            "`cellar stat rx SERVER --peers` lists the peers. If it is one, check its network port and its \
            net.core.rmem_max (OpenAFS's clients: also -rxmaxmtu). If it is all of them, check the server's \
            network (`ethtool -S`)."
                .into(),
    }]
}
