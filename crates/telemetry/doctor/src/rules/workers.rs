//! Worker threads, and the users and volumes that occupy them.

use crate::finding::Finding;
use crate::slow;
use crate::snapshot::{Labels, Snapshot};
use crate::text::{bytes, percent, time};
use events::catalogue::{CallFigures, UsageFigures, WorkerFigures};
use events::{Figures as _, Histogram};
use std::collections::BTreeMap;

/// Shorter waits for a worker are not a problem.
const WAIT_MIN_NS: u64 = 20_000_000;

/// A user with more than this percentage of all workers' time may starve others.
const SHARE_PERCENT: u64 = 50;

/// A volume is hot if it has more than this percentage of the workers' time, and the workers are busy for at
/// least `HOT_BUSY_PERCENT`.
const HOT_PERCENT: u64 = 60;
const HOT_BUSY_PERCENT: u64 = 25;

/// Minimum number of calls for a meaningful result about waiting users.
const CALLS_MIN: u64 = 5;

/// Name of users without a token.
const NOBODY: &str = "anonymous";

/// Reports ports at which all workers are busy while calls wait.
pub(crate) fn exhausted(snapshot: &Snapshot) -> Vec<Finding> {
    let is_full = |row: &WorkerFigures| row.full > 0 && row.waiting > 0;
    let was_full = |labels: &Labels| {
        snapshot.before.workers.0.iter().any(|(other, row)| other == labels && is_full(row))
    };
    let mut findings = Vec::new();
    for (labels, row) in &snapshot.workers().0 {
        // Ports other than the file server's have too few calls to fill the histogram's tail.
        let is_files = labels.first().is_some_and(|port| port == "fileserver");
        let waits = if is_files { waits(snapshot) } else { Histogram::default() };
        let has_waited = snapshot.percent_of_span(waits.sum()) >= 100 && waits.quantile(900) >= WAIT_MIN_NS;
        if has_waited || (is_full(row) && was_full(labels)) {
            findings.push(exhausted_port(snapshot, labels, row, &waits));
        }
    }
    findings
}

/// Returns how long calls at the file server's port waited for a worker.
fn waits(snapshot: &Snapshot) -> Histogram {
    let mut waits = Histogram::default();
    let is_there = |labels: &Labels| labels.first().is_some_and(|name| name == "AFS" || name == "CELLAR");
    let calls = snapshot.calls().0;
    calls.iter().filter(|(labels, _)| is_there(labels)).for_each(|(_, row)| waits.merge(&row.wait));
    waits
}

fn exhausted_port(snapshot: &Snapshot, labels: &Labels, row: &WorkerFigures, waits: &Histogram) -> Finding {
    let port = labels.join(" ");
    let mut evidence = vec![format!(
        "{port}: {} threads busy, limit {} without those that wait for clients; {} calls waiting now",
        row.busy, row.limit, row.waiting
    )];
    if waits.count() > 0 {
        evidence.push(format!(
            "{} calls waited for a worker: mean {}, p90 {}, longest {}",
            waits.count(),
            time(waits.mean()),
            time(waits.quantile(900)),
            time(waits.max())
        ));
    }
    evidence.extend(slow::evidence(snapshot.slow_for("queue"), "waited for a worker"));
    let (holder, calls) = occupier(snapshot);
    evidence.extend(calls);
    let limit = snapshot.settings.map_or_else(String::new, |of| format!(" (`rx.workers` is {})", of.workers));
    Finding {
        problem: "threads-exhausted",
        weight: 70,
        what: format!("Calls wait for the threads of the {port}."),
        evidence,
        cause: format!("More calls arrive than its workers can serve: {holder}."),
        remedy: format!(
            "First find out what holds up the threads (`cellar slow`, and the other findings). If they only \
            wait, for disks or for clients, more threads help: raise `rx.workers`{limit}. If they are \
            running and processors are busy, only fewer calls or more processors help. `cellar stat \
            clients` shows who calls."
        ),
    }
}

/// Returns what occupies the workers: the procedure with most of their time, and evidence of slow calls with
/// a cause other than waiting for a worker.
fn occupier(snapshot: &Snapshot) -> (String, Option<String>) {
    let calls = snapshot.calls().0;
    let sum: u64 = calls.iter().map(|(_, row)| row.run.sum()).sum();
    let most = calls.iter().max_by_key(|(_, row)| row.run.sum());
    let says = |(labels, row): &(Labels, CallFigures)| {
        format!(
            "{} took {} of their time, {} per call on average",
            labels.join(" "),
            percent(row.run.sum(), sum),
            time(row.run.mean())
        )
    };
    let holder = most.filter(|(_, row)| row.run.sum() > 0).map_or("no call finished".to_owned(), says);
    let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
    for call in snapshot.slow.iter().filter(|call| call.cause != "queue") {
        *causes.entry(&call.cause).or_default() += call.cause_ns;
    }
    let cause = causes.into_iter().max_by_key(|(_, ns)| *ns).map(|(cause, _)| cause);
    let why = |cause| slow::evidence(snapshot.slow_for(cause), &format!("waited mostly for `{cause}`"));
    (holder, cause.and_then(why))
}

/// Reports calls refused because too many were waiting.
pub(crate) fn turned_away(snapshot: &Snapshot) -> Vec<Finding> {
    let rows = snapshot.workers().0;
    let refused = rows.iter().filter(|(_, row)| row.refused > 0);
    let says = |(labels, row): &(Labels, WorkerFigures)| Finding {
        problem: "calls-turned-away",
        weight: 85,
        what: format!("The {} refuses calls (VBUSY).", labels.join(" ")),
        evidence: vec![format!(
            "{} of {} calls refused, {}; {} wait",
            row.refused,
            row.arrived,
            snapshot.rate(row.refused),
            row.waiting
        )],
        cause: "The queue of calls that wait for a worker is full, or one user's share of it is. Clients \
            retry after a while (OpenAFS's after 15 seconds), or use another replica."
            .into(),
        remedy: "Find out what holds up the workers (`threads-exhausted`). A longer queue \
                 (`fairness.waiting_calls`, `fairness.waiting_calls_per_user`) only makes the wait longer."
            .into(),
    };
    refused.map(says).collect()
}

/// Reports a user with most of the workers' time while others wait.
pub(crate) fn starving_user(snapshot: &Snapshot) -> Vec<Finding> {
    let look = snapshot.clients();
    let all = Snapshot::total(&look);
    let mut users: BTreeMap<String, UsageFigures> = BTreeMap::new();
    for (labels, row) in &look.0 {
        users.entry(user_of(labels)).or_default().add(row);
    }
    let Some((user, own)) = users.into_iter().max_by_key(|(_, row)| row.run) else { return vec![] };
    let calls = all.calls.saturating_sub(own.calls);
    let wait = all.wait.saturating_sub(own.wait).checked_div(calls).unwrap_or(0);
    let has_share = own.run.saturating_mul(100) >= all.run.saturating_mul(SHARE_PERCENT);
    if !has_share || calls < CALLS_MIN || wait < WAIT_MIN_NS {
        return vec![];
    }
    let percent_now =
        snapshot.settings.map_or_else(String::new, |of| format!(" (it is {})", of.user_percent));
    vec![Finding {
        problem: "starving-user",
        weight: 72,
        what: format!("{user} has most of the workers' time while others wait."),
        evidence: vec![
            format!(
                "{user}: {} of the workers' time ({} in {:.1} s), {} calls, {} in, {} out",
                percent(own.run, all.run),
                time(own.run),
                snapshot.seconds,
                own.calls,
                bytes(own.received),
                bytes(own.sent)
            ),
            format!("others: {calls} calls, which waited {} for a worker on average", time(wait)),
        ],
        cause: "One batch user occupies the threads. The fair queue decides which call starts next; it does \
            not interrupt running calls, so long calls keep their threads."
            .into(),
        remedy: format!(
            "Give the user a smaller share: `fairness.user_percent`{percent_now}, and a low weight in \
            `[fairness.weights]` (docs/reference/configuration.md). `cellar slow` shows what the calls wait \
            for."
        ),
    }]
}

/// Identifies a user in the same way as the queue: by name, or by host without a token.
fn user_of(labels: &Labels) -> String {
    match &labels[..] {
        [host, user] if user == NOBODY => format!("{NOBODY} at {host}"),
        [_, user] => user.clone(),
        _ => labels.join(" "),
    }
}

/// Reports a volume with most of the workers' time.
pub(crate) fn hot_volume(snapshot: &Snapshot) -> Vec<Finding> {
    let look = snapshot.volumes();
    let all = Snapshot::total(&look);
    let is_one = |labels: &Labels| labels.first().is_some_and(|id| id != "0");
    let Some((labels, row)) =
        look.0.iter().filter(|(labels, _)| is_one(labels)).max_by_key(|(_, row)| row.run)
    else {
        return vec![];
    };
    let threads = snapshot.now.workers.0.iter().find(|(labels, _)| labels.join("") == "fileserver");
    let threads = threads.map_or(0, |(_, row)| row.threads);
    let busy_percent = snapshot.percent_of_span(row.run);
    let is_hot = row.run.saturating_mul(100) >= all.run.saturating_mul(HOT_PERCENT);
    if !is_hot || threads == 0 || busy_percent < threads * HOT_BUSY_PERCENT {
        return vec![];
    }
    vec![hot(snapshot, labels, row, &all, busy_percent, threads)]
}

fn hot(
    snapshot: &Snapshot,
    labels: &Labels,
    row: &UsageFigures,
    all: &UsageFigures,
    busy_percent: u64,
    threads: u64,
) -> Finding {
    let id = &labels[0];
    let name = labels.get(1).filter(|name| !name.is_empty()).map(|name| format!(" ({name})"));
    let name = name.unwrap_or_default();
    let [fetch, store, status, change, ..] = row.classes;
    let reads = fetch + status;
    let remedy = if reads.saturating_mul(10) >= row.calls.saturating_mul(9) {
        "Nearly all calls are reads: read-only copies on other servers can share them (`vos addsite`, \
        `cellar volume release`)."
    } else {
        "Many calls are writes: give the volume a server or partition of its own (`cellar volume move`), or \
        divide it into several volumes."
    };
    Finding {
        problem: "hot-volume",
        weight: 42,
        what: format!("Volume {id}{name} has most of the workers' time."),
        evidence: vec![format!(
            "volume {id}{name}: {} of the workers' time, {}.{:02} of {threads} threads on average; {} calls, \
             {} (fetch {fetch}, store {store}, status {status}, change {change}), {} in, {} out",
            percent(row.run, all.run),
            busy_percent / 100,
            busy_percent % 100,
            row.calls,
            snapshot.rate(row.calls),
            bytes(row.received),
            bytes(row.sent)
        )],
        cause: format!("Many clients use this volume; `cellar stat clients --volume {id}` lists them."),
        remedy: remedy.into(),
    }
}

/// Reports panics that were caught.
pub(crate) fn bugs(snapshot: &Snapshot) -> Vec<Finding> {
    let (panicked, faults) =
        (Snapshot::total(&snapshot.now.workers).panicked, Snapshot::total(&snapshot.now.lanes).faults);
    if panicked + faults == 0 {
        return vec![];
    }
    vec![Finding {
        problem: "bug",
        weight: 65,
        what: "The server hit a bug and continued.".into(),
        evidence: vec![format!(
            "{panicked} calls and {faults} lane iterations panicked since the server started"
        )],
        cause: "A bug in the program. The call was aborted, or a datagram was lost; no change was left half \
            done."
            .into(),
        remedy: "Please report the lines of the log (`bos getlog SERVER CellarLog`) with `panicked`.".into(),
    }]
}
