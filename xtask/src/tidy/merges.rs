//! Merges that were left half done.

use anyhow::{Context, Result};
use std::path::Path;
use walkdir::WalkDir;

/// Folders with the files of the repository, besides those at its root.
const FOLDERS: [&str; 8] = ["crates", "xtask", "docs", "scripts", "contrib", "idl", "fuzz", ".ci"];
/// What version control puts at the beginning and at the end of a conflict.
const MARKS: [[u8; 7]; 2] = [[b'<'; 7], [b'>'; 7]];

/// Returns the files with conflicts.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let tops = [WalkDir::new(root).max_depth(1)].into_iter();
    let folders = FOLDERS.iter().map(|folder| root.join(folder)).filter(|folder| folder.is_dir());
    for entry in tops.chain(folders.map(WalkDir::new)).flatten() {
        let entry = entry?;
        if entry.file_type().is_file() {
            let bytes = std::fs::read(entry.path()).with_context(|| entry.path().display().to_string())?;
            let name = entry.path().strip_prefix(root)?.display();
            complaints
                .extend(conflict(&bytes).map(|line| format!("{name}:{line}: a merge is left half done")));
        }
    }
    Ok(complaints)
}

/// Returns the number of the first line that marks a conflict.
pub(super) fn conflict(bytes: &[u8]) -> Option<usize> {
    let is_mark = |line: &[u8]| line.get(7) == Some(&b' ') && MARKS.iter().any(|mark| line.starts_with(mark));
    bytes.split(|byte| *byte == b'\n').position(is_mark).map(|line| line + 1)
}
