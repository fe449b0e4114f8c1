//! Buckets of partitions.

use crate::finding::Finding;
use crate::snapshot::{Labels, Snapshot};
use crate::text::time;
use events::catalogue::BucketFigures;

/// A bucket is away if all requests of one kind have failed for this time.
const AWAY_NS: u64 = 10_000_000_000;

/// A bucket is slow if the 90th percentile of its requests reaches this.
const SLOW_NS: u64 = 1_000_000_000;

/// Minimum number of requests for a meaningful result.
const REQUESTS_MIN: u64 = 5;

/// Reports buckets that do not answer, or refuse requests.
pub(crate) fn away(snapshot: &Snapshot) -> Vec<Finding> {
    let is_away = |(_, row): &&(Labels, BucketFigures)| row.failing >= AWAY_NS;
    let evidence: Vec<String> = snapshot.now.buckets.0.iter().filter(is_away).map(failures).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "bucket-away",
        weight: 97,
        what: "The bucket of a partition does not carry out requests.".into(),
        evidence,
        cause: "Its server or the way to it has failed, or the key was replaced or lost its rights. Calls that need the \
            bucket wait, and then fail with ETIMEDOUT."
            .into(),
        remedy: "The log has the reasons (`bos getlog SERVER CellarLog`). `cellar bucket probe` with the partition's name \
            shows from the server's machine whether the bucket answers. Calls go on by themselves when it does."
            .into(),
    }]
}

/// Reports buckets whose requests take long.
pub(crate) fn slow(snapshot: &Snapshot) -> Vec<Finding> {
    let is_slow = |(_, row): &&(Labels, BucketFigures)| {
        row.requests >= REQUESTS_MIN && row.time.quantile(900) >= SLOW_NS
    };
    let rows = snapshot.buckets().0;
    let evidence: Vec<String> = rows.iter().filter(is_slow).map(times).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "bucket-slow",
        weight: 58,
        what: "Requests to the bucket of a partition take long.".into(),
        evidence,
        cause: "Each change waits for at least one request, and each read of data that is in no cache. The bucket's server \
            or the network to it is overloaded, or far away."
            .into(),
        remedy: "`cellar bucket probe` measures each operation. Look for load on the bucket's server. For reads, a `cache` on \
            a local disk and a larger `store.chunk_cache_mb` help."
            .into(),
    }]
}

fn failures((labels, row): &(Labels, BucketFigures)) -> String {
    format!(
        "{}: no request was done for {}; of {} since the start, {} failed, {} had no answer, {} were refused",
        labels.join(" "),
        time(row.failing),
        row.requests,
        row.failed,
        row.unanswered,
        row.refused
    )
}

fn times((labels, row): &(Labels, BucketFigures)) -> String {
    format!(
        "{}: {} requests; median {}, p90 {}, longest {}",
        labels.join(" "),
        row.requests,
        time(row.time.quantile(500)),
        time(row.time.quantile(900)),
        time(row.time.max())
    )
}
