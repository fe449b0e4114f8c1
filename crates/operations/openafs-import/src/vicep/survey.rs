//! Checks a volume: every vnode, name, count and length.

use super::source::{Links, Listed, Problem, Source, unreadable};
use crate::dump::contents::printable;
use afs_format::directory::DirectoryBlob;
use afs_format::namei::{IndexClass, Inode, NameiVnode};
use base::VolumeId;
use base::limits::PATH_BYTES_MAX;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Vnode number and uniquifier of the root directory.
const ROOT: (u32, u32) = (1, 1);

/// Maximum number of problems listed.
const PROBLEMS_MAX: usize = 1000;

/// Contents of a volume, and its problems.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Number of regular files.
    pub files: u64,
    /// Number of directories.
    pub directories: u64,
    /// Number of symbolic links and mount points.
    pub links: u64,
    /// Total size of files and links in bytes.
    pub bytes: u64,
    /// The first 1000 problems; empty for a sound volume.
    pub problems: Vec<Problem>,
    /// Number of further problems.
    pub unlisted: u64,
    /// Details that are repaired or left out when the volume is imported.
    pub notes: Vec<Problem>,
}

impl Survey {
    fn add(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.unlisted += 1;
        }
    }
}

/// Properties kept for a vnode.
struct Node {
    unique: u32,
    parent: u32,
    data_version: u32,
    length: u64,
    inode: Inode,
    is_link: bool,
    links: u16,
    /// Number of names found; for a directory, 2 plus one for each subdirectory.
    names: u32,
    is_named: bool,
}

/// Checks a volume without reading the data of its files.
pub fn survey(source: &Source<'_>) -> Survey {
    let mut work = Work::new(source);
    let begun = work.read_indexes().and_then(|()| source.links());
    if volume::is_parked(VolumeId(source.info.id)) {
        let what =
            "Cellar reserves the numbers from 4294901760 on for itself; restore a dump under another number";
        work.found.add(Problem::new("the volume", what));
    }
    match begun {
        Ok(links) => {
            work.found.notes = source.notes(work.nodes.len() as u64);
            work.check_directories();
            work.check_nodes();
            work.check_data(&links);
        }
        Err(problem) => work.found.add(problem),
    }
    work.found
}

/// Returns the path of a vnode, as far as it is known.
pub fn path_of(source: &Source<'_>, vnode: u32) -> String {
    let mut work = Work::new(source);
    match work.read_indexes() {
        Ok(()) => {
            work.check_directories();
            work.path(vnode)
        }
        Err(_) => format!("(vnode {vnode})"),
    }
}

struct Work<'a> {
    source: &'a Source<'a>,
    nodes: BTreeMap<u32, Node>,
    /// Parent directory and name of each directory.
    parents: HashMap<u32, (u32, Vec<u8>)>,
    /// Directories whose entries are unknown.
    unreadable: HashSet<u32>,
    found: Survey,
}

impl<'a> Work<'a> {
    fn new(source: &'a Source<'a>) -> Work<'a> {
        let (nodes, parents, unreadable) = (BTreeMap::new(), HashMap::new(), HashSet::new());
        Work { source, nodes, parents, unreadable, found: Survey::default() }
    }

    fn read_indexes(&mut self) -> Result<(), Problem> {
        for class in [IndexClass::Large, IndexClass::Small] {
            let mut index = self.source.index(class)?;
            while let Some(Listed { number, vnode }) = index.next_vnode()? {
                match vnode {
                    Ok(vnode) => self.take(number, &vnode),
                    Err(problem) => self.found.add(problem),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, number: u32, vnode: &NameiVnode) {
        let is_directory = vnode.kind == 2;
        match vnode.kind {
            1 => self.found.files += 1,
            2 => self.found.directories += 1,
            _ => self.found.links += 1,
        }
        if !is_directory {
            self.found.bytes += vnode.length;
        }
        let node = Node {
            unique: vnode.unique,
            parent: vnode.parent,
            data_version: vnode.data_version,
            length: vnode.length,
            inode: vnode.inode,
            is_link: vnode.kind == 3,
            links: vnode.links,
            names: if is_directory { 2 } else { 0 },
            is_named: false,
        };
        self.nodes.insert(number, node);
    }

    fn directories(&self) -> Vec<(u32, Inode, u64)> {
        let of_directory =
            |(number, node): (&u32, &Node)| (number % 2 == 1).then_some((*number, node.inode, node.length));
        self.nodes.iter().filter_map(of_directory).collect()
    }

    /// Checks that names refer to existing vnodes, and that every directory's parent is correct.
    fn check_directories(&mut self) {
        let mut wrong = Vec::new();
        for (directory, inode, length) in self.directories() {
            match self.source.directory(inode, length) {
                Ok(blob) => self.check_entries(directory, &blob, &mut wrong),
                Err(what) => {
                    self.unreadable.insert(directory);
                    wrong.push((directory, None, self.with_unchecked(directory, what)));
                }
            }
        }
        for (directory, name, what) in wrong {
            let mut place = self.path(directory);
            if let Some(name) = name {
                place = format!("{}/{}", place.trim_end_matches('/'), printable(&name));
            }
            self.found.add(Problem::new(place, what));
        }
    }

    /// Adds the number of vnodes whose names are in a directory that cannot be read.
    fn with_unchecked(&self, directory: u32, what: String) -> String {
        match self.nodes.values().filter(|node| node.parent == directory).count() {
            0 => what,
            count => {
                format!("{what}; the names of the {count} files and directories in it cannot be checked")
            }
        }
    }

    fn check_entries(
        &mut self,
        directory: u32,
        blob: &DirectoryBlob,
        wrong: &mut Vec<(u32, Option<Vec<u8>>, String)>,
    ) {
        let above = self.nodes.get(&directory).map_or(0, |node| node.parent);
        let above = if above == 0 { directory } else { above };
        for (name, wanted) in [(&b"."[..], directory), (b"..", above)] {
            if blob.lookup(name).is_none_or(|found| found.vnode.0 != wanted) {
                let what = format!("`{}` does not refer to vnode {wanted}", printable(name));
                wrong.push((directory, None, what));
            }
        }
        let placed = blob.placed_entries();
        let version = self.nodes.get(&directory).map_or(0, |node| node.data_version);
        if let Some(entry) = placed.iter().find(|entry| entry.sequence > version.into()) {
            let what = format!("its data version {version} is lower than its changes, {}", entry.sequence);
            wrong.push((directory, None, what));
        }
        for placed in placed {
            let (name, target) = (placed.name, (placed.target.vnode.0, placed.target.unique));
            if let Err(what) = self.check_entry(directory, &name, target) {
                wrong.push((directory, Some(name), what));
            }
        }
    }

    fn check_entry(&mut self, directory: u32, name: &[u8], target: (u32, u32)) -> Result<(), String> {
        let (number, unique) = target;
        let Some(node) = self.nodes.get_mut(&number).filter(|node| node.unique == unique) else {
            return Err(format!("the name refers to vnode {number}.{unique}, which does not exist"));
        };
        if matches!(name, b"." | b"..") {
            return Ok(());
        }
        let is_directory = number % 2 == 1;
        if node.parent != directory {
            let parent = node.parent;
            return Err(format!("the parent of vnode {number} is directory {parent}, not {directory}"));
        }
        if is_directory && node.is_named {
            return Err(format!("the directory {number} also has another name"));
        }
        node.is_named = true;
        if is_directory {
            self.parents.insert(number, (directory, name.to_vec()));
            self.nodes.entry(directory).and_modify(|node| node.names += 1);
        } else {
            node.names += 1;
        }
        Ok(())
    }

    /// Checks that every vnode has its names, and that all directories are connected to the root.
    fn check_nodes(&mut self) {
        let (root, unique) = ROOT;
        if self.nodes.get(&root).is_none_or(|node| node.unique != unique) {
            self.found.add(Problem::new("/", "there is no root directory (vnode 1.1)"));
        }
        let mut wrong = Vec::new();
        for (number, node) in &self.nodes {
            if node.unique == 0 {
                wrong.push((*number, "its uniquifier is 0".to_owned()));
            }
            if self.unreadable.contains(&node.parent) && !node.is_named {
                // The directory's own problem is reported.
            } else if !node.is_named && *number != root {
                wrong.push((*number, "no name refers to it".to_owned()));
            } else if u32::from(node.links) != node.names & 0xffff && !self.unreadable.contains(number) {
                let (links, names) = (node.links, node.names);
                wrong.push((*number, format!("its count of links is {links}; there are {names}")));
            } else if number % 2 == 1 && !self.is_below(*number, root) {
                wrong.push((*number, "the parent directories do not lead to the root directory".to_owned()));
            }
        }
        self.report(wrong);
    }

    fn is_below(&self, directory: u32, root: u32) -> bool {
        let (mut at, mut seen) = (directory, HashSet::new());
        while at != root {
            match self.parents.get(&at) {
                Some((above, _)) if seen.insert(at) => at = *above,
                // Its name may be in a directory that cannot be read.
                None => {
                    let above = self.nodes.get(&at).map_or(0, |node| node.parent);
                    return self.unreadable.contains(&above);
                }
                Some(_) => return false,
            }
        }
        true
    }

    /// Checks that every vnode has a file of its length, which the link table counts as used.
    fn check_data(&mut self, links: &Links) {
        let mut wrong = Vec::new();
        for (number, node) in &self.nodes {
            if let Err(what) = self.check_file(*number, node, links) {
                wrong.push((*number, what));
            }
        }
        self.report(wrong);
    }

    fn check_file(&self, number: u32, node: &Node, links: &Links) -> Result<(), String> {
        if !node.inode.is_some() {
            return if node.length == 0 { Ok(()) } else { Err("it has no file of data".to_owned()) };
        }
        let place = self.source.place(node.inode);
        if node.inode.is_special() || node.inode.vnode() != number {
            return Err(format!("its data {place} belongs to another vnode"));
        }
        if node.is_link && node.length > PATH_BYTES_MAX as u64 {
            return Err(format!("a link of {} bytes; at most {PATH_BYTES_MAX} are possible", node.length));
        }
        let reported = |problem: Problem| format!("{}: {}", problem.place, problem.what);
        let length = self.source.open(node.inode).and_then(|file| file.metadata()).map(|found| found.len());
        let length = length.map_err(|error| reported(unreadable(&place, &error)))?;
        if length != node.length {
            return Err(format!("its length is {}; {place} has {length} bytes", node.length));
        }
        match links.of(node.inode) {
            Ok(0) => Err(format!("the link table has no link to {place}")),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the table of links cannot be read: {error}")),
        }
    }

    fn report(&mut self, wrong: Vec<(u32, String)>) {
        for (number, what) in wrong {
            let place = self.path(number);
            self.found.add(Problem::new(place, what));
        }
    }

    /// Returns the path of a vnode, as far as it is known.
    fn path(&self, number: u32) -> String {
        let (mut at, mut names, mut seen) = (number, Vec::new(), HashSet::new());
        if number.is_multiple_of(2) {
            let Some((directory, name)) = self.name_of_file(number) else {
                return format!("(vnode {number})");
            };
            names.push(printable(&name));
            at = directory;
        }
        while at != ROOT.0 {
            match self.parents.get(&at) {
                Some((above, name)) if seen.insert(at) => {
                    names.push(printable(name));
                    at = *above;
                }
                _ => {
                    names.push(format!("(vnode {at})"));
                    names.reverse();
                    return names.join("/");
                }
            }
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Returns a file's directory, and one of its names there.
    fn name_of_file(&self, number: u32) -> Option<(u32, Vec<u8>)> {
        let directory = self.nodes.get(&number)?.parent;
        let node = self.nodes.get(&directory).filter(|_| directory % 2 == 1)?;
        let blob = self.source.directory(node.inode, node.length).ok()?;
        let name = blob.entries().find(|(_, target)| target.vnode.0 == number)?.0.to_vec();
        Some((directory, name))
    }
}
