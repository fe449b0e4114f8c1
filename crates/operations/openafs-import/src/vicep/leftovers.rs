//! Files of a partition that belong to none of its volumes.

use super::source::{Listed, Problem, Source, Vicep};
use crate::dump::contents::printable;
use afs_format::namei::{FOLDER, IndexClass, Inode, header_volume};
use anyhow::{Context as _, Result};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use walkdir::WalkDir;

/// Files and directories that OpenAFS's servers, the file system and Cellar keep next to the volumes.
const OTHERS: [&str; 8] = [
    FOLDER,
    "AlwaysAttach",
    "NeverAttach",
    "FORCESALVAGE",
    ".volheaders.lock",
    ".volume.lock",
    "lost+found",
    "cellar",
];

/// Returns every file and directory that no volume uses; an import leaves them out. `sources` are all
/// readable volumes of the partition, and `is_whole` says that there are no others.
///
/// # Errors
/// If a directory cannot be read.
pub fn leftovers(partition: &Vicep, sources: &[Source<'_>], is_whole: bool) -> Result<Vec<Problem>> {
    let mut found = beside(partition.path())?;
    let groups = groups(sources);
    let data = partition.path().join(FOLDER);
    for entry in WalkDir::new(&data).min_depth(1).sort_by_file_name() {
        let entry = entry.with_context(|| format!("cannot list {}", data.display()))?;
        let path = entry.path().strip_prefix(partition.path()).unwrap_or(entry.path());
        if entry.file_type().is_dir() || is_used(path, &groups) {
            continue;
        }
        let shown = printable(path.as_os_str().as_bytes());
        let is_of_group = groups.keys().any(|folder| path.starts_with(folder));
        if is_of_group || is_whole {
            found.push(Problem::new(shown, "no volume uses it: left out"));
        } else {
            found.push(Problem::new(shown, "no readable volume uses it: left out"));
        }
    }
    Ok(found)
}

/// Returns unknown files next to the volume headers and the data directory.
fn beside(partition: &Path) -> Result<Vec<Problem>> {
    let mut found = Vec::new();
    let failed = || format!("cannot list {}", partition.display());
    for entry in std::fs::read_dir(partition).with_context(failed)? {
        let name = entry.with_context(failed)?.file_name();
        let is_known = name.to_str().is_some_and(|name| {
            OTHERS.contains(&name) || header_volume(name).is_some() || name.starts_with("Lock")
        });
        if !is_known {
            let what = "it is not a volume header (V and ten digits, .vol): left out";
            found.push(Problem::new(printable(name.as_bytes()), what));
        }
    }
    found.sort_by(|one, two| one.place.cmp(&two.place));
    Ok(found)
}

/// Returns the files used by volumes, by the directory of their group.
fn groups(sources: &[Source<'_>]) -> HashMap<String, (u32, HashSet<Inode>)> {
    let mut groups: HashMap<String, (u32, HashSet<Inode>)> = HashMap::new();
    for source in sources {
        let parent = source.info.parent;
        let (_, used) = groups.entry(Inode::folder(parent)).or_insert_with(|| (parent, HashSet::new()));
        used.extend(source.special_files());
        for class in [IndexClass::Large, IndexClass::Small] {
            let Ok(mut index) = source.index(class) else { continue };
            while let Ok(Some(Listed { vnode, .. })) = index.next_vnode() {
                used.extend(vnode.ok().map(|vnode| vnode.inode));
            }
        }
    }
    groups
}

fn is_used(path: &Path, groups: &HashMap<String, (u32, HashSet<Inode>)>) -> bool {
    let Some(text) = path.to_str() else { return false };
    let folder = path.ancestors().nth(path.components().count().saturating_sub(3));
    let group = folder.and_then(Path::to_str).and_then(|folder| groups.get(folder));
    let inode = path.file_name().and_then(|name| name.to_str()).and_then(Inode::from_file_name);
    let (Some((parent, used)), Some(inode)) = (group, inode) else { return false };
    used.contains(&inode) && inode.path(*parent) == text
}
