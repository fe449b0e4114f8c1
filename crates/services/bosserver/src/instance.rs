//! Instances: their definition and state, and changes of their goals.

use crate::overseer::{Overseer, OverseerError, Role, RoleKind, RoleState};
use afs_idl::bozo::{self, GetInstanceInfoReply, GetInstanceStringsReply, GetStatusReply, Status, goal};
use base::AbortCode;
use xdr::XdrString;

/// Parameter number with which `bos` requests the notifier program.
const NOTIFIER: i32 = 999;

/// Returns the name of an instance by number (BOZO_EnumerateInstance).
pub(crate) fn enumerate(overseer: &dyn Overseer, index: i32) -> Result<XdrString, AbortCode> {
    let index = usize::try_from(index).map_err(|_| AbortCode::BZDOM)?;
    let role = overseer.roles().into_iter().nth(index).ok_or(AbortCode::BZDOM)?;
    Ok(role.name.into())
}

/// Returns an instance's type and state (BOZO_GetInstanceInfo).
pub(crate) fn info(overseer: &dyn Overseer, name: &XdrString) -> Result<GetInstanceInfoReply, AbortCode> {
    let role = find(overseer, name)?;
    Ok(GetInstanceInfoReply { instance_type: kind_name(role.kind).into(), status: status(&role) })
}

/// Returns a short form of an instance's state (BOZO_GetStatus).
pub(crate) fn short_status(overseer: &dyn Overseer, name: &XdrString) -> Result<GetStatusReply, AbortCode> {
    let role = find(overseer, name)?;
    let description = match (role.kind, role.state) {
        (RoleKind::FileServer, RoleState::Running) => "file server running",
        (RoleKind::FileServer, RoleState::Stopping) => "file server shutting down",
        _ => "",
    };
    Ok(GetStatusReply { status: state_number(role.state), description: description.into() })
}

/// Returns a command line by number (BOZO_GetInstanceParm).
pub(crate) fn parameter(
    overseer: &dyn Overseer,
    name: &XdrString,
    index: i32,
) -> Result<XdrString, AbortCode> {
    let role = find(overseer, name)?;
    if index == NOTIFIER {
        return Err(AbortCode::BZNOENT);
    }
    let index = usize::try_from(index).map_err(|_| AbortCode::BZDOM)?;
    role.commands.get(index).map(|command| clipped(command)).ok_or(AbortCode::BZDOM)
}

/// Returns the reason for the last exit with an error (BOZO_GetInstanceStrings).
pub(crate) fn strings(
    overseer: &dyn Overseer,
    name: &XdrString,
) -> Result<GetInstanceStringsReply, AbortCode> {
    let error = find(overseer, name)?.last_exit.and_then(|exit| exit.error);
    let error_name = clipped(&error.unwrap_or_default());
    Ok(GetInstanceStringsReply { error_name, ..Default::default() })
}

/// Sets a role's goal; does nothing if the role already has it.
pub(crate) fn set_goal(
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
pub(crate) fn set_all(overseer: &dyn Overseer, running: bool) -> Result<(), AbortCode> {
    let roles = overseer.roles().into_iter().filter(|role| role.configured_running);
    for role in roles.filter(|role| role.goal_running != running) {
        overseer.set_goal(&role.name, running, false).map_err(OverseerError::abort_code)?;
    }
    Ok(())
}

/// Restarts one role.
pub(crate) fn restart(overseer: &dyn Overseer, name: &XdrString) -> Result<(), AbortCode> {
    let role = find(overseer, name)?;
    overseer.restart(Some(&role.name)).map_err(OverseerError::abort_code)
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
