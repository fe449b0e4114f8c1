//! The committed inputs.

use std::path::{Path, PathBuf};

/// A committed input.
pub(crate) struct Input {
    /// Name of its file.
    pub(crate) file: String,
    pub(crate) data: Vec<u8>,
}

/// Returns the folder of the inputs.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Returns the names in a folder, sorted; empty if it does not exist.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns all inputs of a target.
pub(crate) fn of(target: &str) -> Vec<Input> {
    let folder = folder().join(target);
    let read = |file: String| Input { data: std::fs::read(folder.join(&file)).unwrap(), file };
    names(&folder).into_iter().map(read).collect()
}
