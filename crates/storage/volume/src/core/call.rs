//! Volumes within calls whose reply waits until their changes are durable.
//!
//! A call is served within [`Commits::collect`]. Its handler changes volumes as a [`CallActor`], and accesses
//! them through [`InCall`]: both add to the call's commits, for which the reply has to wait.

use crate::core::host_list::{HostPin, Promisee};
use crate::core::pending::{Pending, PendingCommit, Unsynced};
use crate::core::shared::Partition;
use crate::dedup::Obsolete;
use crate::{Actor, Volume, VolumeError, VolumeHeader};
use base::{CallId, Fid, HostUuid, PartitionId, UnixTime, VolumeId, VolumeType};
use std::cell::RefCell;
use std::sync::Arc;

/// The commits for which the reply to a call has to wait.
pub struct Commits(RefCell<Unsynced>);

impl Commits {
    /// Serves a call, whose changes need not be durable before `serve` returns. All of them are awaited
    /// together, by the receiver of the result.
    pub fn collect<T>(serve: impl FnOnce(&Commits) -> T) -> Pending<T> {
        let commits = Commits::new();
        let result = serve(&commits);
        commits.into_pending(result)
    }

    pub(crate) fn new() -> Commits {
        Commits(RefCell::default())
    }

    pub(crate) fn into_pending<T>(self, result: T) -> Pending<T> {
        Pending::new(result, self.0.into_inner())
    }

    /// Makes the reply depend on the permit to answer for the volume's partition; see [`Volumes::limit`]. An
    /// [`InCall`] does so by itself.
    ///
    /// [`Volumes::limit`]: crate::Volumes::limit
    pub fn answers_for(&self, volume: &Volume) {
        if volume.home.limits.get().is_some() {
            self.0.borrow_mut().limit(&volume.home);
        }
    }

    /// Returns the result of a change, whose commit is awaited with the others of the call.
    pub fn keep<T>(&self, change: Pending<T>) -> T {
        let (result, unsynced) = change.into_unsynced();
        let mut all = self.0.borrow_mut();
        all.append(unsynced);
        all.acknowledge();
        result
    }
}

/// The author of a change. Its type determines what waits until the change is durable: with an [`Actor`], the
/// change itself, so that its result may be returned immediately; with a [`CallActor`], the reply to the call.
pub trait Acknowledge {
    /// Returns the user who makes the change.
    fn actor(&self) -> &Actor;

    /// Returns the result of a committed change.
    ///
    /// # Errors
    /// `Store` if the change cannot be made durable.
    fn acknowledge<T>(&self, change: Pending<T>) -> Result<T, VolumeError>;
}

impl Acknowledge for Actor {
    fn actor(&self) -> &Actor {
        self
    }

    fn acknowledge<T>(&self, change: Pending<T>) -> Result<T, VolumeError> {
        change.wait()
    }
}

/// An actor whose changes are part of a call.
#[derive(Clone, Copy)]
pub struct CallActor<'c> {
    /// The user who makes the changes.
    pub actor: Actor,
    /// The commits of the call.
    pub commits: &'c Commits,
}

impl Acknowledge for CallActor<'_> {
    fn actor(&self) -> &Actor {
        &self.actor
    }

    fn acknowledge<T>(&self, change: Pending<T>) -> Result<T, VolumeError> {
        Ok(self.commits.keep(change))
    }
}

/// A volume as the handler of a call accesses it.
///
/// A report that a vnode is missing is part of the reply, which waits until the volume's last change is
/// durable, like the reply to the call that removed the vnode. So no client learns of a removal before the
/// client that requested it, or of one that a crash undoes.
#[derive(Clone)]
pub struct InCall<'c> {
    volume: Arc<Volume>,
    commits: &'c Commits,
}

impl<'c> InCall<'c> {
    /// Returns the volume for a call with these commits.
    pub fn new(volume: Arc<Volume>, commits: &'c Commits) -> InCall<'c> {
        commits.answers_for(&volume);
        InCall { volume, commits }
    }

    /// Reads a vnode. The reply waits until the vnode's last change is durable, even if another call made it: a
    /// client must not see a version that a crash may undo.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<T>(
        &self,
        fid: Fid,
        read: impl FnOnce(&Arc<Volume>) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        let result = self.access(read);
        self.await_vnode(fid);
        result
    }

    /// Puts a host into the durable list of the partition and pins it, while a promise to it is being made. The reply waits
    /// until the host is durably there. Returns `None` if no promise may be made to it, because the list is full or cannot
    /// be changed. `uuid` is called if the host is new.
    pub fn pin_host(
        &self,
        promisee: &Promisee,
        uuid: impl FnOnce() -> Option<HostUuid>,
    ) -> Option<HostPin<'_>> {
        let home = &self.volume.home;
        let Some(limits) = home.limits.get() else { return Some(HostPin::unneeded()) };
        let (pinned, number) = match limits.hosts.pin(promisee, uuid) {
            Ok(pinned) => pinned?,
            Err(error) => {
                tracing::warn!(partition = %home.handle.id, host = %promisee.address, %error,
                    "the client cannot be put into the list of those with promises; it gets none");
                return None;
            }
        };
        if number > home.recent.durable() {
            let (partition, obsolete) = (Arc::clone(home), Obsolete::default());
            let commit = PendingCommit { partition, number, group: None, obsolete };
            self.commits.0.borrow_mut().push(commit);
        }
        Some(HostPin::of(pinned))
    }

    pub(crate) fn home(&self) -> &Arc<Partition> {
        &self.volume.home
    }

    /// Makes the reply wait for a change.
    pub(crate) fn keep<T>(&self, change: Pending<T>) -> T {
        self.commits.keep(change)
    }

    /// Whether the partition has the result of this call.
    pub fn has_result_of(&self, call: CallId) -> bool {
        self.volume.home.limits.get().is_some_and(|limits| limits.results.contains(call))
    }

    /// Whether another volume is on the same partition, opened at the same time.
    pub fn is_beside(&self, other: &InCall<'_>) -> bool {
        Arc::ptr_eq(&self.volume.home, &other.volume.home)
    }

    /// Reads or changes the volume. The reply waits for the changes of an actor; see [`InCall::read`] for what
    /// others have changed.
    ///
    /// # Errors
    /// Those of `access`.
    pub fn access<T>(
        &self,
        access: impl FnOnce(&Arc<Volume>) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        self.report(access(&self.volume))
    }

    /// Reads several vnodes at once, like [`InCall::read`].
    pub fn read_all<T>(
        &self,
        fids: &[Fid],
        read: impl FnOnce(&Arc<Volume>) -> Vec<Result<T, VolumeError>>,
    ) -> Vec<Result<T, VolumeError>> {
        let results = read(&self.volume);
        for fid in fids {
            self.await_vnode(*fid);
        }
        if results.iter().any(says_missing) {
            self.await_newest();
        }
        results
    }

    /// Changes the volume without an actor.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&Volume) -> Result<Pending<T>, VolumeError>,
    ) -> Result<T, VolumeError> {
        change(&self.volume).map(|change| self.commits.keep(change))
    }

    /// Returns the result of reading from the volume.
    ///
    /// # Errors
    /// That of the result.
    pub fn report<T>(&self, result: Result<T, VolumeError>) -> Result<T, VolumeError> {
        if says_missing(&result) {
            self.await_newest();
        }
        result
    }

    fn await_vnode(&self, fid: Fid) {
        if let Some(commit) = self.volume.unsynced_commit(fid.vnode) {
            self.commits.0.borrow_mut().push(commit);
        }
    }

    fn await_newest(&self) {
        if let Some(newest) = self.volume.newest_commit() {
            self.commits.0.borrow_mut().push(newest);
        }
    }

    /// Returns the volume's id.
    pub fn id(&self) -> VolumeId {
        self.volume.id()
    }

    /// Returns the volume's type.
    pub fn kind(&self) -> VolumeType {
        self.volume.kind()
    }

    /// Returns the volume's partition.
    pub fn partition(&self) -> PartitionId {
        self.volume.partition()
    }

    /// Returns the volume's header.
    pub fn header(&self) -> VolumeHeader {
        self.volume.header()
    }

    /// Returns creation and update date; see [`Volume::dates`].
    pub fn dates(&self) -> (UnixTime, UnixTime) {
        self.volume.dates()
    }
}

fn says_missing<T>(result: &Result<T, VolumeError>) -> bool {
    matches!(result, Err(VolumeError::NoVnode(..)))
}
