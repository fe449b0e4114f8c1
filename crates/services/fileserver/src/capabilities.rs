//! Calls about the relation of client and server: GetCapabilities, GetTime, GiveUpCallBacks,
//! GiveUpAllCallBacks, FlushCPS.

use crate::call::FileCall;
use crate::counters::Operation;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext, Fid, UserId};

impl FileCall<'_> {
    /// GetCapabilities (65540).
    pub(crate) fn get_capabilities(
        &self,
        caller: &CallContext<'_>,
        _: rxafs::GetCapabilitiesRequest,
    ) -> Result<rxafs::GetCapabilitiesReply, AbortCode> {
        use rxafs::capability::{ERROR_TRANSLATION, FILES_64BIT, WRITE_LOCK_ACL};
        self.server.idle_call(caller, Operation::GetCapabilities, || {
            let capabilities = vec![ERROR_TRANSLATION | FILES_64BIT | WRITE_LOCK_ACL];
            Ok(rxafs::GetCapabilitiesReply { capabilities })
        })
    }

    /// GetTime (153).
    pub(crate) fn get_time(
        &self,
        caller: &CallContext<'_>,
        _: rxafs::GetTimeRequest,
    ) -> Result<rxafs::GetTimeReply, AbortCode> {
        self.server.idle_call(caller, Operation::GetTime, || {
            let now = self.server.clock().wall();
            Ok(rxafs::GetTimeReply { seconds: now.as_secs() as u32, microseconds: now.subsec_micros() })
        })
    }

    /// GiveUpCallBacks (147).
    pub(crate) fn give_up_call_backs(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::GiveUpCallBacksRequest,
    ) -> Result<rxafs::GiveUpCallBacksReply, AbortCode> {
        self.call(caller, Operation::GiveUpCallBacks, |session| {
            if request.fids.len() < request.call_backs.len() {
                return Err(AbortCode::UAEINVAL);
            }
            let fids: Vec<Fid> = request.fids.iter().map(|&fid| fid.into()).collect();
            self.server.hosts().state().give_up(session.host, &fids);
            Ok(rxafs::GiveUpCallBacksReply)
        })
    }

    /// GiveUpAllCallBacks (65539).
    pub(crate) fn give_up_all_call_backs(
        &self,
        caller: &CallContext<'_>,
        _: rxafs::GiveUpAllCallBacksRequest,
    ) -> Result<rxafs::GiveUpAllCallBacksReply, AbortCode> {
        self.call(caller, Operation::GiveUpCallBacks, |session| {
            self.server.hosts().state().give_up_all(session.host);
            Ok(rxafs::GiveUpAllCallBacksReply)
        })
    }

    /// FlushCPS (162), for administrators of the server.
    pub(crate) fn flush_cps(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::FlushCPSRequest,
    ) -> Result<rxafs::FlushCPSReply, AbortCode> {
        self.server.counted(Operation::FlushCPS, || {
            let subject = self.server.subjects().of(caller, self.server.clock().monotonic())?;
            caller.note_user(subject.user);
            if !subject.superuser {
                return Err(AbortCode::UAEPERM);
            }
            let users: Vec<UserId> = request.users.iter().map(|&user| UserId(user)).collect();
            self.server.subjects().forget_users(&users);
            if request.addresses.iter().any(|&address| address != 0) {
                self.server.subjects().forget_all();
            }
            Ok(rxafs::FlushCPSReply::default())
        })
    }
}
