//! Calls that can be answered without waiting for anything: all that they need is in memory, and
//! nobody has to be told. The thread that receives answers them itself; every lock on the way is
//! either only tried or held by nobody while he waits.
//!
//! Whatever is not simply well goes the way of all calls: here is no error to be told.

use crate::access::{Access, Reading};
use crate::counters::Operation;
use crate::pipeline::Session;
use crate::server::FileServer;
use crate::subject::Subjects;
use crate::wire;
use afs_format::acl::Acl;
use afs_idl::fs as rxafs;
use base::{Caller, Fid, Monotonic};
use bytes::Bytes;
use events::current;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use volume::{Governed, VnodeStatus, Volume};
use xdr::Encode;

/// What the reply about one vnode among several takes: AFSFetchStatus and AFSCallBack.
const STATUS_BYTES: usize = 4 * (21 + 3);
/// AFSVolSync, with which the replies end.
const SYNC_BYTES: usize = 4 * 6;
/// The counts of statuses and of callbacks in a reply about several vnodes.
const COUNTS_BYTES: usize = 4 * 2;

/// What [`FileServer::answer_at_once`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The whole reply.
    pub reply: Bytes,
    /// How long that took.
    pub time: Duration,
    /// When it was found.
    pub ended: Monotonic,
}

impl FileServer {
    /// The reply to a whole request, if it is one of those calls. `None` has changed nothing that a
    /// client could see.
    pub fn answer_at_once(&self, caller: &Caller, request: &[u8]) -> Option<Answer> {
        let (opcode, arguments) = request.split_first_chunk()?;
        match u32::from_be_bytes(*opcode) {
            rxafs::FETCH_STATUS => {
                let request = xdr::from_slice(arguments).ok()?;
                self.fetch_status_at_once(caller, request)
            }
            rxafs::INLINE_BULK_STATUS => {
                let request = xdr::from_slice(arguments).ok()?;
                self.inline_bulk_status_at_once(caller, &request)
            }
            _ => None,
        }
    }

    /// Looks at what the answers to these will need of the clients: callers, hosts and promises.
    pub fn look_ahead(&self, requests: &[(&Caller, &[u8])]) {
        let seen = Subjects::look_ahead(requests.iter().map(|(caller, _)| *caller));
        let fetched = |request: &[u8]| {
            let (opcode, arguments) = request.split_first_chunk()?;
            let is_status = u32::from_be_bytes(*opcode) == rxafs::FETCH_STATUS;
            let request: rxafs::FetchStatusRequest = is_status.then(|| xdr::from_slice(arguments).ok())??;
            Some(Fid::from(request.fid))
        };
        let calls = requests
            .iter()
            .map(|(caller, request)| (caller.peer, caller.connection.number(), fetched(request)));
        black_box(seen ^ self.hosts().state().look_ahead(calls));
    }

    /// FetchStatus (132) of a vnode in memory, for a host that is known. `None`: not at once.
    fn fetch_status_at_once(&self, caller: &Caller, request: rxafs::FetchStatusRequest) -> Option<Answer> {
        let begun = self.clock().monotonic();
        let fid = Fid::from(request.fid);
        let session = self.session_at_once(caller, begun)?;
        let volume = self.volumes().get_at_hand(fid.volume)?;
        current::volume(fid.volume.0);
        let tell =
            |status: &VnodeStatus, acl: &Acl| session.tell_one_at_once(&volume, fid, (status, acl), begun);
        let reply = volume.tell_one_at_hand(fid, tell)?;
        volume.count_access(self.clock().unix());
        let mut encoded = Vec::with_capacity(STATUS_BYTES + SYNC_BYTES);
        reply.encode(&mut encoded);
        Some(self.answered(Operation::FetchStatus, begun, encoded))
    }

    /// InlineBulkStatus (65536) of vnodes of one volume that are all in memory and of which none is refused.
    fn inline_bulk_status_at_once(
        &self,
        caller: &Caller,
        request: &rxafs::InlineBulkStatusRequest,
    ) -> Option<Answer> {
        let begun = self.clock().monotonic();
        let fids: Vec<Fid> = request.fids.iter().map(|fid| Fid::from(*fid)).collect();
        let id = fids.first()?.volume;
        if fids.iter().any(|fid| fid.volume != id) {
            return None;
        }
        let session = self.session_at_once(caller, begun)?;
        let volume = self.volumes().get_at_hand(id)?;
        current::volume(id.0);
        let reply = volume.tell_at_hand(&fids, |found| session.tell_at_once(&volume, &fids, found, begun))?;
        volume.count_accesses(self.clock().unix(), fids.len() as u32);
        let mut encoded = Vec::with_capacity(COUNTS_BYTES + fids.len() * STATUS_BYTES + SYNC_BYTES);
        reply.encode(&mut encoded);
        Some(self.answered(Operation::BulkStatus, begun, encoded))
    }

    fn answered(&self, operation: Operation, begun: Monotonic, reply: Vec<u8>) -> Answer {
        self.counters().begin(operation);
        let ended = self.clock().monotonic();
        let time = ended.since(begun);
        self.counters().end(operation, time, None);
        Answer { reply: reply.into(), time, ended }
    }

    fn session_at_once(&self, caller: &Caller, now: Monotonic) -> Option<Session<'_>> {
        let subject = self.subjects().fresh(caller, now)?;
        let entered = self.hosts().enter_at_once(caller, now)?;
        Some(Session::new(self, entered, subject))
    }
}

impl Session<'_> {
    /// Nothing in the volume changes before this returns: what is told is what was found, though the promise comes
    /// after it.
    fn tell_one_at_once(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        (status, acl): (&VnodeStatus, &Acl),
        now: Monotonic,
    ) -> Option<rxafs::FetchStatusReply> {
        let access = self.look(volume, status, acl)?;
        let call_back = self.promise_at_once(volume, fid, now)?;
        self.is_still(volume)?;
        let status = wire::fetch_status(status, access, self.server.lock_count(now, fid));
        Some(rxafs::FetchStatusReply { status, call_back, sync: wire::vol_sync(volume.dates().0) })
    }

    /// The same for several.
    fn tell_at_once(
        &self,
        volume: &Arc<Volume>,
        fids: &[Fid],
        found: &[Governed],
        now: Monotonic,
    ) -> Option<rxafs::InlineBulkStatusReply> {
        let look = |(status, acl): &Governed| self.look(volume, status, acl);
        let seen: Vec<Access> = found.iter().map(look).collect::<Option<_>>()?;
        let call_backs = self.promise_all_at_once(volume, fids, now)?;
        self.is_still(volume)?;
        let told = found.iter().zip(seen).zip(self.server.lock_counts(now, fids));
        let statuses =
            told.map(|(((status, _), access), locks)| wire::fetch_status(status, access, locks)).collect();
        let sync = wire::vol_sync(volume.dates().0);
        Some(rxafs::InlineBulkStatusReply { statuses, call_backs, sync })
    }

    /// What the caller may do, if that includes reading the status.
    fn look(&self, volume: &Volume, status: &VnodeStatus, acl: &Acl) -> Option<Access> {
        let access = self.access(status, acl);
        if !status.is_directory() {
            self.with_gate_of(volume, status, access, |gate| gate.read(Reading::Status)).ok()?;
        }
        Some(access)
    }

    /// A volume may have been taken from file service, or another put in its place, before a promise.
    fn is_still(&self, volume: &Arc<Volume>) -> Option<()> {
        Arc::ptr_eq(volume, &self.server.volumes().get_at_hand(volume.id())?).then_some(())
    }
}
