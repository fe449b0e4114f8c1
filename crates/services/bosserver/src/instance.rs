//! Instances: their definition and state, and changes of their goals.

use crate::overseer::{Overseer, OverseerError, Role, RoleKind, RoleState};
use crate::server::BosServer;
use afs_idl::bozo::{self, Status, goal};
use base::{AbortCode, Caller};
use xdr::XdrString;

/// Parameter number with which `bos` requests the notifier program.
const NOTIFIER: i32 = 999;

impl BosServer {
    /// EnumerateInstance: returns the name of an instance by number.
    pub(crate) fn enumerate_instance(
        &self,
        _: &Caller,
        request: bozo::EnumerateInstanceRequest,
    ) -> Result<bozo::EnumerateInstanceReply, AbortCode> {
        let index = usize::try_from(request.index).map_err(|_| AbortCode::BZDOM)?;
        let role = self.overseer.roles().into_iter().nth(index).ok_or(AbortCode::BZDOM)?;
        Ok(bozo::EnumerateInstanceReply { instance: role.name.into() })
    }

    /// GetInstanceInfo: returns an instance's type and state.
    pub(crate) fn get_instance_info(
        &self,
        _: &Caller,
        request: bozo::GetInstanceInfoRequest,
    ) -> Result<bozo::GetInstanceInfoReply, AbortCode> {
        let role = find(&*self.overseer, &request.instance)?;
        Ok(bozo::GetInstanceInfoReply { instance_type: kind_name(role.kind).into(), status: status(&role) })
    }

    /// GetStatus: returns a short form of an instance's state.
    pub(crate) fn get_status(
        &self,
        _: &Caller,
        request: bozo::GetStatusRequest,
    ) -> Result<bozo::GetStatusReply, AbortCode> {
        let role = find(&*self.overseer, &request.instance)?;
        let description = match (role.kind, role.state) {
            (RoleKind::FileServer, RoleState::Running) => "file server running",
            (RoleKind::FileServer, RoleState::Stopping) => "file server shutting down",
            _ => "",
        };
        Ok(bozo::GetStatusReply { status: state_number(role.state), description: description.into() })
    }

    /// GetInstanceParm: returns a command line by number.
    pub(crate) fn get_instance_parm(
        &self,
        _: &Caller,
        request: bozo::GetInstanceParmRequest,
    ) -> Result<bozo::GetInstanceParmReply, AbortCode> {
        let role = find(&*self.overseer, &request.instance)?;
        if request.index == NOTIFIER {
            return Err(AbortCode::BZNOENT);
        }
        let index = usize::try_from(request.index).map_err(|_| AbortCode::BZDOM)?;
        let parameter = role.commands.get(index).map(|command| clipped(command)).ok_or(AbortCode::BZDOM)?;
        Ok(bozo::GetInstanceParmReply { parameter })
    }

    /// GetInstanceStrings: returns the reason for the last exit with an error.
    pub(crate) fn get_instance_strings(
        &self,
        _: &Caller,
        request: bozo::GetInstanceStringsRequest,
    ) -> Result<bozo::GetInstanceStringsReply, AbortCode> {
        let error = find(&*self.overseer, &request.instance)?.last_exit.and_then(|exit| exit.error);
        let error_name = clipped(&error.unwrap_or_default());
        Ok(bozo::GetInstanceStringsReply { error_name, ..Default::default() })
    }

    /// SetStatus: sets the goal of an instance, and its configured goal.
    pub(crate) fn set_status(
        &self,
        caller: &Caller,
        request: bozo::SetStatusRequest,
    ) -> Result<bozo::SetStatusReply, AbortCode> {
        let overseer = self.administer(caller, "set_status")?;
        set_goal(overseer, &request.instance, request.status, true)?;
        Ok(bozo::SetStatusReply)
    }

    /// SetTStatus: sets the goal of an instance until the next start.
    pub(crate) fn set_t_status(
        &self,
        caller: &Caller,
        request: bozo::SetTStatusRequest,
    ) -> Result<bozo::SetTStatusReply, AbortCode> {
        let overseer = self.administer(caller, "set_t_status")?;
        set_goal(overseer, &request.instance, request.status, false)?;
        Ok(bozo::SetTStatusReply)
    }

    /// ShutdownAll: stops all instances.
    pub(crate) fn shutdown_all(
        &self,
        caller: &Caller,
        _: bozo::ShutdownAllRequest,
    ) -> Result<bozo::ShutdownAllReply, AbortCode> {
        set_all(self.administer(caller, "shutdown_all")?, false)?;
        Ok(bozo::ShutdownAllReply)
    }

    /// StartupAll: starts all instances that are configured to run.
    pub(crate) fn startup_all(
        &self,
        caller: &Caller,
        _: bozo::StartupAllRequest,
    ) -> Result<bozo::StartupAllReply, AbortCode> {
        set_all(self.administer(caller, "startup_all")?, true)?;
        Ok(bozo::StartupAllReply)
    }

    /// WaitAll. An overseer that can stop roles has done so before it returns, so there is nothing to wait for.
    pub(crate) fn wait_all(
        &self,
        caller: &Caller,
        _: bozo::WaitAllRequest,
    ) -> Result<bozo::WaitAllReply, AbortCode> {
        self.administer(caller, "wait_all")?;
        Ok(bozo::WaitAllReply)
    }

    /// Restart: restarts one instance.
    pub(crate) fn restart(
        &self,
        caller: &Caller,
        request: bozo::RestartRequest,
    ) -> Result<bozo::RestartReply, AbortCode> {
        let overseer = self.administer(caller, "restart")?;
        let role = find(overseer, &request.instance)?;
        overseer.restart(Some(&role.name)).map_err(OverseerError::abort_code)?;
        Ok(bozo::RestartReply)
    }

    /// RestartAll: restarts all instances.
    pub(crate) fn restart_all(
        &self,
        caller: &Caller,
        _: bozo::RestartAllRequest,
    ) -> Result<bozo::RestartAllReply, AbortCode> {
        let overseer = self.administer(caller, "restart_all")?;
        overseer.restart(None).map_err(OverseerError::abort_code)?;
        Ok(bozo::RestartAllReply)
    }

    /// ReBozo: restarts the overseer, and so the program.
    pub(crate) fn re_bozo(
        &self,
        caller: &Caller,
        _: bozo::ReBozoRequest,
    ) -> Result<bozo::ReBozoReply, AbortCode> {
        let overseer = self.administer(caller, "re_bozo")?;
        overseer.restart(None).map_err(OverseerError::abort_code)?;
        Ok(bozo::ReBozoReply)
    }
}

/// Sets a role's goal; does nothing if the role already has it.
fn set_goal(
    overseer: &dyn Overseer,
    name: &XdrString,
    wanted: i32,
    permanent: bool,
) -> Result<(), AbortCode> {
    let role = find(overseer, name)?;
    let running = match wanted {
        goal::NORMAL => true,
        goal::DOWN => false,
        _ => return Err(AbortCode::BZDOM),
    };
    let is_so = role.goal_running == running && (!permanent || role.configured_running == running);
    if is_so {
        return Ok(());
    }
    overseer.set_goal(&role.name, running, permanent).map_err(OverseerError::abort_code)
}

/// Sets the goal of every role that is configured to run.
fn set_all(overseer: &dyn Overseer, running: bool) -> Result<(), AbortCode> {
    let roles = overseer.roles().into_iter().filter(|role| role.configured_running);
    for role in roles.filter(|role| role.goal_running != running) {
        overseer.set_goal(&role.name, running, false).map_err(OverseerError::abort_code)?;
    }
    Ok(())
}

fn find(overseer: &dyn Overseer, name: &XdrString) -> Result<Role, AbortCode> {
    overseer.roles().into_iter().find(|role| *name == role.name.as_str()).ok_or(AbortCode::BZNOENT)
}

pub(crate) fn kind_name(kind: RoleKind) -> &'static str {
    match kind {
        RoleKind::Simple => "simple",
        RoleKind::FileServer => "fs",
    }
}

fn state_number(state: RoleState) -> i32 {
    match state {
        RoleState::Down => goal::DOWN,
        RoleState::Running => goal::NORMAL,
        RoleState::Stopping => goal::SHUTTING_DOWN,
        RoleState::Starting => goal::STARTING_UP,
    }
}

pub(crate) fn goal_number(running: bool) -> i32 {
    if running { goal::NORMAL } else { goal::DOWN }
}

fn status(role: &Role) -> Status {
    let exit = role.last_exit.as_ref();
    let failed = exit.filter(|exit| exit.error.is_some());
    Status {
        goal: goal_number(role.goal_running),
        file_goal: goal_number(role.configured_running),
        process_start_time: role.started.0,
        process_starts: i32::try_from(role.starts).unwrap_or(i32::MAX),
        last_any_exit: exit.map_or(0, |exit| exit.at.0),
        last_error_exit: failed.map_or(0, |exit| exit.at.0),
        ..Status::default()
    }
}

/// Truncates a text to the space of a reply, including its NUL.
fn clipped(text: &str) -> XdrString {
    XdrString::from(&text.as_bytes()[..text.len().min(bozo::TEXT_MAX - 1)])
}
