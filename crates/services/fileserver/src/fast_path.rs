//! Fast path for calls that can be answered without waiting: all the data is in memory, and no client has to
//! be notified. The receiving thread answers them itself. Every lock on this path is either only tried or
//! never held while waiting.
//!
//! Anything but success falls back to the normal path, which reports errors.

use crate::access::{Access, Reading};
use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::Session;
use crate::server::FileServer;
use crate::subject::Subjects;
use crate::wire;
use afs_format::acl::Acl;
use afs_idl::fs as rxafs;
use base::{CallContext, Caller, Fid, Monotonic};
use bytes::Bytes;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use volume::{Governed, VnodeStatus, Volume};
use xdr::Encode;

/// Size of the reply about one of several vnodes: AFSFetchStatus and AFSCallBack.
const STATUS_BYTES: usize = 4 * (21 + 3);
/// Size of AFSVolSync, at the end of replies.
const SYNC_BYTES: usize = 4 * 6;
/// Size of the counts of statuses and of callbacks in a reply about several vnodes.
const COUNTS_BYTES: usize = 4 * 2;

/// The result of [`FileServer::try_answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The complete reply.
    pub reply: Bytes,
    /// Duration of the call.
    pub time: Duration,
    /// End of the call.
    pub ended: Monotonic,
}

impl FileServer {
    /// Returns the reply to a complete request if the fast path applies. `None` has no effect that a client
    /// could observe.
    pub fn try_answer(&self, caller: &CallContext<'_>, request: &[u8]) -> Option<Answer> {
        let (opcode, arguments) = request.split_first_chunk()?;
        let answer = self.serve(|call| match u32::from_be_bytes(*opcode) {
            rxafs::FETCH_STATUS => {
                let request = xdr::from_slice(arguments).ok()?;
                call.try_fetch_status(caller, request)
            }
            rxafs::INLINE_BULK_STATUS => {
                let request = xdr::from_slice(arguments).ok()?;
                call.try_inline_bulk_status(caller, &request)
            }
            _ => None,
        });
        // Nothing is changed or reported as missing on this path, so there is nothing to wait for, unless the lease of a
        // partition in a bucket has lapsed.
        answer.into_ready().ok()?
    }

    /// Prefetches the callers, hosts and promises that these requests will need.
    pub fn prefetch(&self, requests: &[(&Caller, &[u8])]) {
        let seen = Subjects::prefetch(requests.iter().map(|(caller, _)| *caller));
        let fetched = |request: &[u8]| {
            let (opcode, arguments) = request.split_first_chunk()?;
            let is_status = u32::from_be_bytes(*opcode) == rxafs::FETCH_STATUS;
            let request: rxafs::FetchStatusRequest = is_status.then(|| xdr::from_slice(arguments).ok())??;
            Some(Fid::from(request.fid))
        };
        let calls = requests
            .iter()
            .map(|(caller, request)| (caller.peer, caller.connection.number(), fetched(request)));
        black_box(seen ^ self.hosts().state().prefetch(calls));
    }
}

impl FileCall<'_> {
    /// FetchStatus (132) of a vnode in memory, for an identified host. Returns `None` if the fast path does
    /// not apply.
    fn try_fetch_status(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::FetchStatusRequest,
    ) -> Option<Answer> {
        let begun = self.server.clock().monotonic();
        let fid = Fid::from(request.fid);
        let session = self.try_session(caller, begun)?;
        let volume = self.server.volumes().get_at_hand(fid.volume)?;
        session.note_volume(fid.volume);
        self.commits.answers_for(&volume);
        let reply = |status: &VnodeStatus, acl: &Acl| session.try_reply(&volume, fid, (status, acl), begun);
        let reply = volume.with_cached_status(fid, reply)?;
        volume.count_access(self.server.clock().unix());
        let mut encoded = Vec::with_capacity(STATUS_BYTES + SYNC_BYTES);
        reply.encode(&mut encoded);
        Some(self.answered(Operation::FetchStatus, begun, encoded))
    }

    /// InlineBulkStatus (65536) of vnodes of one volume that are all in memory and accessible.
    fn try_inline_bulk_status(
        &self,
        caller: &CallContext<'_>,
        request: &rxafs::InlineBulkStatusRequest,
    ) -> Option<Answer> {
        let begun = self.server.clock().monotonic();
        let fids: Vec<Fid> = request.fids.iter().map(|fid| Fid::from(*fid)).collect();
        let id = fids.first()?.volume;
        if fids.iter().any(|fid| fid.volume != id) {
            return None;
        }
        let session = self.try_session(caller, begun)?;
        let volume = self.server.volumes().get_at_hand(id)?;
        session.note_volume(id);
        self.commits.answers_for(&volume);
        let reply =
            volume.with_cached_statuses(&fids, |found| session.try_replies(&volume, &fids, found, begun))?;
        volume.count_accesses(self.server.clock().unix(), fids.len() as u32);
        let mut encoded = Vec::with_capacity(COUNTS_BYTES + fids.len() * STATUS_BYTES + SYNC_BYTES);
        reply.encode(&mut encoded);
        Some(self.answered(Operation::BulkStatus, begun, encoded))
    }

    fn answered(&self, operation: Operation, begun: Monotonic, reply: Vec<u8>) -> Answer {
        self.server.counters().begin(operation);
        let ended = self.server.clock().monotonic();
        let time = ended.since(begun);
        self.server.counters().end(operation, time, None);
        Answer { reply: reply.into(), time, ended }
    }

    fn try_session<'s>(&'s self, caller: &'s CallContext<'_>, now: Monotonic) -> Option<Session<'s>> {
        let subject = self.server.subjects().fresh(caller, now)?;
        let entered = self.server.hosts().try_enter(caller, now)?;
        Some(Session::new(self.server, caller, self.commits, entered, subject))
    }
}

impl Session<'_> {
    /// Builds the reply about a vnode. The volume cannot change until this returns, so the status stays valid
    /// although the promise is made after it was read.
    fn try_reply(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        (status, acl): (&VnodeStatus, &Acl),
        now: Monotonic,
    ) -> Option<rxafs::FetchStatusReply> {
        let access = self.look(volume, status, acl)?;
        let call_back = self.try_promise(volume, fid, now)?;
        self.is_still(volume)?;
        let status = wire::fetch_status(status, access, self.server.lock_count(now, fid));
        Some(rxafs::FetchStatusReply { status, call_back, sync: wire::vol_sync(volume.dates().0) })
    }

    /// Like [`Self::try_reply`], for several vnodes.
    fn try_replies(
        &self,
        volume: &Arc<Volume>,
        fids: &[Fid],
        found: &[Governed],
        now: Monotonic,
    ) -> Option<rxafs::InlineBulkStatusReply> {
        let look = |(status, acl): &Governed| self.look(volume, status, acl);
        let seen: Vec<Access> = found.iter().map(look).collect::<Option<_>>()?;
        let call_backs = self.try_promise_all(volume, fids, now)?;
        self.is_still(volume)?;
        let reported = found.iter().zip(seen).zip(self.server.lock_counts(now, fids));
        let statuses = reported
            .map(|(((status, _), access), locks)| wire::fetch_status(status, access, locks))
            .collect();
        let sync = wire::vol_sync(volume.dates().0);
        Some(rxafs::InlineBulkStatusReply { statuses, call_backs, sync })
    }

    /// Returns the caller's rights if it may read the status.
    fn look(&self, volume: &Volume, status: &VnodeStatus, acl: &Acl) -> Option<Access> {
        let access = self.access(status, acl);
        if !status.is_directory() {
            self.with_gate_of(&|| volume.header().owner, status, access, |gate| gate.read(Reading::Status))
                .ok()?;
        }
        Some(access)
    }

    /// Checks that the volume was not taken offline or replaced before the promise was made.
    fn is_still(&self, volume: &Arc<Volume>) -> Option<()> {
        Arc::ptr_eq(volume, &self.server.volumes().get_at_hand(volume.id())?).then_some(())
    }
}
