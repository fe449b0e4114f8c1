//! Caches.

use crate::finding::Finding;
use crate::slow;
use crate::snapshot::{Labels, Snapshot};
use crate::text::{bytes, percent, time};
use events::catalogue::CacheCounts;

/// Minimum number of lookups for a meaningful result.
const QUESTIONS_MIN: u64 = 50;

/// A cache with a hit rate below this percentage is ineffective.
const HITS_PERCENT: u64 = 80;

/// Entries evicted at this age or later are not evicted too early.
const AGE_NS: u64 = 300_000_000_000;

/// A cache above this percentage of its limit is full.
const FULL_PERCENT: u64 = 80;

/// Returns the setting for the size of a cache.
fn setting(cache: &str) -> &'static str {
    match cache {
        "status" => "store.status_cache_mb",
        "directories" | "totals" => "store.directory_cache_mb",
        _ => "store.chunk_cache_mb",
    }
}

fn misses_much(row: &CacheCounts) -> bool {
    let all = row.hits + row.misses;
    all >= QUESTIONS_MIN && row.hits.saturating_mul(100) < all.saturating_mul(HITS_PERCENT)
}

fn is_full(row: &CacheCounts) -> bool {
    row.held.saturating_mul(100) >= row.limit.saturating_mul(FULL_PERCENT)
}

fn evidence(snapshot: &Snapshot, name: &str, row: &CacheCounts) -> Vec<String> {
    let age = match (row.evictions, row.recycle_age) {
        (0, _) => "nothing was evicted yet".to_owned(),
        (_, 0) => "the last evicted entry had been cached for less than a millisecond".to_owned(),
        (_, age) => format!("the last evicted entry had been cached for {}", time(age)),
    };
    let mut evidence = vec![format!(
        "{name}: {} of {} lookups hit ({}), {} entries evicted; {} of {} in use; {age}",
        row.hits,
        row.hits + row.misses,
        percent(row.hits, row.hits + row.misses),
        row.evictions,
        bytes(row.held),
        bytes(row.limit)
    )];
    evidence.extend(slow::evidence(snapshot.slow_for("disk"), "waited for the disk"));
    evidence
}

/// Reports caches that evict entries that are needed again.
pub(crate) fn too_small(snapshot: &Snapshot) -> Vec<Finding> {
    let is_small =
        |row: &CacheCounts| misses_much(row) && row.evictions > 0 && is_full(row) && row.recycle_age < AGE_NS;
    let rows = snapshot.caches().0;
    let says = |(labels, row): &(Labels, CacheCounts)| {
        let name = labels.join(" ");
        Finding {
            problem: "cache-too-small",
            weight: 46,
            what: format!("The cache of {name} is too small for the clients' working set."),
            evidence: evidence(snapshot, &name, row),
            cause:
                "Entries are evicted before clients ask for them again, so the same data is read from the \
                disk again and again."
                    .into(),
            remedy: format!(
                "Raise `{}` (now {}), if the machine has enough memory.",
                setting(&name),
                bytes(row.limit)
            ),
        }
    };
    rows.iter().filter(|(_, row)| is_small(row)).map(says).collect()
}

/// Reports caches that are still warming up.
pub(crate) fn cold(snapshot: &Snapshot) -> Vec<Finding> {
    let is_cold = |row: &CacheCounts| misses_much(row) && row.evictions == 0 && !is_full(row);
    let rows = snapshot.caches().0;
    let says = |(labels, row): &(Labels, CacheCounts)| {
        let name = labels.join(" ");
        Finding {
            problem: "cold-cache",
            weight: 20,
            what: format!("The cache of {name} is cold."),
            evidence: evidence(snapshot, &name, row),
            cause: "Clients ask for data that was not used since the server started, or since the cache was \
                purged. The first access reads it from the disk."
                .into(),
            remedy:
                "The cache fills by itself. If this finding persists, clients read everything only once, \
                and no cache helps. After a start, reading the most used data once warms the cache."
                    .into(),
        }
    };
    rows.iter().filter(|(_, row)| is_cold(row)).map(says).collect()
}
