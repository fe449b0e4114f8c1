//! Waits related to single volumes: locks, loading, removal.

use crate::finding::Finding;
use crate::slow::{self, SlowCall};
use crate::snapshot::{Labels, Snapshot};
use crate::text::time;
use events::catalogue::{CallFigures, LockFigures};
use std::collections::BTreeMap;

/// Minimum number of slow calls of one kind that is unlikely to be a coincidence.
const SLOW_CALLS_MIN: usize = 3;

/// A lock is contended if threads wait for it for this percentage of the time in total; 100 is one thread on
/// average.
const LOCK_BUSY_PERCENT: u64 = 100;

/// Removing a volume should not take longer than this.
const REMOVAL_NS: u64 = 500_000_000;

/// Minimum number of deleted volumes waiting for reclamation that is reported.
const RECLAIMING_MIN: u64 = 3;

/// Reports volumes whose changes wait for each other.
pub(crate) fn contended(snapshot: &Snapshot) -> Vec<Finding> {
    let mut volumes: BTreeMap<u32, usize> = BTreeMap::new();
    snapshot.slow_for("lock").for_each(|call| *volumes.entry(call.volume).or_default() += 1);
    let Some((volume, count)) = volumes.into_iter().max_by_key(|(_, count)| *count) else { return vec![] };
    if count < SLOW_CALLS_MIN {
        return vec![];
    }
    let calls = snapshot.slow_for("lock").filter(|call| call.volume == volume);
    vec![Finding {
        problem: "contended-lock",
        weight: 50,
        what: format!("Changes of volume {volume} wait for each other."),
        evidence: slow::evidence(calls, "waited for another change of the same volume").into_iter().collect(),
        cause: "Changes of a volume and its clones are made one after the other. Many arrive at the same \
            time, or one of them takes long."
            .into(),
        remedy: format!(
            "`cellar stat clients --volume {volume}` shows which clients change it, `cellar slow` what they \
            change. Divide it into several volumes, or have the users write at other times."
        ),
    }]
}

/// Reports volumes that are slow to load.
pub(crate) fn slow_loads(snapshot: &Snapshot) -> Vec<Finding> {
    if snapshot.slow_for("load").count() < SLOW_CALLS_MIN {
        return vec![];
    }
    let mut volumes: Vec<u32> = snapshot.slow_for("load").map(|call| call.volume).collect();
    volumes.sort_unstable();
    volumes.dedup();
    let loaded = format!(
        "{} volumes were loaded; {} volumes are in memory",
        volumes.len(),
        snapshot.now.process.volumes_loaded
    );
    let mut evidence = vec![loaded];
    evidence.extend(slow::evidence(snapshot.slow_for("load"), "waited for a volume to be loaded"));
    vec![Finding {
        problem: "slow-attach",
        weight: 58,
        what: "Volumes are slow to load on first use.".into(),
        evidence,
        cause: "A volume is loaded into memory on first use, with two metadata reads for each of its \
            clones, one volume at a time. These reads are slow: the disk is slow, or many volumes are \
            loaded at the same time after a start."
            .into(),
        remedy: "Check the disk (`slow-disk`, `iostat -x 1`). If the same volumes are loaded again and \
            again, keep more of them in memory: `store.loaded_volumes`."
            .into(),
    }]
}

/// Reports locks for which, on average, at least one thread waits.
pub(crate) fn waited_for(snapshot: &Snapshot) -> Vec<Finding> {
    let rows = snapshot.locks().0;
    let is_busy = |row: &LockFigures| snapshot.percent_of_span(row.wait.sum()) >= LOCK_BUSY_PERCENT;
    let says = |(labels, row): &(Labels, LockFigures)| {
        let name = labels.join(" ");
        let busy = snapshot.percent_of_span(row.wait.sum());
        Finding {
            problem: "contended-lock",
            weight: 51,
            what: format!("Threads wait for the lock `{name}`."),
            evidence: vec![format!(
                "{name}: {} waits, {}; mean {}, p99 {}; {}.{:02} threads wait on average",
                row.waits,
                snapshot.rate(row.waits),
                time(row.wait.mean()),
                time(row.wait.quantile(990)),
                busy / 100,
                busy % 100
            )],
            cause: "Many threads need it at the same time, or a thread holds it for long \
                (docs/guide/observe.md describes what each lock guards)."
                .into(),
            remedy: "For `volume`, `cellar stat volumes` shows which volume is changed most, and `cellar \
                slow` which calls wait: divide the volume. For `lane`, raise `rx.lanes`. For other locks, \
                please report what the server was doing."
                .into(),
        }
    };
    rows.iter().filter(|(_, row)| is_busy(row)).map(says).collect()
}

fn is_removal(call: &SlowCall) -> bool {
    call.service == "AFSVol" && call.procedure == "DeleteVolume"
}

/// Reports slow removal of volumes.
pub(crate) fn slow_removal(snapshot: &Snapshot) -> Vec<Finding> {
    let is_row = |labels: &Labels| labels[..] == ["AFSVol", "DeleteVolume"];
    let row = snapshot.now.calls.0.iter().find(|(labels, _)| is_row(labels)).map(|(_, row)| row);
    let slow: Vec<&SlowCall> = snapshot.slow.iter().filter(|call| is_removal(call)).collect();
    if !slow.iter().any(|call| call.total_ns >= REMOVAL_NS) {
        return vec![];
    }
    let mut evidence: Vec<String> = row.map(counted).into_iter().collect();
    evidence.extend(slow::evidence(slow.iter().copied(), "were removals of volumes"));
    let longest = slow.iter().max_by_key(|call| call.total_ns);
    vec![Finding {
        problem: "slow-removal",
        weight: 45,
        what: "Removing volumes takes long.".into(),
        evidence,
        cause: longest.map_or_else(String::new, |call| reason(&call.cause).to_owned()),
        remedy: "A removal deletes one header and reclaims the space later, regardless of the volume's size \
            and the number of volumes. The evidence above and `cellar slow` show what it waits for."
            .into(),
    }]
}

fn counted(row: &CallFigures) -> String {
    format!(
        "AFSVol DeleteVolume: {} calls since the start, mean {}, longest {}",
        row.calls,
        time(row.run.mean()),
        time(row.run.max())
    )
}

fn reason(cause: &str) -> &'static str {
    match cause {
        "disk" => "It waits for the disk to make the removal durable.",
        "load" => "It waits for the volume to be loaded, since it was not used recently.",
        "callback" => "It waits for clients to acknowledge that the volume is gone.",
        "queue" => "It waits for a worker of the volume server.",
        "lock" => "It waits for another change of the volume, or of the set of volumes.",
        _ => "It is running, or waits for something that is not measured.",
    }
}

/// Reports space of deleted volumes that is not reclaimed.
pub(crate) fn unreclaimed(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (labels, row) in &snapshot.now.partitions.0 {
        let before = snapshot.before.partitions.0.iter().find(|(other, _)| other == labels);
        let before = before.map_or(0, |(_, row)| row.reclaiming);
        // A list that shrinks is being processed.
        if row.reclaiming < RECLAIMING_MIN || before < RECLAIMING_MIN || row.reclaiming < before {
            continue;
        }
        findings.push(Finding {
            problem: "slow-reclaiming",
            weight: 38,
            what: format!("Space of deleted volumes on {} is not reclaimed.", labels.join(" ")),
            evidence: vec![format!(
                "{}: {} deleted volumes and huge files to reclaim, {before} {:.1} s before",
                labels.join(" "),
                row.reclaiming,
                snapshot.seconds
            )],
            cause: "Volumes are deleted faster than a background thread reclaims their space, or the thread \
                makes slow progress: it is working on a huge volume, or the disk is slow."
                .into(),
            remedy: "Check again in a minute: if the number does not fall, the log has the reason (`cannot \
                reclaim space`); otherwise it only takes time."
                .into(),
        });
    }
    findings
}
