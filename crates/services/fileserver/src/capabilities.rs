//! Calls about the relation of client and server: GetCapabilities, GetTime, GiveUpCallBacks,
//! GiveUpAllCallBacks, FlushCPS.

use crate::counters::Operation;
use crate::server::FileServer;
use afs_idl::fs as rxafs;
use base::{AbortCode, Caller, Fid, UserId};

impl FileServer {
    /// GetCapabilities (65540).
    pub(crate) fn serve_get_capabilities(
        &self,
        caller: &Caller,
    ) -> Result<rxafs::GetCapabilitiesReply, AbortCode> {
        use rxafs::capability::{ERROR_TRANSLATION, FILES_64BIT, WRITE_LOCK_ACL};
        self.idle_call(caller, Operation::GetCapabilities, || {
            let capabilities = vec![ERROR_TRANSLATION | FILES_64BIT | WRITE_LOCK_ACL];
            Ok(rxafs::GetCapabilitiesReply { capabilities })
        })
    }

    /// GetTime (153).
    pub(crate) fn serve_get_time(&self, caller: &Caller) -> Result<rxafs::GetTimeReply, AbortCode> {
        self.idle_call(caller, Operation::GetTime, || {
            let now = self.clock().wall();
            Ok(rxafs::GetTimeReply { seconds: now.as_secs() as u32, microseconds: now.subsec_micros() })
        })
    }

    /// GiveUpCallBacks (147).
    pub(crate) fn serve_give_up_call_backs(
        &self,
        caller: &Caller,
        request: &rxafs::GiveUpCallBacksRequest,
    ) -> Result<rxafs::GiveUpCallBacksReply, AbortCode> {
        self.call(caller, Operation::GiveUpCallBacks, |session| {
            if request.fids.len() < request.call_backs.len() {
                return Err(AbortCode::UAEINVAL);
            }
            let fids: Vec<Fid> = request.fids.iter().map(|&fid| fid.into()).collect();
            self.hosts().state().give_up(session.host, &fids);
            Ok(rxafs::GiveUpCallBacksReply)
        })
    }

    /// GiveUpAllCallBacks (65539).
    pub(crate) fn serve_give_up_all_call_backs(
        &self,
        caller: &Caller,
    ) -> Result<rxafs::GiveUpAllCallBacksReply, AbortCode> {
        self.call(caller, Operation::GiveUpCallBacks, |session| {
            self.hosts().state().give_up_all(session.host);
            Ok(rxafs::GiveUpAllCallBacksReply)
        })
    }

    /// FlushCPS (162), for administrators of the server.
    pub(crate) fn serve_flush_cps(
        &self,
        caller: &Caller,
        request: &rxafs::FlushCPSRequest,
    ) -> Result<rxafs::FlushCPSReply, AbortCode> {
        self.counted(Operation::FlushCPS, || {
            let subject = self.subjects().of(caller, self.clock().monotonic())?;
            if !subject.superuser {
                return Err(AbortCode::UAEPERM);
            }
            let users: Vec<UserId> = request.users.iter().map(|&user| UserId(user)).collect();
            self.subjects().forget_users(&users);
            if request.addresses.iter().any(|&address| address != 0) {
                self.subjects().forget_all();
            }
            Ok(rxafs::FlushCPSReply::default())
        })
    }
}
