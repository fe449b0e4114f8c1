//! Checks that folders of a crate use only folders before them in ARCHITECTURE.md.

use super::SourceFile;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The folders of one crate.
#[derive(Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) krate: String,
    /// The folders; each may use those before it.
    pub(crate) folders: Vec<String>,
    /// Uses of a later folder that remain, as `folder/file.rs -> folder`.
    pub(crate) exceptions: BTreeSet<String>,
}

/// Compares the table of folders in ARCHITECTURE.md with the sources.
pub(crate) fn check(root: &Path, files: &[SourceFile]) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let orders = table(&text);
    ensure!(!orders.is_empty(), "ARCHITECTURE.md has no table of folders");
    Ok(orders.iter().flat_map(|order| judge(order, files)).collect())
}

/// Parses the table whose header starts with `| folders of |`.
pub(crate) fn table(text: &str) -> Vec<Order> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| folders of |")).skip(2);
    let names = |cell: Option<&str>| -> Vec<String> {
        let ticked = cell.unwrap_or_default().split('`').skip(1).step_by(2);
        ticked.map(str::to_owned).collect()
    };
    rows.take_while(|line| line.starts_with('|'))
        .filter_map(|line| {
            let mut cells = line.split('|').skip(1);
            let krate = names(cells.next()).pop()?;
            let folders = names(cells.next());
            Some(Order { krate, folders, exceptions: names(cells.next()).into_iter().collect() })
        })
        .collect()
}

/// Returns a complaint for each use of a later folder that is not an exception, for each exception without
/// such a use, and for each folder that is missing in the table or in the crate.
pub(crate) fn judge(order: &Order, files: &[SourceFile]) -> Vec<String> {
    let own: Vec<(&str, &SourceFile)> =
        files.iter().filter_map(|file| Some((in_crate(file, &order.krate)?, file))).collect();
    let reexported = own.iter().find(|(path, _)| *path == "lib.rs").map(|(_, file)| reexports(file));
    let reexported = reexported.unwrap_or_default();
    let (mut found, mut present, mut complaints) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (path, file) in own.iter().filter(|(path, _)| !path.starts_with("tests/")) {
        let Some((folder, _)) = path.split_once('/') else { continue };
        present.insert(folder.to_owned());
        let Some(position) = order.folders.iter().position(|name| name == folder) else { continue };
        let later = &order.folders[position + 1..];
        for used in uses(&file.lines.join("\n"), &reexported).intersection(&later.iter().cloned().collect()) {
            found.insert(format!("{path} -> {used}"));
        }
    }
    let listed: BTreeSet<String> = order.folders.iter().cloned().collect();
    let krate = &order.krate;
    complaints.extend(present.symmetric_difference(&listed).map(|folder| {
        format!("the folder {folder} of {krate} is not both in the crate and in ARCHITECTURE.md")
    }));
    complaints.extend(found.difference(&order.exceptions).map(|arrow| {
        format!("{krate}/src/{arrow}: the folder is later in ARCHITECTURE.md, so it must not be used here")
    }));
    complaints.extend(
        order
            .exceptions
            .difference(&found)
            .map(|arrow| format!("ARCHITECTURE.md lists {krate}: {arrow}, which no longer exists")),
    );
    complaints
}

/// Returns the path below `src` of a crate's file.
fn in_crate<'a>(file: &'a SourceFile, krate: &str) -> Option<&'a str> {
    (file.crate_name() == krate).then(|| file.path.split_once("/src/"))?.map(|(_, path)| path)
}

/// Returns the folder of each name that `lib.rs` exports again.
fn reexports(lib: &SourceFile) -> BTreeMap<String, String> {
    let text = lib.lines.join("\n");
    let mut all = BTreeMap::new();
    for statement in text.split("pub use crate::").skip(1) {
        let statement = statement.split(';').next().unwrap_or_default();
        let Some((folder, rest)) = statement.split_once("::") else { continue };
        let names = rest.rsplit("::").next().unwrap_or_default();
        for name in names.split(['{', '}', ',', ' ', '\n']).filter(|name| !name.is_empty()) {
            all.insert(name.to_owned(), folder.to_owned());
        }
    }
    all
}

/// Returns the folders that a text uses: by `crate::FOLDER`, or by a name that the crate exports again.
fn uses(text: &str, reexported: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        let names = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default(),
        };
        for name in names.split([',', ' ', '\n']) {
            let name = name.split("::").next().unwrap_or_default();
            all.insert(reexported.get(name).map_or(name, String::as_str).to_owned());
        }
    }
    all
}
