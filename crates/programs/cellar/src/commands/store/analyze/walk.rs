//! The files of a tree.

use anyhow::Result;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Maximum number of skipped files that are listed; the rest is summarised in one line.
const SKIPPED_MAX: usize = 1000;

/// Contents of a tree. Links are not followed.
#[derive(Default)]
pub(super) struct Tree {
    /// Regular files with their sizes.
    pub(super) files: Vec<(PathBuf, u64)>,
    /// Total size of the files.
    pub(super) bytes: u64,
    pub(super) directories: u64,
    pub(super) links: u64,
    pub(super) others: u64,
    /// What could not be read, and why.
    pub(super) skipped: Vec<String>,
}

/// Walks the tree below `path`; fails only if `path` itself cannot be read.
pub(super) fn look(path: &Path) -> Result<Tree> {
    std::fs::symlink_metadata(path)?;
    let mut tree = Tree::default();
    for entry in WalkDir::new(path) {
        match entry.and_then(|entry| entry.metadata().map(|metadata| (entry, metadata))) {
            Ok((entry, metadata)) if metadata.is_file() => {
                tree.bytes += metadata.len();
                tree.files.push((entry.into_path(), metadata.len()));
            }
            Ok((_, metadata)) if metadata.is_dir() => tree.directories += 1,
            Ok((_, metadata)) if metadata.is_symlink() => tree.links += 1,
            Ok(_) => tree.others += 1,
            Err(error) => skip(&mut tree.skipped, error.to_string()),
        }
    }
    Ok(tree)
}

/// Records a skipped file, up to the limit.
pub(super) fn skip(skipped: &mut Vec<String>, what: String) {
    match skipped.len() {
        0..SKIPPED_MAX => skipped.push(what),
        SKIPPED_MAX => skipped.push("and more".into()),
        _ => {}
    }
}
