//! Checks the chunks that records name against the segments and their accounts.

use crate::records::Named;
use crate::view::extent_name;
use crate::{CheckOptions, CheckReport, Observe, Progress, Stage};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use store::{ChunkAddress, KeyRange, MetaStore, SegmentAudit, SegmentFacts};
use volume_records::rows::RowKey;
use volume_records::{codec, families, keys};

/// What is wrong with each damaged chunk.
pub(crate) type Findings = HashMap<ChunkAddress, String>;

/// Checks all chunks.
pub(crate) fn check(
    meta: &dyn MetaStore,
    segments: &SegmentAudit,
    mut named: Vec<Named>,
    options: CheckOptions,
    report: &mut CheckReport,
    observe: Observe<'_>,
) {
    named.sort_unstable();
    let findings = look(segments, &named, options, report, observe);
    report_to(meta, &findings, report);
}

/// Checks chunks, given in address order, without determining which files the damaged ones belong to.
pub(crate) fn look(
    segments: &SegmentAudit,
    named: &[Named],
    options: CheckOptions,
    report: &mut CheckReport,
    observe: Observe<'_>,
) -> Findings {
    report.chunks = named.len() as u64;
    report.chunk_bytes = named.iter().map(|named| u64::from(named.address.stored_bytes)).sum();
    let mut findings = Findings::new();
    check_places(segments, named, &mut findings);
    if options.data {
        read(segments, named, report, observe, &mut findings);
    }
    check_accounts(segments, named, report);
    findings
}

fn check_places(segments: &SegmentAudit, named: &[Named], findings: &mut Findings) {
    for pair in named.windows(2) {
        let (one, next) = (pair[0].address, pair[1].address);
        if one.segment == next.segment && one.offset + u64::from(one.stored_bytes) > next.offset {
            findings.insert(next, format!("two records refer to the same place, {}", place(segments, next)));
        }
    }
    for Named { address, .. } in named {
        let facts = segments.segments().get(&address.segment);
        let length = facts.and_then(|facts| facts.file_bytes);
        let end = address.offset.checked_add(address.stored_bytes.into());
        let what = match (length, end) {
            (None, _) => Some("no such segment".to_owned()),
            (Some(length), Some(end)) if end <= length => None,
            (Some(length), _) => Some(format!("the file ends at {length}, before the chunk does")),
        };
        if let Some(what) = what {
            findings.insert(*address, format!("{}: {what}", place(segments, *address)));
        }
    }
}

fn place(segments: &SegmentAudit, address: ChunkAddress) -> String {
    format!("{} at offset {}", segments.place(address.segment), address.offset)
}

/// Reads every chunk that has no finding yet, in address order.
fn read(
    segments: &SegmentAudit,
    named: &[Named],
    report: &mut CheckReport,
    observe: Observe<'_>,
    findings: &mut Findings,
) {
    let total = report.chunk_bytes;
    let mut done = 0;
    for &Named { address, length } in named {
        done += u64::from(address.stored_bytes);
        observe(Progress { stage: Stage::Data, done, total });
        if findings.contains_key(&address) {
            continue;
        }
        report.chunks_read += 1;
        if let Some(what) = read_one(segments, Named { address, length }) {
            findings.insert(address, what);
        }
    }
}

/// Reads a chunk; returns what is wrong with it, if anything.
pub(crate) fn read_one(segments: &SegmentAudit, Named { address, length }: Named) -> Option<String> {
    match segments.verify(address) {
        Err(error) => Some(error.to_string()),
        Ok(bytes) if bytes < length => {
            Some(format!("{}: {length} bytes are used of {bytes}", place(segments, address)))
        }
        Ok(_) => None,
    }
}

/// Reports which file each damaged chunk belongs to.
pub(crate) fn report_to(meta: &dyn MetaStore, findings: &Findings, report: &mut CheckReport) {
    if findings.is_empty() {
        return;
    }
    // Rows come first in the scan: damage to a shared chunk is then reported for each file that uses it.
    let mut shared: HashMap<RowKey, &str> = HashMap::new();
    let result = meta.scan(families::EXTENTS, KeyRange::ascending(&[], &[0xff; 9]), &mut |key, value| {
        let address = codec::extent_address(value).flatten();
        let what = address.and_then(|address| findings.get(&address)).map(String::as_str);
        if let Some((row, what)) = keys::row_of(key).zip(what) {
            shared.insert(row, what);
            return ControlFlow::Continue(());
        }
        let through_row = || shared.get(&codec::shared_row(value)?).copied();
        if let Some(what) = what.or_else(through_row) {
            report.add(None, extent_name(key), what);
        }
        ControlFlow::Continue(())
    });
    report.add_failure(None, "family extents", result.map_err(Into::into));
}

fn check_accounts(segments: &SegmentAudit, named: &[Named], report: &mut CheckReport) {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for Named { address, .. } in named {
        *live.entry(address.segment).or_default() += u64::from(address.stored_bytes);
    }
    for key in segments.damaged_accounts() {
        report.add(None, format!("the account of segment {}", key.escape_ascii()), "cannot be read");
    }
    for (&id, facts) in segments.segments() {
        let live = live.get(&id).copied().unwrap_or(0);
        report.dead_bytes += facts.record_bytes().saturating_sub(live);
        let account = account_is_wrong(facts, live, segments.was_closed());
        // No record can name anything in a file that a crash left shorter than its header.
        let header = if live > 0 { segments.check_header(id).err() } else { None };
        // While a server is running, a segment and its account may be deleted after the records were read. So
        // existence is checked last: a file that exists now existed throughout the checks above.
        if account.is_none() && header.is_none() || !segments.was_closed() && !segments.is_there(id) {
            continue;
        }
        if let Some(what) = account {
            report.add(None, format!("the account of {}", segments.place(id)), what);
        }
        if let Some(error) = header {
            report.add(None, segments.place(id), error.to_string());
        }
    }
}

/// Compares an account with the `live` bytes that records name. After a crash an account may lag, but only on
/// the safe side.
fn account_is_wrong(facts: &SegmentFacts, live: u64, is_exact: bool) -> Option<String> {
    let account = facts.account?;
    let room = facts.record_bytes();
    let dead = room.checked_sub(live);
    match dead {
        None => Some(format!("{live} bytes are referenced, but it holds {room}")),
        Some(dead) if account.dead > dead => {
            Some(format!("{} bytes are counted as dead, but only {dead} are", account.dead))
        }
        Some(dead) if is_exact && facts.file_bytes.is_some() && account.dead < dead => {
            Some(format!("{dead} bytes are unreferenced, but only {} are counted as dead", account.dead))
        }
        Some(_) => None,
    }
}
