//! Advisory locks: SetLock, ExtendLock, ReleaseLock.

use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::{Need, View};
use crate::promises::Change;
use crate::volumes;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext};
use callbacks::LockKind;
use volume::LockRecords;

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
    /// SetLock (156).
    pub(crate) fn set_lock(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::SetLockRequest,
    ) -> Result<rxafs::SetLockReply, AbortCode> {
        Ok(rxafs::SetLockReply { sync: self.lock(caller, request.fid, request.lock_type)? })
    }

    /// ExtendLock (157).
    pub(crate) fn extend_lock(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::ExtendLockRequest,
    ) -> Result<rxafs::ExtendLockReply, AbortCode> {
        Ok(rxafs::ExtendLockReply { sync: self.extend(caller, request.fid)? })
    }

    /// ReleaseLock (158).
    pub(crate) fn release_lock(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::ReleaseLockRequest,
    ) -> Result<rxafs::ReleaseLockReply, AbortCode> {
        Ok(rxafs::ReleaseLockReply { sync: self.unlock(caller, request.fid)? })
    }

    /// OldSetLock (143).
    pub(crate) fn old_set_lock(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::OldSetLockRequest,
    ) -> Result<rxafs::OldSetLockReply, AbortCode> {
        self.lock(caller, request.fid, request.lock_type)?;
        Ok(rxafs::OldSetLockReply)
    }

    /// OldExtendLock (144).
    pub(crate) fn old_extend_lock(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::OldExtendLockRequest,
    ) -> Result<rxafs::OldExtendLockReply, AbortCode> {
        self.extend(caller, request.fid)?;
        Ok(rxafs::OldExtendLockReply)
    }

    /// OldReleaseLock (145).
    pub(crate) fn old_release_lock(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::OldReleaseLockRequest,
    ) -> Result<rxafs::OldReleaseLockReply, AbortCode> {
        self.unlock(caller, request.fid)?;
        Ok(rxafs::OldReleaseLockReply)
    }

    /// Records the locks of a file, if another server can take its partition over.
    fn record(&self, records: &mut LockRecords<'_>, view: &View<'_>, count: i32) -> Result<(), AbortCode> {
        if records.record(view.fid, count)? {
            self.server.locks().recorded(view.fid, view.volume.partition());
        }
        Ok(())
    }

    fn lock(
        &self,
        caller: &CallContext<'_>,
        fid: rxafs::Fid,
        lock_type: i32,
    ) -> Result<rxafs::VolSync, AbortCode> {
        self.call(caller, Operation::SetLock, |session| {
            let kind = kind(lock_type)?;
            let view = session.view(fid, Need::Anything)?;
            if needs_no_lock(&view) {
                return if kind == LockKind::Read { Ok(view.sync()) } else { Err(AbortCode::UAEROFS) };
            }
            if !session.is_repeated(&view) {
                session.with_gate(&view, |gate| gate.lock(kind))?;
            }
            let mut records = view.volume.lock_records(session.actor().actor);
            if records.has_result()? {
                return Ok(view.sync());
            }
            let count = self.server.locks().set(self.server.clock().monotonic(), view.fid, kind);
            let recorded = self.record(&mut records, &view, count.map_err(callbacks::LockError::abort_code)?);
            if recorded.is_err() {
                self.server.locks().release(view.fid);
            }
            recorded.map(|()| view.sync())
        })
    }

    fn extend(&self, caller: &CallContext<'_>, fid: rxafs::Fid) -> Result<rxafs::VolSync, AbortCode> {
        self.call(caller, Operation::ExtendLock, |session| {
            let view = session.view(fid, Need::Anything)?;
            if !needs_no_lock(&view) {
                let mut records = view.volume.lock_records(session.actor().actor);
                let now = self.server.clock().monotonic();
                let extended = self.server.locks().extend(now, view.fid, view.volume.partition());
                if let Some(count) = extended.map_err(callbacks::LockError::abort_code)? {
                    self.record(&mut records, &view, count)?;
                }
            }
            Ok(view.sync())
        })
    }

    /// Releases a lock. A callback break notifies waiting clients that it is free.
    fn unlock(&self, caller: &CallContext<'_>, fid: rxafs::Fid) -> Result<rxafs::VolSync, AbortCode> {
        self.call(caller, Operation::ReleaseLock, |session| {
            let view = session.view(fid, Need::Anything)?;
            if needs_no_lock(&view) {
                return Ok(view.sync());
            }
            let mut records = view.volume.lock_records(session.actor().actor);
            if !records.has_result()? {
                let left = self.server.locks().release(view.fid);
                if left.is_some() || records.keeps_results() {
                    self.record(&mut records, &view, left.unwrap_or(0))?;
                }
                drop(records);
                if left.is_none_or(|count| count == 0) {
                    session.announce(&Change::of(view.fid));
                }
            }
            Ok(view.sync())
        })
    }
}
