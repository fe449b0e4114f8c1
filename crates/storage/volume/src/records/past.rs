//! The highest numbers of a volume whose contents were replaced.

use base::UnixTime;

/// The highest numbers that clients may have seen of a read-write volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// Next uniquifier to allocate.
    pub(crate) next_unique: u32,
    /// Highest data version that any vnode of the volume had.
    pub(crate) version_max: u64,
    /// Date of the last update.
    pub(crate) updated: UnixTime,
    /// Number of changes of its contents. Snapshots that outlive the volume are compared by it.
    pub(crate) changes: u64,
    /// Latest date of the volume or a clone.
    pub(crate) dated: UnixTime,
    /// Whether it was deleted here because it continues elsewhere.
    pub(crate) went_on: bool,
}
