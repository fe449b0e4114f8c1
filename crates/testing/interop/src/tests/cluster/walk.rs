//! Walks over a tree by clients of its owner and of other nodes, and the calls that these cost; then a large file.

use super::PLAN;
use crate::Test;
use crate::churn::Through;
use crate::tests::mixed::all;
use afs_idl::fs::FetchStatus;
use anyhow::{Context, Result, anyhow, ensure};
use cell_client::CellClient;
use cell_client::files::{Attributes, Node};
use interop::cell::Cell;
use interop::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

pub(super) fn tests() -> Vec<Test> {
    vec![Test { name: "cluster-walk", needs: super::NEEDS, run: walks }]
}

/// Number of files by default, and the variable with another one.
const FILES: usize = 3000;
const FILES_VARIABLE: &str = "CELLAR_WALK_FILES";

/// Files in each directory.
const IN_DIRECTORY: usize = 500;

/// Files whose statuses a client gets in one call.
const IN_CALL: usize = 50;

/// Of this many files, one is changed.
const CHANGED: usize = 100;

const VOLUME: &str = "tree";

/// The statuses of a tree by path.
type Tree = BTreeMap<String, FetchStatus>;

/// Figures of a node that are calls to other nodes, or from them.
const CALLS: [&str; 8] = [
    "forwarded",
    "forwards_refused",
    "forwards_unknown",
    "forwards_failed",
    "executed",
    "executed_before",
    "sent_through",
    "sent_directly",
];

/// Figures of [`CALLS`] for calls that failed or whose outcome is unknown. They are repeated, which adds calls.
const LOST: [usize; 2] = [2, 3];

/// Number of attempts at a walk or a read: on a busy machine calls between the nodes may be lost in one.
pub(super) const ATTEMPTS: usize = 3;

/// What a walk has cost: the increase of [`CALLS`] at each node.
type Cost = Vec<[u64; CALLS.len()]>;

fn walks() -> Result<()> {
    let files = match std::env::var(FILES_VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{FILES_VARIABLE}={text}"))?,
        Err(_) => FILES,
    };
    let mut cluster = PLAN.start()?;
    cluster.give("b", OWNER)?;
    cluster.wait()?;
    cluster.create_volume(VOLUME)?;
    let local = cluster.host.scratch()?.join("tree");
    create(&local, files)?;
    all(&cluster.host, &[format!("cellar cp {}/ cell:{VOLUME}/top", local.display())])?;
    compare_walks(&cluster, &local, files).with_context(|| cluster.logs())?;
    super::reads::compare(&cluster, VOLUME, (FRONT, THIRD)).with_context(|| cluster.logs())?;
    cluster.end().with_context(|| cluster.logs())
}

/// The node that owns the volume, and two others.
const OWNER: usize = 0;
const FRONT: usize = 1;
const THIRD: usize = 2;

/// Creates files whose lengths follow from their numbers.
fn create(folder: &Path, files: usize) -> Result<()> {
    for number in 0..files {
        let directory = folder.join(format!("dir-{}", number / IN_DIRECTORY));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join(format!("file-{number}")), vec![b'x'; length_of(number)])?;
    }
    Ok(())
}

fn length_of(number: usize) -> usize {
    number * 7 % 3001
}

fn compare_walks(cluster: &Cluster, local: &Path, files: usize) -> Result<()> {
    let (owned, cost) = walk(cluster, OWNER)?;
    check(&owned, local, files)?;
    ensure!(
        cost.iter().flatten().all(|calls| *calls == 0),
        "the owner's client needed other nodes: {cost:?}"
    );
    for round in 0..2 {
        for attempt in 1..=ATTEMPTS {
            let begun = Instant::now();
            let (tree, cost) = walk(cluster, FRONT)?;
            ensure!(tree == owned, "statuses differ: {:?}", first_difference(&tree, &owned));
            println!(
                "interop: walk {round} over {files} files, {:.1?}: {} calls",
                begun.elapsed(),
                cost[FRONT][0]
            );
            let lost: u64 = cost.iter().flat_map(|node| LOST.map(|figure| node[figure])).sum();
            if lost == 0 || attempt == ATTEMPTS {
                bounded(&cost, files)?;
                break;
            }
            println!("interop: {lost} calls were lost; again");
        }
    }
    let mut expected = owned;
    for (step, (writer, readers)) in
        [(FRONT, [OWNER, THIRD]), (OWNER, [FRONT, THIRD]), (THIRD, [FRONT, OWNER])].into_iter().enumerate()
    {
        let changed = change(cluster, writer, files, step)?;
        let (tree, _) = walk(cluster, readers[0])?;
        check_changes(&tree, &expected, &changed)?;
        expected = tree;
        let (tree, _) = walk(cluster, readers[1])?;
        ensure!(tree == expected, "statuses differ: {:?}", first_difference(&tree, &expected));
    }
    Ok(())
}

/// Checks that the files of these lengths have changed since `before`, and nothing else.
fn check_changes(tree: &Tree, before: &Tree, changed: &BTreeMap<String, usize>) -> Result<()> {
    ensure!(tree.len() == before.len(), "{} entries instead of {}", tree.len(), before.len());
    for (path, status) in tree {
        let earlier = before.get(path).with_context(|| format!("{path} is new"))?;
        match changed.get(path) {
            Some(length) => ensure!(
                status.length as usize == *length && status.data_version == earlier.data_version + 1,
                "{path} has {length} bytes; a client of another node sees {status:?}"
            ),
            None => ensure!(status == earlier, "{path} has not changed: {status:?} after {earlier:?}"),
        }
    }
    Ok(())
}

fn first_difference(one: &Tree, other: &Tree) -> Option<(String, String)> {
    let differs = |(path, status): &(&String, &FetchStatus)| other.get(*path) != Some(status);
    let found = one.iter().find(differs)?;
    Some((format!("{found:?}"), format!("{:?}", other.get(found.0))))
}

/// Walks over the tree as `find -ls` does, by a new client of a node; returns the statuses, and what that has cost the nodes.
fn walk(cluster: &Cluster, node: usize) -> Result<(Tree, Cost)> {
    let cell = client(cluster, node)?;
    let before = counts(cluster)?;
    let (mut tree, root) = (Tree::new(), cell.root_of(VOLUME)?);
    let mut directories = vec![(String::new(), root)];
    while let Some((path, directory)) = directories.pop() {
        let entries = cell.list(&directory)?;
        let nodes = cell.open_entries(&directory, &entries)?;
        for (entry, node) in entries.iter().zip(nodes) {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let node = node.map_err(|code| anyhow!("{path}: {code:?}"))?;
            tree.insert(path.clone(), node.status);
            if node.is_directory() {
                directories.push((path, node));
            }
        }
    }
    let after = counts(cluster)?;
    let increase = |(after, before): (&[u64; CALLS.len()], &[u64; CALLS.len()])| {
        std::array::from_fn(|index| after[index] - before[index])
    };
    Ok((tree, after.iter().zip(&before).map(increase).collect()))
}

pub(super) fn client(cluster: &Cluster, node: usize) -> Result<CellClient> {
    Through::cell(cluster.host.address.parse()?, cluster.nodes[node].address.parse()?)
}

fn counts(cluster: &Cluster) -> Result<Vec<[u64; CALLS.len()]>> {
    counts_of(cluster, &CALLS)
}

/// Returns these figures of each node.
pub(super) fn counts_of<const N: usize>(cluster: &Cluster, names: &[&str; N]) -> Result<Vec<[u64; N]>> {
    let count = |node: &Cell| -> Result<[u64; N]> {
        let shown = cluster.run(&format!("cellar stat cluster --on {} --json", node.address))?;
        let shown: Value = serde_json::from_str(&shown).context(shown)?;
        let figures = &shown["cluster"];
        let mut counts = [0; N];
        for (name, count) in names.iter().zip(&mut counts) {
            *count = figures[name].as_u64().with_context(|| format!("no {name}: {shown}"))?;
        }
        Ok(counts)
    };
    cluster.nodes.iter().map(count).collect()
}

/// Checks that the tree is the local one.
fn check(tree: &Tree, local: &Path, files: usize) -> Result<()> {
    let directories = files.div_ceil(IN_DIRECTORY);
    ensure!(
        tree.len() == files + directories + 1,
        "{} of {files} files and {directories} directories",
        tree.len()
    );
    for number in 0..files {
        let path = format!("dir-{}/file-{number}", number / IN_DIRECTORY);
        let status = tree.get(&format!("/top/{path}")).with_context(|| path.clone())?;
        let stored = std::fs::metadata(local.join(&path))?;
        ensure!(u64::from(status.length) == stored.len() && status.length_high == 0, "{path}: {status:?}");
        ensure!(
            status.unix_mode_bits == stored.mode() & 0o7777 && status.link_count == 1,
            "{path}: {status:?}"
        );
        ensure!(i64::from(status.client_mod_time) == stored.mtime(), "{path}: {status:?}");
    }
    Ok(())
}

/// The owner asks a client that it meets for its identity, through the front.
const MEETING: u64 = 2;

/// Checks that a walk by a new client of [`FRONT`] has cost a call for 50 files and two for a directory, all of them forwarded
/// calls that the owner has executed once, what it takes to meet the client, and nothing else.
fn bounded(cost: &[[u64; CALLS.len()]], files: usize) -> Result<()> {
    let directories = files.div_ceil(IN_DIRECTORY) + 2;
    let [most, least] = [files / IN_CALL + 2 * directories + 2, files / IN_CALL].map(|calls| calls as u64);
    let forwarded = cost[FRONT][0];
    ensure!((least..=most).contains(&forwarded), "{forwarded} calls for {files} files: {cost:?}");
    let mut expected = vec![[0; CALLS.len()]; cost.len()];
    expected[FRONT][0] = forwarded;
    expected[OWNER][4] = forwarded;
    expected[OWNER][6] = cost[OWNER][6].min(MEETING);
    ensure!(cost == expected, "{CALLS:?} of the nodes: {cost:?}");
    Ok(())
}

/// Stores other lengths through a node; returns them by path.
fn change(cluster: &Cluster, node: usize, files: usize, step: usize) -> Result<BTreeMap<String, usize>> {
    let (cell, mut changed) = (client(cluster, node)?, BTreeMap::new());
    let root = cell.root_of(VOLUME)?;
    let child = |node: &Node, name: &str| cell.child(node, name.as_bytes())?.with_context(|| name.to_owned());
    let top = child(&root, "top")?;
    for number in (step..files).step_by(CHANGED) {
        let directory = format!("dir-{}", number / IN_DIRECTORY);
        let file = child(&child(&top, &directory)?, &format!("file-{number}"))?;
        let length = length_of(number) + 4000 + step;
        let attributes = Attributes { mode: 0o644, modified: 1_000_000_000 };
        cell.store(&file, attributes, &mut Cursor::new(vec![b'y'; length]), length as u64, &mut |_| ())?;
        changed.insert(format!("/top/{directory}/file-{number}"), length);
    }
    Ok(changed)
}
