//! Text columns of each table.

use super::figures::{Column, Show, Tabular, share};
use events::catalogue::{
    AuditFigures, BucketFigures, CacheCounts, CallFigures, CallbackFigures, ClusterFigures, DiskFigures,
    EventFigures, HostFigures, LaneFigures, LockFigures, NodeFigures, PartitionFigures, PeerFigures,
    ProcessFigures, RefusalFigures, TakeoverFigures, UsageFigures, WorkerFigures,
};

fn mean(sum: u64, of: u64) -> u64 {
    sum.checked_div(of).unwrap_or(0)
}

impl Tabular for CallFigures {
    const COLUMNS: &'static [Column<CallFigures>] = &[
        ("CALLS", Show::Count, |row| row.calls),
        ("FAILED", Show::Count, |row| row.calls.saturating_sub(row.outcomes[0])),
        ("FAST PATH", Show::Count, |row| row.fast_path),
        ("IN", Show::Bytes, |row| row.received),
        ("OUT", Show::Bytes, |row| row.sent),
        ("WAIT P50", Show::Time, |row| row.wait.quantile(500)),
        ("WAIT P99", Show::Time, |row| row.wait.quantile(990)),
        ("RUN MEAN", Show::Time, |row| row.run.mean()),
        ("P50", Show::Time, |row| row.run.quantile(500)),
        ("P90", Show::Time, |row| row.run.quantile(900)),
        ("P99", Show::Time, |row| row.run.quantile(990)),
        ("MAX", Show::Time, |row| row.run.max()),
    ];
}

/// Lists columns, with those for call classes between the first and the last.
macro_rules! with_classes {
    ([$($first:expr),* $(,)?], [$($last:expr),* $(,)?]) => {
        &[
            $($first,)*
            ("FETCH", Show::Count, |row| row.classes[0]),
            ("STORE", Show::Count, |row| row.classes[1]),
            ("STATUS", Show::Count, |row| row.classes[2]),
            ("CHANGE", Show::Count, |row| row.classes[3]),
            ("LOCK", Show::Count, |row| row.classes[4]),
            ("OTHER", Show::Count, |row| row.classes[5]),
            ("FAILED", Show::Count, |row| row.failed),
            $($last,)*
        ]
    };
}

impl Tabular for UsageFigures {
    const COLUMNS: &'static [Column<UsageFigures>] = with_classes!(
        [("CALLS", Show::Count, |row| row.calls)],
        [
            ("IN", Show::Bytes, |row| row.received),
            ("OUT", Show::Bytes, |row| row.sent),
            ("MEAN SIZE", Show::Size, |row| mean(row.received.saturating_add(row.sent), row.calls)),
            ("MEAN", Show::Time, |row| mean(row.wait.saturating_add(row.run), row.calls)),
            ("LONGEST", Show::Time, |row| row.longest.value()),
        ]
    );
}

impl Tabular for HostFigures {
    const COLUMNS: &'static [Column<HostFigures>] = with_classes!(
        [
            ("CALLS", Show::Count, |row| row.calls),
            ("CONNECTIONS", Show::Now, |row| row.connections),
            ("OPENED", Show::Count, |row| row.opened),
        ],
        [
            ("I/O", Show::Count, |row| row.data_calls),
            ("I/O BYTES", Show::Bytes, |row| row.data),
            ("MEAN SIZE", Show::Size, |row| mean(row.data, row.data_calls)),
            ("MEAN", Show::Time, |row| mean(row.data_time, row.data_calls)),
            ("LONGEST", Show::Time, |row| row.data_longest.value()),
        ]
    );
}

impl Tabular for DiskFigures {
    const COLUMNS: &'static [Column<DiskFigures>] = &[
        ("ACCESSES", Show::Count, |row| row.accesses),
        ("FAILED", Show::Count, |row| row.failed),
        ("BUFFERED", Show::Count, |row| row.buffered),
        ("BYTES", Show::Bytes, |row| row.moved),
        ("MEAN SIZE", Show::Size, |row| mean(row.moved, row.accesses)),
        ("MEAN", Show::Time, |row| row.time.mean()),
        ("P50", Show::Time, |row| row.time.quantile(500)),
        ("P99", Show::Time, |row| row.time.quantile(990)),
        ("MAX", Show::Time, |row| row.time.max()),
    ];
}

impl Tabular for BucketFigures {
    const COLUMNS: &'static [Column<BucketFigures>] = &[
        ("REQUESTS", Show::Count, |row| row.requests),
        ("CONFLICTS", Show::Count, |row| row.conflicts),
        ("REFUSED", Show::Count, |row| row.refused),
        ("FAILED", Show::Count, |row| row.failed),
        ("UNANSWERED", Show::Count, |row| row.unanswered),
        ("SENT", Show::Bytes, |row| row.sent),
        ("RECEIVED", Show::Bytes, |row| row.received),
        ("P50", Show::Time, |row| row.time.quantile(500)),
        ("P99", Show::Time, |row| row.time.quantile(990)),
        ("MAX", Show::Time, |row| row.time.max()),
        ("FAILING", Show::Time, |row| row.failing),
    ];
}

impl Tabular for LockFigures {
    const COLUMNS: &'static [Column<LockFigures>] = &[
        ("WAITS", Show::Count, |row| row.waits),
        ("WAITED", Show::Sum, |row| row.wait.sum()),
        ("MEAN", Show::Time, |row| row.wait.mean()),
        ("P50", Show::Time, |row| row.wait.quantile(500)),
        ("P99", Show::Time, |row| row.wait.quantile(990)),
        ("MAX", Show::Time, |row| row.wait.max()),
        ("WAITING", Show::Now, |row| row.waiting),
    ];
}

impl Tabular for EventFigures {
    const COLUMNS: &'static [Column<EventFigures>] = &[
        ("ON", Show::Now, |row| row.on),
        ("FROM", Show::Time, |row| row.from),
        ("LINES", Show::Count, |row| row.written),
        ("DROPPED", Show::Count, |row| row.dropped),
    ];
}

impl Tabular for LaneFigures {
    const COLUMNS: &'static [Column<LaneFigures>] = &[
        ("PACKETS IN", Show::Count, |row| row.received_datagrams),
        ("BYTES IN", Show::Bytes, |row| row.received),
        ("PACKETS OUT", Show::Count, |row| row.sent_datagrams),
        ("BYTES OUT", Show::Bytes, |row| row.sent),
        ("DROPPED", Show::Count, |row| row.kernel_drops),
        ("TWICE", Show::Count, |row| row.data_duplicates),
        ("RESENT", Show::Count, |row| row.data_resent),
        ("TIMEOUTS", Show::Count, |row| row.timeouts),
        ("SEND WAITS", Show::Count, |row| row.send_waits),
        ("MEAN RTT", Show::Time, |row| mean(row.round_trip, row.round_trips)),
        ("CONNECTIONS", Show::Now, |row| row.connections),
        ("CALLS", Show::Now, |row| row.calls_present),
        ("PEERS", Show::Now, |row| row.peers),
    ];
}

impl Tabular for WorkerFigures {
    const COLUMNS: &'static [Column<WorkerFigures>] = &[
        ("THREADS", Show::Now, |row| row.threads),
        ("LIMIT", Show::Now, |row| row.limit),
        ("BUSY", Show::Now, |row| row.busy),
        ("FULL", Show::Now, |row| row.full),
        ("WAITING", Show::Now, |row| row.waiting),
        ("ARRIVED", Show::Count, |row| row.arrived),
        ("REFUSED", Show::Count, |row| row.refused),
        ("PANICKED", Show::Count, |row| row.panicked),
    ];
}

impl Tabular for CacheCounts {
    const COLUMNS: &'static [Column<CacheCounts>] = &[
        ("HITS", Show::Count, |row| row.hits),
        ("MISSES", Show::Count, |row| row.misses),
        ("RATE", Show::Share, |row| share(row.hits, row.hits.saturating_add(row.misses))),
        ("EVICTED", Show::Count, |row| row.evictions),
        ("PURGED", Show::Count, |row| row.purged),
        ("ENTRIES", Show::Now, |row| row.entries),
        ("IN USE", Show::Size, |row| row.held),
        ("PEAK", Show::Size, |row| row.held_max),
        ("LIMIT", Show::Size, |row| row.limit),
        ("RECYCLE AGE", Show::Time, |row| row.recycle_age),
    ];
}

impl Tabular for PeerFigures {
    const COLUMNS: &'static [Column<PeerFigures>] = &[
        ("PACKETS IN", Show::Count, |row| row.received_packets),
        ("BYTES IN", Show::Bytes, |row| row.received),
        ("DATA OUT", Show::Count, |row| row.data_sent),
        ("RESENT", Show::Count, |row| row.data_resent),
        ("STALLS", Show::Count, |row| row.stalls),
        ("BYTES OUT", Show::Bytes, |row| row.sent),
        ("OPENED", Show::Count, |row| row.opened),
        ("CONNECTIONS", Show::Now, |row| row.connections),
        ("RTT", Show::Time, |row| row.round_trip),
        ("+-", Show::Time, |row| row.variation),
        ("RTT P50", Show::Time, |row| row.round_trips.quantile(500)),
        ("RTT P99", Show::Time, |row| row.round_trips.quantile(990)),
        ("TIMEOUT", Show::Time, |row| row.timeout),
        ("WINDOW", Show::Now, |row| row.window),
        ("CWND", Show::Now, |row| row.congestion_window),
        ("PACKET", Show::Size, |row| row.packet),
    ];
}

impl Tabular for AuditFigures {
    const COLUMNS: &'static [Column<AuditFigures>] = &[
        ("RECORDS", Show::Count, |row| row.records),
        ("BYTES", Show::Bytes, |row| row.written),
        ("DROPPED", Show::Count, |row| row.dropped),
        ("WAITS", Show::Count, |row| row.waits),
        ("MEAN WAIT", Show::Time, |row| mean(row.blocked, row.waits)),
        ("FAILURES", Show::Count, |row| row.failures),
        ("FAILING", Show::Now, |row| row.failing),
        ("QUEUED", Show::Now, |row| row.queued),
        ("OF", Show::Now, |row| row.queue_limit),
    ];
}

impl Tabular for RefusalFigures {
    const COLUMNS: &'static [Column<RefusalFigures>] =
        &[("REFUSED", Show::Count, |row| row.refused), ("HOSTS", Show::Now, |row| row.hosts)];
}

impl Tabular for CallbackFigures {
    const COLUMNS: &'static [Column<CallbackFigures>] = &[
        ("HOSTS", Show::Now, |row| row.hosts),
        ("DOWN", Show::Now, |row| row.hosts_down),
        ("PROMISES", Show::Now, |row| row.promises),
        ("OF", Show::Now, |row| row.limit),
        ("DELIVERED", Show::Count, |row| row.delivered),
        ("UNANSWERED", Show::Count, |row| row.unanswered),
        ("REVOKED", Show::Count, |row| row.evictions),
        ("SHARED UUIDS", Show::Now, |row| row.shared_uuids),
    ];
}

impl Tabular for PartitionFigures {
    const COLUMNS: &'static [Column<PartitionFigures>] = &[
        ("SIZE", Show::Size, |row| row.size),
        ("FREE", Show::Size, |row| row.free),
        ("OFFLINE", Show::Now, |row| row.offline),
        ("READ-ONLY", Show::Now, |row| row.read_only),
        ("DAMAGED", Show::Now, |row| row.damaged),
        ("RECLAIMING", Show::Now, |row| row.reclaiming),
        ("SCRUBBED", Show::Bytes, |row| row.scrubbed),
        ("COPY HITS", Show::Count, |row| row.copy_hits),
        ("LENT", Show::Now, |row| row.lent_objects),
        ("BORROWED", Show::Now, |row| row.borrowed_objects),
        ("SHARED", Show::Size, |row| row.deduplicated),
        ("SAVED", Show::Size, |row| row.deduplication_saved),
    ];
}

impl Tabular for ProcessFigures {
    const COLUMNS: &'static [Column<ProcessFigures>] = &[
        ("STARTED", Show::Moment, |row| row.started),
        ("MEMORY", Show::Size, |row| row.resident),
        ("VOLUMES", Show::Now, |row| row.volumes_loaded),
    ];
}

impl Tabular for ClusterFigures {
    const COLUMNS: &'static [Column<ClusterFigures>] = &[
        ("RENEWALS", Show::Count, |row| row.renewals),
        ("LEASE", Show::Time, |row| row.lease),
        ("LAPSES", Show::Count, |row| row.lapses),
        ("OWNS", Show::Now, |row| row.owned),
        ("OF", Show::Now, |row| row.partitions),
        ("UNSERVED", Show::Now, |row| row.unserved),
        ("NODES", Show::Now, |row| row.nodes_live),
        ("DEAD", Show::Now, |row| row.nodes_silent + row.nodes_dead),
        ("TAKEN OVER", Show::Count, |row| row.takeover.count()),
        ("MEAN", Show::Time, |row| row.takeover.mean()),
        ("MAX", Show::Time, |row| row.takeover.max()),
        ("GIVEN UP", Show::Count, |row| row.given_up),
        ("FENCED", Show::Count, |row| row.fences),
        ("BUCKET P50", Show::Time, |row| row.bucket.quantile(500)),
        ("P99", Show::Time, |row| row.bucket.quantile(990)),
        ("LATE", Show::Count, |row| row.bucket_late),
        ("FORWARDED", Show::Count, |row| row.forwarded),
        ("MEAN", Show::Time, |row| mean(row.forward, row.forwarded)),
        ("REFUSED", Show::Count, |row| row.forwards_refused),
        ("UNKNOWN", Show::Count, |row| row.forwards_unknown),
        ("FAILED", Show::Count, |row| row.forwards_failed),
        ("RELAYED", Show::Bytes, |row| row.relayed),
        ("READS", Show::Count, |row| row.reads),
        ("READ", Show::Bytes, |row| row.read),
        ("WRITES", Show::Count, |row| row.writes),
        ("WRITTEN", Show::Bytes, |row| row.written),
        ("EXECUTED", Show::Count, |row| row.executed),
        ("STRANGERS", Show::Count, |row| row.strangers),
    ];
}

impl Tabular for NodeFigures {
    const COLUMNS: &'static [Column<NodeFigures>] = &[
        ("PACKETS IN", Show::Count, |row| row.received_packets),
        ("BYTES IN", Show::Bytes, |row| row.received),
        ("DATA OUT", Show::Count, |row| row.data_sent),
        ("BYTES OUT", Show::Bytes, |row| row.sent),
        ("RESENT", Show::Count, |row| row.data_resent),
        ("OF DATA", Show::Share, |row| share(row.data_resent, row.data_sent)),
        ("STALLS", Show::Count, |row| row.stalls),
        ("CONNECTIONS", Show::Now, |row| row.connections),
        ("RTT", Show::Time, |row| row.round_trip),
        ("+-", Show::Time, |row| row.variation),
        ("RTT P50", Show::Time, |row| row.round_trips.quantile(500)),
        ("RTT P99", Show::Time, |row| row.round_trips.quantile(990)),
        ("TIMEOUT", Show::Time, |row| row.timeout),
        ("WINDOW", Show::Now, |row| row.window),
        ("CWND", Show::Now, |row| row.congestion_window),
        ("OWNS", Show::Now, |row| row.owned),
        ("SILENT", Show::Time, |row| row.silence),
        ("RENEWAL", Show::Time, |row| row.renewal),
    ];
}

impl Tabular for TakeoverFigures {
    const COLUMNS: &'static [Column<TakeoverFigures>] = &[
        ("BEGAN", Show::Moment, |row| row.began),
        ("TOTAL", Show::Time, |row| row.total),
        ("DETECT", Show::Time, |row| row.detect),
        ("EVICT", Show::Time, |row| row.evict),
        ("CLAIM", Show::Time, |row| row.claim),
        ("OPEN", Show::Time, |row| row.open),
        ("RESET", Show::Time, |row| row.reset),
        ("CLOSE", Show::Time, |row| row.close),
        ("FREE", Show::Time, |row| row.free),
        ("ANSWERED", Show::Time, |row| row.answered),
        ("COMPLETE", Show::Now, |row| row.complete),
    ];
}
