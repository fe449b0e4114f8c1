//! Checks that dependencies between crates follow the order of the table in ARCHITECTURE.md, and that each crate
//! is in the folder that the table names.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Name of the floor whose crates are for tests only.
const TESTING: &str = "testing";

/// Position of a crate in the table: its row, and its floor, the folder of `crates/` that holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) row: usize,
    pub(crate) floor: String,
}

/// A crate as its manifest declares it.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// The folder of the manifest, relative to the repository's root.
    pub(crate) folder: String,
    /// The crates of the workspace that it uses outside tests.
    pub(crate) uses: Vec<String>,
}

/// Compares the table with the manifests. A crate may use crates of rows above its own; dependencies of tests
/// are not restricted.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let places = table(&text);
    ensure!(!places.is_empty(), "ARCHITECTURE.md has no table of crates");
    let manifests = manifests(root, &metadata(root)?)?;
    Ok(judge(&places, &manifests))
}

/// Parses the table of crates whose header starts with `| floor | crate |`.
pub(crate) fn table(text: &str) -> BTreeMap<String, Place> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| floor | crate |")).skip(2);
    let mut places = BTreeMap::new();
    for (row, line) in rows.take_while(|line| line.starts_with('|')).enumerate() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let floor = cells.next().unwrap_or_default().trim_matches('`');
        let names = cells.next().unwrap_or_default();
        for name in names.split(',').map(|name| name.trim().trim_matches('`')) {
            places.insert(name.to_owned(), Place { row, floor: floor.to_owned() });
        }
    }
    places
}

/// Returns the output of `cargo metadata` for the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns each workspace member except this one.
fn manifests(root: &Path, metadata: &Value) -> Result<BTreeMap<String, Manifest>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let mut all = BTreeMap::new();
    for package in packages.iter().filter(|package| name(package) != "xtask") {
        let used = package["dependencies"].as_array().context("no dependencies")?;
        let used = used.iter().filter(|it| it["path"].is_string() && it["kind"] != "dev");
        let folder = package_folder(root, package)?;
        all.insert(name(package), Manifest { folder, uses: used.map(name).collect() });
    }
    Ok(all)
}

/// Returns the folder of a package's manifest, relative to the repository's root.
pub(crate) fn package_folder(root: &Path, package: &Value) -> Result<String> {
    let manifest = Path::new(package["manifest_path"].as_str().context("no manifest")?);
    let folder = manifest.parent().context("no folder")?.strip_prefix(root)?;
    Ok(folder.to_string_lossy().into_owned())
}

/// Returns the complaints about these crates.
pub(crate) fn judge(places: &BTreeMap<String, Place>, manifests: &BTreeMap<String, Manifest>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, manifest) in manifests {
        let Some(place) = places.get(name) else {
            complaints.push(format!("the crate {name} is not in the table of ARCHITECTURE.md"));
            continue;
        };
        let folder = format!("crates/{}/{name}", place.floor);
        if manifest.folder != folder {
            complaints
                .push(format!("{name} is in {}; ARCHITECTURE.md places it in {folder}", manifest.folder));
        }
        for other in &manifest.uses {
            if !places.get(other).is_some_and(|below| may_use(place, below)) {
                complaints
                    .push(format!("{name} depends on {other}, which is not above it in ARCHITECTURE.md"));
            }
        }
    }
    complaints
}

fn may_use(user: &Place, used: &Place) -> bool {
    used.row < user.row || (user.floor == TESTING && used.floor == TESTING)
}
