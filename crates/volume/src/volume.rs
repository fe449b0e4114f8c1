//! One volume.

use crate::{
    Actor, Created, Found, Removed, Renamed, SetStatus, StoreRequest, VnodeStatus, VolumeError, VolumeHeader,
    VolumeState,
};
use afs_format::acl::Acl;
use base::{AbortCode, Fid, PartitionId, UnixTime, VnodeId, VolumeId};
use bytes::Bytes;
use std::sync::Arc;

/// One volume. All methods may be called from any thread; what changes something returns when the
/// change is durable. FIDs are taken as they come from the wire: `fid.volume` is not looked at,
/// `fid.vnode` and `fid.unique` must both fit or the answer is `NoVnode`.
///
/// Rights are not checked here: that is the file server's task.
pub struct Volume {
    id: VolumeId,
}

/// Reads one state of a file, link or directory piece by piece, whatever is written meanwhile.
pub struct FileReader {
    status: VnodeStatus,
}

impl FileReader {
    /// The status that goes with the data.
    pub fn status(&self) -> &VnodeStatus {
        &self.status
    }

    /// Bytes that are still to come: the length asked for, cut at the end of the file.
    pub fn remaining(&self) -> u64 {
        0
    }

    /// The next bytes, at least one and at most about `bytes_max` (one chunk more at most), shared
    /// with the chunk cache; empty at the end.
    ///
    /// # Errors
    /// `Store`.
    pub fn next(&mut self, bytes_max: usize) -> Result<Vec<Bytes>, VolumeError> {
        let _ = bytes_max;
        Ok(vec![])
    }
}

impl Volume {
    fn none<T>(&self) -> Result<T, VolumeError> {
        Err(VolumeError::NoVolume(self.id))
    }

    /// Its id.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The partition it is on.
    pub fn partition(&self) -> PartitionId {
        PartitionId::from_index(0).unwrap_or_else(|| unreachable!("0 is a partition"))
    }

    /// The header as it is now, usage included.
    pub fn header(&self) -> VolumeHeader {
        unreachable!("no volume exists yet")
    }

    /// Creation and update date for AFSVolSync, cheaper than the whole header.
    pub fn dates(&self) -> (UnixTime, UnixTime) {
        (UnixTime(0), UnixTime(0))
    }

    /// Changes the header durably. Ids, counts and used blocks that `change` alters are kept as they
    /// were; name, kind, parent, clone and backup ids, quota, dates, flags, use counts and messages
    /// take effect.
    ///
    /// # Errors
    /// `Store`.
    pub fn update_header(&self, change: impl FnOnce(&mut VolumeHeader)) -> Result<VolumeHeader, VolumeError> {
        let _ = change;
        self.none()
    }

    /// Whether file service may use it.
    pub fn state(&self) -> VolumeState {
        VolumeState::Online
    }

    /// Sets what file service is told from now on.
    pub fn set_state(&self, state: VolumeState) {
        let _ = state;
    }

    /// Counts an access for the day's use; stored with the next change.
    pub fn count_access(&self, now: UnixTime) {
        let _ = now;
    }

    /// The root directory.
    pub fn root(&self) -> Fid {
        Fid::root(self.id)
    }

    /// The status of a vnode.
    ///
    /// # Errors
    /// `NoVnode` when it is gone or the uniquifier is another's, `Store`.
    pub fn status(&self, fid: Fid) -> Result<VnodeStatus, VolumeError> {
        let _ = fid;
        self.none()
    }

    /// The status together with the access list that governs the vnode: its own for a directory, its
    /// directory's for anything else.
    ///
    /// # Errors
    /// `NoVnode`, `Store`.
    pub fn status_and_acl(&self, fid: Fid) -> Result<(VnodeStatus, Arc<Acl>), VolumeError> {
        let _ = fid;
        self.none()
    }

    /// What `name` stands for in `directory`; `.` and `..` too.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `NoEntry`, `Store`.
    pub fn lookup(&self, directory: Fid, name: &[u8]) -> Result<Found, VolumeError> {
        let _ = (directory, name);
        self.none()
    }

    /// Calls `visit` with every entry of `directory`, `.` and `..` too.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `Store`.
    pub fn entries(&self, directory: Fid, visit: &mut dyn FnMut(&[u8], Found)) -> Result<(), VolumeError> {
        let _ = (directory, visit);
        self.none()
    }

    /// A reader of `length` bytes from `offset`; of a directory the blob, of a symbolic link the
    /// path.
    ///
    /// # Errors
    /// `NoVnode`, `Store`.
    pub fn reader(&self, fid: Fid, offset: u64, length: u64) -> Result<FileReader, VolumeError> {
        let _ = (fid, offset, length);
        self.none()
    }

    /// All of what [`Volume::reader`] would read at once; for short reads.
    ///
    /// # Errors
    /// `NoVnode`, `Store`.
    pub fn read(&self, fid: Fid, offset: u64, length: u64) -> Result<(VnodeStatus, Vec<Bytes>), VolumeError> {
        let _ = (fid, offset, length);
        self.none()
    }

    /// StoreData: takes the data from `source`, which is called with the most bytes wanted and
    /// answers with at least one, or with none if there are no more. All of it becomes visible at
    /// once or, with an error, nothing. The data version rises by one.
    ///
    /// # Errors
    /// `NoVnode`, `IsDirectory`, `ReadOnly`, `OverQuota`, `PartitionFull`, `FileTooLarge`, `Transfer`
    /// (what `source` said, or RXGEN_SS_UNMARSHAL when it ended early), `Store`.
    pub fn store(
        &self,
        actor: &Actor,
        fid: Fid,
        request: &StoreRequest,
        source: &mut dyn FnMut(usize) -> Result<Bytes, AbortCode>,
    ) -> Result<VnodeStatus, VolumeError> {
        let _ = (actor, fid, request, source);
        self.none()
    }

    /// StoreStatus.
    ///
    /// # Errors
    /// `NoVnode`, `ReadOnly`, `Invalid` (mode of a symbolic link), `Store`.
    pub fn set_status(&self, actor: &Actor, fid: Fid, set: &SetStatus) -> Result<VnodeStatus, VolumeError> {
        let _ = (actor, fid, set);
        self.none()
    }

    /// StoreACL: sets a directory's access list.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `Store`.
    pub fn set_acl(&self, actor: &Actor, directory: Fid, acl: Acl) -> Result<VnodeStatus, VolumeError> {
        let _ = (actor, directory, acl);
        self.none()
    }

    /// CreateFile: an empty file of mode 0777 unless `set` says otherwise, data version 0.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `InvalidName`, `NameTooLong`, `Exists`, `DirectoryFull`,
    /// `OverQuota`, `PartitionFull`, `Store`.
    pub fn create_file(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        set: &SetStatus,
    ) -> Result<Created, VolumeError> {
        let _ = (actor, directory, name, set);
        self.none()
    }

    /// MakeDir: an empty directory with a copy of its parent's access list.
    ///
    /// # Errors
    /// As [`Volume::create_file`].
    pub fn make_directory(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        set: &SetStatus,
    ) -> Result<Created, VolumeError> {
        let _ = (actor, directory, name, set);
        self.none()
    }

    /// Symlink: a symbolic link to `target`, or a mount point if `set` gives a mode without execute
    /// bits (0644).
    ///
    /// # Errors
    /// As [`Volume::create_file`].
    pub fn create_symlink(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        set: &SetStatus,
    ) -> Result<Created, VolumeError> {
        let _ = (actor, directory, name, target, set);
        self.none()
    }

    /// Link: one more name for a file in its own directory.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `IsDirectory` (not a file), `CrossDevice` (another directory),
    /// `ReadOnly`, `InvalidName`, `NameTooLong`, `Exists`, `DirectoryFull`, `Store`.
    pub fn link(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
        target: Fid,
    ) -> Result<Created, VolumeError> {
        let _ = (actor, directory, name, target);
        self.none()
    }

    /// RemoveFile: removes a name of a file or symbolic link, and the vnode with its last name.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `NoEntry`, `IsDirectory`, `Invalid` (`.` and `..`),
    /// `Store`.
    pub fn remove_file(&self, actor: &Actor, directory: Fid, name: &[u8]) -> Result<Removed, VolumeError> {
        let _ = (actor, directory, name);
        self.none()
    }

    /// RemoveDir: removes an empty directory.
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `ReadOnly`, `NoEntry`, `NotEmpty`, `Invalid` (`.` and `..`), `Store`.
    pub fn remove_directory(
        &self,
        actor: &Actor,
        directory: Fid,
        name: &[u8],
    ) -> Result<Removed, VolumeError> {
        let _ = (actor, directory, name);
        self.none()
    }

    /// Rename within the volume, over an existing target of the same sort (an empty one if it is a
    /// directory).
    ///
    /// # Errors
    /// `NoVnode`, `NotDirectory`, `IsDirectory`, `ReadOnly`, `NoEntry`, `NotEmpty`, `InvalidName`,
    /// `NameTooLong`, `Loop`, `CrossDevice` (a file with several names to another directory),
    /// `Invalid` (both names are the same file), `DirectoryFull`, `Store`.
    pub fn rename(
        &self,
        actor: &Actor,
        old_directory: Fid,
        old_name: &[u8],
        new_directory: Fid,
        new_name: &[u8],
    ) -> Result<Renamed, VolumeError> {
        let _ = (actor, old_directory, old_name, new_directory, new_name);
        self.none()
    }

    /// Calls `visit` with the number of every vnode in ascending order from `from`, until it answers
    /// `false`. For dumps and checks.
    ///
    /// # Errors
    /// `Store`.
    pub fn vnodes(
        &self,
        from: VnodeId,
        visit: &mut dyn FnMut(&VnodeStatus) -> bool,
    ) -> Result<(), VolumeError> {
        let _ = (from, visit);
        self.none()
    }
}
