//! Every rule has a case in which it fires, with its figures in the evidence, and a similar one in which it
//! does not.

mod cell;
mod cluster;
mod repair;

use crate::snapshot::*;
use crate::{Finding, SlowCall, diagnose};
use events::catalogue::{
    AuditFigures, BucketFigures, CacheCounts, CallFigures, CallbackFigures, DiskFigures, LaneFigures,
    LockFigures, Outcome, PartitionFigures, RefusalFigures, UsageFigures, WorkerFigures,
};
use events::table::Look;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn labels(text: &str) -> Labels {
    text.split(' ').map(Into::into).collect()
}

fn rows<F: Default>(rows: impl IntoIterator<Item = (&'static str, F)>) -> Look<Labels, F> {
    (rows.into_iter().map(|(name, row)| (labels(name), row)).collect(), F::default())
}

/// Returns two samples of a healthy server, two seconds apart.
fn healthy() -> Snapshot {
    let lane = LaneFigures { idle: 100 * SECOND, ..LaneFigures::default() };
    let before = Figures {
        lanes: rows([("fileserver 0", lane.clone())]),
        workers: rows([("fileserver", WorkerFigures { threads: 16, ..WorkerFigures::default() })]),
        transport: Some(Transport { buffer_wanted_kib: 16384, buffer_kib: 16384, ..Transport::default() }),
        ..Figures::default()
    };
    let mut now = before.clone();
    now.lanes =
        rows([("fileserver 0", LaneFigures { idle: 101_900 * MS, received_datagrams: 5000, ..lane })]);
    Snapshot { seconds: 2.0, before, now, ..Snapshot::default() }
}

/// Returns a healthy server with one change.
fn with(change: impl FnOnce(&mut Snapshot)) -> Snapshot {
    let mut snapshot = healthy();
    change(&mut snapshot);
    snapshot
}

fn lane(change: impl FnOnce(&mut LaneFigures)) -> Snapshot {
    with(|snapshot| change(&mut snapshot.now.lanes.0[0].1))
}

fn slow(cause: &str, count: usize, volume: u32) -> Vec<SlowCall> {
    let call = SlowCall {
        service: "AFS".into(),
        procedure: "StoreData64".into(),
        volume,
        user: "ann".into(),
        host: "10.0.0.1".into(),
        total_ns: SECOND,
        cause: cause.into(),
        cause_ns: 900 * MS,
    };
    vec![call; count]
}

fn slow_calls(cause: &str, count: usize) -> Snapshot {
    with(|snapshot| snapshot.slow = slow(cause, count, 7))
}

fn usage(calls: u64, wait: u64, run: u64) -> UsageFigures {
    UsageFigures { calls, wait, run, classes: [calls, 0, 0, 0, 0, 0], ..UsageFigures::default() }
}

fn clients(own: UsageFigures, other: UsageFigures) -> Snapshot {
    with(|snapshot| {
        snapshot.settings = Some(Settings { lanes: 1, workers: 16, user_percent: 90 });
        snapshot.now.clients = rows([("10.0.0.1 batch", own), ("10.0.0.2 anonymous", other)]);
    })
}

fn call(name: &'static str, waits: &[u64], runs: &[u64]) -> (&'static str, CallFigures) {
    let mut row = CallFigures { calls: runs.len() as u64, ..CallFigures::default() };
    row.outcomes[0] = row.calls;
    for wait in waits {
        row.wait.record(*wait);
    }
    for run in runs {
        row.run.record(*run);
    }
    (name, row)
}

fn calls(row: (&'static str, CallFigures)) -> Snapshot {
    with(|snapshot| snapshot.now.calls = rows([row]))
}

fn disk(times: &[u64]) -> Snapshot {
    with(|snapshot| {
        let mut row = DiskFigures { accesses: times.len() as u64, moved: 1 << 20, ..DiskFigures::default() };
        for time in times {
            row.time.record(*time);
        }
        snapshot.now.disks = rows([("/vicepa read", row)]);
    })
}

fn bucket(times: &[u64], failing: u64) -> Snapshot {
    with(|snapshot| {
        let requests = times.len() as u64;
        let mut row = BucketFigures { requests, unanswered: 2, failing, ..BucketFigures::default() };
        for time in times {
            row.time.record(*time);
        }
        snapshot.now.buckets = rows([("/vicepb get", row)]);
    })
}

fn buffered(buffered: u64) -> Snapshot {
    let row = DiskFigures { accesses: 9, buffered, ..DiskFigures::default() };
    with(|snapshot| snapshot.now.disks = rows([("/vicepa write", row)]))
}

fn partition(row: PartitionFigures) -> Snapshot {
    with(|snapshot| {
        snapshot.before.partitions = rows([("/vicepa", row.clone())]);
        snapshot.now.partitions = rows([("/vicepa", row)]);
    })
}

fn cache(hits: u64, misses: u64, evictions: u64, held: u64, recycle_age: u64) -> Snapshot {
    let row =
        CacheCounts { hits, misses, evictions, held, limit: 1000, recycle_age, ..CacheCounts::default() };
    with(|snapshot| snapshot.now.caches = rows([("chunks", row)]))
}

/// A call waited for clients, and no client failed to answer between the two samples. `unanswered` and
/// `hosts_down` are the figures since the start.
fn waited_for_clients(unanswered: u64, hosts_down: u64) -> Snapshot {
    let row =
        CallbackFigures { unanswered, hosts_down, delivered: 5, hosts: 9, ..CallbackFigures::default() };
    with(|snapshot| {
        snapshot.slow = slow("callback", 1, 7);
        snapshot.before.callbacks = rows([("fileserver", row.clone())]);
        snapshot.now.callbacks = rows([("fileserver", row)]);
    })
}

fn registered(registration: Registration) -> Snapshot {
    with(|snapshot| snapshot.registration = registration)
}

fn callbacks(row: CallbackFigures) -> Snapshot {
    with(|snapshot| snapshot.now.callbacks = rows([("fileserver", row)]))
}

fn workers(row: WorkerFigures) -> Snapshot {
    with(|snapshot| {
        snapshot.before.workers = rows([("volserver", row.clone())]);
        snapshot.now.workers = rows([("volserver", row)]);
    })
}

fn port(change: impl FnOnce(&mut Port)) -> Snapshot {
    let mut port =
        Port { name: "fs".into(), idle_threads: 5, free_packets: 9, packets: 99, ..Port::default() };
    change(&mut port);
    with(|snapshot| snapshot.ports = vec![port])
}

fn counters(counters: &[(&'static str, u64)]) -> Snapshot {
    port(|port| port.counters = counters.iter().copied().collect())
}

fn clock(ahead_ms: i64, error_ms: u64) -> Snapshot {
    with(|snapshot| snapshot.clocks = vec![Clock { server: "10.0.0.1".into(), ahead_ms, error_ms }])
}

fn machine(change: impl FnOnce(&mut Machine)) -> Snapshot {
    let mut machine = Machine { processors: 2, ticks: 4000, ..Machine::default() };
    change(&mut machine);
    with(|snapshot| snapshot.machine = Some(machine))
}

fn job(silent_seconds: u64) -> Snapshot {
    let job = Job { id: 4, title: "move of a".into(), latest: "no answer".into(), silent_seconds };
    with(|snapshot| snapshot.jobs = vec![job])
}

fn audit(row: AuditFigures) -> Snapshot {
    with(|snapshot| snapshot.now.audit = rows([("file", row)]))
}

fn refusals(row: RefusalFigures) -> Snapshot {
    with(|snapshot| snapshot.now.refusals = rows([("unknown-key", row)]))
}

fn volume(row: UsageFigures) -> Snapshot {
    with(|snapshot| {
        snapshot.now.volumes = rows([("536870915 proj", row), ("536870918 home", usage(10, 0, SECOND))]);
    })
}

fn removal(total_ns: u64) -> Snapshot {
    with(|snapshot| {
        let removed = SlowCall {
            service: "AFSVol".into(),
            procedure: "DeleteVolume".into(),
            total_ns,
            ..slow("callback", 1, 9)[0].clone()
        };
        snapshot.slow = vec![removed];
        snapshot.now.calls = rows([call("AFSVol DeleteVolume", &[], &[total_ns])]);
    })
}

fn lock(waits: &[u64]) -> Snapshot {
    let mut row = LockFigures { waits: waits.len() as u64, ..LockFigures::default() };
    for wait in waits {
        row.wait.record(*wait);
    }
    with(|snapshot| snapshot.now.locks = rows([("lane", row)]))
}

fn small_buffer(buffer_kib: u64) -> Snapshot {
    with(|snapshot| {
        for look in [&mut snapshot.before, &mut snapshot.now] {
            look.transport = Some(Transport { buffer_kib, ..look.transport.unwrap() });
        }
    })
}

fn faults(outcome: Outcome) -> Snapshot {
    let (name, mut row) = call("AFS FetchData64", &[], &[1, 1]);
    row.outcomes = [1, 0, 0, 0, 0, 0, 0, 0, 0];
    row.outcomes[outcome as usize] += 1;
    calls((name, row))
}

fn operation(calls: u64, time_us: u64) -> Snapshot {
    with(|snapshot| snapshot.operations = vec![Operation { name: "StoreData".into(), calls, time_us }])
}

/// A problem, a snapshot with it, text that its evidence must contain, and a similar snapshot without it.
type Case = (&'static str, Snapshot, &'static str, Snapshot);

fn network_cases() -> Vec<Case> {
    vec![
        (
            "datagrams-dropped",
            lane(|lane| lane.kernel_drops = 100),
            "fileserver lane 0: 100 datagrams dropped, 50/s, 2.0 % of those that arrived",
            with(|snapshot| {
                for look in [&mut snapshot.before, &mut snapshot.now] {
                    look.lanes.0[0].1.kernel_drops = 100;
                }
            }),
        ),
        (
            "small-buffers",
            small_buffer(208),
            "receive buffers of 208 KiB, 16384 were requested",
            small_buffer(16384),
        ),
        (
            "datagrams-dropped-elsewhere",
            with(|snapshot| snapshot.now.transport.as_mut().unwrap().machine_dropped = 7),
            "7 datagrams dropped by all UDP sockets (RcvbufErrors and SndbufErrors of /proc/net/snmp), 0",
            with(|snapshot| {
                snapshot.now.transport.as_mut().unwrap().machine_dropped = 7;
                snapshot.now.lanes.0[0].1.kernel_drops = 7;
            }),
        ),
        (
            "saturated-lane",
            lane(|lane| lane.idle = 100_100 * MS),
            "fileserver lane 0: idle 5.0 % of the time; 2500/s datagrams in",
            lane(|lane| lane.idle = 100_300 * MS),
        ),
        (
            "saturated-lane",
            lane(|lane| (lane.idle, lane.received_datagrams) = (100 * SECOND, 40)),
            "idle 0.0 %",
            // Missing figures of an older server are no evidence, nor is a lane that receives little.
            lane(|lane| (lane.idle, lane.received_datagrams) = (100 * SECOND, 39)),
        ),
        (
            "packets-sent-again",
            lane(|lane| (lane.data_sent, lane.data_resent) = (10_000, 20)),
            "20 of 10000 data packets retransmitted (0.2 %)",
            lane(|lane| (lane.data_sent, lane.data_resent) = (20_000, 20)),
        ),
    ]
}

fn worker_cases() -> Vec<Case> {
    let full = WorkerFigures {
        threads: 7,
        limit: 4,
        busy: 4,
        full: 1,
        waiting: 3,
        arrived: 9,
        ..WorkerFigures::default()
    };
    vec![
        (
            "threads-exhausted",
            calls(call("AFS StoreData64", &[200 * MS; 20], &[SECOND; 20])),
            "20 calls waited for a worker: mean 200 ms, p90 200 ms, longest 200 ms",
            calls(call("AFS StoreData64", &[MS; 2500], &[SECOND; 20])),
        ),
        (
            "threads-exhausted",
            workers(full.clone()),
            "volserver: 4 threads busy, limit 4 without those that wait for clients; 3 calls waiting now",
            workers(WorkerFigures { full: 0, ..full }),
        ),
        (
            "calls-turned-away",
            with(|snapshot| {
                snapshot.now.workers.0[0].1.refused = 12;
                snapshot.now.workers.0[0].1.arrived = 100;
            }),
            "12 of 100 calls refused, 6.0/s",
            with(|snapshot| {
                snapshot.now.workers.0[0].1.refused = 12;
                snapshot.before.workers.0[0].1.refused = 12;
            }),
        ),
        (
            "starving-user",
            clients(usage(100, SECOND, 20 * SECOND), usage(10, 5 * SECOND, SECOND)),
            "10 calls, which waited 500 ms for a worker on average",
            clients(usage(100, SECOND, 20 * SECOND), usage(10, 100 * MS, SECOND)),
        ),
        (
            "starving-user",
            clients(usage(100, SECOND, 20 * SECOND), usage(10, 5 * SECOND, SECOND)),
            "batch: 95.2 % of the workers' time",
            clients(usage(100, SECOND, 20 * SECOND), usage(4, 5 * SECOND, SECOND)),
        ),
        (
            "hot-volume",
            volume(usage(100, 0, 9 * SECOND)),
            "volume 536870915 (proj): 90.0 % of the workers' time, 4.50 of 16 threads on average; 100 \
            calls, 50/s",
            volume(usage(100, 0, 7 * SECOND)),
        ),
        (
            "bug",
            workers(WorkerFigures { panicked: 1, ..WorkerFigures::default() }),
            "1 calls and 0 lane iterations",
            workers(WorkerFigures::default()),
        ),
    ]
}

fn store_cases() -> Vec<Case> {
    let gib = 1 << 30;
    let space = |free| PartitionFigures { size: 100 * gib, free, ..PartitionFigures::default() };
    vec![
        ("slow-disk", disk(&[60 * MS; 5]), "/vicepa read: 5 accesses", disk(&[40 * MS; 5])),
        (
            "slow-disk",
            slow_calls("disk", 3),
            "3 recent slow calls waited for the disk, 2.70 s in total; the longest: AFS StoreData64 on \
            volume 7 by ann at 10.0.0.1: 1.00 s, of which disk 900 ms",
            slow_calls("disk", 2),
        ),
        (
            "bucket-away",
            bucket(&[MS; 3], 10 * SECOND),
            "/vicepb get: no request was done for 10.0 s; of 3 since the start, 0 failed, 2 had no answer, 0 were \
            refused",
            bucket(&[MS; 3], 10 * SECOND - 1),
        ),
        (
            "bucket-slow",
            bucket(&[1200 * MS; 5], 0),
            "/vicepb get: 5 requests; median 1.",
            bucket(&[800 * MS; 5], 0),
        ),
        (
            "buffered-writes",
            buffered(2),
            "/vicepa write: of 9 since the start, 2 did not bypass the page cache as intended",
            buffered(0),
        ),
        (
            "failing-disk",
            with(|snapshot| {
                let row = DiskFigures { accesses: 9, failed: 1, ..DiskFigures::default() };
                snapshot.now.disks = rows([("/vicepa write", row)]);
            }),
            "/vicepa write: 1 of 9 accesses failed",
            disk(&[1; 9]),
        ),
        (
            "disk-full",
            partition(space(4 * gib)),
            "/vicepa: 4.0 GiB of 100.0 GiB free (4.0 %)",
            partition(space(5 * gib)),
        ),
        (
            "partition-offline",
            partition(PartitionFigures { offline: 1, ..space(9 * gib) }),
            "/vicepa: configured, but not open",
            partition(space(9 * gib)),
        ),
        (
            "partition-read-only",
            partition(PartitionFigures { read_only: 1, ..space(9 * gib) }),
            "/vicepa: refuses every change (EROFS); reads still work",
            partition(space(9 * gib)),
        ),
        (
            "damaged-data",
            partition(PartitionFigures { damaged: 2, ..space(9 * gib) }),
            "/vicepa: 2 damaged places",
            partition(space(9 * gib)),
        ),
        ("faults", faults(Outcome::Fault), "AFS FetchData64: 1 of 2 calls failed", faults(Outcome::Denied)),
        (
            "slow-reclaiming",
            partition(PartitionFigures { reclaiming: 3, ..space(9 * gib) }),
            "/vicepa: 3 deleted volumes and huge files to reclaim, 3 2.0 s before",
            with(|snapshot| {
                let row = |reclaiming| PartitionFigures { reclaiming, ..PartitionFigures::default() };
                snapshot.before.partitions = rows([("/vicepa", row(9))]);
                snapshot.now.partitions = rows([("/vicepa", row(8))]);
            }),
        ),
        (
            "contended-lock",
            slow_calls("lock", 3),
            "3 recent slow calls waited for another change of the same volume",
            with(|snapshot| snapshot.slow = [slow("lock", 2, 7), slow("lock", 2, 8)].concat()),
        ),
        (
            "contended-lock",
            lock(&[300 * MS; 7]),
            "lane: 7 waits, 3.5/s; mean 300 ms, p99 300 ms; 1.05 threads wait on average",
            lock(&[300 * MS; 6]),
        ),
        (
            "slow-attach",
            slow_calls("load", 3),
            "3 recent slow calls waited for a volume to be loaded",
            slow_calls("load", 2),
        ),
        (
            "slow-removal",
            removal(SECOND),
            "AFSVol DeleteVolume: 1 calls since the start, mean 1.00 s",
            removal(499 * MS),
        ),
    ]
}

fn client_cases() -> Vec<Case> {
    vec![
        (
            "callbacks-unanswered",
            callbacks(CallbackFigures {
                unanswered: 2,
                delivered: 5,
                hosts: 9,
                hosts_down: 1,
                ..CallbackFigures::default()
            }),
            "2 callback breaks were not answered, 5 were",
            callbacks(CallbackFigures {
                delivered: 5,
                hosts: 9,
                hosts_down: 1,
                ..CallbackFigures::default()
            }),
        ),
        (
            "callbacks-unanswered",
            waited_for_clients(1, 1),
            "1 recent slow calls waited for clients to answer",
            waited_for_clients(1, 0),
        ),
        (
            "callbacks-late",
            waited_for_clients(1, 0),
            "they did answer: since the start 5 callback breaks were answered, 1 were not; 0 of 9 hosts",
            waited_for_clients(1, 1),
        ),
        (
            "callbacks-late",
            waited_for_clients(0, 3),
            "1 recent slow calls waited for clients",
            slow_calls("work", 1),
        ),
        (
            "promises-exhausted",
            callbacks(CallbackFigures {
                evictions: 1,
                promises: 60,
                limit: 60,
                hosts: 2,
                ..CallbackFigures::default()
            }),
            "all promises of a host were revoked 1 times; there are 60 of at most 60 promises",
            callbacks(CallbackFigures { promises: 60, limit: 60, hosts: 2, ..CallbackFigures::default() }),
        ),
        (
            "shared-uuids",
            callbacks(CallbackFigures { shared_uuids: 1, hosts: 2, ..CallbackFigures::default() }),
            "1 UUIDs were in use at two addresses",
            callbacks(CallbackFigures { hosts: 2, ..CallbackFigures::default() }),
        ),
        (
            "address-conflict",
            registered(Registration {
                taken: vec!["172.17.0.1 of another".into()],
                ..Registration::default()
            }),
            "172.17.0.1 of another",
            registered(Registration::default()),
        ),
        (
            "server-uuid-copied",
            registered(Registration { copied: vec!["192.0.2.9 answers".into()], ..Registration::default() }),
            "192.0.2.9 answers",
            registered(Registration::default()),
        ),
        (
            "addresses-left-out",
            registered(Registration { left_out: vec!["192.0.2.16".into()], ..Registration::default() }),
            "192.0.2.16",
            registered(Registration::default()),
        ),
        ("slow-clients", slow_calls("client", 3), "waited for their own client", slow_calls("client", 2)),
        (
            "cache-too-small",
            cache(20, 80, 50, 900, 3 * SECOND),
            "chunks: 20 of 100 lookups hit (20.0 %), 50 entries evicted; 900 bytes of \
            1000 bytes in use; the last evicted entry had been cached for 3.00 s",
            cache(20, 80, 50, 900, 400 * SECOND),
        ),
        ("cache-too-small", cache(79, 21, 1, 800, SECOND), "(79.0 %)", cache(80, 20, 1, 800, SECOND)),
        (
            "cache-too-small",
            cache(1, 99, 98, 900, 0),
            "98 entries evicted; 900 bytes of 1000 bytes in use; the last evicted entry had \
            been cached for less than a millisecond",
            cache(1, 99, 98, 700, 0),
        ),
        ("cold-cache", cache(0, 50, 0, 100, 0), "nothing was evicted yet", cache(0, 49, 0, 100, 0)),
        ("cold-cache", cache(0, 50, 0, 100, 0), "0 of 50", cache(0, 50, 1, 100, SECOND)),
    ]
}

fn other_cases() -> Vec<Case> {
    vec![
        (
            "clock-skew",
            clock(-2600, 500),
            "10.0.0.1: 2600 ms behind this machine's clock, ±500 ms",
            clock(-2400, 500),
        ),
        ("stuck-jobs", job(900), "job 4 (move of a): no answer, 15 minutes ago", job(899)),
        (
            "processors-busy",
            machine(|machine| (machine.busy_ticks, machine.stolen_ticks) = (3800, 400)),
            "2 processors, busy 95.0 % of the time; the hypervisor gave 10.0 % to other guests",
            machine(|machine| machine.busy_ticks = 3799),
        ),
        (
            "refused-callers",
            refusals(RefusalFigures { refused: 7, hosts: 2 }),
            "unknown-key: 7 since the start, 2 hosts in the last 10 minutes; add the key version",
            refusals(RefusalFigures { refused: 7, hosts: 0 }),
        ),
        (
            "audit-behind",
            audit(AuditFigures {
                records: 9,
                dropped: 2,
                queued: 5,
                queue_limit: 5,
                ..AuditFigures::default()
            }),
            "file: 9 records written, 2 lost, 0 calls waited - for space in the queue; 5 of 5 records queued",
            audit(AuditFigures { records: 9, queued: 5, queue_limit: 5, ..AuditFigures::default() }),
        ),
        (
            "rx-threads-exhausted",
            port(|port| (port.idle_threads, port.waiting, port.waited) = (0, 3, 40)),
            "fs: 3 calls waiting in both samples, 40 began to wait between them; 0 threads idle",
            port(|port| (port.idle_threads, port.waiting, port.waited) = (1, 0, 40)),
        ),
        // As reported by an OpenAFS file server with `-p 6`.
        (
            "rx-threads-exhausted",
            port(|port| (port.idle_threads, port.waiting, port.waited) = (2, 53, 15)),
            "fs: 53 calls waiting in both samples, 15 began to wait between them; 2 threads idle",
            port(|port| (port.idle_threads, port.waiting, port.waited) = (0, 0, 0)),
        ),
        (
            "rx-packets-exhausted",
            counters(&[("no_packets_receiving", 4)]),
            "none was free 4 times",
            counters(&[("no_packets_receiving", 0)]),
        ),
        (
            "rx-packets-exhausted",
            port(|port| (port.free_packets, port.is_waiting_for_packets) = (0, true)),
            "fs: 0 of 99 packets free",
            port(|port| port.free_packets = 1),
        ),
        (
            "rx-packets-lost",
            counters(&[("data_packets_sent", 10_000), ("data_packets_resent", 30)]),
            "30 of 10000 data packets retransmitted (0.3 %)",
            counters(&[("data_packets_sent", 30_000), ("data_packets_resent", 30)]),
        ),
        (
            "rx-packets-lost",
            counters(&[("data_packets_read", 1000), ("duplicate_packets_read", 20)]),
            "20 of 1000 received twice (2.0 %)",
            counters(&[("data_packets_read", 2000), ("duplicate_packets_read", 20)]),
        ),
        ("rx-calls-turned-away", counters(&[("busies", 3)]), "3 calls refused", counters(&[])),
        (
            "rx-calls-turned-away",
            with(|snapshot| _ = snapshot.extended.insert("fs_nBusies".into(), 2)),
            "2 calls answered with VBUSY",
            with(|snapshot| _ = snapshot.extended.insert("fs_nBusies".into(), 0)),
        ),
        ("rx-buffers", counters(&[("send_failures", 1)]), "1 datagrams could not be sent", counters(&[])),
        (
            "callback-space",
            with(|snapshot| _ = snapshot.extended.insert("GotSomeSpaces".into(), 5)),
            "GotSomeSpaces 5",
            with(|snapshot| _ = snapshot.extended.insert("GSS3".into(), 5)),
        ),
        (
            "slow-calls",
            operation(3, 1_500_000),
            "StoreData: 3 calls, 500 ms on average",
            operation(3, 1_499_000),
        ),
    ]
}

fn cases() -> Vec<Case> {
    [
        network_cases(),
        worker_cases(),
        store_cases(),
        client_cases(),
        other_cases(),
        cell::cases(),
        cluster::cases(),
    ]
    .concat()
}

fn found<'a>(findings: &'a [Finding], problem: &str) -> Option<&'a Finding> {
    findings.iter().find(|finding| finding.problem == problem)
}

#[test]
fn a_healthy_server_has_no_problem() {
    assert_eq!(diagnose(&healthy()), []);
    assert_eq!(diagnose(&Snapshot::default()), []);
}

#[test]
fn every_rule_fires_with_its_numbers_and_not_nearly() {
    for (problem, ill, evidence, near) in cases() {
        let findings = diagnose(&ill);
        let finding = found(&findings, problem).unwrap_or_else(|| panic!("{problem}: {findings:?}"));
        let said = finding.evidence.join("\n");
        assert!(said.contains(evidence), "{problem}: {said}");
        for text in [&finding.what, &finding.cause, &finding.remedy] {
            assert!(!text.contains("  ") && text.ends_with('.'), "{problem}: {text}");
        }
        let findings = diagnose(&near);
        assert_eq!(found(&findings, problem), None, "{problem}");
    }
}

#[test]
fn no_rule_is_untested_and_the_weightiest_comes_first() {
    let mut problems: Vec<&str> = cases().iter().map(|(problem, ..)| *problem).collect();
    problems.sort_unstable();
    problems.dedup();
    // One rule per problem.
    assert_eq!(problems.len(), crate::rules::ALL.len() - 1, "two rules find contended locks");
    let mut all = healthy();
    all.now.lanes.0[0].1.kernel_drops = 5;
    all.slow = [slow("disk", 5, 1), slow("client", 5, 1)].concat();
    let weights: Vec<u8> = diagnose(&all).iter().map(|finding| finding.weight).collect();
    assert!(weights.len() >= 3 && weights.is_sorted_by(|a, b| a >= b), "{weights:?}");
}
