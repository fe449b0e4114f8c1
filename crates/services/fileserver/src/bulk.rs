//! Statuses of many vnodes in one call: BulkStatus, InlineBulkStatus.
//!
//! Listings of large trees consist of these calls, so work common to all FIDs of a call is done once: finding
//! the volume, locking the promises, and checking for a concurrent writer.

use crate::access::Reading;
use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::{Session, View};
use crate::wire;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext, Fid, VolumeId};
use volume::{Governed, InCall, VolumeError};

type Found = Result<Governed, VolumeError>;

/// The reply about one vnode.
struct StatusReply {
    status: rxafs::FetchStatus,
    call_back: rxafs::CallBack,
    sync: rxafs::VolSync,
}

impl FileCall<'_> {
    /// BulkStatus (155): fails if any vnode fails.
    pub(crate) fn bulk_status(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::BulkStatusRequest,
    ) -> Result<rxafs::BulkStatusReply, AbortCode> {
        self.call(caller, Operation::BulkStatus, |session| {
            let mut reply = rxafs::BulkStatusReply::default();
            let reported: Vec<StatusReply> =
                session.statuses_of_all(some(&request.fids)?).into_iter().collect::<Result<_, _>>()?;
            reply.sync = reported.first().map(|first| first.sync).unwrap_or_default();
            for StatusReply { status, call_back, .. } in reported {
                reply.statuses.push(status);
                reply.call_backs.push(call_back);
            }
            Ok(reply)
        })
    }

    /// InlineBulkStatus (65536): errors replace individual statuses.
    pub(crate) fn inline_bulk_status(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::InlineBulkStatusRequest,
    ) -> Result<rxafs::InlineBulkStatusReply, AbortCode> {
        self.call(caller, Operation::BulkStatus, |session| {
            let mut reply = rxafs::InlineBulkStatusReply::default();
            let reported = session.statuses_of_all(some(&request.fids)?);
            let first = reported.iter().find_map(|reported| reported.as_ref().ok());
            reply.sync = first.map(|first| first.sync).unwrap_or_default();
            for reported in reported {
                let (status, call_back) = match reported {
                    Ok(StatusReply { status, call_back, .. }) => (status, call_back),
                    // Clients that get this error for each file do not look up the volume.
                    Err(AbortCode::VMOVED) => return Err(AbortCode::VMOVED),
                    Err(code) => (wire::failed_status(session.for_client(code)), rxafs::CallBack::default()),
                };
                reply.statuses.push(status);
                reply.call_backs.push(call_back);
            }
            Ok(reply)
        })
    }
}

/// Rejects an empty list; decoding already limits lists to 50 FIDs.
fn some(fids: &[rxafs::Fid]) -> Result<&[rxafs::Fid], AbortCode> {
    if fids.is_empty() { Err(AbortCode::UAEINVAL) } else { Ok(fids) }
}

impl Session<'_> {
    /// Returns the status of each FID for this caller, with a promise.
    fn statuses_of_all(&self, fids: &[rxafs::Fid]) -> Vec<Result<StatusReply, AbortCode>> {
        let runs = fids.chunk_by(|one, next| one.volume == next.volume);
        runs.flat_map(|run| self.volume_statuses(run[0].volume, run)).collect()
    }

    fn volume_statuses(&self, id: u32, fids: &[rxafs::Fid]) -> Vec<Result<StatusReply, AbortCode>> {
        let fids: Vec<Fid> = fids.iter().map(|fid| Fid::from(*fid)).collect();
        let views = match self.volume_for(VolumeId(id), fids.len()) {
            Ok(volume) => self.views_in(&volume, &fids),
            Err(code) => return fids.iter().map(|_| Err(code)).collect(),
        };
        let seen: Vec<Fid> = views.iter().flatten().map(|view| view.fid).collect();
        let mut reported = match views.iter().flatten().next() {
            Some(view) => self.promise_and_read(view, &seen).into_iter(),
            None => Vec::new().into_iter(),
        };
        let answer = |view: Result<View<'_>, AbortCode>| {
            view.and_then(|_| reported.next().unwrap_or(Err(AbortCode::VBUSY)))
        };
        views.into_iter().map(answer).collect()
    }

    fn volume_for(&self, id: VolumeId, fids: usize) -> Result<InCall<'_>, AbortCode> {
        if id.0 == 0 {
            return Err(AbortCode::UAEINVAL);
        }
        let volume = self.find_online(id)?;
        self.note_volume(id);
        volume.count_accesses(self.server.clock().unix(), fids as u32);
        Ok(self.in_call(volume))
    }

    /// Returns the vnodes that this caller may see, and errors for the others.
    fn views_in<'v>(&'v self, volume: &InCall<'v>, fids: &[Fid]) -> Vec<Result<View<'v>, AbortCode>> {
        let view = |(fid, found): (&Fid, Found)| {
            if fid.vnode.0 == 0 {
                return Err(AbortCode::UAEINVAL);
            }
            let (status, acl) = found?;
            let view = self.view_of(volume.clone(), *fid, status, &acl);
            if !view.status.is_directory() {
                self.may_read(&view, Reading::Status)?;
            }
            Ok(view)
        };
        let found = volume.read_all(fids, |volume| volume.statuses_and_acls(fids));
        fids.iter().zip(found).map(view).collect()
    }

    /// Makes promises, and then reads again from the current volume, which contains the vnode `one`.
    fn promise_and_read(&self, one: &View<'_>, fids: &[Fid]) -> Vec<Result<StatusReply, AbortCode>> {
        let call_backs = self.promise_all(&one.volume, fids);
        let volume = match self.online(one.fid.volume) {
            Ok(volume) => volume,
            Err(code) => return fids.iter().map(|_| Err(code)).collect(),
        };
        let sync = wire::vol_sync(volume.dates().0);
        let call_backs =
            call_backs.into_iter().map(|call_back| Session::kept(&one.volume, &volume, call_back));
        let found = volume
            .read_all(fids, |volume| volume.statuses_and_acls(fids))
            .into_iter()
            .zip(self.server.lock_counts(self.server.clock().monotonic(), fids));
        let reply = |((found, locks), call_back): ((Found, i32), rxafs::CallBack)| {
            let (status, acl) = found?;
            let access = self.access(&status, &acl);
            Ok(StatusReply { status: wire::fetch_status(&status, access, locks), call_back, sync })
        };
        found.zip(call_backs).map(reply).collect()
    }
}
