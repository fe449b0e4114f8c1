//! Adds up totals file by file.

use super::Found;
use afs_idl::cellar::DirectoryTotals;
use anyhow::Result;
use base::{AbortCode, VnodeId};
use cell_client::CellClient;
use cell_client::files::Node;
use std::collections::HashSet;

/// A directory that was found.
struct Directory {
    node: Result<Node, AbortCode>,
    /// Index of the parent directory.
    above: Option<usize>,
    way: Vec<String>,
    sums: DirectoryTotals,
    is_partial: bool,
}

/// Returns the totals of a directory and of those below it, down to `depth`. Each directory is read only
/// once, even if a damaged volume has cycles.
pub(super) fn walk(client: &CellClient, node: &Node, depth: usize) -> Result<Vec<Found>> {
    let first = Directory {
        node: Ok(node.clone()),
        above: None,
        way: vec![],
        sums: DirectoryTotals::default(),
        is_partial: false,
    };
    let mut directories = vec![first];
    let mut seen = HashSet::from([node.fid.vnode]);
    let mut at = 0;
    while at < directories.len() {
        look(client, &mut directories, at, &mut seen)?;
        at += 1;
    }
    Ok(sum_up(directories, depth))
}

/// Counts the contents of a directory, and appends its subdirectories.
fn look(
    client: &CellClient,
    directories: &mut Vec<Directory>,
    at: usize,
    seen: &mut HashSet<VnodeId>,
) -> Result<()> {
    let Ok(node) = directories[at].node.clone() else { return Ok(()) };
    directories[at].sums.kib = blocks(node.length());
    let mut entries = match client.list(&node) {
        Ok(entries) => entries,
        Err(error) if at == 0 => return Err(error),
        Err(error) => {
            eprintln!("cellar: {}: {error:#}", directories[at].way.join("/"));
            directories[at].is_partial = true;
            return Ok(());
        }
    };
    // A file may have several names, all in the same directory.
    let mut names = HashSet::new();
    entries.retain(|entry| names.insert(entry.vnode));
    for (entry, below) in entries.iter().zip(client.open_entries(&node, &entries)?) {
        let is_directory = below.as_ref().map_or(entry.vnode.is_directory(), Node::is_directory);
        if is_directory && seen.insert(entry.vnode) {
            let name = base::text::escape(&entry.name);
            let way = directories[at].way.iter().cloned().chain([name]).collect();
            let sums = DirectoryTotals::default();
            let is_partial = below.is_err();
            directories.push(Directory { node: below, above: Some(at), way, sums, is_partial });
        } else if let (Ok(file), false) = (&below, is_directory) {
            let sums = &mut directories[at].sums;
            sums.bytes = sums.bytes.wrapping_add(file.length());
            sums.kib = sums.kib.wrapping_add(blocks(file.length()));
            sums.files += 1;
        } else {
            directories[at].is_partial = true;
        }
    }
    Ok(())
}

/// Adds up the totals. A directory comes after its parent, so that in reverse order its own totals are
/// complete.
fn sum_up(mut directories: Vec<Directory>, depth: usize) -> Vec<Found> {
    for at in (1..directories.len()).rev() {
        let (sums, is_partial) = (directories[at].sums, directories[at].is_partial);
        let Some(above) = directories[at].above else { continue };
        let above = &mut directories[above];
        above.sums.bytes = above.sums.bytes.wrapping_add(sums.bytes);
        above.sums.kib = above.sums.kib.wrapping_add(sums.kib);
        above.sums.files += sums.files;
        above.sums.directories += sums.directories + 1;
        above.is_partial |= is_partial;
    }
    let is_shown = |directory: &Directory| directory.way.len() <= depth;
    let found = directories.into_iter().filter(is_shown).map(|directory| Found {
        way: directory.way,
        totals: directory.node.map(|_| directory.sums),
        is_partial: directory.is_partial,
    });
    found.collect()
}

/// Rounds up to KiB, as servers do for the quota.
fn blocks(length: u64) -> u64 {
    length.div_ceil(1024).max(1)
}
