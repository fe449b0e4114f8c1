//! Advisory locks: SetLock, ExtendLock, ReleaseLock.

use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::{Need, View};
use crate::promises::Change;
use crate::volumes;
use afs_idl::fs as rxafs;
use base::{AbortCode, Caller};
use callbacks::LockKind;

fn kind(lock_type: i32) -> Result<LockKind, AbortCode> {
    match lock_type {
        rxafs::lock_type::READ => Ok(LockKind::Read),
        rxafs::lock_type::WRITE => Ok(LockKind::Write),
        _ => Err(AbortCode::UAEINVAL),
    }
}

/// Read locks on a read-only volume are always granted and never stored, since there are no writers.
fn needs_no_lock(view: &View<'_>) -> bool {
    !volumes::is_writable(view.volume.kind())
}

impl FileCall<'_> {
    /// SetLock (156, 143).
    pub(crate) fn serve_set_lock(
        &self,
        caller: &Caller,
        fid: rxafs::Fid,
        lock_type: i32,
    ) -> Result<rxafs::VolSync, AbortCode> {
        self.call(caller, Operation::SetLock, |session| {
            let kind = kind(lock_type)?;
            let view = session.view(fid, Need::Anything)?;
            if needs_no_lock(&view) {
                return if kind == LockKind::Read { Ok(view.sync()) } else { Err(AbortCode::UAEROFS) };
            }
            session.with_gate(&view, |gate| gate.lock(kind))?;
            let set = self.server.locks().set(self.server.clock().monotonic(), view.fid, kind);
            set.map_err(callbacks::LockError::abort_code)?;
            Ok(view.sync())
        })
    }

    /// ExtendLock (157, 144).
    pub(crate) fn serve_extend_lock(
        &self,
        caller: &Caller,
        fid: rxafs::Fid,
    ) -> Result<rxafs::VolSync, AbortCode> {
        self.call(caller, Operation::ExtendLock, |session| {
            let view = session.view(fid, Need::Anything)?;
            if !needs_no_lock(&view) {
                let extended = self.server.locks().extend(self.server.clock().monotonic(), view.fid);
                extended.map_err(callbacks::LockError::abort_code)?;
            }
            Ok(view.sync())
        })
    }

    /// ReleaseLock (158, 145). A callback break notifies waiting clients that the lock is free.
    pub(crate) fn serve_release_lock(
        &self,
        caller: &Caller,
        fid: rxafs::Fid,
    ) -> Result<rxafs::VolSync, AbortCode> {
        self.call(caller, Operation::ReleaseLock, |session| {
            let view = session.view(fid, Need::Anything)?;
            if !needs_no_lock(&view) {
                let free = self.server.locks().release(view.fid);
                if free {
                    session.announce(&Change::of(view.fid));
                }
            }
            Ok(view.sync())
        })
    }
}
