//! Checks every version of every record on its own: whether it can be read, and whether any volume needs it.

use crate::registry::{Registry, show};
use crate::rows::Rows;
use crate::{CheckReport, Observe, Progress, Stage};
use base::VnodeId;
use std::ops::ControlFlow;
use store::{ChunkAddress, Family, KeyRange, MetaStore};
use volume_records::codec::{self, Extent};
use volume_records::{epochs, families, keys};

/// Records between two reports of progress.
const REPORT_RECORDS: u64 = 10_000;

/// A chunk that a record names, and how many of its bytes are used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) address: ChunkAddress,
    pub(crate) length: u32,
}

/// Checks all records of groups and the rows of shared chunks; returns the chunks that they name.
pub(crate) fn check(
    meta: &dyn MetaStore,
    registry: &Registry,
    report: &mut CheckReport,
    observe: Observe<'_>,
) -> Vec<Named> {
    let (mut named, mut rows) = (Vec::new(), Rows::default());
    for family in [families::VNODES, families::ENTRIES, families::EXTENTS, families::TOTALS] {
        let (prefix, versions, unknown_group) = (vec![], vec![], 0);
        let (named, rows) = (&mut named, &mut rows);
        let mut pass = Pass { family, registry, prefix, versions, unknown_group, named, rows };
        let result = meta.scan(family, KeyRange::ascending(&[], &keys::BEHIND_ALL), &mut |key, value| {
            pass.visit(key, value, report);
            if report.records.is_multiple_of(REPORT_RECORDS) {
                observe(Progress { stage: Stage::Records, done: report.records, total: 0 });
            }
            ControlFlow::Continue(())
        });
        pass.end_of_record(report);
        report.add_failure(None, &format!("family {}", family.name()), result.map_err(Into::into));
    }
    rows.check(meta, report);
    named
}

/// A pass through one family.
struct Pass<'a> {
    family: Family,
    registry: &'a Registry,
    /// The current record, and its versions so far: birth and liveness, newest first.
    prefix: Vec<u8>,
    versions: Vec<(u64, bool)>,
    /// The last unknown group reported, so that each is reported once.
    unknown_group: u64,
    named: &'a mut Vec<Named>,
    rows: &'a mut Rows,
}

impl Pass<'_> {
    fn visit(&mut self, key: &[u8], value: &[u8], report: &mut CheckReport) {
        report.records += 1;
        if self.family == families::EXTENTS && keys::is_of_rows(key) {
            self.named.extend(self.rows.take_row(key, value, report));
            return;
        }
        let split = keys::split(key).filter(|(prefix, _)| is_prefix(self.family, prefix));
        let Some((prefix, born)) = split else {
            return report.add(None, show(self.family, key), "the key cannot be read");
        };
        if prefix != self.prefix {
            self.end_of_record(report);
            self.prefix = prefix.to_vec();
        }
        self.versions.push((born, !value.is_empty()));
        if !value.is_empty() && !self.is_readable(value) {
            report.add(None, show(self.family, key), "the value cannot be read");
        }
        self.check_group(born, key, report);
    }

    fn is_readable(&mut self, value: &[u8]) -> bool {
        match self.family {
            families::VNODES => codec::get_vnode(VnodeId(0), value).is_some(),
            families::ENTRIES => codec::get_entry(value).is_some(),
            families::TOTALS => codec::get_totals(value).is_some(),
            _ => match codec::get_extent(value) {
                Some(Extent::Chunk { address, length }) => {
                    self.named.push(Named { address, length });
                    true
                }
                Some(Extent::Shared { row, length }) => {
                    self.rows.take_name(row, length);
                    true
                }
                other => other.is_some(),
            },
        }
    }

    fn check_group(&mut self, born: u64, key: &[u8], report: &mut CheckReport) {
        let Some(group) = group_of(key) else { return };
        match self.registry.groups.get(&group) {
            Some(facts) if facts.is_doomed => {}
            Some(facts) if !facts.readers.is_empty() => {
                // If the writer was deleted, versions that only it saw may remain until they are purged.
                let newest = if facts.may_have_unneeded() { u64::MAX } else { facts.newest };
                if born == 0 || born > newest {
                    let what = format!("it was created in epoch {born}, the newest is {newest}");
                    report.add(None, show(self.family, key), what);
                }
            }
            _ if self.unknown_group == group => {}
            _ => {
                self.unknown_group = group;
                let what = format!("no volume is in group {group}, and no purge job is to delete it");
                report.add(None, show(self.family, key), what);
            }
        }
    }

    /// Checks a record once all its versions have been read.
    fn end_of_record(&mut self, report: &mut CheckReport) {
        let versions = std::mem::take(&mut self.versions);
        let facts = group_of(&self.prefix).and_then(|group| self.registry.groups.get(&group));
        let Some(facts) = facts.filter(|facts| !facts.readers.is_empty() && !facts.may_have_unneeded())
        else {
            return;
        };
        for born in epochs::unneeded(&versions, &facts.readers) {
            let what =
                format!("no volume reads the version of epoch {born}, and no purge job is to delete it");
            report.add(None, show(self.family, &self.prefix), what);
        }
    }
}

fn group_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(..8)?.try_into().ok()?))
}

fn is_prefix(family: Family, prefix: &[u8]) -> bool {
    match family {
        families::VNODES | families::TOTALS => prefix.len() == 12,
        families::ENTRIES => keys::name_of(prefix).is_some_and(|name| !name.is_empty() && !name.contains(&0)),
        _ => prefix.len() == 24,
    }
}
