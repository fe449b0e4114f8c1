//! Checks that no dependency needs a later compiler than `rust-version` of the workspace. Clippy's
//! `incompatible_msrv` checks that Cellar's own code uses no later part of the standard library.

use crate::sbom;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    judge(&sbom::metadata(root)?)
}

/// Returns a complaint for each package of `cargo metadata` that needs a later compiler than its own members.
pub(crate) fn judge(metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let (foreign, own): (Vec<&Value>, Vec<&Value>) =
        packages.iter().partition(|package| package["source"].is_string());
    let least = own.iter().filter_map(|package| version(package)).min();
    let least = least.context("no package of the workspace has a `rust-version`")?;
    let later = foreign.into_iter().filter(|package| version(package).is_some_and(|own| own > least));
    let complaint = |package: &Value| {
        format!(
            "{} {} needs Rust {}, the workspace's `rust-version` is {}.{}",
            package["name"], package["version"], package["rust_version"], least.0, least.1
        )
    };
    Ok(later.map(complaint).collect())
}

/// Returns the major and minor version of the compiler that a package needs.
fn version(package: &Value) -> Option<(u32, u32)> {
    let mut parts = package["rust_version"].as_str()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next().unwrap_or("0").parse().ok()?))
}
