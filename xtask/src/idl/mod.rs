//! The interface language of `idl/`, described in `idl/README.md`.

mod facts;
mod lexer;
pub(crate) mod parser;
pub(crate) mod syntax;

use anyhow::{Context, Result};
use std::path::Path;
use syntax::Interface;

/// Reads one interface file.
pub(crate) fn read(path: &Path) -> Result<Interface> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    parser::parse(name, &text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests;
