//! Restricted mode: the procedures that it rejects, and the mode itself.

use crate::server::BosServer;
use afs_idl::{CallStream, bozo};
use base::{AbortCode, Caller};

/// Implements the procedures that restricted mode rejects.
macro_rules! restricted {
    ($($procedure:ident: $request:ident -> $reply:ident;)*) => {$(
        pub(crate) fn $procedure(&self, caller: &Caller, _: bozo::$request) -> Result<bozo::$reply, AbortCode> {
            self.reject(caller, stringify!($procedure))
        }
    )*};
}

impl BosServer {
    restricted! {
        create_bnode: CreateBnodeRequest -> CreateBnodeReply;
        delete_bnode: DeleteBnodeRequest -> DeleteBnodeReply;
        exec: ExecRequest -> ExecReply;
        un_install: UnInstallRequest -> UnInstallReply;
        prune: PruneRequest -> PruneReply;
        add_key: AddKeyRequest -> AddKeyReply;
        delete_key: DeleteKeyRequest -> DeleteKeyReply;
        set_cell_name: SetCellNameRequest -> SetCellNameReply;
        add_cell_host: AddCellHostRequest -> AddCellHostReply;
        delete_cell_host: DeleteCellHostRequest -> DeleteCellHostReply;
        set_restricted_mode: SetRestrictedModeRequest -> SetRestrictedModeReply;
    }

    /// Install, which has data after its request.
    pub(crate) fn install(
        &self,
        caller: &Caller,
        _: bozo::InstallRequest,
        _: &mut dyn CallStream,
    ) -> Result<bozo::InstallReply, AbortCode> {
        self.reject(caller, "install")
    }

    /// GetRestrictedMode: the mode is always on.
    pub(crate) fn get_restricted_mode(
        &self,
        _: &Caller,
        _: bozo::GetRestrictedModeRequest,
    ) -> Result<bozo::GetRestrictedModeReply, AbortCode> {
        Ok(bozo::GetRestrictedModeReply { mode: 1 })
    }

    /// Rejects a procedure that is never allowed in restricted mode.
    fn reject<Reply>(&self, caller: &Caller, what: &str) -> Result<Reply, AbortCode> {
        self.administer(caller, what)?;
        Err(AbortCode::BZACCESS)
    }
}
