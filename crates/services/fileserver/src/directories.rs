//! Directory entries: CreateFile, MakeDir, Symlink, Link, RemoveFile, RemoveDir, Rename, Lookup.

use crate::access::{Access, Reading};
use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::{Need, Session, View};
use crate::promises::Change;
use crate::wire;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext, Fid, Privilege, Rights};
use volume::{Created, SetStatus, VnodeStatus};

/// Rejects names that no new entry may have (`FileNameOK`); the volume checks the rest.
fn check_new_name(name: &[u8]) -> Result<(), AbortCode> {
    if name.ends_with(b"@sys") || name.contains(&b'/') { Err(AbortCode::UAEINVAL) } else { Ok(()) }
}

impl FileCall<'_> {
    /// CreateFile (137).
    pub(crate) fn create_file(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::CreateFileRequest,
    ) -> Result<rxafs::CreateFileReply, AbortCode> {
        self.call(caller, Operation::CreateFile, |session| {
            let set = wire::set_status(&request.status);
            let directory = session.directory_for_new(request.directory, request.name.as_bytes(), &set)?;
            session.note_mode(&set, Privilege::SetMode);
            let (by, name) = (session.actor(), request.name.as_bytes());
            let created =
                directory.volume.access(|volume| volume.create_file(&by, directory.fid, name, &set))?;
            let born = session.born(&directory, &created, Rights::ADMINISTER);
            Ok(rxafs::CreateFileReply {
                fid: born.fid.into(),
                file_status: born.status,
                directory_status: born.directory_status,
                call_back: born.call_back,
                sync: directory.sync(),
            })
        })
    }

    /// MakeDir (141).
    pub(crate) fn make_dir(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::MakeDirRequest,
    ) -> Result<rxafs::MakeDirReply, AbortCode> {
        self.call(caller, Operation::MakeDir, |session| {
            let set = wire::set_status(&request.status);
            let directory = session.directory_for_new(request.directory, request.name.as_bytes(), &set)?;
            let (by, name) = (session.actor(), request.name.as_bytes());
            let created =
                directory.volume.access(|volume| volume.make_directory(&by, directory.fid, name, &set))?;
            let born = session.born(&directory, &created, Rights::NONE);
            Ok(rxafs::MakeDirReply {
                fid: born.fid.into(),
                file_status: born.status,
                directory_status: born.directory_status,
                call_back: born.call_back,
                sync: directory.sync(),
            })
        })
    }

    /// Symlink (139): a symbolic link, or a mount point if the mode has no execute bits. The reply contains
    /// no promise.
    pub(crate) fn symlink(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::SymlinkRequest,
    ) -> Result<rxafs::SymlinkReply, AbortCode> {
        self.call(caller, Operation::Symlink, |session| {
            let set = wire::set_status(&request.status);
            let directory = session.directory_for_new(request.directory, request.name.as_bytes(), &set)?;
            session.with_gate(&directory, |gate| gate.link_with_mode(set.mode))?;
            let (by, name, target) = (session.actor(), request.name.as_bytes(), request.contents.as_bytes());
            let created = directory
                .volume
                .access(|volume| volume.create_symlink(&by, directory.fid, name, target, &set))?;
            session.announce(&Change::of(directory.fid));
            let fid = created.status.fid(directory.volume.id());
            Ok(rxafs::SymlinkReply {
                fid: fid.into(),
                file_status: session.wire_status(fid, &created.status, directory.access),
                directory_status: session.directory_status(&directory, &created.directory),
                sync: directory.sync(),
            })
        })
    }

    /// Link (140).
    pub(crate) fn link(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::LinkRequest,
    ) -> Result<rxafs::LinkReply, AbortCode> {
        self.call(caller, Operation::Link, |session| {
            if request.directory.volume != request.existing.volume {
                return Err(AbortCode::UAEXDEV);
            }
            let directory = session.directory_for_new(
                request.directory,
                request.name.as_bytes(),
                &SetStatus::default(),
            )?;
            let existing = Fid::from(request.existing);
            if existing.vnode.is_directory() {
                return Err(AbortCode::UAEISDIR);
            }
            let (by, name) = (session.actor(), request.name.as_bytes());
            let linked = directory.volume.access(|volume| volume.link(&by, directory.fid, name, existing))?;
            session.announce(&Change { others: vec![directory.fid, existing], ..Change::default() });
            Ok(rxafs::LinkReply {
                file_status: session.wire_status(existing, &linked.status, directory.access),
                directory_status: session.directory_status(&directory, &linked.directory),
                sync: directory.sync(),
            })
        })
    }

    /// RemoveFile (136).
    pub(crate) fn remove_file(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::RemoveFileRequest,
    ) -> Result<rxafs::RemoveFileReply, AbortCode> {
        self.call(caller, Operation::RemoveFile, |session| {
            let directory = session.directory_to_change(request.directory, Rights::DELETE)?;
            let (by, name) = (session.actor(), request.name.as_bytes());
            let removed = directory.volume.access(|volume| volume.remove_file(&by, directory.fid, name))?;
            let target = removed.target.fid(directory.volume.id());
            session.announce(&Change::of(directory.fid).with_target(target, removed.is_gone()));
            let directory_status = session.directory_status(&directory, &removed.directory);
            Ok(rxafs::RemoveFileReply { directory_status, sync: directory.sync() })
        })
    }

    /// RemoveDir (142).
    pub(crate) fn remove_dir(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::RemoveDirRequest,
    ) -> Result<rxafs::RemoveDirReply, AbortCode> {
        self.call(caller, Operation::RemoveDir, |session| {
            let directory = session.directory_to_change(request.directory, Rights::DELETE)?;
            let (by, name) = (session.actor(), request.name.as_bytes());
            let removed =
                directory.volume.access(|volume| volume.remove_directory(&by, directory.fid, name))?;
            let target = removed.target.fid(directory.volume.id());
            session.announce(&Change::of(directory.fid).with_target(target, true));
            let directory_status = session.directory_status(&directory, &removed.directory);
            Ok(rxafs::RemoveDirReply { directory_status, sync: directory.sync() })
        })
    }

    /// Rename (138).
    pub(crate) fn rename(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::RenameRequest,
    ) -> Result<rxafs::RenameReply, AbortCode> {
        self.call(caller, Operation::Rename, |session| {
            let (old_name, new_name) = (request.old_name.as_bytes(), request.new_name.as_bytes());
            check_rename(&request, old_name, new_name)?;
            let old = session.directory_to_change(request.old_directory, Rights::DELETE)?;
            let new = session.directory_to_change(request.new_directory, Rights::INSERT)?;
            session.may_replace(&new, new_name)?;
            let by = session.actor();
            let renamed =
                new.volume.access(|volume| volume.rename(&by, old.fid, old_name, new.fid, new_name))?;
            session.announce(&rename_change(&renamed, &old, &new));
            Ok(rxafs::RenameReply {
                old_directory_status: session.directory_status(&old, &renamed.old_directory),
                new_directory_status: session.directory_status(&new, &renamed.new_directory),
                sync: new.sync(),
            })
        })
    }

    /// Lookup (161), which other clients than OpenAFS's may use.
    pub(crate) fn lookup(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::LookupRequest,
    ) -> Result<rxafs::LookupReply, AbortCode> {
        self.call(caller, Operation::Lookup, |session| {
            let directory = session.view(request.directory, Need::Directory)?;
            session.may_read(&directory, Reading::Data)?;
            let name = request.name.as_bytes();
            let found = directory.volume.read(directory.fid, |volume| volume.lookup(directory.fid, name))?;
            let fid = Fid { volume: directory.fid.volume, vnode: found.vnode, unique: found.unique };
            let call_back = session.promise(&directory, fid);
            let again = session.again(&directory)?;
            let call_back = Session::kept(&directory.volume, &again.volume, call_back);
            let directory = again;
            let file = session.view_in(directory.volume.clone(), fid)?;
            Ok(rxafs::LookupReply {
                fid: fid.into(),
                file_status: session.wire_status(fid, &file.status, file.access),
                directory_status: session.directory_status(&directory, &directory.status),
                call_back,
                sync: directory.sync(),
            })
        })
    }
}

fn check_rename(request: &rxafs::RenameRequest, old_name: &[u8], new_name: &[u8]) -> Result<(), AbortCode> {
    check_new_name(new_name)?;
    if request.old_directory.volume != request.new_directory.volume {
        return Err(AbortCode::UAEXDEV);
    }
    let unusable = |name: &[u8]| matches!(name, b"" | b"." | b"..");
    if unusable(old_name) || unusable(new_name) { Err(AbortCode::UAEINVAL) } else { Ok(()) }
}

/// Returns the change to announce after a rename. The moved vnode itself changes only if it is a directory
/// with a new `..`. The reply does not contain its status, so the caller is notified as well.
fn rename_change(renamed: &volume::Renamed, old: &View<'_>, new: &View<'_>) -> Change {
    let volume = new.volume.id();
    let mut change = Change { others: vec![new.fid], ..Change::default() };
    if old.fid != new.fid {
        change.others.push(old.fid);
    }
    if renamed.moved_changed {
        change.everyone.push(renamed.moved.fid(volume));
    }
    match renamed.replaced {
        Some(replaced) => change.with_target(replaced.fid(volume), replaced.links == 0),
        None => change,
    }
}

/// The reply about a new file or directory.
struct Born {
    fid: Fid,
    status: rxafs::FetchStatus,
    directory_status: rxafs::FetchStatus,
    call_back: rxafs::CallBack,
}

impl Session<'_> {
    /// Returns a directory in which the caller has `right`.
    fn directory_to_change(&self, fid: rxafs::Fid, right: Rights) -> Result<View<'_>, AbortCode> {
        let view = self.view_to_write(fid, Need::Directory)?;
        self.may_change_entries(&view, right)?;
        Ok(view)
    }

    /// Returns a directory in which the caller may create an entry with this name and status.
    fn directory_for_new(
        &self,
        fid: rxafs::Fid,
        name: &[u8],
        set: &SetStatus,
    ) -> Result<View<'_>, AbortCode> {
        check_new_name(name)?;
        let view = self.directory_to_change(fid, Rights::INSERT)?;
        // Unlike in OpenAFS, only administrators can create files for other users.
        let for_other = set.owner.is_some_and(|owner| owner != self.subject.user);
        if for_other && !self.subject.administrator { Err(AbortCode::UAEPERM) } else { Ok(view) }
    }

    /// Checks for the right to delete an existing entry that would be replaced.
    fn may_replace(&self, directory: &View<'_>, name: &[u8]) -> Result<(), AbortCode> {
        match directory.volume.access(|volume| volume.lookup(directory.fid, name)) {
            Ok(_) => self.may_change_entries(directory, Rights::DELETE),
            Err(volume::VolumeError::NoEntry) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn directory_status(&self, directory: &View<'_>, status: &VnodeStatus) -> rxafs::FetchStatus {
        self.wire_status(directory.fid, status, directory.access)
    }

    /// Announces a creation, and promises the new vnode to its creator. The promise is made before the status
    /// is read, since other clients may have found and changed the vnode already. The creator's rights to it
    /// are those to the directory and `more`.
    fn born(&self, directory: &View<'_>, created: &Created, more: Rights) -> Born {
        let fid = created.status.fid(directory.volume.id());
        let call_back = self.promise(directory, fid);
        self.announce(&Change::of(directory.fid));
        let (status, call_back) = match directory.volume.read(fid, |volume| volume.status(fid)) {
            Ok(status) => (status, call_back),
            // It is gone already.
            Err(_) => (created.status, wire::call_back(0)),
        };
        let access = Access { caller: directory.access.caller | more, ..directory.access };
        Born {
            fid,
            status: self.wire_status(fid, &status, access),
            directory_status: self.directory_status(directory, &created.directory),
            call_back,
        }
    }
}
