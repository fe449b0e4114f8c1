//! Checks that the generated files are up to date.

use crate::generate;
use anyhow::Result;
use std::path::Path;

/// Compares the files on disk with the generator's output.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let files = generate::files(root)?;
    let mut complaints = Vec::new();
    for (path, text) in &files {
        if !std::fs::read_to_string(root.join(path)).is_ok_and(|old| old == *text) {
            complaints.push(format!("{path} is stale; run `cargo xtask generate`"));
        }
    }
    for directory in generate::DIRECTORIES {
        for entry in std::fs::read_dir(root.join(directory))? {
            let path = format!("{directory}/{}", entry?.file_name().to_string_lossy());
            if !files.contains_key(&path) {
                complaints.push(format!("{path} is not generated from anything"));
            }
        }
    }
    Ok(complaints)
}
