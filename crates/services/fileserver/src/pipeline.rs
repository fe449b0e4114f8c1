//! The steps common to all calls, around their handlers.

use crate::access::{Access, Gate, Reading, Writing};
use crate::counters::Operation;
use crate::errors::untranslated;
use crate::hosts::Entered;
use crate::server::FileServer;
use crate::subject::Subject;
use crate::{volumes, wire};
use afs_format::acl::Acl;
use afs_idl::fs as rxafs;
use base::{AbortCode, Caller, Fid, Rights, VolumeId};
use callbacks::HostId;
use events::current::{self, Privilege};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use volume::{Actor, SetStatus, VnodeStatus, Volume, VolumeError};

/// An admitted call.
pub(crate) struct Session<'a> {
    pub(crate) server: &'a FileServer,
    pub(crate) host: HostId,
    pub(crate) subject: Arc<Subject>,
    translates: bool,
    /// The volume accessed last.
    volume: AtomicU32,
}

/// The kind of vnode that a call requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Anything,
    Directory,
    NotDirectory,
}

/// A vnode with the rights of one caller to it.
pub(crate) struct View {
    pub(crate) volume: Arc<Volume>,
    pub(crate) fid: Fid,
    pub(crate) status: VnodeStatus,
    pub(crate) access: Access,
}

impl FileServer {
    /// Counts a call that does not require an identified host.
    pub(crate) fn counted<T>(
        &self,
        operation: Operation,
        body: impl FnOnce() -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        let begun = self.clock().monotonic();
        self.counters().begin(operation);
        let result = body();
        let time = self.clock().monotonic().since(begun);
        self.counters().end(operation, time, result.as_ref().err().copied());
        result
    }

    /// Admits a call, runs `body`, and translates its error for the client.
    pub(crate) fn call<T>(
        &self,
        caller: &Caller,
        operation: Operation,
        body: impl FnOnce(&Session<'_>) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.counted(operation, || {
            let session = self.session(caller)?;
            body(&session).map_err(|code| session.for_client(code))
        })
    }

    /// Like [`Self::call`] for calls that neither indicate use of files nor depend on the user.
    pub(crate) fn idle_call<T>(
        &self,
        caller: &Caller,
        operation: Operation,
        body: impl FnOnce() -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.counted(operation, || {
            let entered = self.hosts().enter(caller, false)?;
            body().map_err(|code| if entered.translates { code } else { untranslated(code) })
        })
    }

    /// Admits a call of another service than the file service.
    pub(crate) fn session(&self, caller: &Caller) -> Result<Session<'_>, AbortCode> {
        let entered = self.hosts().enter(caller, true)?;
        let subject = self.subjects().of(caller, self.clock().monotonic())?;
        Ok(Session::new(self, entered, subject))
    }
}

impl Session<'_> {
    pub(crate) fn new(server: &FileServer, entered: Entered, subject: Arc<Subject>) -> Session<'_> {
        let volume = AtomicU32::new(0);
        Session { server, host: entered.host, subject, translates: entered.translates, volume }
    }

    /// Translates an error to the form that this client understands.
    pub(crate) fn for_client(&self, code: AbortCode) -> AbortCode {
        if code == AbortCode::VMOVED {
            let volume = VolumeId(self.volume.load(Ordering::Relaxed));
            return self.server.moved().next(self.host, volume, self.server.clock().monotonic());
        }
        if self.translates { code } else { untranslated(code) }
    }

    /// Returns the user and the time of a change.
    pub(crate) fn actor(&self) -> Actor {
        Actor {
            user: self.subject.user,
            privileged: self.subject.administrator,
            in_transaction: false,
            now: self.server.clock().unix(),
        }
    }

    /// Returns the volume if it is online.
    pub(crate) fn online(&self, id: VolumeId) -> Result<Arc<Volume>, AbortCode> {
        self.volume.store(id.0, Ordering::Relaxed);
        self.server.volumes().get(id).map_err(|error| match error {
            VolumeError::NoVolume(id) => self.server.moved().absent(id, self.server.clock().monotonic()),
            other => other.into(),
        })
    }

    /// Like [`Self::online`], but also counts an access to the volume.
    pub(crate) fn volume(&self, id: VolumeId) -> Result<Arc<Volume>, AbortCode> {
        let volume = self.online(id)?;
        current::volume(id.0);
        volume.count_access(self.server.clock().unix());
        Ok(volume)
    }

    /// Returns `fid` with this caller's rights to it.
    pub(crate) fn view(&self, fid: rxafs::Fid, need: Need) -> Result<View, AbortCode> {
        let fid = Fid::from(fid);
        if fid.volume.0 == 0 || fid.vnode.0 == 0 {
            return Err(AbortCode::UAEINVAL);
        }
        let view = self.view_in(self.volume(fid.volume)?, fid)?;
        match (need, view.status.is_directory()) {
            (Need::Directory, false) => Err(AbortCode::UAENOTDIR),
            (Need::NotDirectory, true) => Err(AbortCode::UAEISDIR),
            _ => Ok(view),
        }
    }

    /// Like [`Self::view`], for a call that changes the vnode.
    pub(crate) fn view_to_write(&self, fid: rxafs::Fid, need: Need) -> Result<View, AbortCode> {
        let view = self.view(fid, need)?;
        if volumes::is_writable(&view.volume) { Ok(view) } else { Err(AbortCode::UAEROFS) }
    }

    pub(crate) fn view_in(&self, volume: Arc<Volume>, fid: Fid) -> Result<View, AbortCode> {
        let (status, acl) = volume.status_and_acl(fid)?;
        Ok(self.view_of(volume, fid, status, &acl))
    }

    pub(crate) fn view_of(&self, volume: Arc<Volume>, fid: Fid, status: VnodeStatus, acl: &Acl) -> View {
        let access = self.access(&status, acl);
        View { volume, fid, status, access }
    }

    pub(crate) fn access(&self, status: &VnodeStatus, acl: &Acl) -> Access {
        Access::new(acl, status, &self.subject, self.server.config().implicit_admin_rights)
    }

    /// Reads the same vnode again, in the current volume: both may have been replaced.
    pub(crate) fn again(&self, view: &View) -> Result<View, AbortCode> {
        self.view_in(self.online(view.fid.volume)?, view.fid)
    }

    /// Returns the wire status of a vnode to which this caller has `access`.
    pub(crate) fn wire_status(&self, fid: Fid, status: &VnodeStatus, access: Access) -> rxafs::FetchStatus {
        wire::fetch_status(status, access, self.server.lock_count(self.server.clock().monotonic(), fid))
    }

    pub(crate) fn may_read(&self, view: &View, what: Reading) -> Result<(), AbortCode> {
        self.with_gate(view, |gate| gate.read(what))
    }

    pub(crate) fn may_write(&self, view: &View, what: Writing, set: &SetStatus) -> Result<(), AbortCode> {
        self.with_gate(view, |gate| gate.write(what, set))?;
        let mode = if what == Writing::Data { Privilege::SetModeOfData } else { Privilege::SetMode };
        self.note_mode(set, mode);
        Ok(())
    }

    /// Records the use of a privilege when an administrator sets mode bits. Like OpenAFS, this ignores which
    /// bits they are.
    pub(crate) fn note_mode(&self, set: &SetStatus, privilege: Privilege) {
        if self.subject.administrator && set.mode.is_some() {
            current::privilege(privilege);
        }
    }

    pub(crate) fn may_change_entries(&self, view: &View, needed: Rights) -> Result<(), AbortCode> {
        self.with_gate(view, |gate| gate.change_entries(needed))
    }

    pub(crate) fn with_gate<T>(&self, view: &View, ask: impl FnOnce(&Gate<'_>) -> T) -> T {
        self.with_gate_of(&view.volume, &view.status, view.access, ask)
    }

    /// Runs a check on a vnode in `volume` to which the caller has `access`.
    pub(crate) fn with_gate_of<T>(
        &self,
        volume: &Volume,
        status: &VnodeStatus,
        access: Access,
        ask: impl FnOnce(&Gate<'_>) -> T,
    ) -> T {
        let owns_volume = || {
            let owner = base::UserId(volume.header().owner);
            if owner.is_group() { self.subject.is(owner) } else { self.subject.user == owner }
        };
        ask(&Gate { subject: &self.subject, status, rights: access.caller, owns_volume: &owns_volume })
    }
}

impl View {
    /// Returns the AFSVolSync of the volume.
    pub(crate) fn sync(&self) -> rxafs::VolSync {
        wire::vol_sync(self.volume.dates().0)
    }
}
