//! Checks that crates use every dependency that they declare, and that each dependency has a documented
//! reason.

use super::SourceFile;
use super::arrows::{metadata, package_folder};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Document with the reasons for dependencies.
const REASONS: &str = "docs/design/dependencies.md";

/// Packages whose library name differs from the package name.
const LIBRARY_NAMES: [(&str, &str); 1] = [("md-5", "md5")];

/// A dependency that a crate's manifest declares.
pub(crate) struct Declared {
    /// The crate's folder, relative to the repository's root.
    pub(crate) folder: String,
    /// The dependency's name in the manifest.
    pub(crate) name: String,
    /// Whether only tests use it.
    pub(crate) is_dev: bool,
}

/// Compares the manifests with the sources, and the workspace's table with the manifests.
pub(crate) fn check(root: &Path, files: &[SourceFile]) -> Result<Vec<String>> {
    let declared = declared(root, &metadata(root)?)?;
    let mut complaints: Vec<String> = declared.iter().filter_map(|one| judge(one, files)).collect();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    let used: BTreeSet<&str> = declared.iter().map(|one| one.name.as_str()).collect();
    let unused = workspace_table(&manifest).into_iter().filter(|name| !used.contains(name));
    complaints.extend(unused.map(|name| format!("Cargo.toml lists {name}, which no crate uses")));
    let reasons = std::fs::read_to_string(root.join(REASONS)).context(REASONS)?;
    complaints.extend(without_reason(&manifest, &reasons));
    Ok(complaints)
}

fn declared(root: &Path, metadata: &Value) -> Result<Vec<Declared>> {
    let mut all = Vec::new();
    for package in metadata["packages"].as_array().context("no packages")? {
        let folder = package_folder(root, package)?;
        for one in package["dependencies"].as_array().context("no dependencies")? {
            let name = one["rename"].as_str().or(one["name"].as_str()).unwrap_or_default().to_owned();
            all.push(Declared { folder: folder.clone(), name, is_dev: one["kind"] == "dev" });
        }
    }
    Ok(all)
}

/// Returns a complaint if no source uses the dependency. Files that contain only tests count for dependencies
/// of any kind, since some crates consist of tests.
pub(crate) fn judge(declared: &Declared, files: &[SourceFile]) -> Option<String> {
    let library = LIBRARY_NAMES.iter().find(|(package, _)| *package == declared.name);
    let library = library.map_or_else(|| declared.name.replace('-', "_"), |(_, name)| (*name).to_owned());
    let folder = format!("{}/", declared.folder);
    let mut own = files.iter().filter(|file| file.path.starts_with(&folder));
    let is_used = own.any(|file| {
        let counts_whole = declared.is_dev || file.lines.is_empty();
        let lines = if counts_whole { &file.all_lines } else { &file.lines };
        lines.iter().any(|line| names(line, &library))
    });
    let kind = if declared.is_dev { "a dependency of tests" } else { "a dependency" };
    (!is_used).then(|| format!("{} declares {kind} on {}, which it does not use", folder, declared.name))
}

/// Whether the line has `library::` or `use library;` outside comments and not inside a longer path.
fn names(line: &str, library: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(library).any(|(at, _)| {
        let before = code[..at].trim_end_matches("::").chars().next_back();
        let after = &code[at + library.len()..];
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        !before.is_some_and(is_word) && (after.starts_with("::") || code.trim() == format!("use {library};"))
    })
}

/// Returns a complaint for each library in the workspace's manifest that no table names in its first column.
pub(crate) fn without_reason(manifest: &str, reasons: &str) -> Vec<String> {
    let columns = reasons.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let named: BTreeSet<&str> = columns.flat_map(|column| column.split('`').skip(1).step_by(2)).collect();
    let ours: BTreeSet<&str> =
        manifest.lines().filter_map(|line| line.split_once(" = { path = ")).map(|(name, _)| name).collect();
    let lacking = |name: &&str| !ours.contains(name) && !named.contains(name);
    let names = workspace_table(manifest).into_iter().filter(lacking);
    names.map(|name| format!("{REASONS} does not say why {name} is a dependency")).collect()
}

/// Returns the names in `[workspace.dependencies]`.
pub(crate) fn workspace_table(manifest: &str) -> Vec<&str> {
    let table = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let lines = table.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect()
}
