//! Rust source files, with their tests cut out.

use anyhow::{Context, Result};
use std::path::Path;
use walkdir::WalkDir;

/// A Rust file of the repository.
pub(crate) struct SourceFile {
    /// Path relative to the repository's root.
    pub(crate) path: String,
    /// Number of lines, tests included.
    pub(crate) length: usize,
    /// Lines without tests, benches, examples and comments on lines of their own; lines that were cut out are
    /// empty.
    pub(crate) lines: Vec<String>,
    /// Every line.
    pub(crate) all_lines: Vec<String>,
}

impl SourceFile {
    /// Parses a file's text.
    pub(crate) fn new(path: String, text: &str) -> SourceFile {
        let beside = ["/tests/", "/benches/", "/examples/"];
        let is_test = path.ends_with("/tests.rs") || beside.iter().any(|folder| path.contains(folder));
        let lines = if is_test { Vec::new() } else { without_tests(text) };
        let all_lines: Vec<String> = text.lines().map(str::to_owned).collect();
        SourceFile { path, length: all_lines.len(), lines, all_lines }
    }

    /// Returns the crate that the file belongs to.
    pub(crate) fn crate_name(&self) -> &str {
        match self.path.strip_prefix("crates/") {
            Some(path) => path.split('/').nth(1).unwrap_or_default(),
            None => self.path.split('/').next().unwrap_or_default(),
        }
    }

    /// Whether the file is generated.
    pub(crate) fn is_generated(&self) -> bool {
        crate::generate::DIRECTORIES.iter().any(|directory| self.path.starts_with(directory))
    }
}

/// Reads every Rust file of the crates and of xtask.
pub(crate) fn read_all(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for top in ["crates", "xtask"] {
        for entry in WalkDir::new(root.join(top)).sort_by_file_name() {
            let path = entry?.into_path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                files.push(SourceFile::new(name, &text));
            }
        }
    }
    Ok(files)
}

/// Returns the width of a line's indentation in bytes.
pub(crate) fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Blanks comments and test items. Relies on rustfmt: an item ends with a `}` at its own indentation, or with
/// a `;` on its first line.
fn without_tests(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut test_item: Option<usize> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(indent) = test_item {
            let is_end =
                indentation(line) == indent && (trimmed.starts_with('}') || trimmed.ends_with([';', '}']));
            if is_end {
                test_item = None;
            }
            lines.push(String::new());
        } else if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test") {
            test_item = Some(indentation(line));
            lines.push(String::new());
        } else {
            lines.push(if trimmed.starts_with("//") { String::new() } else { line.to_owned() });
        }
    }
    lines
}
