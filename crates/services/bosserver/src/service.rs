//! The procedures: checks of the caller's rights, and calls of their implementations.

use crate::overseer::{FileDates, Overseer, OverseerError};
use crate::{cell, instance, log};
use afs_idl::CallStream;
use afs_idl::bozo::{self, NetKTime, restart_kind, time_mask};
use base::{AbortCode, Caller};
use std::sync::Arc;
use tracing::info;

/// The service; pass it to [`bozo::dispatch`] to serve a call.
pub struct BosServer {
    overseer: Arc<dyn Overseer>,
}

impl BosServer {
    /// Creates a service for `overseer`.
    pub fn new(overseer: Arc<dyn Overseer>) -> BosServer {
        BosServer { overseer }
    }

    /// Returns the overseer if the caller is an administrator, and records `what` in the audit log.
    fn administer(&self, caller: &Caller, what: &str) -> Result<&dyn Overseer, AbortCode> {
        let allowed = self.overseer.is_administrator(caller);
        info!(target: "audit", what, allowed, identity = %caller.identity, peer = %caller.peer);
        if allowed { Ok(&*self.overseer) } else { Err(AbortCode::BZACCESS) }
    }

    /// Rejects a procedure that is never allowed in restricted mode.
    fn restricted<Reply>(&self, caller: &Caller, what: &str) -> Result<Reply, AbortCode> {
        self.administer(caller, what)?;
        Err(AbortCode::BZACCESS)
    }
}

/// Implements the procedures that restricted mode rejects.
macro_rules! restricted {
    ($($procedure:ident: $request:ident -> $reply:ident;)*) => {$(
        fn $procedure(&self, caller: &Caller, _: bozo::$request) -> Result<bozo::$reply, AbortCode> {
            self.restricted(caller, stringify!($procedure))
        }
    )*};
}

impl bozo::Server for BosServer {
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

    fn install(
        &self,
        caller: &Caller,
        _: bozo::InstallRequest,
        _: &mut dyn CallStream,
    ) -> Result<bozo::InstallReply, AbortCode> {
        self.restricted(caller, "install")
    }

    fn enumerate_instance(
        &self,
        _: &Caller,
        request: bozo::EnumerateInstanceRequest,
    ) -> Result<bozo::EnumerateInstanceReply, AbortCode> {
        let instance = instance::enumerate(&*self.overseer, request.index)?;
        Ok(bozo::EnumerateInstanceReply { instance })
    }

    fn get_instance_info(
        &self,
        _: &Caller,
        request: bozo::GetInstanceInfoRequest,
    ) -> Result<bozo::GetInstanceInfoReply, AbortCode> {
        instance::info(&*self.overseer, &request.instance)
    }

    fn get_status(
        &self,
        _: &Caller,
        request: bozo::GetStatusRequest,
    ) -> Result<bozo::GetStatusReply, AbortCode> {
        instance::short_status(&*self.overseer, &request.instance)
    }

    fn get_instance_parm(
        &self,
        _: &Caller,
        request: bozo::GetInstanceParmRequest,
    ) -> Result<bozo::GetInstanceParmReply, AbortCode> {
        let parameter = instance::parameter(&*self.overseer, &request.instance, request.index)?;
        Ok(bozo::GetInstanceParmReply { parameter })
    }

    fn get_instance_strings(
        &self,
        _: &Caller,
        request: bozo::GetInstanceStringsRequest,
    ) -> Result<bozo::GetInstanceStringsReply, AbortCode> {
        instance::strings(&*self.overseer, &request.instance)
    }

    fn set_status(
        &self,
        caller: &Caller,
        request: bozo::SetStatusRequest,
    ) -> Result<bozo::SetStatusReply, AbortCode> {
        let overseer = self.administer(caller, "set_status")?;
        instance::set_goal(overseer, &request.instance, request.status, true)?;
        Ok(bozo::SetStatusReply)
    }

    fn set_t_status(
        &self,
        caller: &Caller,
        request: bozo::SetTStatusRequest,
    ) -> Result<bozo::SetTStatusReply, AbortCode> {
        let overseer = self.administer(caller, "set_t_status")?;
        instance::set_goal(overseer, &request.instance, request.status, false)?;
        Ok(bozo::SetTStatusReply)
    }

    fn shutdown_all(
        &self,
        caller: &Caller,
        _: bozo::ShutdownAllRequest,
    ) -> Result<bozo::ShutdownAllReply, AbortCode> {
        instance::set_all(self.administer(caller, "shutdown_all")?, false)?;
        Ok(bozo::ShutdownAllReply)
    }

    fn startup_all(
        &self,
        caller: &Caller,
        _: bozo::StartupAllRequest,
    ) -> Result<bozo::StartupAllReply, AbortCode> {
        instance::set_all(self.administer(caller, "startup_all")?, true)?;
        Ok(bozo::StartupAllReply)
    }

    fn wait_all(&self, caller: &Caller, _: bozo::WaitAllRequest) -> Result<bozo::WaitAllReply, AbortCode> {
        // An overseer that can stop roles has done so before it returns, so there is nothing to wait for.
        self.administer(caller, "wait_all")?;
        Ok(bozo::WaitAllReply)
    }

    fn restart(
        &self,
        caller: &Caller,
        request: bozo::RestartRequest,
    ) -> Result<bozo::RestartReply, AbortCode> {
        instance::restart(self.administer(caller, "restart")?, &request.instance)?;
        Ok(bozo::RestartReply)
    }

    fn restart_all(
        &self,
        caller: &Caller,
        _: bozo::RestartAllRequest,
    ) -> Result<bozo::RestartAllReply, AbortCode> {
        let overseer = self.administer(caller, "restart_all")?;
        overseer.restart(None).map_err(OverseerError::abort_code)?;
        Ok(bozo::RestartAllReply)
    }

    fn re_bozo(&self, caller: &Caller, _: bozo::ReBozoRequest) -> Result<bozo::ReBozoReply, AbortCode> {
        let overseer = self.administer(caller, "re_bozo")?;
        overseer.restart(None).map_err(OverseerError::abort_code)?;
        Ok(bozo::ReBozoReply)
    }

    fn get_cell_name(
        &self,
        _: &Caller,
        _: bozo::GetCellNameRequest,
    ) -> Result<bozo::GetCellNameReply, AbortCode> {
        Ok(bozo::GetCellNameReply { name: self.overseer.cell().name.as_str().into() })
    }

    fn get_cell_host(
        &self,
        _: &Caller,
        request: bozo::GetCellHostRequest,
    ) -> Result<bozo::GetCellHostReply, AbortCode> {
        Ok(bozo::GetCellHostReply { name: cell::host(&*self.overseer, request.index)? })
    }

    fn list_s_users(
        &self,
        _: &Caller,
        request: bozo::ListSUsersRequest,
    ) -> Result<bozo::ListSUsersReply, AbortCode> {
        Ok(bozo::ListSUsersReply { name: cell::administrator(&*self.overseer, request.index)? })
    }

    fn add_s_user(
        &self,
        caller: &Caller,
        request: bozo::AddSUserRequest,
    ) -> Result<bozo::AddSUserReply, AbortCode> {
        cell::add_administrator(self.administer(caller, "add_s_user")?, &request.name)?;
        Ok(bozo::AddSUserReply)
    }

    fn delete_s_user(
        &self,
        caller: &Caller,
        request: bozo::DeleteSUserRequest,
    ) -> Result<bozo::DeleteSUserReply, AbortCode> {
        cell::remove_administrator(self.administer(caller, "delete_s_user")?, &request.name)?;
        Ok(bozo::DeleteSUserReply)
    }

    fn list_keys(
        &self,
        caller: &Caller,
        request: bozo::ListKeysRequest,
    ) -> Result<bozo::ListKeysReply, AbortCode> {
        cell::key(self.administer(caller, "list_keys")?, request.index)
    }

    fn set_no_auth_flag(
        &self,
        caller: &Caller,
        request: bozo::SetNoAuthFlagRequest,
    ) -> Result<bozo::SetNoAuthFlagReply, AbortCode> {
        self.administer(caller, "set_no_auth_flag")?;
        if request.flag == 0 { Ok(bozo::SetNoAuthFlagReply) } else { Err(AbortCode::BZACCESS) }
    }

    fn get_restricted_mode(
        &self,
        _: &Caller,
        _: bozo::GetRestrictedModeRequest,
    ) -> Result<bozo::GetRestrictedModeReply, AbortCode> {
        Ok(bozo::GetRestrictedModeReply { mode: 1 })
    }

    fn get_restart_time(
        &self,
        _: &Caller,
        request: bozo::GetRestartTimeRequest,
    ) -> Result<bozo::GetRestartTimeReply, AbortCode> {
        check_restart_kind(request.kind)?;
        let restart_time = NetKTime { mask: time_mask::NEVER, ..NetKTime::default() };
        Ok(bozo::GetRestartTimeReply { restart_time })
    }

    fn set_restart_time(
        &self,
        caller: &Caller,
        request: bozo::SetRestartTimeRequest,
    ) -> Result<bozo::SetRestartTimeReply, AbortCode> {
        self.administer(caller, "set_restart_time")?;
        check_restart_kind(request.kind)?;
        let never = request.restart_time.mask & time_mask::NEVER != 0;
        if never { Ok(bozo::SetRestartTimeReply) } else { Err(AbortCode::BZBUSY) }
    }

    fn get_dates(
        &self,
        _: &Caller,
        request: bozo::GetDatesRequest,
    ) -> Result<bozo::GetDatesReply, AbortCode> {
        let dates = request.path.as_str().map_or(FileDates::default(), |path| self.overseer.file_dates(path));
        Ok(bozo::GetDatesReply {
            new_time: dates.current.0,
            bak_time: dates.previous.0,
            old_time: dates.oldest.0,
        })
    }

    fn get_log(
        &self,
        caller: &Caller,
        request: bozo::GetLogRequest,
        stream: &mut dyn CallStream,
    ) -> Result<bozo::GetLogReply, AbortCode> {
        log::send(self.administer(caller, "get_log")?, &request.name, stream)?;
        Ok(bozo::GetLogReply)
    }
}

fn check_restart_kind(kind: i32) -> Result<(), AbortCode> {
    match kind {
        restart_kind::GENERAL | restart_kind::NEW_BINARIES => Ok(()),
        _ => Err(AbortCode::BZDOM),
    }
}
