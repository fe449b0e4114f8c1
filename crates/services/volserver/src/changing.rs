//! Changes the header of a transaction's volume.

use crate::codes::{self, EINVAL, ENOENT, EROFS};
use crate::creating::{kind, volume_name};
use crate::server::{DESTROY_ME, VolumeServer};
use afs_idl::vol::{self, attach_mode, volume_flags};
use base::{AbortCode, CallContext, UnixTime, VolumeId};
use volume::{Unseen, Volume, VolumeError, VolumeHeader, VolumeState};

/// Value in SetInfo that leaves a field unchanged.
const UNCHANGED: i32 = -1;

impl VolumeServer {
    /// SetFlags: sets whether the volume is to be destroyed if the transaction does not complete, and whether it is
    /// in service.
    pub(crate) fn set_flags(
        &self,
        caller: &CallContext<'_>,
        request: vol::SetFlagsRequest,
    ) -> Result<vol::SetFlagsReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "SetFlags")?;
        if used.attach_flags() & attach_mode::READ_ONLY != 0 {
            return Err(EROFS);
        }
        update(&volume, |header| {
            let is_doomed = request.flags & volume_flags::DELETE_ON_SALVAGE != 0;
            header.destroy_me = if is_doomed { DESTROY_ME } else { 0 };
            header.in_service = request.flags & volume_flags::OUT_OF_SERVICE == 0;
        })?;
        used.set_flags(request.flags);
        Ok(vol::SetFlagsReply)
    }

    /// SetForwarding: makes clients look the volume up again.
    pub(crate) fn set_forwarding(
        &self,
        caller: &CallContext<'_>,
        request: vol::SetForwardingRequest,
    ) -> Result<vol::SetForwardingReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "SetForwarding")?;
        used.set_moved();
        volume.set_state(VolumeState::Moved);
        Ok(vol::SetForwardingReply)
    }

    /// SetInfo: sets quota, use, dates and the update counter.
    pub(crate) fn set_info(
        &self,
        caller: &CallContext<'_>,
        request: vol::SetInfoRequest,
    ) -> Result<vol::SetInfoReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "SetStatus")?;
        let info = request.info;
        let quota = wanted(info.max_quota).map(u64::try_from).transpose().map_err(|_| EINVAL)?;
        let day_use = wanted(info.day_use).map(u32::try_from).transpose().map_err(|_| EINVAL)?;
        let is_dated =
            [info.creation_date, info.update_date].into_iter().any(|date| wanted_date(date).is_some());
        update(&volume, |header| {
            if is_dated {
                note_dates(header);
            }
            header.quota_max_kib = quota.unwrap_or(header.quota_max_kib);
            header.day_use = day_use.unwrap_or(header.day_use);
            header.created = wanted_date(info.creation_date).unwrap_or(header.created);
            header.updated = wanted_date(info.update_date).unwrap_or(header.updated);
            header.update_counter = wanted(info.spare2).map_or(header.update_counter, |count| count as u32);
        })?;
        Ok(vol::SetInfoReply)
    }

    /// SetDate: sets the creation date.
    pub(crate) fn set_date(
        &self,
        caller: &CallContext<'_>,
        request: vol::SetDateRequest,
    ) -> Result<vol::SetDateReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "SetDate")?;
        update(&volume, |header| {
            header.created = UnixTime(request.new_date);
            note_dates(header);
        })?;
        Ok(vol::SetDateReply)
    }

    /// SetIdsTypes: sets the name, and the ids of clone and backup. A volume cannot change its type or family,
    /// because it shares records with its family.
    pub(crate) fn set_ids_types(
        &self,
        caller: &CallContext<'_>,
        request: vol::SetIdsTypesRequest,
    ) -> Result<vol::SetIdsTypesReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "SetIdsTypes")?;
        let name = volume_name(&request.name)?;
        let header = volume.header();
        let stays_itself =
            kind(request.volume_type)? == header.kind && VolumeId(request.parent_id) == header.parent;
        if !stays_itself {
            return Err(EINVAL);
        }
        update(&volume, |header| {
            header.name = name;
            header.clone = VolumeId(request.clone_id);
            header.backup = VolumeId(request.backup_id);
        })?;
        Ok(vol::SetIdsTypesReply)
    }
}

fn wanted(number: i32) -> Option<i32> {
    (number != UNCHANGED).then_some(number)
}

fn wanted_date(date: u32) -> Option<UnixTime> {
    (date as i32 != UNCHANGED).then_some(UnixTime(date))
}

/// Marks a volume whose dates are set before it was in service as restored, since a move sets none.
fn note_dates(header: &mut VolumeHeader) {
    header.unseen = header.unseen.map(|_| Unseen::Restored);
}

fn update(volume: &Volume, change: impl FnOnce(&mut VolumeHeader)) -> Result<(), AbortCode> {
    match volume.update_header(change) {
        Ok(_) => Ok(()),
        Err(VolumeError::NoVolume(_)) => Err(ENOENT),
        Err(error) => Err(codes::of(&error)),
    }
}
