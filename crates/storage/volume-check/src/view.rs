//! Checks one volume as its readers see it.

use crate::CheckReport;
use crate::registry::{Known, Registry, counters_of, show};
use crate::totals;
use crate::tree::Tree;
use afs_format::directory::PlacedEntry;
use base::{VnodeId, VolumeId};
use std::collections::HashMap;
use std::ops::ControlFlow;
use store::{Family, MetaStore};
use volume_records::codec::{self, Counters, Extent, Vnode};
use volume_records::totals::OwnSums;
use volume_records::{RecordError, epochs, families, keys, quota};

/// Checks one volume.
pub(crate) fn check(
    meta: &dyn MetaStore,
    registry: &Registry,
    id: VolumeId,
    known: &Known,
    report: &mut CheckReport,
) {
    // Missing counters were reported when the registry was read.
    let Some(counters) = counters_of(meta, id) else { return };
    let (tree, sums) = Default::default();
    let mut view = View { meta, registry, id, known, tree, sums, report };
    let result = view.read_vnodes().and_then(|()| view.read_entries()).and_then(|()| view.check_extents());
    let result = result.and_then(|()| view.check_totals(&counters));
    if result.is_ok() {
        view.check_counters(&counters);
        view.check_tree();
    }
    report.add_failure(Some(id), "its records", result);
}

/// Receives the prefix and value of a record.
type Visit<'a> = dyn FnMut(&mut View<'_>, &[u8], &[u8]) + 'a;

struct View<'a> {
    meta: &'a dyn MetaStore,
    registry: &'a Registry,
    id: VolumeId,
    known: &'a Known,
    tree: Tree,
    sums: OwnSums,
    report: &'a mut CheckReport,
}

/// Formats a vnode's number and uniquifier for messages.
fn vnode_name(vnode: VnodeId, unique: u32) -> String {
    format!("vnode {}.{unique}", vnode.0)
}

impl View<'_> {
    fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.report.add(Some(self.id), place, what);
    }

    /// Calls `visit` with every record of a family that the volume sees.
    fn scan(&mut self, family: Family, visit: &mut Visit<'_>) -> Result<(), RecordError> {
        let (from, to) = keys::group_range(self.known.group);
        let (meta, known) = (self.meta, self.known);
        epochs::scan(meta, family, (&from, &to), &known.read_view, &mut |prefix, value| {
            visit(self, prefix, value);
            ControlFlow::Continue(())
        })
    }

    fn read_vnodes(&mut self) -> Result<(), RecordError> {
        self.scan(families::VNODES, &mut |view, prefix, value| {
            let Some(number) = keys::vnode_of(prefix) else { return };
            // Unreadable values were reported with the records.
            let Some(vnode) = codec::get_vnode(number, value) else { return };
            view.add_vnode(&vnode);
        })
    }

    fn add_vnode(&mut self, vnode: &Vnode) {
        self.report.vnodes += 1;
        let status = vnode.status;
        if status.is_directory() != (status.vnode.0 % 2 == 1) {
            self.add(
                vnode_name(status.vnode, status.unique),
                "directories have odd numbers, all others even",
            );
        }
        self.sums.add(&status);
        self.tree.add(vnode);
    }

    /// Checks directory totals. If the volume has none, or they are being recounted, existing records are
    /// unused and ignored.
    fn check_totals(&mut self, counters: &Counters) -> Result<(), RecordError> {
        let Some(unfolded) = counters.unfolded else { return Ok(()) };
        let mut stored = HashMap::new();
        self.scan(families::TOTALS, &mut |_, prefix, value| {
            // Unreadable values were reported with the records.
            stored.extend(keys::vnode_of(prefix).zip(codec::get_totals(value)));
        })?;
        let sums = std::mem::take(&mut self.sums);
        for (place, what) in totals::check(sums, &stored, &unfolded, |at| self.tree.above(at)) {
            self.add(place, what);
        }
        Ok(())
    }

    /// Reads the directory entries; those of each directory are contiguous.
    fn read_entries(&mut self) -> Result<(), RecordError> {
        let mut directory = VnodeId(0);
        let mut entries = Vec::new();
        self.scan(families::ENTRIES, &mut |view, prefix, value| {
            let number = prefix.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
            let (Some(number), Some(name), Some(entry)) =
                (number, keys::name_of(prefix), codec::get_entry(value))
            else {
                return;
            };
            if VnodeId(number) != directory {
                view.check_directory(directory, std::mem::take(&mut entries));
                directory = VnodeId(number);
            }
            entries.push(PlacedEntry {
                name: name.to_vec(),
                target: entry.target,
                slot: entry.slot,
                sequence: entry.sequence,
            });
        })?;
        self.check_directory(directory, entries);
        Ok(())
    }

    fn check_directory(&mut self, directory: VnodeId, entries: Vec<PlacedEntry>) {
        if entries.is_empty() {
            return;
        }
        for (place, what) in self.tree.add_directory(directory, entries) {
            self.add(place, what);
        }
    }

    fn check_tree(&mut self) {
        for (place, what) in self.tree.check() {
            self.add(place, what);
        }
    }

    fn check_counters(&mut self, counters: &Counters) {
        let totals = self.tree.totals();
        let mut compare = |what: &str, expected: u64, got: u64| {
            if expected != got {
                self.add("its counters", format!("{what}: counted {expected}, stored {got}"));
            }
        };
        compare("blocks used", totals.blocks, counters.used_kib);
        compare("vnodes besides the root", totals.files, counters.file_count);
        compare("directories besides the root", totals.directories, counters.directory_count);
        let (highest_file, highest_directory) = (totals.highest_file, totals.highest_directory);
        if highest_file >= counters.next_file || highest_directory >= counters.next_directory {
            let what = format!(
                "vnodes {highest_file} and {highest_directory} are in use, {} and {} are the next to be \
                assigned",
                counters.next_file, counters.next_directory
            );
            self.add("its counters", what);
        }
    }

    fn check_extents(&mut self) -> Result<(), RecordError> {
        self.scan(families::EXTENTS, &mut |view, prefix, value| {
            let (Some(index), Some(file)) = (keys::index_of(prefix), file_of(prefix)) else { return };
            let Some(extent) = codec::get_extent(value) else { return };
            if let Some(what) = view.fault(file, index, &extent) {
                view.add(format!("{}, chunk {index}", vnode_name(file.0, file.1)), what);
            }
        })
    }

    fn fault(&self, file: (VnodeId, u32), index: u64, extent: &Extent) -> Option<String> {
        let Some(node) = self.tree.get(file.0).filter(|node| node.unique == file.1) else {
            // A clone may see data of a file that was deleted before the clone was made and purged
            // afterwards.
            let facts = self.registry.groups.get(&self.known.group);
            let is_purged = facts.is_some_and(|facts| facts.files.contains(&file));
            let is_orphan = self.known.is_read_write && !is_purged;
            return is_orphan.then(|| "there is no such file, and no purge job is to delete its data".into());
        };
        if node.is_directory {
            return Some("a directory has no data of its own".into());
        }
        let length = extent.length();
        let begin = index.checked_mul(1 << node.chunk_shift);
        let is_inside =
            begin.and_then(|begin| begin.checked_add(length)).is_some_and(|end| end <= node.length);
        if !is_inside {
            return Some(format!("{length} bytes here are past the file's length of {}", node.length));
        }
        (length > 1 << node.chunk_shift).then(|| format!("{length} bytes exceed a chunk of the file"))
    }
}

fn file_of(prefix: &[u8]) -> Option<(VnodeId, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(prefix.get(at..at + 4)?.try_into().ok()?));
    Some((VnodeId(number(8)?), number(12)?))
}

/// Formats the file that an extent belongs to for messages.
pub(crate) fn extent_name(key: &[u8]) -> String {
    let parts = keys::split(key).and_then(|(prefix, born)| {
        let group = u64::from_be_bytes(prefix.get(..8)?.try_into().ok()?);
        let (vnode, unique) = file_of(prefix)?;
        Some((group, vnode_name(vnode, unique), keys::index_of(prefix)?, born))
    });
    parts.map_or_else(
        || show(families::EXTENTS, key),
        |(group, file, index, born)| format!("group {group}, {file}, chunk {index}, epoch {born}"),
    )
}

/// Returns the quota blocks of a vnode of this length.
pub(crate) fn blocks(length: u64) -> u64 {
    quota::blocks(length)
}
