//! Results of changes as records, for attempts of a call that come after its execution.

use crate::core::call_results::Earlier;
use crate::core::pending::{Pending, Unsynced};
use crate::{Actor, Created, Removed, Renamed, VnodeStatus, Volume, VolumeError};
use volume_records::CallResult;

/// What a change returns.
pub(crate) trait Recordable: Sized {
    /// Returns the result to record; `None` for a change that no call makes.
    fn result(&self) -> Option<CallResult>;

    /// Returns the outcome with this result; `None` if it is that of another kind of change.
    fn of(result: &CallResult) -> Option<Self>;
}

impl Recordable for () {
    fn result(&self) -> Option<CallResult> {
        None
    }

    fn of(_: &CallResult) -> Option<()> {
        None
    }
}

impl Recordable for VnodeStatus {
    fn result(&self) -> Option<CallResult> {
        Some(CallResult::Stored(*self))
    }

    fn of(result: &CallResult) -> Option<VnodeStatus> {
        if let CallResult::Stored(status) = *result { Some(status) } else { None }
    }
}

impl Recordable for Created {
    fn result(&self) -> Option<CallResult> {
        let Created { status, directory } = *self;
        Some(CallResult::Created { status, directory })
    }

    fn of(result: &CallResult) -> Option<Created> {
        let CallResult::Created { status, directory } = *result else { return None };
        Some(Created { status, directory })
    }
}

impl Recordable for Removed {
    fn result(&self) -> Option<CallResult> {
        let Removed { target, directory } = *self;
        Some(CallResult::Removed { target, directory })
    }

    fn of(result: &CallResult) -> Option<Removed> {
        let CallResult::Removed { target, directory } = *result else { return None };
        Some(Removed { target, directory })
    }
}

impl Recordable for Renamed {
    fn result(&self) -> Option<CallResult> {
        let Renamed { moved, moved_changed, old_directory, new_directory, replaced } = *self;
        Some(CallResult::Renamed { moved, moved_changed, old_directory, new_directory, replaced })
    }

    fn of(result: &CallResult) -> Option<Renamed> {
        let CallResult::Renamed { moved, moved_changed, old_directory, new_directory, replaced } = *result
        else {
            return None;
        };
        Some(Renamed { moved, moved_changed, old_directory, new_directory, replaced })
    }
}

impl Volume {
    /// Returns the result of the actor's call if it was executed before. To be called before the change is made.
    ///
    /// Statuses are those of now: the client may know later versions already, and has to get no earlier one.
    ///
    /// # Errors
    /// `Uncertain` if it is not known any more whether the call was executed, or if its result is another one's. `Store`,
    /// `Damaged`.
    pub(crate) fn earlier<T: Recordable>(&self, actor: &Actor) -> Result<Option<Pending<T>>, VolumeError> {
        let (Some(call), Some(limits)) = (actor.call, self.home.limits.get()) else { return Ok(None) };
        let recorded = match limits.results.find(call.id)? {
            Earlier::Never => return Ok(None),
            Earlier::Unknown => return Err(VolumeError::Uncertain),
            Earlier::Done(recorded) => recorded,
        };
        let is_own = (recorded.volume, recorded.user) == (self.id(), actor.user);
        let outcome = T::of(&self.at_present(&recorded.result)).filter(|_| is_own);
        let outcome = outcome.ok_or(VolumeError::Uncertain)?;
        tracing::debug!(volume = %self.id(), client = %call.client, "a repeated call finds its result");
        let mut unsynced = Unsynced::default();
        self.newest_commit().into_iter().for_each(|newest| unsynced.push(newest));
        Ok(Some(Pending::new(outcome, unsynced)))
    }

    /// Returns a result with the present statuses of vnodes that exist.
    fn at_present(&self, result: &CallResult) -> CallResult {
        let _publish = self.group.publish.read();
        let now = |old: VnodeStatus| self.vnode(old.fid(self.id())).map_or(old, |vnode| vnode.status);
        match *result {
            CallResult::Created { status, directory } => {
                CallResult::Created { status: now(status), directory: now(directory) }
            }
            CallResult::Removed { target, directory } => {
                CallResult::Removed { target: now(target), directory: now(directory) }
            }
            CallResult::Renamed { moved, moved_changed, old_directory, new_directory, replaced } => {
                CallResult::Renamed {
                    moved: now(moved),
                    moved_changed,
                    old_directory: now(old_directory),
                    new_directory: now(new_directory),
                    replaced: replaced.map(now),
                }
            }
            CallResult::Stored(status) => CallResult::Stored(now(status)),
            CallResult::Locked => CallResult::Locked,
        }
    }
}
