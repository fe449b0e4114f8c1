//! The files of a tree.

use anyhow::Result;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Skipped files that are named; of more only a word is said.
const SKIPPED_MAX: usize = 1000;

/// What there is in a tree. Links are not followed.
#[derive(Default)]
pub(super) struct Tree {
    /// Regular files with their lengths.
    pub(super) files: Vec<(PathBuf, u64)>,
    /// The sum of these.
    pub(super) bytes: u64,
    pub(super) directories: u64,
    pub(super) links: u64,
    pub(super) others: u64,
    /// What cannot be read, and why.
    pub(super) skipped: Vec<String>,
}

/// Looks at all names below `path`; an error says that `path` itself cannot be read.
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

/// Notes what is skipped, within bounds.
pub(super) fn skip(skipped: &mut Vec<String>, what: String) {
    match skipped.len() {
        0..SKIPPED_MAX => skipped.push(what),
        SKIPPED_MAX => skipped.push("and more".into()),
        _ => {}
    }
}
