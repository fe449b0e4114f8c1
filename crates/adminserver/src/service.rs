//! The procedures: where their work is done.

use crate::AdminServer;
use afs_idl::cellar::{
    self, GetServerInfoReply, GetServerInfoRequest, GetVolumePolicyReply, GetVolumePolicyRequest,
    SetVolumePolicyReply, SetVolumePolicyRequest,
};
use base::{AbortCode, Caller};

impl cellar::Server for AdminServer {
    fn get_server_info(&self, _: &Caller, _: GetServerInfoRequest) -> Result<GetServerInfoReply, AbortCode> {
        Ok(self.server_info())
    }

    fn get_volume_policy(
        &self,
        _: &Caller,
        request: GetVolumePolicyRequest,
    ) -> Result<GetVolumePolicyReply, AbortCode> {
        self.volume_policy(request)
    }

    fn set_volume_policy(
        &self,
        caller: &Caller,
        request: SetVolumePolicyRequest,
    ) -> Result<SetVolumePolicyReply, AbortCode> {
        AdminServer::set_volume_policy(self, caller, &request)
    }
}
