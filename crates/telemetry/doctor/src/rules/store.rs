//! Disks and partitions.

use crate::finding::Finding;
use crate::slow;
use crate::snapshot::{Labels, Snapshot};
use crate::text::{bytes, percent, time};
use events::catalogue::{DiskFigures, Outcome};

/// A disk is slow if the 90th percentile of its accesses reaches this.
const SLOW_NS: u64 = 50_000_000;

/// Minimum number of accesses for a meaningful result.
const ACCESSES_MIN: u64 = 5;

/// Minimum number of slow calls of one kind that is unlikely to be a coincidence.
const SLOW_CALLS_MIN: usize = 3;

/// Percentages of free space below which a partition is nearly full, and full.
const FREE_PERCENT: u64 = 5;
const FREE_PERCENT_LEAST: u64 = 1;

/// Reports slow disk accesses.
pub(crate) fn slow_disk(snapshot: &Snapshot) -> Vec<Finding> {
    let is_slow = |row: &DiskFigures| row.accesses >= ACCESSES_MIN && row.time.quantile(900) >= SLOW_NS;
    let says = |(labels, row): &(Labels, DiskFigures)| {
        format!(
            "{}: {} accesses, {} each on average; mean {}, p90 {}, longest {}",
            labels.join(" "),
            row.accesses,
            bytes(row.moved.checked_div(row.accesses).unwrap_or(0)),
            time(row.time.mean()),
            time(row.time.quantile(900)),
            time(row.time.max())
        )
    };
    let rows = snapshot.disks().0;
    let mut evidence: Vec<String> = rows.iter().filter(|(_, row)| is_slow(row)).map(says).collect();
    let waited = snapshot.slow_for("disk").count();
    if evidence.is_empty() && waited < SLOW_CALLS_MIN {
        return vec![];
    }
    evidence.extend(slow::evidence(snapshot.slow_for("disk"), "waited for the disk"));
    vec![Finding {
        problem: "slow-disk",
        weight: 60,
        what: "Calls wait for the disk.".into(),
        evidence,
        cause:
            "Reads are cache misses; writes and syncs make changes durable, including the metadata log. The \
            disk is slow to complete them: it is overloaded, slow, or failing."
                .into(),
        remedy: "`iostat -x 1` and `smartctl -a` show the disk's load and health. For reads, a larger \
            `store.chunk_cache_mb` helps (see `cache-too-small`); for syncs, a disk with a protected write \
            cache, or `durability = \"close\"` with the caveats in docs/reference/configuration.md. \
            `store.scrub_mb_per_s` and `store.compaction_mb_per_s` limit the server's background work."
            .into(),
    }]
}

/// Reports large chunks that do not bypass the system's cache.
pub(crate) fn buffered(snapshot: &Snapshot) -> Vec<Finding> {
    let rows = snapshot.now.disks.0.iter().filter(|(_, row)| row.buffered > 0);
    let says = |(labels, row): &(Labels, DiskFigures)| {
        format!(
            "{}: of {} since the start, {} did not bypass the page cache as intended",
            labels.join(" "),
            row.accesses,
            row.buffered
        )
    };
    let evidence: Vec<String> = rows.map(says).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "buffered-writes",
        weight: 20,
        what: "Long chunks are copied to the page cache before they are written to the disk.".into(),
        evidence,
        cause: "The file system of the partition cannot be written with O_DIRECT, or its device needs \
            blocks larger than 4096 bytes. No data is at risk, but large writes take more processor time \
            and evict frequently read data from the page cache."
            .into(),
        remedy: "Put partitions on ext4 or XFS, on a device with blocks of at most 4096 bytes (`blockdev \
            --getss`)."
            .into(),
    }]
}

/// Reports failing disk accesses.
pub(crate) fn failing_disk(snapshot: &Snapshot) -> Vec<Finding> {
    let rows = snapshot.now.disks.0.iter().filter(|(_, row)| row.failed > 0);
    let evidence: Vec<String> = rows
        .map(|(labels, row)| {
            format!(
                "{}: {} of {} accesses failed since the start",
                labels.join(" "),
                row.failed,
                row.accesses
            )
        })
        .collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "failing-disk",
        weight: 95,
        what: "The disk reports errors.".into(),
        evidence,
        cause: "The system could not read, write or sync data.".into(),
        remedy:
            "`dmesg` and `smartctl -a` show more. Move the volumes away (`cellar volume move`) while they \
                 can be read, and replace the disk."
                .into(),
    }]
}

/// Reports partitions without free space.
pub(crate) fn full(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (labels, row) in &snapshot.now.partitions.0 {
        let has = |percent: u64| row.free.saturating_mul(100) >= row.size.saturating_mul(percent);
        if row.size == 0 || has(FREE_PERCENT) {
            continue;
        }
        let name = labels.join(" ");
        findings.push(Finding {
            problem: "disk-full",
            weight: if has(FREE_PERCENT_LEAST) { 55 } else { 90 },
            what: format!("The partition {name} is nearly full."),
            evidence: vec![format!(
                "{name}: {} of {} free ({})",
                bytes(row.free),
                bytes(row.size),
                percent(row.free, row.size)
            )],
            cause:
                "When no space is left, every change that needs space is refused (VDISKFULL). Compaction, \
                which reclaims the space of deleted data, needs space for a segment."
                    .into(),
            remedy: "Move volumes to other partitions (`cellar volume move`), or expire snapshots. `vos \
                partinfo` and `cellar du` show what uses the space."
                .into(),
        });
    }
    findings
}

/// Reports partitions that could not be opened.
pub(crate) fn offline(snapshot: &Snapshot) -> Vec<Finding> {
    let rows = snapshot.now.partitions.0.iter().filter(|(_, row)| row.offline > 0);
    let says = |(labels, _): &(Labels, _)| {
        Finding {
        problem: "partition-offline",
        weight: 100,
        what: format!("The partition {} and all its volumes are offline.", labels.join(" ")),
        evidence: vec![format!("{}: configured, but not open", labels.join(" "))],
        cause: "It could not be opened when the server started: it is not mounted, another program has it \
            open, its key is missing, or its metadata is damaged. One in a bucket is offline until the bucket answers \
            and no other server owns it."
            .into(),
        remedy:
            "The log says why (`bos getlog SERVER CellarLog`, the line `the partition cannot be opened`; for a \
             bucket also `a request to the bucket failed` and `waiting to own the partition`). When it is \
             repaired, restart the server, unless it is in a bucket; `cellar store check` lists what is damaged. If \
             durable changes are lost, `cellar store accept-loss` opens it without them."
                .into(),
    }
    };
    rows.map(says).collect()
}

/// Reports partitions that became read-only.
pub(crate) fn read_only(snapshot: &Snapshot) -> Vec<Finding> {
    let rows = snapshot.now.partitions.0.iter().filter(|(_, row)| row.read_only > 0);
    let says = |(labels, _): &(Labels, _)| Finding {
        problem: "partition-read-only",
        weight: 99,
        what: format!("The partition {} is read-only because of an I/O error.", labels.join(" ")),
        evidence: vec![format!("{}: refuses every change (EROFS); reads still work", labels.join(" "))],
        cause: "A write or a sync failed: the disk is failing or full, or the file system became read-only. \
            After that it is unknown what is durable, so nothing more is written until the next start."
            .into(),
        remedy: "The log has the error (`bos getlog SERVER CellarLog`, the line `read-only because of an \
            I/O error`); `dmesg` and `smartctl -a` show more. Move the volumes away while they can be read \
            (`cellar volume dump`), repair the file system or replace the disk, and restart the server."
            .into(),
    };
    rows.map(says).collect()
}

/// Reports chunks and records that cannot be read.
pub(crate) fn damaged(snapshot: &Snapshot) -> Vec<Finding> {
    let rows = snapshot.now.partitions.0.iter().filter(|(_, row)| row.damaged > 0);
    let evidence: Vec<String> =
        rows.map(|(labels, row)| format!("{}: {} damaged places", labels.join(" "), row.damaged)).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "damaged-data",
        weight: 98,
        what: "Stored data differs from what was written.".into(),
        evidence,
        cause: "A checksum does not match: the disk, or something on the way to it, changed the data. Reads \
            of these places fail; damaged data is never returned."
            .into(),
        remedy: "`cellar store damaged` lists files and offsets, and other copies of the volumes. Restore \
            the files from one of these or from a dump; places that are rewritten or deleted disappear from \
            the list. Then check the disk (`smartctl -a`) and the memory."
            .into(),
    }]
}

/// Reports calls that failed because of an error in the server.
pub(crate) fn faults(snapshot: &Snapshot) -> Vec<Finding> {
    let calls = snapshot.calls().0;
    let failed = |row: &events::catalogue::CallFigures| row.outcomes[Outcome::Fault as usize];
    let evidence: Vec<String> = calls
        .iter()
        .filter(|(_, row)| failed(row) > 0)
        .map(|(labels, row)| {
            format!(
                "{}: {} of {} calls failed with an internal error",
                labels.join(" "),
                failed(row),
                row.calls
            )
        })
        .collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "faults",
        weight: 82,
        what: "Calls fail with internal errors.".into(),
        evidence,
        cause: "I/O errors, damaged data, or a bug.".into(),
        remedy: "The log says what failed (`bos getlog SERVER CellarLog`).".into(),
    }]
}
