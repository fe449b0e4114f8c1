//! The whole disk: a tree of folders and files, and the scheduled faults.

use super::Garbling;
use super::content::Content;
use super::folder::Folder;
use crate::Space;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

#[derive(Clone, Debug)]
enum Node {
    Folder(Folder),
    File(Content),
}

/// Index of the root folder in `World::nodes`.
const ROOT: usize = 0;

#[derive(Clone, Debug)]
pub(super) struct Faults {
    pub(super) operations: u64,
    pub(super) fail_at: BTreeMap<u64, io::ErrorKind>,
    pub(super) power_until: u64,
}

pub(super) struct World {
    nodes: Vec<Node>,
    rng: SmallRng,
    garbling: Garbling,
    pub(super) locked: BTreeSet<PathBuf>,
    pub(super) faults: Faults,
    pub(super) capacity_bytes: u64,
    /// Flipped bits on the platter that the cache hides: node, offset, bit.
    unseen: Vec<(usize, usize, u8)>,
}

impl Faults {
    fn none() -> Faults {
        Faults { operations: 0, fail_at: BTreeMap::new(), power_until: u64::MAX }
    }

    /// Counts one operation; fails if a fault is scheduled for it.
    fn step(&mut self) -> io::Result<()> {
        self.step_with_effect()?
    }

    /// Counts one operation that may take partial effect although it fails (the inner error). After a power
    /// cut (the outer error) it has no effect.
    fn step_with_effect(&mut self) -> io::Result<io::Result<()>> {
        let number = self.operations;
        self.operations += 1;
        let no_power = || io::Error::other("the power is off");
        match number.cmp(&self.power_until) {
            Ordering::Less => Ok(self.fail_at.remove(&number).map_or(Ok(()), |kind| Err(kind.into()))),
            Ordering::Equal => Ok(Err(no_power())),
            Ordering::Greater => Err(no_power()),
        }
    }
}

impl World {
    pub(super) fn new(seed: u64, garbling: Garbling) -> World {
        World {
            nodes: vec![Node::Folder(Folder::default())],
            rng: SmallRng::seed_from_u64(seed),
            garbling,
            locked: BTreeSet::new(),
            faults: Faults::none(),
            capacity_bytes: u64::MAX,
            unseen: Vec::new(),
        }
    }

    pub(super) fn crash(&mut self) -> World {
        let mut found = World::new(self.rng.random(), self.garbling);
        found.capacity_bytes = self.capacity_bytes;
        let (rng, garbling) = (&mut self.rng, self.garbling);
        let settle = |node: &Node| match node {
            Node::Folder(folder) => Node::Folder(folder.crash(rng)),
            Node::File(content) => Node::File(content.crash(rng, garbling)),
        };
        found.nodes = self.nodes.iter().map(settle).collect();
        for (node, offset, bit) in &self.unseen {
            if let Node::File(content) = &mut found.nodes[*node] {
                content.flip_bit(*offset, *bit);
            }
        }
        found
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.faults.step()?;
        self.add(path, Node::Folder(Folder::default())).map(|_| ())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<usize> {
        self.faults.step()?;
        self.add(path, Node::File(Content::default()))
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<usize> {
        self.faults.step()?;
        let node = self.find(path)?;
        self.file(node)?;
        Ok(node)
    }

    pub(super) fn exists(&mut self, path: &Path) -> io::Result<bool> {
        self.faults.step()?;
        match self.find(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.step()?;
        if from.parent() != to.parent() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.find(from)?;
        let (parent, name) = self.place(from)?;
        self.folder(parent)?.rename(name, file_name(to)?);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.faults.step()?;
        let node = self.find(path)?;
        self.file(node)?;
        let (parent, name) = self.place(path)?;
        self.folder(parent)?.unlink(name);
        Ok(())
    }

    pub(super) fn list(&mut self, path: &Path) -> io::Result<Vec<String>> {
        self.faults.step()?;
        let node = self.find(path)?;
        Ok(self.folder(node)?.names().keys().cloned().collect())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let outcome = self.faults.step_with_effect()?;
        let node = self.find(path)?;
        let Node::Folder(folder) = &mut self.nodes[node] else {
            return Err(io::ErrorKind::NotADirectory.into());
        };
        match outcome {
            Ok(()) => folder.sync(),
            Err(_) => folder.fail_sync(&mut self.rng),
        }
        outcome
    }

    pub(super) fn space(&mut self) -> io::Result<Space> {
        self.faults.step()?;
        let free_bytes = self.capacity_bytes.saturating_sub(self.used_bytes());
        Ok(Space { total_bytes: self.capacity_bytes, free_bytes })
    }

    pub(super) fn lock(&mut self, path: &Path) -> io::Result<()> {
        self.faults.step()?;
        if self.find(path).is_err() {
            self.add(path, Node::File(Content::default()))?;
        }
        if self.locked.insert(path.to_owned()) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    pub(super) fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let node = self.find(path)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        if self.file(node)?.flip_bit(offset, bit) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(super) fn flip_bit_under_cache(&mut self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let node = self.find(path)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        if offset >= self.file(node)?.length() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unseen.push((node, offset, bit));
        Ok(())
    }

    pub(super) fn read_direct_at(
        &mut self,
        node: usize,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let count = self.read_at(node, buffer, offset)?;
        let begin = usize::try_from(offset).map_err(io::Error::other)?;
        for (_, at, bit) in self.unseen.iter().filter(|(of, ..)| *of == node) {
            if let Some(byte) = at.checked_sub(begin).and_then(|at| buffer[..count].get_mut(at)) {
                *byte ^= 1 << (bit % 8);
            }
        }
        Ok(count)
    }

    pub(super) fn read_at(&mut self, node: usize, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.step()?;
        let wanted = self.perhaps_fewer(buffer.len());
        Ok(self.file(node)?.read(&mut buffer[..wanted], offset))
    }

    pub(super) fn write_at(&mut self, node: usize, mut bytes: Vec<u8>, offset: u64) -> io::Result<usize> {
        let outcome = self.faults.step_with_effect()?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let taken = match outcome {
            Ok(()) => self.perhaps_fewer(bytes.len()),
            Err(_) => self.rng.random_range(0..=bytes.len()),
        };
        let growth = (offset + taken).saturating_sub(self.file(node)?.length());
        if growth as u64 > self.capacity_bytes.saturating_sub(self.used_bytes()) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.truncate(taken);
        self.file(node)?.write(offset, bytes);
        outcome.map(|()| taken)
    }

    pub(super) fn set_len(&mut self, node: usize, length: u64) -> io::Result<()> {
        self.faults.step()?;
        self.file(node)?.set_length(usize::try_from(length).map_err(io::Error::other)?);
        Ok(())
    }

    pub(super) fn sync(&mut self, node: usize) -> io::Result<()> {
        let outcome = self.faults.step_with_effect()?;
        let Node::File(content) = &mut self.nodes[node] else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        match outcome {
            Ok(()) => content.sync(),
            Err(_) => content.fail_sync(&mut self.rng, self.garbling),
        }
        outcome
    }

    pub(super) fn length(&mut self, node: usize) -> io::Result<u64> {
        self.faults.step()?;
        Ok(self.file(node)?.length() as u64)
    }

    /// Returns `count` or, on a disk with short transfers, a smaller number that is at least 1.
    fn perhaps_fewer(&mut self, count: usize) -> usize {
        let fewer = self.garbling.short && count > 1 && self.rng.random_ratio(1, 4);
        if fewer { self.rng.random_range(1..count) } else { count }
    }

    fn used_bytes(&self) -> u64 {
        let length = |node: &Node| match node {
            Node::File(content) => content.length() as u64,
            Node::Folder(_) => 0,
        };
        self.named_nodes().into_iter().map(|node| length(&self.nodes[node])).sum()
    }

    /// Returns every node with a name; removed files take no space.
    fn named_nodes(&self) -> Vec<usize> {
        let mut found = vec![ROOT];
        let mut next = 0;
        while let Some(&node) = found.get(next) {
            if let Node::Folder(folder) = &self.nodes[node] {
                found.extend(folder.names().values());
            }
            next += 1;
        }
        found
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let number = self.nodes.len();
        let (parent, name) = self.place(path)?;
        let folder = self.folder(parent)?;
        if folder.names().contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        folder.link(name, number);
        self.nodes.push(node);
        Ok(number)
    }

    /// Returns the parent's node, and the name in it.
    fn place<'a>(&mut self, path: &'a Path) -> io::Result<(usize, &'a str)> {
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.find(parent)?, file_name(path)?))
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut node = ROOT;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let Node::Folder(folder) = &self.nodes[node] else {
                return Err(io::ErrorKind::NotADirectory.into());
            };
            let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
            node = *folder.names().get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    fn folder(&mut self, node: usize) -> io::Result<&mut Folder> {
        match &mut self.nodes[node] {
            Node::Folder(folder) => Ok(folder),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&mut self, node: usize) -> io::Result<&mut Content> {
        match &mut self.nodes[node] {
            Node::File(content) => Ok(content),
            Node::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

fn file_name(path: &Path) -> io::Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
