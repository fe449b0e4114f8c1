//! The families of records that volumes have in the metadata. `docs/reference/formats/volume.md` has their
//! contents; numbers and names are part of the format.

use store::Family;

/// Volume headers, names, groups, epochs.
pub const VOLUMES: Family = Family::new(1, "volumes");

/// Vnode status and ACLs.
pub const VNODES: Family = Family::new(2, "vnodes");

/// Directory entries.
pub const ENTRIES: Family = Family::new(3, "entries");

/// Chunk maps of files, and rows of shared chunks.
pub const EXTENTS: Family = Family::new(4, "extents");

/// Totals of directories, including everything below them.
pub const TOTALS: Family = Family::new(8, "totals");

/// All of them, for [`store::PartitionConfig::families`].
pub const ALL: [Family; 5] = [VOLUMES, VNODES, ENTRIES, EXTENTS, TOTALS];
