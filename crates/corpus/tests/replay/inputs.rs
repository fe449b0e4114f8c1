//! The committed inputs.

use std::path::{Path, PathBuf};

/// One of them.
pub(crate) struct Input {
    /// Its file's name.
    pub(crate) file: String,
    pub(crate) data: Vec<u8>,
}

/// Where they are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Names in a folder, sorted; none if it is not there.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All inputs of a target.
pub(crate) fn of(target: &str) -> Vec<Input> {
    let folder = folder().join(target);
    let read = |file: String| Input { data: std::fs::read(folder.join(&file)).unwrap(), file };
    names(&folder).into_iter().map(read).collect()
}
