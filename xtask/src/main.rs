//! Repository tasks: `cargo xtask generate`, `cargo xtask sbom` and `cargo xtask tidy`.

mod generate;
mod idl;
mod sbom;
mod tidy;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask generate | sbom | tidy [--lower-limits]
  generate              writes crates/protocol/afs-idl/src/generated from idl/
  sbom                  prints the components of the program (CycloneDX)
  tidy                  checks generated files, dependencies, purity, links, sizes
  tidy --lower-limits   and lowers the limits of xtask/function-lengths.txt to what is reached";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = repository_root()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate"] => generate::write(&root),
        ["sbom"] => sbom::print(&root),
        ["tidy"] => tidy::check(&root, false),
        ["tidy", "--lower-limits"] => tidy::check(&root, true),
        _ => bail!("{USAGE}"),
    }
}

/// Returns the parent of this crate's directory.
fn repository_root() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(own.parent().context("xtask has no directory above it")?.to_path_buf())
}
