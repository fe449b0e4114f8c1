//! Checks of the whole repository.

mod arrows;
mod folders;
mod fresh;
mod ignorance;
mod links;
mod merges;
mod msrv;
mod purity;
mod sizes;
mod source;
mod unused;
mod wording;

use anyhow::{Result, bail};
use source::SourceFile;
use std::path::Path;

/// Runs all checks and fails with the list of all complaints.
pub(crate) fn check(root: &Path, lower_limits: bool) -> Result<()> {
    let files = source::read_all(root)?;
    let mut complaints = fresh::check(root)?;
    complaints.extend(arrows::check(root)?);
    complaints.extend(folders::check(root, &files)?);
    complaints.extend(unused::check(root, &files)?);
    complaints.extend(links::check(root)?);
    complaints.extend(merges::check(root)?);
    complaints.extend(msrv::check(root)?);
    complaints.extend(files.iter().flat_map(purity::check));
    complaints.extend(files.iter().flat_map(ignorance::check));
    complaints.extend(sizes::check(root, &files, lower_limits)?);
    complaints.extend(wording::check(root, &files, lower_limits)?);
    if complaints.is_empty() {
        println!("tidy: {} files are in order", files.len());
        return Ok(());
    }
    for complaint in &complaints {
        eprintln!("tidy: {complaint}");
    }
    bail!("{} things are not in order", complaints.len())
}

#[cfg(test)]
mod tests;
