//! `cellar du`: shows the disk usage of directories. A Cellar server keeps these totals; for other servers,
//! every directory and file is read.

mod asking;
#[cfg(test)]
mod tests;
mod walking;

use super::Context;
use crate::output::{Format, Row};
use afs_idl::cellar::DirectoryTotals;
use anyhow::{Context as _, Result, bail};
use base::AbortCode;
use cell_client::CellClient;
use cell_client::describe::describe;
use cell_client::files::Node;
use cell_client::path::CellPath;
use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;

/// Show the disk usage of directories and everything below them. A Cellar server keeps these totals, so even
/// large trees take no time; for other servers every file is examined. Mount points below the named
/// directories are not followed.
#[derive(Args)]
pub struct DiskUsage {
    /// Directories, as `VOLUME/PATH` or `cell:VOLUME/PATH`.
    #[arg(required = true)]
    paths: Vec<String>,
    /// Show subdirectories down to this depth.
    #[arg(long, default_value_t = 1, value_name = "LEVELS")]
    depth: usize,
    /// Show only the named directories; the same as --depth 0.
    #[arg(short, long, conflicts_with = "depth")]
    summarize: bool,
    /// Sort by size, largest first.
    #[arg(long)]
    sort: bool,
    /// Examine every file even if the server keeps totals.
    #[arg(long)]
    walk: bool,
}

/// Source of the totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    /// The server, which keeps them.
    Server,
    /// This program, which examined every file.
    Walk,
}

/// A named directory, or one below it.
#[derive(Clone, Debug)]
struct Found {
    /// Path from the named directory.
    way: Vec<String>,
    /// The directory's totals, or why they are unknown.
    totals: Result<DirectoryTotals, AbortCode>,
    /// Whether parts of the tree could not be read.
    is_partial: bool,
}

/// A row of the output.
#[derive(Debug, Serialize)]
struct TotalsRow {
    path: String,
    bytes: u64,
    kib: u64,
    files: u64,
    directories: u64,
    source: Source,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    /// Why the totals are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Row for TotalsRow {
    const COLUMNS: &'static [&'static str] = &["USED", "BYTES", "FILES", "DIRECTORIES", "PATH"];

    fn cells(&self) -> Vec<String> {
        if let Some(error) = &self.error {
            return ["?", "?", "?", "?", &format!("{}: {error}", self.path)].map(str::to_owned).to_vec();
        }
        let least = if self.partial { " (at least: not everything could be read)" } else { "" };
        vec![
            HumanBytes(self.kib.saturating_mul(1024)).to_string(),
            self.bytes.to_string(),
            self.files.to_string(),
            self.directories.to_string(),
            format!("{}{least}", self.path),
        ]
    }
}

impl TotalsRow {
    fn new(path: &CellPath, found: &Found, source: Source) -> TotalsRow {
        let path = found.way.iter().fold(path.clone(), |path, name| path.join(name));
        let totals = found.totals.unwrap_or_default();
        TotalsRow {
            path: path.to_string(),
            bytes: totals.bytes,
            kib: totals.kib,
            files: totals.files,
            directories: totals.directories,
            source,
            partial: found.is_partial,
            error: found.totals.as_ref().err().map(|code| describe(*code)),
        }
    }
}

/// Runs the command. Failures are shown in their rows and summed up at the end.
pub fn run(context: &Context, command: &DiskUsage) -> Result<()> {
    let client = context.client()?;
    let mut shown = Vec::new();
    for path in &command.paths {
        shown.extend(show(&client, command, path)?);
    }
    if command.sort {
        shown.sort_by_key(|shown| std::cmp::Reverse(shown.kib));
    }
    context.format.rows(&shown)?;
    let missing = shown.iter().filter(|shown| shown.error.is_some()).count();
    let partial = shown.iter().any(|shown| shown.partial);
    match missing {
        0 if partial => bail!("not everything could be read"),
        0 => Ok(()),
        _ if context.format == Format::Json => bail!("{missing} directories could not be read"),
        _ => bail!("{missing} directories could not be read (? above)"),
    }
}

fn show(client: &CellClient, command: &DiskUsage, path: &str) -> Result<Vec<TotalsRow>> {
    let path = CellPath::parse(path.strip_prefix("cell:").unwrap_or(path))?;
    let node = client.find(&path)?.with_context(|| format!("there is no {path}"))?;
    if !node.is_directory() {
        bail!("{path} is not a directory");
    }
    let depth = if command.summarize { 0 } else { command.depth };
    let (mut found, source) = look(client, &node, &path, depth, command.walk)?;
    found.sort_by(|a, b| below_first(&a.way, &b.way));
    Ok(found.iter().map(|found| TotalsRow::new(&path, found, source)).collect())
}

/// Asks the server, and walks the tree if the server keeps no totals.
fn look(
    client: &CellClient,
    node: &Node,
    path: &CellPath,
    depth: usize,
    walks: bool,
) -> Result<(Vec<Found>, Source)> {
    if !walks {
        let why = match asking::ask(client, node, depth)? {
            asking::Answer::Found(found) => return Ok((found, Source::Server)),
            asking::Answer::NotCounted => "has not computed the totals of this volume's directories yet",
            asking::Answer::Unknown => "is not a Cellar server and keeps no totals",
        };
        eprintln!("cellar: {path}: the server {} {why}; reading every directory", node.address());
    }
    Ok((walking::walk(client, node, depth)?, Source::Walk))
}

/// Orders by name, with the contents of a directory before the directory, as `du` does.
fn below_first(a: &[String], b: &[String]) -> std::cmp::Ordering {
    let differs = a.iter().zip(b).map(|(a, b)| a.cmp(b)).find(|order| order.is_ne());
    differs.unwrap_or_else(|| b.len().cmp(&a.len()))
}
