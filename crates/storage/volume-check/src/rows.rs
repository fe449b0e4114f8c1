//! Checks the rows of shared chunks against the extents that name them.

use crate::CheckReport;
use crate::records::Named;
use crate::registry::show;
use crate::view::extent_name;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use store::{Family, KeyRange, MetaStore};
use volume_records::codec::{self, get_row, get_sums};
use volume_records::rows::{RowKey, Sums};
use volume_records::{families, keys};

/// One row, and the extents found that name it.
#[derive(Default)]
struct Counted {
    /// The count in the row, and the length of its chunk; `None` without a row.
    row: Option<(u64, u32)>,
    /// Number of extent versions that name it.
    names: u64,
    /// The smallest and the largest length in those extents.
    lengths: Option<(u32, u32)>,
}

/// All rows and the extents that name them.
#[derive(Default)]
pub(crate) struct Rows {
    found: HashMap<RowKey, Counted>,
    sums: Sums,
    /// Whether a row could not be read, so that sums cannot be checked.
    is_unreadable: bool,
}

impl Rows {
    /// Adds a record from the key range of rows; returns the chunk that it names.
    pub(crate) fn take_row(&mut self, key: &[u8], value: &[u8], report: &mut CheckReport) -> Option<Named> {
        let Some((key, row)) = keys::row_of(key).zip(get_row(value)) else {
            self.is_unreadable = true;
            report.add(None, show(families::EXTENTS, key), "the row of a shared chunk cannot be read");
            return None;
        };
        if RowKey::of(&row.digest) != key {
            report.add(None, row_name(key), "its key differs from its digest");
        }
        self.sums.add(&row);
        self.found.entry(key).or_default().row = Some((row.count, row.length));
        Some(Named { address: row.address, length: row.length })
    }

    /// Adds a version of an extent that names a row.
    pub(crate) fn take_name(&mut self, row: RowKey, length: u32) {
        let counted = self.found.entry(row).or_default();
        counted.names += 1;
        let (least, most) = counted.lengths.unwrap_or((length, length));
        counted.lengths = Some((least.min(length), most.max(length)));
    }

    /// Reports what is wrong once all records have been read.
    pub(crate) fn check(self, meta: &dyn MetaStore, report: &mut CheckReport) {
        let wrong = self.found.iter().filter_map(|(key, counted)| Some((*key, counted.fault()?)));
        let mut wrong: Vec<_> = wrong.collect();
        wrong.sort_unstable();
        for (key, what) in wrong {
            report.add(None, row_name(key), what);
        }
        let missing = self.found.iter().filter(|(_, counted)| counted.row.is_none());
        report_names(meta, &missing.map(|(key, _)| *key).collect(), report);
        if !self.is_unreadable {
            check_sums(meta, &self.sums, report);
        }
    }
}

impl Counted {
    fn fault(&self) -> Option<String> {
        let names = self.names;
        let Some((count, length)) = self.row else {
            return Some(format!("its row is missing, and {names} extents refer to it"));
        };
        if count != names {
            return Some(format!("its row counts {count} extents, but {names} refer to it"));
        }
        match self.lengths {
            None => Some("no extent refers to it".into()),
            Some(lengths) if lengths == (length, length) => None,
            Some((least, most)) => Some(format!("its row has {length} bytes, but extents {least} to {most}")),
        }
    }
}

/// Formats a row for messages.
fn row_name(key: RowKey) -> String {
    let hex = key.0.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("the shared chunk {hex}")
}

/// Reports which files have lost data.
fn report_names(meta: &dyn MetaStore, missing: &BTreeSet<RowKey>, report: &mut CheckReport) {
    if missing.is_empty() {
        return;
    }
    let result =
        meta.scan(families::EXTENTS, KeyRange::ascending(&[], &keys::BEHIND_ALL), &mut |key, value| {
            if codec::shared_row(value).is_some_and(|row| missing.contains(&row)) {
                report.add(
                    None,
                    extent_name(key),
                    "the row of the shared chunk that it refers to is missing",
                );
            }
            ControlFlow::Continue(())
        });
    report.add_failure(None, "family extents", result.map_err(Into::into));
}

fn check_sums(meta: &dyn MetaStore, counted: &Sums, report: &mut CheckReport) {
    let place = "the totals of shared chunks";
    let stored = match meta.get(Family::SYSTEM, keys::SHARED_SUMS) {
        Err(error) => return report.add(None, place, error.to_string()),
        Ok(stored) => stored.map_or(Some(Sums::default()), |value| get_sums(&value)),
    };
    match stored {
        None => report.add(None, place, "cannot be read"),
        Some(stored) if stored != *counted => {
            report.add(None, place, format!("counted {counted:?}, stored {stored:?}"));
        }
        Some(_) => {}
    }
}
