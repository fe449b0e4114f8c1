//! The reference model, built from maps. It determines the result and effect of each operation.

use crate::{Actor, FileKind, SetStatus, Totals, VnodeStatus};
use afs_format::acl::Acl;
use base::limits::PATH_BYTES_MAX;
use base::{AbortCode, Fid, UnixTime, UserId, VnodeId};
use std::collections::{BTreeMap, BTreeSet};
use volume_records::quota;

type Answer<T> = Result<T, AbortCode>;
/// Vnode and uniquifier.
pub(super) type Target = (VnodeId, u32);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) status: VnodeStatus,
    pub(super) data: Vec<u8>,
    pub(super) entries: BTreeMap<Vec<u8>, Target>,
    pub(super) acl: Option<Acl>,
}

#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) nodes: BTreeMap<VnodeId, Node>,
    pub(super) quota_kib: u64,
    pub(super) owner: i32,
    /// Latest date of a change or a clone. Dates never go back before it.
    pub(super) dated: UnixTime,
}

impl Reference {
    pub(super) fn new(root: VnodeStatus) -> Reference {
        let node = Node {
            status: root,
            data: vec![],
            entries: dots((root.vnode, root.unique), (root.vnode, root.unique)),
            acl: Some(Acl::administrators()),
        };
        Reference {
            nodes: BTreeMap::from([(root.vnode, node)]),
            quota_kib: 0,
            owner: 0,
            dated: root.server_modified,
        }
    }

    pub(super) fn used_kib(&self) -> u64 {
        self.nodes.values().map(|node| quota::blocks(node.status.length)).sum()
    }

    /// Sums over everything in and below a directory, name by name.
    pub(super) fn totals(&self, directory: VnodeId) -> Totals {
        let node = &self.nodes[&directory];
        let mut sums = Totals { kib: quota::blocks(node.status.length), ..Totals::default() };
        let names = node.entries.iter().filter(|(name, _)| !matches!(&name[..], b"." | b".."));
        let vnodes: BTreeSet<VnodeId> = names.map(|(_, (vnode, _))| *vnode).collect();
        for vnode in vnodes {
            let status = self.nodes[&vnode].status;
            let more = if status.is_directory() {
                let below = self.totals(vnode);
                Totals { directories: below.directories + 1, ..below }
            } else {
                Totals { bytes: status.length, kib: quota::blocks(status.length), files: 1, directories: 0 }
            };
            sums.bytes += more.bytes;
            sums.kib += more.kib;
            sums.files += more.files;
            sums.directories += more.directories;
        }
        sums
    }

    pub(super) fn get(&self, fid: Fid) -> Answer<&Node> {
        self.nodes.get(&fid.vnode).filter(|node| node.status.unique == fid.unique).ok_or(AbortCode::VNOVNODE)
    }

    pub(super) fn directory(&self, fid: Fid) -> Answer<&Node> {
        self.get(fid)
            .and_then(|node| if node.status.is_directory() { Ok(node) } else { Err(AbortCode::UAENOTDIR) })
    }

    /// Returns the date of a change.
    fn date(&mut self, actor: &Actor) -> UnixTime {
        self.dated = self.dated.max(actor.now);
        self.dated
    }

    /// Records that a clone with this date was made.
    pub(super) fn is_cloned(&mut self, made: UnixTime) {
        assert!(made >= self.dated, "a clone's date is not before what it shows");
        self.dated = made;
    }

    fn node(&mut self, vnode: VnodeId) -> &mut Node {
        self.nodes.get_mut(&vnode).unwrap()
    }

    fn grow(&self, more: u64) -> Answer<()> {
        let is_over = self.quota_kib != 0 && more > 0 && self.used_kib() + more > self.quota_kib;
        if is_over { Err(AbortCode::VOVERQUOTA) } else { Ok(()) }
    }

    fn changed(&mut self, actor: &Actor, directory: VnodeId) {
        let date = self.date(actor);
        let status = &mut self.node(directory).status;
        status.data_version += 1;
        status.author = actor.user;
        status.client_modified = actor.now;
        status.server_modified = date;
    }

    pub(super) fn lookup(&self, directory: Fid, name: &[u8]) -> Answer<Target> {
        self.directory(directory)?.entries.get(name).copied().ok_or(AbortCode::UAENOENT)
    }

    /// Returns whether an object can be created. The volume chooses its number.
    pub(super) fn may_create(&self, directory: Fid, name: &[u8], blocks: u64) -> Answer<()> {
        check_name(name)?;
        if self.directory(directory)?.entries.contains_key(name) {
            return Err(AbortCode::UAEEXIST);
        }
        self.grow(blocks)
    }

    pub(super) fn create(
        &mut self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        (kind, target): (FileKind, Target),
        data: &[u8],
        set: &SetStatus,
    ) {
        assert!(!self.nodes.contains_key(&target.0), "{target:?} is in use");
        assert_eq!(target.0.is_directory(), kind == FileKind::Directory);
        let parent = self.node(directory.vnode).clone();
        let is_directory = kind == FileKind::Directory;
        let date = self.date(actor);
        let mut status = VnodeStatus {
            vnode: target.0,
            unique: target.1,
            kind,
            mode: 0o777,
            owner: actor.user,
            group: parent.status.group,
            links: 1 + u32::from(is_directory),
            length: if is_directory { 2048 } else { data.len() as u64 },
            data_version: 0,
            client_modified: actor.now,
            server_modified: date,
            author: actor.user,
            parent: directory.vnode,
            parent_unique: directory.unique,
        };
        set_status(&mut status, actor, set);
        let entries =
            if is_directory { dots(target, (directory.vnode, directory.unique)) } else { BTreeMap::new() };
        let acl = if is_directory { parent.acl } else { None };
        self.nodes.insert(target.0, Node { status, data: data.to_vec(), entries, acl });
        self.changed(actor, directory.vnode);
        let parent = self.node(directory.vnode);
        parent.entries.insert(name.to_vec(), target);
        parent.status.links += u32::from(is_directory);
    }

    pub(super) fn store(
        &mut self,
        actor: &Actor,
        fid: Fid,
        (offset, data, file_length): (u64, &[u8], u64),
        set: &SetStatus,
    ) -> Answer<()> {
        let node = self.get(fid)?;
        if node.status.is_directory() {
            return Err(AbortCode::UAEISDIR);
        }
        let mut new = node.data.clone();
        new.truncate(file_length.min(usize::MAX as u64) as usize);
        let end = offset as usize + data.len();
        new.resize(new.len().max(end), 0);
        new[offset as usize..end].copy_from_slice(data);
        if node.status.kind == FileKind::SymbolicLink && new.len() > PATH_BYTES_MAX {
            return Err(AbortCode::UAENAMETOOLONG);
        }
        let blocks = quota::blocks(new.len() as u64);
        self.grow(blocks.saturating_sub(quota::blocks(node.status.length)))?;
        let date = self.date(actor);
        let node = self.node(fid.vnode);
        node.status.length = new.len() as u64;
        node.data = new;
        node.status.data_version += 1;
        node.status.author = actor.user;
        node.status.client_modified = actor.now;
        node.status.server_modified = date;
        if !actor.privileged {
            node.status.mode &= !0o6000;
        }
        set_status(&mut node.status, actor, set);
        Ok(())
    }

    pub(super) fn set_status(&mut self, actor: &Actor, fid: Fid, set: &SetStatus) -> Answer<()> {
        if self.get(fid)?.status.kind == FileKind::SymbolicLink && set.mode.is_some() {
            return Err(AbortCode::UAEINVAL);
        }
        let date = self.date(actor);
        let status = &mut self.node(fid.vnode).status;
        set_status(status, actor, set);
        status.server_modified = date;
        if fid.vnode == VnodeId::ROOT {
            self.owner = set.owner.map_or(self.owner, |owner| owner.0);
        }
        Ok(())
    }

    pub(super) fn set_acl(&mut self, actor: &Actor, fid: Fid, acl: Acl) -> Answer<()> {
        self.directory(fid)?;
        let date = self.date(actor);
        let node = self.node(fid.vnode);
        node.acl = Some(acl);
        node.status.server_modified = date;
        Ok(())
    }

    pub(super) fn link(&mut self, actor: &Actor, directory: Fid, name: &[u8], target: Fid) -> Answer<()> {
        check_name(name)?;
        self.directory(directory)?;
        let file = self.get(target)?;
        if file.status.kind != FileKind::File {
            return Err(AbortCode::UAEISDIR);
        }
        if file.status.parent != directory.vnode {
            return Err(AbortCode::UAEXDEV);
        }
        if self.directory(directory)?.entries.contains_key(name) {
            return Err(AbortCode::UAEEXIST);
        }
        let date = self.date(actor);
        let file = self.node(target.vnode);
        file.status.links += 1;
        file.status.author = actor.user;
        file.status.server_modified = date;
        self.changed(actor, directory.vnode);
        self.node(directory.vnode).entries.insert(name.to_vec(), (target.vnode, target.unique));
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        is_directory: bool,
    ) -> Answer<()> {
        if name == b"." || name == b".." {
            return Err(AbortCode::UAEINVAL);
        }
        let (target, _) = self.lookup(directory, name)?;
        let node = &self.nodes[&target];
        match (is_directory, node.status.is_directory()) {
            (true, false) => return Err(AbortCode::UAENOTDIR),
            (false, true) => return Err(AbortCode::UAEISDIR),
            (true, true) if node.entries.len() > 2 => return Err(AbortCode::UAEEXIST),
            _ => {}
        }
        self.drop_name(actor, target);
        self.changed(actor, directory.vnode);
        let parent = self.node(directory.vnode);
        parent.entries.remove(name);
        parent.status.links -= u32::from(is_directory);
        Ok(())
    }

    fn drop_name(&mut self, actor: &Actor, target: VnodeId) {
        let date = self.date(actor);
        let status = &mut self.node(target).status;
        status.links -= 1;
        status.server_modified = date;
        if status.links == 0 || status.is_directory() {
            self.nodes.remove(&target);
        }
    }

    pub(super) fn rename(
        &mut self,
        actor: &Actor,
        (old_directory, old_name): (Fid, &[u8]),
        (new_directory, new_name): (Fid, &[u8]),
    ) -> Answer<()> {
        check_name(new_name)?;
        if [old_name, new_name].iter().any(|name| matches!(*name, b"." | b".." | b"")) {
            return Err(AbortCode::UAEINVAL);
        }
        self.directory(old_directory)?;
        self.directory(new_directory)?;
        let (from, to) = (old_directory.vnode, new_directory.vnode);
        let target = self.lookup(old_directory, old_name)?;
        let moved = self.nodes[&target.0].clone();
        if target.0 == to {
            return Err(AbortCode::UAELOOP);
        }
        let is_directory = moved.status.is_directory();
        if from != to && !is_directory && moved.status.links != 1 {
            return Err(AbortCode::UAEXDEV);
        }
        let replaced = self.lookup(new_directory, new_name).ok().map(|(vnode, _)| vnode);
        if let Some(replaced) = replaced {
            if replaced == target.0 || replaced == from {
                return Err(AbortCode::UAEINVAL);
            }
            let node = &self.nodes[&replaced];
            match (is_directory, node.status.is_directory()) {
                (false, true) => return Err(AbortCode::UAEISDIR),
                (true, false) => return Err(AbortCode::UAENOTDIR),
                (true, true) if node.entries.len() > 2 => return Err(AbortCode::UAEEXIST),
                _ => {}
            }
        }
        if is_directory && self.is_below(to, target.0) {
            return Err(AbortCode::UAELOOP);
        }
        if let Some(replaced) = replaced {
            self.node(to).status.links -= u32::from(self.nodes[&replaced].status.is_directory());
            self.drop_name(actor, replaced);
        }
        self.changed(actor, from);
        if from != to {
            self.changed(actor, to);
            self.move_node(actor, target.0, from, new_directory);
        }
        self.node(to).entries.insert(new_name.to_vec(), target);
        self.node(from).entries.remove(old_name);
        Ok(())
    }

    fn is_below(&self, mut vnode: VnodeId, above: VnodeId) -> bool {
        while vnode != VnodeId::ROOT {
            vnode = self.nodes[&vnode].status.parent;
            if vnode == above {
                return true;
            }
        }
        false
    }

    fn move_node(&mut self, actor: &Actor, vnode: VnodeId, from: VnodeId, to: Fid) {
        let date = self.date(actor);
        let node = self.node(vnode);
        node.status.parent = to.vnode;
        node.status.parent_unique = to.unique;
        node.status.server_modified = date;
        if node.status.is_directory() {
            node.status.data_version += 1;
            node.entries.insert(b"..".to_vec(), (to.vnode, to.unique));
            self.node(from).status.links -= 1;
            self.node(to.vnode).status.links += 1;
        }
    }

    /// Checks that link counts match the entries.
    pub(super) fn check_links(&self) {
        let mut names: BTreeMap<VnodeId, u32> = BTreeMap::new();
        for node in self.nodes.values() {
            node.entries.values().for_each(|(vnode, _)| *names.entry(*vnode).or_default() += 1);
        }
        for (vnode, node) in &self.nodes {
            assert_eq!(names[vnode], node.status.links, "links of {vnode:?}");
        }
    }
}

fn dots(itself: Target, parent: Target) -> BTreeMap<Vec<u8>, Target> {
    BTreeMap::from([(b".".to_vec(), itself), (b"..".to_vec(), parent)])
}

fn check_name(name: &[u8]) -> Answer<()> {
    if name.len() > 255 {
        return Err(AbortCode::UAENAMETOOLONG);
    }
    let is_bad = name.is_empty() || name.contains(&b'/') || name.contains(&0) || name.ends_with(b"@sys");
    if is_bad { Err(AbortCode::UAEINVAL) } else { Ok(()) }
}

fn set_status(status: &mut VnodeStatus, actor: &Actor, set: &SetStatus) {
    status.client_modified = set.client_modified.unwrap_or(status.client_modified);
    if set.owner.is_some() && !actor.privileged {
        status.mode &= !0o6000;
    }
    status.owner = set.owner.unwrap_or(status.owner);
    let settable = if actor.privileged { 0o7777 } else { 0o777 };
    status.mode = set.mode.map_or(status.mode, |mode| mode & settable);
    status.group = set.group.unwrap_or(status.group);
}

/// Returns the actor of operation `number`: one of three users; every fifth is privileged.
pub(super) fn actor(number: u32) -> Actor {
    Actor {
        user: UserId(number as i32 % 3),
        privileged: number.is_multiple_of(5),
        in_transaction: false,
        call: None,
        // The clock is sometimes set back.
        now: UnixTime(10_000 + number - if number.is_multiple_of(7) { 5_000 } else { 0 }),
    }
}
