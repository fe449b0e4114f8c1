//! Dates of programs, and times of regular restarts. Nothing is restarted regularly.

use crate::overseer::FileDates;
use crate::server::BosServer;
use afs_idl::bozo::{self, NetKTime, restart_kind, time_mask};
use base::{AbortCode, Caller};

impl BosServer {
    /// GetDates: returns the dates of a program's versions.
    pub(crate) fn get_dates(
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

    /// GetRestartTime: the answer is always `never`.
    pub(crate) fn get_restart_time(
        &self,
        _: &Caller,
        request: bozo::GetRestartTimeRequest,
    ) -> Result<bozo::GetRestartTimeReply, AbortCode> {
        check_restart_kind(request.kind)?;
        let restart_time = NetKTime { mask: time_mask::NEVER, ..NetKTime::default() };
        Ok(bozo::GetRestartTimeReply { restart_time })
    }

    /// SetRestartTime: only `never` can be set.
    pub(crate) fn set_restart_time(
        &self,
        caller: &Caller,
        request: bozo::SetRestartTimeRequest,
    ) -> Result<bozo::SetRestartTimeReply, AbortCode> {
        self.administer(caller, "set_restart_time")?;
        check_restart_kind(request.kind)?;
        let never = request.restart_time.mask & time_mask::NEVER != 0;
        if never { Ok(bozo::SetRestartTimeReply) } else { Err(AbortCode::BZBUSY) }
    }
}

fn check_restart_kind(kind: i32) -> Result<(), AbortCode> {
    match kind {
        restart_kind::GENERAL | restart_kind::NEW_BINARIES => Ok(()),
        _ => Err(AbortCode::BZDOM),
    }
}
