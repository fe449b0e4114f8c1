//! Checks that the generated files are up to date.

use crate::generate;
use anyhow::Result;
use std::path::Path;

/// Compares the files on disk with the generator's output.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let directory = root.join(generate::DIRECTORY);
    let files = generate::files(root)?;
    let mut complaints = Vec::new();
    for (name, text) in &files {
        let is_fresh = std::fs::read_to_string(directory.join(name)).is_ok_and(|old| old == *text);
        if !is_fresh {
            complaints.push(format!("{}/{name} is stale; run `cargo xtask generate`", generate::DIRECTORY));
        }
    }
    for entry in std::fs::read_dir(&directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !files.contains_key(&name) {
            complaints.push(format!("{}/{name} is not generated from anything", generate::DIRECTORY));
        }
    }
    Ok(complaints)
}
