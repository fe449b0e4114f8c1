//! The tests, a file for each peer.

mod admin;
mod fuse;
mod kafs;
mod trees;

use crate::Test;
use std::path::{Path, PathBuf};

/// Every test in the order of running.
pub(crate) fn all() -> Vec<Test> {
    [admin::tests(), trees::tests(), fuse::tests(), kafs::tests()].into_iter().flatten().collect()
}

/// A file of this crate.
pub(crate) fn own_file(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}
