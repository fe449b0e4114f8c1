//! Clocks, jobs and the machine.

use crate::finding::Finding;
use crate::snapshot::{Clock, Job, Labels, Snapshot};
use crate::text::{percent, time};
use events::catalogue::AuditFigures;

/// Tolerated difference between clocks.
const SKEW_MS: u64 = 2_000;

/// Difference between clocks at which tickets are refused (Kerberos allows 5 minutes).
const SKEW_REFUSED_MS: u64 = 300_000;

/// A job without progress for this long is stuck.
const SILENT_SECONDS: u64 = 900;

/// The processors are the bottleneck if they are busy for more than this percentage of the time.
const BUSY_PERCENT: u64 = 95;

/// Returns the minimum error of a clock.
fn skew(clock: &Clock) -> u64 {
    clock.ahead_ms.unsigned_abs().saturating_sub(clock.error_ms)
}

/// Reports clocks that differ from each other.
pub(crate) fn clocks(snapshot: &Snapshot) -> Vec<Finding> {
    let most = snapshot.clocks.iter().map(skew).max().unwrap_or(0);
    if most < SKEW_MS {
        return vec![];
    }
    let wrong = snapshot.clocks.iter().filter(|clock| skew(clock) >= SKEW_MS);
    let evidence = wrong.map(|clock| {
        let side = if clock.ahead_ms < 0 { "behind" } else { "ahead of" };
        let [ahead, error] = [clock.ahead_ms.unsigned_abs(), clock.error_ms];
        format!("{}: {} ms {side} this machine's clock, ±{} ms", clock.server, ahead, error)
    });
    let evidence: Vec<String> = evidence.collect();
    let own = evidence.len() == snapshot.clocks.len() && snapshot.clocks.len() > 1;
    let whose = if own {
        "All servers differ from this machine, so this machine's clock is probably wrong"
    } else {
        "A clock is not synchronised, or uses another time source"
    };
    vec![Finding {
        problem: "clock-skew",
        weight: if most >= SKEW_REFUSED_MS { 92 } else { 44 },
        what: "Clocks differ.".into(),
        evidence,
        cause: format!(
            "{whose}. Tickets are refused when clocks differ by 5 minutes; with less, dates of files are \
            wrong, and incremental dumps and releases between servers may leave out changes."
        ),
        remedy: "Synchronise every server and client by NTP (`chronyc tracking`, `timedatectl`).".into(),
    }]
}

/// Reports jobs without progress.
pub(crate) fn jobs(snapshot: &Snapshot) -> Vec<Finding> {
    let stuck = |job: &&Job| job.silent_seconds >= SILENT_SECONDS;
    let says = |job: &Job| {
        format!("job {} ({}): {}, {} minutes ago", job.id, job.title, job.latest, job.silent_seconds / 60)
    };
    let evidence: Vec<String> = snapshot.jobs.iter().filter(stuck).map(says).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "stuck-jobs",
        weight: 43,
        what: "Volume jobs make no progress.".into(),
        evidence,
        cause: "A server that the job needs does not answer, another operation has the volume or its entry, \
            or the process that ran the job ended and no process resumed it."
            .into(),
        remedy: "`cellar volume jobs show JOB` shows what it waits for; `resume` continues it, `cancel` \
            undoes it."
            .into(),
    }]
}

/// Reports an audit that loses records or delays calls.
pub(crate) fn audit(snapshot: &Snapshot) -> Vec<Finding> {
    let look = snapshot.audit();
    let is_behind = |row: &&(Labels, AuditFigures)| row.1.dropped > 0 || row.1.failing > 0 || row.1.waits > 0;
    let says = |(labels, row): &(Labels, AuditFigures)| {
        format!(
            "{}: {} records written, {} lost, {} calls waited {} for space in the queue; {} of {} records \
            queued{}",
            labels.join(" "),
            row.records,
            row.dropped,
            row.waits,
            time(row.blocked),
            row.queued,
            row.queue_limit,
            if row.failing > 0 { "; it cannot be written at present" } else { "" }
        )
    };
    let evidence: Vec<String> = look.0.iter().filter(is_behind).map(says).collect();
    if evidence.is_empty() {
        return vec![];
    }
    let loses = look.0.iter().any(|(_, row)| row.dropped > 0 || row.failing > 0);
    vec![Finding {
        problem: "audit-behind",
        weight: if loses { 66 } else { 39 },
        what: "An audit sink does not keep up.".into(),
        evidence,
        cause: "The reader of the pipe or socket is too slow or has gone away, or the file's disk is slow \
            or full. Depending on its settings, the sink then loses records or makes calls wait."
            .into(),
        remedy: "Make the reader faster, or write to a file on another disk; a longer queue only helps \
            against short bursts. The log has the reason why a sink cannot be written."
            .into(),
    }]
}

/// Reports processors without idle time.
pub(crate) fn processors(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(machine) = snapshot.machine else { return vec![] };
    if machine.ticks == 0 || machine.busy_ticks * 100 < machine.ticks * BUSY_PERCENT {
        return vec![];
    }
    vec![Finding {
        problem: "processors-busy",
        weight: 36,
        what: "All processors of the machine are busy.".into(),
        evidence: vec![format!(
            "{} processors, busy {} of the time; the hypervisor gave {} to other guests",
            machine.processors,
            percent(machine.busy_ticks, machine.ticks),
            percent(machine.stolen_ticks, machine.ticks)
        )],
        cause: "The server, or another program on the machine, uses all of them.".into(),
        remedy: "`top -H` shows which program and which of its threads. High compression levels \
            (`store.compression`, `zstd:19`) cost most."
            .into(),
    }]
}
