//! Checks vnodes against the directories that name them.

use crate::view::blocks;
use afs_format::directory::{DirectoryBlob, EntryTarget, PAGE_BYTES, PlacedEntry};
use base::VnodeId;
use std::collections::HashMap;
use volume_records::FileKind;
use volume_records::codec::Vnode;

/// Location, and what is wrong there.
pub(crate) type Finding = (String, String);

pub(crate) struct Node {
    pub(crate) unique: u32,
    pub(crate) length: u64,
    pub(crate) chunk_shift: u8,
    pub(crate) is_directory: bool,
    parent: EntryTarget,
    links: u32,
    /// Number of directory entries that refer to it.
    names: u32,
    subdirectories: u32,
    /// Whether its entries were found, if it is a directory.
    has_entries: bool,
    /// Whether it is reachable from the root.
    is_reached: bool,
}

/// Sums over the vnodes of a volume.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) blocks: u64,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) highest_file: u32,
    pub(crate) highest_directory: u32,
}

/// The vnodes of a volume.
#[derive(Default)]
pub(crate) struct Tree(HashMap<VnodeId, Node>);

fn name_of(vnode: VnodeId, unique: u32) -> String {
    format!("vnode {}.{unique}", vnode.0)
}

impl Tree {
    pub(crate) fn add(&mut self, vnode: &Vnode) {
        let status = &vnode.status;
        let node = Node {
            unique: status.unique,
            length: status.length,
            chunk_shift: vnode.chunk_shift,
            is_directory: status.kind == FileKind::Directory,
            parent: EntryTarget { vnode: status.parent, unique: status.parent_unique },
            links: status.links,
            names: 0,
            subdirectories: 0,
            has_entries: false,
            is_reached: status.vnode == VnodeId::ROOT,
        };
        self.0.insert(status.vnode, node);
    }

    pub(crate) fn get(&self, vnode: VnodeId) -> Option<&Node> {
        self.0.get(&vnode)
    }

    /// Returns the parent of a directory.
    pub(crate) fn above(&self, directory: VnodeId) -> Option<VnodeId> {
        let parent = self.0.get(&directory)?.parent.vnode;
        Some(parent).filter(|parent| self.0.contains_key(parent))
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for (number, node) in &self.0 {
            totals.blocks = totals.blocks.saturating_add(blocks(node.length));
            let highest =
                if node.is_directory { &mut totals.highest_directory } else { &mut totals.highest_file };
            *highest = number.0.max(*highest);
            if *number != VnodeId::ROOT {
                totals.files += 1;
                totals.directories += u64::from(node.is_directory);
            }
        }
        totals
    }

    /// Adds the entries of a directory; returns what is wrong with them.
    pub(crate) fn add_directory(&mut self, number: VnodeId, entries: Vec<PlacedEntry>) -> Vec<Finding> {
        let Some(node) = self.0.get_mut(&number).filter(|node| node.is_directory) else {
            let what = format!("there are {} entries, but no such directory", entries.len());
            return vec![(format!("directory {}", number.0), what)];
        };
        node.has_entries = true;
        let own = EntryTarget { vnode: number, unique: node.unique };
        let up = if number == VnodeId::ROOT { own } else { node.parent };
        let place = name_of(number, node.unique);
        let pages = usize::try_from(node.length).unwrap_or(usize::MAX) / PAGE_BYTES;
        let mut found = Vec::new();
        let has = |name: &[u8]| entries.iter().any(|entry| entry.name == name);
        if !has(b".") || !has(b"..") {
            found.push((place.clone(), "`.` or `..` is missing".to_owned()));
        }
        for entry in &entries {
            let what = match &entry.name[..] {
                b"." => (entry.target != own).then(|| format!("leads to {:?}", entry.target)),
                b".." => (entry.target != up).then(|| format!("leads to {:?}, not to {up:?}", entry.target)),
                _ => self.add_name(own, entry.target),
            };
            let name = || format!("{place}, name {}", entry.name.escape_ascii());
            found.extend(what.map(|what| (name(), what)));
        }
        if let Err(error) = DirectoryBlob::rebuild(pages, entries) {
            found.push((place, format!("its pages cannot be built: {error}")));
        }
        found
    }

    /// Counts a name that refers to `target`; returns what is wrong with it.
    fn add_name(&mut self, directory: EntryTarget, target: EntryTarget) -> Option<String> {
        let Some(node) = self.0.get_mut(&target.vnode).filter(|node| node.unique == target.unique) else {
            return Some(format!("leads to {}, which does not exist", name_of(target.vnode, target.unique)));
        };
        node.names += 1;
        let (is_directory, parent) = (node.is_directory, node.parent);
        if let Some(above) = self.0.get_mut(&directory.vnode).filter(|_| is_directory) {
            above.subdirectories += 1;
        }
        (parent != directory).then(|| format!("refers to a vnode whose directory is {parent:?}"))
    }

    /// Returns what is wrong once all directories have been added.
    pub(crate) fn check(&mut self) -> Vec<Finding> {
        let mut found = Vec::new();
        if self.0.is_empty() {
            // The volume is waiting for a restore.
            return found;
        }
        if !self.0.get(&VnodeId::ROOT).is_some_and(|root| root.is_directory) {
            found.push((name_of(VnodeId::ROOT, 1), "there is no root directory".to_owned()));
        }
        let mut numbers: Vec<VnodeId> = self.0.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let is_reached = self.reach(number);
            if let Some(node) = self.0.get(&number) {
                let what = node.fault(number, is_reached);
                found.extend(what.map(|what| (name_of(number, node.unique), what)));
            }
        }
        found
    }

    /// Returns whether the chain of parents from a vnode ends at the root.
    fn reach(&mut self, number: VnodeId) -> bool {
        let mut way = Vec::new();
        let mut at = number;
        let is_reached = loop {
            match self.0.get(&at) {
                Some(node) if node.is_reached => break true,
                Some(node) if way.len() <= self.0.len() => {
                    way.push(at);
                    at = node.parent.vnode;
                }
                _ => break false,
            }
        };
        for number in way.iter().filter(|_| is_reached) {
            if let Some(node) = self.0.get_mut(number) {
                node.is_reached = true;
            }
        }
        is_reached
    }
}

impl Node {
    fn fault(&self, number: VnodeId, is_reached: bool) -> Option<String> {
        let is_root = number == VnodeId::ROOT;
        let links = if self.is_directory { 2 + self.subdirectories } else { self.names };
        if !is_root && self.names == 0 {
            Some("no name refers to it".to_owned())
        } else if self.is_directory && self.names != u32::from(!is_root) {
            Some(format!("{} names refer to this directory", self.names))
        } else if !is_reached {
            Some("it cannot be reached from the root directory".to_owned())
        } else if self.is_directory && !self.has_entries {
            Some("the directory has no entries, not even `.`".to_owned())
        } else if self.links != links {
            Some(format!("link count: counted {links}, stored {}", self.links))
        } else {
            None
        }
    }
}
