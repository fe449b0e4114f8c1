//! The procedures: where their work is done.

use crate::AdminServer;
use afs_idl::cellar::{self, GetServerInfoReply, GetServerInfoRequest};
use base::{AbortCode, Caller};

impl cellar::Server for AdminServer {
    fn get_server_info(&self, _: &Caller, _: GetServerInfoRequest) -> Result<GetServerInfoReply, AbortCode> {
        Ok(self.server_info())
    }
}
