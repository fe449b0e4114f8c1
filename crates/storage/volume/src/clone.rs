//! Snapshots of a volume, rollback to one, and which automatic snapshots are due.

pub(crate) mod rollback;
pub(crate) mod schedule;
pub(crate) mod snapshots;
