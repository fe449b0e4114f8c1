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
use base::{AbortCode, CallContext, Fid, Monotonic, Privilege, Rights, VolumeId};
use callbacks::HostId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use volume::{
    Actor, CallActor, Commits, InCall, Promisee, RepeatableCall, SetStatus, VnodeStatus, Volume, VolumeError,
};

/// An admitted call.
pub(crate) struct Session<'a> {
    pub(crate) server: &'a FileServer,
    context: &'a CallContext<'a>,
    pub(crate) host: HostId,
    pub(crate) subject: Arc<Subject>,
    /// The commits for which the reply has to wait.
    commits: &'a Commits,
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
pub(crate) struct View<'a> {
    pub(crate) volume: InCall<'a>,
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

    /// Like [`FileCall::call`](crate::FileCall) for calls that neither indicate use of files nor depend on the user.
    pub(crate) fn idle_call<T>(
        &self,
        caller: &CallContext<'_>,
        operation: Operation,
        body: impl FnOnce() -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        self.counted(operation, || {
            let entered = self.hosts().enter(caller, false)?;
            body().map_err(|code| if entered.translates { code } else { untranslated(code) })
        })
    }

    /// Admits a call of the file service, or of another service that answers with its data.
    pub(crate) fn session<'a>(
        &'a self,
        caller: &'a CallContext<'_>,
        commits: &'a Commits,
    ) -> Result<Session<'a>, AbortCode> {
        let entered = self.hosts().enter(caller, true)?;
        let subject = self.subjects().of(caller, self.clock().monotonic())?;
        Ok(Session::new(self, caller, commits, entered, subject))
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        server: &'a FileServer,
        context: &'a CallContext<'_>,
        commits: &'a Commits,
        entered: Entered,
        subject: Arc<Subject>,
    ) -> Session<'a> {
        context.note_user(subject.user);
        let volume = AtomicU32::new(0);
        Session {
            server,
            context,
            host: entered.host,
            subject,
            commits,
            translates: entered.translates,
            volume,
        }
    }

    /// Returns the caller, as the durable lists of hosts need it.
    pub(crate) fn promisee(&self, now: Monotonic) -> Promisee {
        Promisee { number: self.host.0, address: self.context.peer, now }
    }

    /// Translates an error to the form that this client understands.
    pub(crate) fn for_client(&self, code: AbortCode) -> AbortCode {
        if code == AbortCode::VMOVED {
            let volume = VolumeId(self.volume.load(Ordering::Relaxed));
            return self.server.moved().next(self.host, volume, self.server.clock().monotonic());
        }
        if self.translates { code } else { untranslated(code) }
    }

    /// Records that the call uses this volume.
    pub(crate) fn note_volume(&self, id: VolumeId) {
        self.context.note_volume(id);
        waits::set_volume(id.0);
    }

    /// Returns the user and the time of a change, for which the reply waits.
    pub(crate) fn actor(&self) -> CallActor<'a> {
        let actor = Actor {
            user: self.subject.user,
            privileged: self.subject.administrator,
            in_transaction: false,
            call: self.context.id().map(|id| RepeatableCall { id, client: self.context.peer.ip() }),
            now: self.server.clock().unix(),
        };
        CallActor { actor, commits: self.commits }
    }

    /// Returns the volume if it is online.
    pub(crate) fn online(&self, id: VolumeId) -> Result<InCall<'a>, AbortCode> {
        self.find_online(id).map(|volume| self.in_call(volume))
    }

    /// Returns a volume whose changes and missing vnodes are answered when they are durable.
    pub(crate) fn in_call(&self, volume: Arc<Volume>) -> InCall<'a> {
        InCall::new(volume, self.commits)
    }

    pub(crate) fn find_online(&self, id: VolumeId) -> Result<Arc<Volume>, AbortCode> {
        self.volume.store(id.0, Ordering::Relaxed);
        self.server.volumes().get(id).map_err(|error| match error {
            VolumeError::NoVolume(id) => self.server.absent(id),
            other => other.into(),
        })
    }

    /// Like [`Self::online`], but also counts an access to the volume.
    pub(crate) fn volume(&self, id: VolumeId) -> Result<InCall<'a>, AbortCode> {
        let volume = self.find_online(id)?;
        self.note_volume(id);
        volume.count_access(self.server.clock().unix());
        Ok(self.in_call(volume))
    }

    /// Returns `fid` with this caller's rights to it.
    pub(crate) fn view(&self, fid: rxafs::Fid, need: Need) -> Result<View<'a>, AbortCode> {
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
    pub(crate) fn view_to_write(&self, fid: rxafs::Fid, need: Need) -> Result<View<'a>, AbortCode> {
        let view = self.view(fid, need)?;
        if volumes::is_writable(view.volume.kind()) { Ok(view) } else { Err(AbortCode::UAEROFS) }
    }

    pub(crate) fn view_in(&self, volume: InCall<'a>, fid: Fid) -> Result<View<'a>, AbortCode> {
        let (status, acl) = volume.read(fid, |volume| volume.status_and_acl(fid))?;
        Ok(self.view_of(volume, fid, status, &acl))
    }

    pub(crate) fn view_of<'v>(
        &self,
        volume: InCall<'v>,
        fid: Fid,
        status: VnodeStatus,
        acl: &Acl,
    ) -> View<'v> {
        let access = self.access(&status, acl);
        View { volume, fid, status, access }
    }

    pub(crate) fn access(&self, status: &VnodeStatus, acl: &Acl) -> Access {
        Access::new(acl, status, &self.subject, self.server.config().implicit_admin_rights)
    }

    /// Reads the same vnode again, in the current volume: both may have been replaced.
    pub(crate) fn again(&self, view: &View<'_>) -> Result<View<'a>, AbortCode> {
        self.view_in(self.online(view.fid.volume)?, view.fid)
    }

    /// Returns the wire status of a vnode to which this caller has `access`.
    pub(crate) fn wire_status(&self, fid: Fid, status: &VnodeStatus, access: Access) -> rxafs::FetchStatus {
        wire::fetch_status(status, access, self.server.lock_count(self.server.clock().monotonic(), fid))
    }

    pub(crate) fn may_read(&self, view: &View<'_>, what: Reading) -> Result<(), AbortCode> {
        self.with_gate(view, |gate| gate.read(what))
    }

    /// Whether the call has made its change before, and is answered with the result of that. What was permitted then need not
    /// be permitted after the change.
    pub(crate) fn is_repeated(&self, view: &View<'_>) -> bool {
        self.context.id().is_some_and(|id| view.volume.has_result_of(id))
    }

    pub(crate) fn may_write(&self, view: &View<'_>, what: Writing, set: &SetStatus) -> Result<(), AbortCode> {
        if self.is_repeated(view) {
            return Ok(());
        }
        self.with_gate(view, |gate| gate.write(what, set))?;
        let mode = if what == Writing::Data { Privilege::SetModeOfData } else { Privilege::SetMode };
        self.note_mode(set, mode);
        Ok(())
    }

    /// Records the use of a privilege when an administrator sets mode bits. Like OpenAFS, this ignores which
    /// bits they are.
    pub(crate) fn note_mode(&self, set: &SetStatus, privilege: Privilege) {
        if self.subject.administrator && set.mode.is_some() {
            self.context.note_privilege(privilege);
        }
    }

    pub(crate) fn may_change_entries(&self, view: &View<'_>, needed: Rights) -> Result<(), AbortCode> {
        if self.is_repeated(view) {
            return Ok(());
        }
        self.with_gate(view, |gate| gate.change_entries(needed))
    }

    pub(crate) fn with_gate<T>(&self, view: &View<'_>, ask: impl FnOnce(&Gate<'_>) -> T) -> T {
        self.with_gate_of(&|| view.volume.header().owner, &view.status, view.access, ask)
    }

    /// Runs a check on a vnode to which the caller has `access`, in a volume of this owner.
    pub(crate) fn with_gate_of<T>(
        &self,
        volume_owner: &dyn Fn() -> i32,
        status: &VnodeStatus,
        access: Access,
        ask: impl FnOnce(&Gate<'_>) -> T,
    ) -> T {
        let owns_volume = || {
            let owner = base::UserId(volume_owner());
            if owner.is_group() { self.subject.is(owner) } else { self.subject.user == owner }
        };
        ask(&Gate {
            context: self.context,
            subject: &self.subject,
            status,
            rights: access.caller,
            owns_volume: &owns_volume,
        })
    }
}

impl View<'_> {
    /// Returns the AFSVolSync of the volume.
    pub(crate) fn sync(&self) -> rxafs::VolSync {
        wire::vol_sync(self.volume.dates().0)
    }
}
