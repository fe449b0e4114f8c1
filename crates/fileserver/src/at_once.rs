//! Calls that can be answered without waiting for anything: all that they need is in memory, and
//! nobody has to be told. The thread that receives answers them itself; every lock on the way is
//! either only tried or held by nobody while he waits.
//!
//! Whatever is not simply well goes the way of all calls: here is no error to be told.

use crate::access::Reading;
use crate::counters::Operation;
use crate::pipeline::{Session, View};
use crate::server::FileServer;
use afs_idl::fs as rxafs;
use base::{Caller, Fid, Monotonic};
use bytes::Bytes;
use events::current;

impl FileServer {
    /// The reply to a whole request, if it is one of those calls. `None` has changed nothing that a
    /// client could see.
    pub fn answer_at_once(&self, caller: &Caller, request: &[u8]) -> Option<Bytes> {
        let arguments = request.strip_prefix(&rxafs::FETCH_STATUS.to_be_bytes())?;
        let request = xdr::from_slice(arguments).ok()?;
        self.fetch_status_at_once(caller, request).map(|reply| xdr::to_vec(&reply).into())
    }

    /// FetchStatus (132) of a vnode in memory, for a host that is known. `None`: not at once.
    fn fetch_status_at_once(
        &self,
        caller: &Caller,
        request: rxafs::FetchStatusRequest,
    ) -> Option<rxafs::FetchStatusReply> {
        let begun = self.clock().monotonic();
        let fid = Fid::from(request.fid);
        let session = self.session_at_once(caller, begun)?;
        let view = session.view_at_hand(fid)?;
        if !view.status.is_directory() {
            session.may_read(&view, Reading::Status).ok()?;
        }
        let call_back = session.promise_at_once(&view, begun)?;
        // What happens before the promise does not break it: the status is read after it.
        let view = session.view_at_hand(fid)?;
        view.volume.count_access(self.clock().unix());
        let status = session.wire_status(view.fid, &view.status, view.access);
        self.counters().begin(Operation::FetchStatus);
        let time = self.clock().monotonic().since(begun);
        self.counters().end(Operation::FetchStatus, time, None);
        Some(rxafs::FetchStatusReply { status, call_back, sync: view.sync() })
    }

    fn session_at_once(&self, caller: &Caller, now: Monotonic) -> Option<Session<'_>> {
        let subject = self.subjects().fresh(caller, now)?;
        let entered = self.hosts().enter_at_once(caller, now)?;
        Some(Session::new(self, entered, subject))
    }
}

impl Session<'_> {
    fn view_at_hand(&self, fid: Fid) -> Option<View> {
        let volume = self.server.volumes().get_at_hand(fid.volume)?;
        current::volume(fid.volume.0);
        let (status, acl) = volume.status_and_acl_at_hand(fid)?;
        Some(self.view_of(volume, fid, status, &acl))
    }
}
