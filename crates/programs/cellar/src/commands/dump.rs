//! `cellar dump`.

use crate::output::{Format, Row, line};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, HumanCount};
use jiff::Timestamp;
use openafs_import::dump::compare::{Depth, Difference, acl_text, compare};
use openafs_import::dump::contents::{Contents, Data, Node, printable};
use openafs_import::dump::extract::{Options, extract};
use serde::Serialize;
use std::path::PathBuf;

/// Inspect, compare and extract volume dump files of OpenAFS or Cellar, without a server.
#[derive(Subcommand)]
pub enum Dump {
    /// Show the contents of a dump; fails if it is damaged, with the position of the damage.
    Show(Show),
    /// Compare two dumps path by path; exits with status 1 if they differ.
    Diff(Diff),
    /// Extract a dump's files to a directory.
    Extract(Extract),
}

/// Show the contents of a dump.
#[derive(Args)]
pub struct Show {
    /// Dump file.
    file: PathBuf,
    /// List every file, and the access lists of directories (by ID, since a dump has no names).
    #[arg(long)]
    long: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Compare two dumps.
#[derive(Args)]
pub struct Diff {
    /// First dump file.
    first: PathBuf,
    /// Second dump file.
    second: PathBuf,
    /// Also compare the volumes' headers, vnode numbers and uniquifiers, data versions and server times.
    #[arg(long)]
    everything: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Extract a dump's files to a directory.
#[derive(Args)]
pub struct Extract {
    /// Dump file.
    file: PathBuf,
    /// Target directory; must be empty or missing.
    folder: PathBuf,
    /// Set owners, groups and modes as in the dump; needs root. Otherwise modes are limited by the umask.
    #[arg(long)]
    owners: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(command: &Dump) -> Result<()> {
    match command {
        Dump::Show(show) => run_show(show),
        Dump::Diff(diff) => run_diff(diff),
        Dump::Extract(wanted) => run_extract(wanted),
    }
}

fn format(json: bool) -> Format {
    if json { Format::Json } else { Format::Text }
}

#[derive(Serialize)]
struct DumpView {
    volume: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    offline_message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message_of_the_day: String,
    id: u32,
    parent: u32,
    kind: &'static str,
    /// Start of the changes in seconds since 1970; 0 for a full dump.
    changes_since: u32,
    dumped: u32,
    created: u32,
    updated: u32,
    quota_kib: u32,
    used_kib: u32,
    files: u64,
    directories: u64,
    links: u64,
    /// Number of vnodes unchanged since `changes_since`.
    unchanged: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<Listed>>,
}

/// A name in a listing.
#[derive(Serialize)]
struct Listed {
    path: String,
    vnode: u32,
    unique: u32,
    kind: &'static str,
    mode: String,
    owner: u32,
    group: u32,
    bytes: u64,
    modified: u32,
    data_version: u32,
    detail: String,
}

impl Row for Listed {
    const COLUMNS: &'static [&'static str] =
        &["MODE", "OWNER", "GROUP", "BYTES", "MODIFIED", "VNODE", "VERSION", "PATH", ""];

    fn cells(&self) -> Vec<String> {
        vec![
            self.mode.clone(),
            self.owner.to_string(),
            self.group.to_string(),
            self.bytes.to_string(),
            time(self.modified),
            format!("{}.{}", self.vnode, self.unique),
            self.data_version.to_string(),
            self.path.clone(),
            self.detail.clone(),
        ]
    }
}

fn time(seconds: u32) -> String {
    Timestamp::from_second(seconds.into()).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

fn run_show(show: &Show) -> Result<()> {
    let contents = Contents::read(&show.file)?;
    let mut shown = DumpView::new(&contents);
    if show.long {
        shown.nodes = Some(listed(&contents)?);
    }
    if show.json {
        return Format::Json.done(&shown, "");
    }
    shown.print()?;
    match &shown.nodes {
        Some(nodes) => Format::Text.rows(nodes),
        None => Ok(()),
    }
}

impl DumpView {
    fn new(contents: &Contents) -> DumpView {
        let volume = &contents.volume;
        let (from, to) = contents.header.dates.first().copied().unwrap_or_default();
        let count = |kind| {
            let of_kind = |node: &&Node| node.attributes.as_ref().is_some_and(|status| status.kind == kind);
            contents.nodes.values().filter(of_kind).count() as u64
        };
        let lengths = contents.nodes.values().map(|node| length(&node.data));
        DumpView {
            volume: printable(&volume.name),
            offline_message: printable(&volume.offline_message),
            message_of_the_day: printable(&volume.message_of_the_day),
            id: volume.id,
            parent: volume.parent,
            kind: ["read-write", "read-only", "backup"].get(usize::from(volume.kind)).unwrap_or(&"unknown"),
            changes_since: from.0,
            dumped: to.0,
            created: volume.created.0,
            updated: volume.updated.0,
            quota_kib: volume.quota_max_kib,
            used_kib: volume.used_kib,
            files: count(1),
            directories: count(2),
            links: count(3),
            unchanged: contents.nodes.values().filter(|node| node.attributes.is_none()).count() as u64,
            bytes: lengths.sum(),
            nodes: None,
        }
    }

    fn print(&self) -> Result<()> {
        let span = match self.changes_since {
            0 => "everything".to_owned(),
            since => format!("changes since {}", time(since)),
        };
        line(format!("{} ({}), {}, of volume {}", self.volume, self.id, self.kind, self.parent))?;
        line(format!("{span}, dumped {}", time(self.dumped)))?;
        for (what, text) in
            [("offline message", &self.offline_message), ("message of the day", &self.message_of_the_day)]
        {
            if !text.is_empty() {
                line(format!("{what}: {text}"))?;
            }
        }
        line(format!("created {}, changed {}", time(self.created), time(self.updated)))?;
        line(format!("{} KiB used of {}", HumanCount(self.used_kib.into()), quota(self.quota_kib)))?;
        line(format!(
            "{} files, {} directories, {} links, {} of data; {} vnodes unchanged",
            HumanCount(self.files),
            HumanCount(self.directories),
            HumanCount(self.links),
            HumanBytes(self.bytes),
            HumanCount(self.unchanged)
        ))
    }
}

fn quota(kib: u32) -> String {
    if kib == 0 { "any number".to_owned() } else { HumanCount(kib.into()).to_string() }
}

fn length(data: &Data) -> u64 {
    match data {
        Data::File(length, _) => *length,
        Data::Link(target) => target.len() as u64,
        Data::None | Data::Directory(_) => 0,
    }
}

/// Lists every name, then the vnodes without a name.
fn listed(contents: &Contents) -> Result<Vec<Listed>> {
    let paths = contents.paths()?;
    let nameless = contents.without_name(&paths);
    let named = paths.iter().map(|(path, vnode)| (printable(path), *vnode));
    let all = named.chain(nameless.into_iter().map(|vnode| ("(no name in this dump)".to_owned(), vnode)));
    Ok(all.filter_map(|(path, vnode)| Some(Listed::new(path, vnode, contents.nodes.get(&vnode)?))).collect())
}

impl Listed {
    fn new(path: String, vnode: u32, node: &Node) -> Listed {
        let status = node.attributes.clone().unwrap_or_default();
        let kind = match (status.kind, status.mode & 0o111) {
            (1, _) => "file",
            (2, _) => "directory",
            (3, 0) => "mount point",
            (3, _) => "link",
            _ => "unchanged",
        };
        let detail = match &node.data {
            Data::Link(target) => format!("-> {}", printable(target)),
            _ => acl_text(status.acl.as_ref()),
        };
        Listed {
            path,
            vnode,
            unique: node.unique,
            kind,
            mode: format!("{}{:04o}", letter(kind), status.mode),
            owner: status.owner,
            group: status.group,
            bytes: length(&node.data),
            modified: status.client_modified.0,
            data_version: status.data_version,
            detail,
        }
    }
}

/// Returns the letter that `ls` shows; `m` is a mount point and `=` an unchanged vnode.
fn letter(kind: &str) -> char {
    match kind {
        "file" => '-',
        "directory" => 'd',
        "link" => 'l',
        "mount point" => 'm',
        _ => '=',
    }
}

impl Row for Difference {
    const COLUMNS: &'static [&'static str] = &["PATH", "WHAT", "FIRST", "SECOND"];

    fn cells(&self) -> Vec<String> {
        vec![self.place.clone(), self.what.to_owned(), self.first.clone(), self.second.clone()]
    }
}

fn run_diff(diff: &Diff) -> Result<()> {
    let (first, second) = (Contents::read(&diff.first)?, Contents::read(&diff.second)?);
    let found = compare(&first, &second, Depth { everything: diff.everything })?;
    if diff.json || !found.is_empty() {
        format(diff.json).rows(&found)?;
    }
    match found.len() {
        0 => Ok(()),
        1 => bail!("the dumps differ in one place"),
        count => bail!("the dumps differ in {count} places"),
    }
}

fn run_extract(wanted: &Extract) -> Result<()> {
    let written = extract(&wanted.file, &wanted.folder, Options { owners: wanted.owners })?;
    let nameless = match written.nameless {
        0 => String::new(),
        count => format!("; {count} vnodes have no name in this dump and were left out"),
    };
    let sentence = format!(
        "{} files, {} directories, {} links, {}{nameless}",
        HumanCount(written.files),
        HumanCount(written.directories),
        HumanCount(written.links),
        HumanBytes(written.bytes)
    );
    format(wanted.json).done(&written, sentence)
}
