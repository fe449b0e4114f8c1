//! Changing directories: creating, linking and removing.

use crate::change::attributes;
use crate::change::transaction::{Growth, Transaction};
use crate::{
    Acknowledge, Actor, Created, FileKind, Pending, Removed, SetStatus, VnodeStatus, Volume, VolumeError,
};
use afs_format::directory::{DirectoryBlob, EntryTarget};
use base::Fid;
use base::limits::PATH_BYTES_MAX;
use bytes::Bytes;
use volume_records::codec::{Extent, Vnode};
use volume_records::quota;

/// Maximum length of a new name in bytes. Restores and imports accept names of 256 bytes, which OpenAFS's
/// servers create. Linux's kafs cannot read a directory with such a name, so clients must not create them.
const NEW_NAME_BYTES_MAX: usize = 255;

/// The object to create.
pub(crate) enum New<'a> {
    File,
    Directory,
    Link(&'a [u8]),
}

impl New<'_> {
    pub(crate) fn kind(&self) -> FileKind {
        match self {
            New::File => FileKind::File,
            New::Directory => FileKind::Directory,
            New::Link(_) => FileKind::SymbolicLink,
        }
    }

    /// Returns the blocks that must be free. A directory has one page.
    fn blocks(&self) -> u64 {
        match self {
            New::File => quota::blocks(0),
            New::Directory => 2,
            New::Link(path) => quota::blocks(path.len() as u64),
        }
    }
}

/// Rejects names that no entry may get (FileNameOK of OpenAFS, which includes those in which clients would
/// replace `@sys`).
pub(crate) fn check_new_name(name: &[u8]) -> Result<(), VolumeError> {
    if name.len() > NEW_NAME_BYTES_MAX {
        return Err(VolumeError::NameTooLong { got: name.len() });
    }
    let is_bad =
        name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) || name.ends_with(b"@sys");
    if is_bad { Err(VolumeError::InvalidName) } else { Ok(()) }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

impl Volume {
    /// CreateFile: an empty file of data version 0, and of mode 0777 unless `set` specifies another one.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `InvalidName`, `NameTooLong`, `Exists`, `DirectoryFull`,
    /// `OverQuota`, `PartitionFull`, `Store`.
    pub fn create_file(
        &self,
        by: &impl Acknowledge,
        directory: Fid,
        name: &[u8],
        set: &SetStatus,
    ) -> Result<Created, VolumeError> {
        by.acknowledge(self.create(by.actor(), directory, name, &New::File, set)?)
    }

    /// MakeDir: an empty directory with a copy of its parent's access list.
    ///
    /// # Errors
    /// Like [`Volume::create_file`].
    pub fn make_directory(
        &self,
        by: &impl Acknowledge,
        directory: Fid,
        name: &[u8],
        set: &SetStatus,
    ) -> Result<Created, VolumeError> {
        by.acknowledge(self.create(by.actor(), directory, name, &New::Directory, set)?)
    }

    /// Symlink: a symbolic link to `target`, or a mount point if `set` gives a mode without execute
    /// bits (0644).
    ///
    /// # Errors
    /// Like [`Volume::create_file`].
    pub fn create_symlink(
        &self,
        by: &impl Acknowledge,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        set: &SetStatus,
    ) -> Result<Created, VolumeError> {
        if target.len() > PATH_BYTES_MAX {
            return Err(VolumeError::NameTooLong { got: target.len() });
        }
        by.acknowledge(self.create(by.actor(), directory, name, &New::Link(target), set)?)
    }

    fn create(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        new: &New<'_>,
        set: &SetStatus,
    ) -> Result<Pending<Created>, VolumeError> {
        if let Some(earlier) = self.earlier(actor)? {
            return Ok(earlier);
        }
        check_new_name(name)?;
        let mut transaction = Transaction::begin(self, actor)?;
        let parent = transaction.directory(directory)?;
        if transaction.lookup(&parent, name)?.is_some() {
            return Err(VolumeError::Exists);
        }
        let blocks = new.blocks();
        transaction.check_growth(Growth { blocks, data_kib: blocks, spare_kib: 0 })?;
        let target = transaction.new_number(new.kind())?;
        let vnode = self.new_vnode(actor, &parent, target, new, set);
        let status = transaction.put_new(vnode.clone());
        if let New::Link(path) = new {
            transaction.put_link(&vnode, path)?;
        }
        transaction.change_directory(&parent)?;
        if status.is_directory() {
            transaction.add_links(directory.vnode, 1)?;
            let up = EntryTarget { vnode: directory.vnode, unique: directory.unique };
            transaction.new_directory(target.vnode, DirectoryBlob::new(target, up))?;
        }
        transaction.insert(directory.vnode, name, target)?;
        let created = Created { status, directory: transaction.status(directory.vnode)? };
        self.finish(transaction, created)
    }

    pub(crate) fn new_vnode(
        &self,
        actor: &Actor,
        parent: &Vnode,
        target: EntryTarget,
        new: &New<'_>,
        set: &SetStatus,
    ) -> Vnode {
        let is_directory = matches!(new, New::Directory);
        let status = VnodeStatus {
            vnode: target.vnode,
            unique: target.unique,
            kind: new.kind(),
            mode: 0o777,
            owner: actor.user,
            group: parent.status.group,
            links: if is_directory { 2 } else { 1 },
            length: match new {
                New::File => 0,
                New::Directory => afs_format::directory::PAGE_BYTES as u64,
                New::Link(path) => path.len() as u64,
            },
            data_version: 0,
            client_modified: actor.now,
            server_modified: actor.now,
            author: actor.user,
            parent: parent.status.vnode,
            parent_unique: parent.status.unique,
        };
        let acl = if is_directory { parent.acl.clone() } else { None };
        let mut vnode = Vnode { status, chunk_shift: self.shared.options.chunk_shift, acl };
        attributes::apply(&mut vnode.status, actor, set);
        vnode
    }

    /// Link: adds another name for a file in its own directory.
    pub fn link(
        &self,
        by: &impl Acknowledge,
        directory: Fid,
        name: &[u8],
        target: Fid,
    ) -> Result<Created, VolumeError> {
        by.acknowledge(self.add_name(by.actor(), directory, name, target)?)
    }

    fn add_name(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        target: Fid,
    ) -> Result<Pending<Created>, VolumeError> {
        if let Some(earlier) = self.earlier(actor)? {
            return Ok(earlier);
        }
        check_new_name(name)?;
        let mut transaction = Transaction::begin(self, actor)?;
        let parent = transaction.directory(directory)?;
        let mut file = transaction.vnode(target)?;
        if file.status.kind != FileKind::File {
            return Err(VolumeError::IsDirectory);
        }
        if file.status.parent != directory.vnode {
            return Err(VolumeError::CrossDevice);
        }
        file.status.links = file.status.links.checked_add(1).ok_or(VolumeError::Invalid("too many links"))?;
        file.status.author = actor.user;
        let status = transaction.put(file)?;
        transaction.change_directory(&parent)?;
        transaction.insert(
            directory.vnode,
            name,
            EntryTarget { vnode: target.vnode, unique: target.unique },
        )?;
        let created = Created { status, directory: transaction.status(directory.vnode)? };
        self.finish(transaction, created)
    }

    /// RemoveFile: removes a name of a file or symbolic link, and the vnode with its last name.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `NoEntry`, `IsDirectory`, `Invalid` (`.` and `..`),
    /// `Store`.
    pub fn remove_file(
        &self,
        by: &impl Acknowledge,
        directory: Fid,
        name: &[u8],
    ) -> Result<Removed, VolumeError> {
        by.acknowledge(self.remove(by.actor(), directory, name, false)?)
    }

    /// RemoveDir: removes an empty directory.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `NoEntry`, `NotEmpty`, `Invalid` (`.` and `..`), `Store`.
    pub fn remove_directory(
        &self,
        by: &impl Acknowledge,
        directory: Fid,
        name: &[u8],
    ) -> Result<Removed, VolumeError> {
        by.acknowledge(self.remove(by.actor(), directory, name, true)?)
    }

    fn remove(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        is_directory: bool,
    ) -> Result<Pending<Removed>, VolumeError> {
        if let Some(earlier) = self.earlier(actor)? {
            return Ok(earlier);
        }
        if is_dots(name) {
            return Err(VolumeError::Invalid("`.` and `..` cannot be removed"));
        }
        let mut transaction = Transaction::begin(self, actor)?;
        let parent = transaction.directory(directory)?;
        let target = transaction.lookup(&parent, name)?.ok_or(VolumeError::NoEntry)?;
        let vnode = transaction.target(target)?;
        match (is_directory, vnode.status.is_directory()) {
            (true, false) => return Err(VolumeError::NotDirectory),
            (false, true) => return Err(VolumeError::IsDirectory),
            (true, true) if !transaction.blob(&vnode)?.read().is_empty() => {
                return Err(VolumeError::NotEmpty);
            }
            _ => {}
        }
        let target = transaction.drop_name(vnode)?;
        transaction.change_directory(&parent)?;
        if is_directory {
            transaction.add_links(directory.vnode, -1)?;
        }
        transaction.remove_entry(directory.vnode, name)?;
        let removed = Removed { target, directory: transaction.status(directory.vnode)? };
        self.finish(transaction, removed)
    }
}

impl Transaction<'_> {
    /// Stores the text of a new symbolic link.
    pub(crate) fn put_link(&mut self, vnode: &Vnode, path: &[u8]) -> Result<(), VolumeError> {
        if path.is_empty() {
            return Ok(());
        }
        let extent = Extent::Inline(Bytes::copy_from_slice(path));
        self.put_extent(vnode, 0, Some(&extent), None)
    }

    /// Removes one name of a vnode and, with the last one (a directory has only one), the vnode itself. The
    /// returned status then has `links` 0.
    pub(crate) fn drop_name(&mut self, mut vnode: Vnode) -> Result<VnodeStatus, VolumeError> {
        let is_last = vnode.status.is_directory() || vnode.status.links <= 1;
        if is_last {
            self.remove(&vnode)?;
            vnode.status.links = 0;
            return Ok(vnode.status);
        }
        vnode.status.links -= 1;
        self.put(vnode)
    }
}
