//! Helpers for entries of the location database.

use crate::Place;
use afs_idl::vl::{NVldbEntry, SITES, entry_flags, site_flags};

/// Indices in `volume_id`.
pub(crate) const READ_WRITE: usize = 0;
pub(crate) const READ_ONLY: usize = 1;
pub(crate) const BACKUP: usize = 2;

/// Flags of the operations that lock an entry.
const OPERATIONS: i32 =
    entry_flags::MOVE | entry_flags::RELEASE | entry_flags::BACKUP | entry_flags::DELETE | entry_flags::DUMP;

/// Returns the operation that an entry is locked for; 0 if it is not locked.
pub(crate) fn operation(entry: &NVldbEntry) -> i32 {
    entry.flags & OPERATIONS
}

/// Returns the name of the operation that an entry with these flags is locked for.
pub(crate) fn describe_lock(flags: i32) -> Option<&'static str> {
    let names = [
        (entry_flags::MOVE, "move"),
        (entry_flags::RELEASE, "release"),
        (entry_flags::BACKUP, "backup"),
        (entry_flags::DELETE, "delete"),
        (entry_flags::DUMP, "dump"),
    ];
    names.iter().find(|(bit, _)| flags & bit != 0).map(|(_, name)| *name)
}

/// Returns the indices of the sites.
pub(crate) fn sites(entry: &NVldbEntry) -> std::ops::Range<usize> {
    0..usize::try_from(entry.server_count).unwrap_or(0).min(SITES)
}

/// Returns the location of a site.
pub(crate) fn place(entry: &NVldbEntry, site: usize) -> Place {
    Place { server: entry.server_number[site].into(), partition: entry.server_partition[site] }
}

/// Returns the index of the read-write site.
pub(crate) fn read_write_site(entry: &NVldbEntry) -> Option<usize> {
    sites(entry).find(|&site| entry.server_flags[site] & site_flags::READ_WRITE != 0)
}

/// Returns the location of the read-write volume.
pub(crate) fn read_write_place(entry: &NVldbEntry) -> Option<Place> {
    read_write_site(entry).map(|site| place(entry, site))
}

/// Returns the indices of the read-only sites.
pub(crate) fn read_only_sites(entry: &NVldbEntry) -> Vec<usize> {
    sites(entry).filter(|&site| entry.server_flags[site] & site_flags::READ_ONLY != 0).collect()
}

/// Returns the index of the read-only site at a location, if the entry has no read-write site.
pub(crate) fn only_read_only_site(entry: &NVldbEntry, at: Place) -> Option<usize> {
    let sites = if read_write_site(entry).is_none() { read_only_sites(entry) } else { Vec::new() };
    sites.into_iter().find(|&site| place(entry, site) == at)
}

/// Marks one read-only site as having the new release, and the others as out of date.
pub(crate) fn set_only_new(entry: &mut NVldbEntry, new: usize) {
    for site in read_only_sites(entry) {
        if site == new { set_new(entry, site) } else { set_old(entry, site) }
    }
}

pub(crate) fn is_new(entry: &NVldbEntry, site: usize) -> bool {
    let flags = entry.server_flags[site];
    flags & site_flags::NEW_REPLICA != 0 && flags & site_flags::DO_NOT_USE == 0
}

/// Marks the site as having the new release.
pub(crate) fn set_new(entry: &mut NVldbEntry, site: usize) {
    entry.server_flags[site] |= site_flags::NEW_REPLICA;
    entry.server_flags[site] &= !site_flags::DO_NOT_USE;
}

/// Marks the site as not having the new release yet.
pub(crate) fn set_old(entry: &mut NVldbEntry, site: usize) {
    entry.server_flags[site] |= site_flags::DO_NOT_USE;
    entry.server_flags[site] &= !site_flags::NEW_REPLICA;
}

/// Marks all sites as having the same contents.
pub(crate) fn set_all_equal(entry: &mut NVldbEntry) {
    for site in sites(entry) {
        entry.server_flags[site] &= !(site_flags::NEW_REPLICA | site_flags::DO_NOT_USE);
    }
}
