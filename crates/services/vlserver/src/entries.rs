//! Changes of entries: creation, replacement, deletion, locks.

use crate::service::VlService;
use crate::wire::{from_n, from_old, update};
use afs_idl::vl;
use base::{AbortCode, Caller, VolumeId};
use vldb::{LocationError, NewLocation, VolumeQuery, volume_type};

impl VlService {
    /// CreateEntry: creates an entry.
    pub(crate) fn create_entry(
        &self,
        caller: &Caller,
        r: vl::CreateEntryRequest,
    ) -> Result<vl::CreateEntryReply, AbortCode> {
        self.create(caller, vl::CREATE_ENTRY, from_old(r.new_entry))?;
        Ok(vl::CreateEntryReply)
    }

    /// CreateEntryN: creates an entry.
    pub(crate) fn create_entry_n(
        &self,
        caller: &Caller,
        r: vl::CreateEntryNRequest,
    ) -> Result<vl::CreateEntryNReply, AbortCode> {
        self.create(caller, vl::CREATE_ENTRY_N, from_n(r.new_entry))?;
        Ok(vl::CreateEntryNReply)
    }

    /// ReplaceEntry: replaces an entry.
    pub(crate) fn replace_entry(
        &self,
        caller: &Caller,
        r: vl::ReplaceEntryRequest,
    ) -> Result<vl::ReplaceEntryReply, AbortCode> {
        let place = (r.volume_id, r.volume_type, r.release_type);
        self.replace(caller, vl::REPLACE_ENTRY, place, from_old(r.new_entry))?;
        Ok(vl::ReplaceEntryReply)
    }

    /// ReplaceEntryN: replaces an entry.
    pub(crate) fn replace_entry_n(
        &self,
        caller: &Caller,
        r: vl::ReplaceEntryNRequest,
    ) -> Result<vl::ReplaceEntryNReply, AbortCode> {
        let place = (r.volume_id, r.volume_type, r.release_type);
        self.replace(caller, vl::REPLACE_ENTRY_N, place, from_n(r.new_entry))?;
        Ok(vl::ReplaceEntryNReply)
    }

    /// DeleteEntry: deletes an entry.
    pub(crate) fn delete_entry(
        &self,
        caller: &Caller,
        r: vl::DeleteEntryRequest,
    ) -> Result<vl::DeleteEntryReply, AbortCode> {
        self.change(caller, vl::DELETE_ENTRY, |locations| {
            locations.delete(VolumeId(r.volume_id), volume_type(r.volume_type)?)
        })?;
        Ok(vl::DeleteEntryReply)
    }

    /// UpdateEntry: changes fields of an entry.
    pub(crate) fn update_entry(
        &self,
        caller: &Caller,
        r: vl::UpdateEntryRequest,
    ) -> Result<vl::UpdateEntryReply, AbortCode> {
        self.change(caller, vl::UPDATE_ENTRY, |locations| {
            let query = VolumeQuery::Id(VolumeId(r.volume_id));
            locations.update(&query, volume_type(r.volume_type)?, &update(&r.update)?, r.release_type)
        })?;
        Ok(vl::UpdateEntryReply)
    }

    /// UpdateEntryByName: changes fields of an entry.
    pub(crate) fn update_entry_by_name(
        &self,
        caller: &Caller,
        r: vl::UpdateEntryByNameRequest,
    ) -> Result<vl::UpdateEntryByNameReply, AbortCode> {
        self.change(caller, vl::UPDATE_ENTRY_BY_NAME, |locations| {
            let query = VolumeQuery::parse(r.volume_name.as_bytes())?;
            locations.update(&query, None, &update(&r.update)?, r.release_type)
        })?;
        Ok(vl::UpdateEntryByNameReply)
    }

    /// GetNewVolumeId: reserves volume ids.
    pub(crate) fn get_new_volume_id(
        &self,
        caller: &Caller,
        r: vl::GetNewVolumeIdRequest,
    ) -> Result<vl::GetNewVolumeIdReply, AbortCode> {
        let id = self.change(caller, vl::GET_NEW_VOLUME_ID, |locations| locations.new_ids(r.bump_count))?;
        Ok(vl::GetNewVolumeIdReply { new_volume_id: id.0 })
    }

    /// SetLock: locks an entry.
    pub(crate) fn set_lock(
        &self,
        caller: &Caller,
        r: vl::SetLockRequest,
    ) -> Result<vl::SetLockReply, AbortCode> {
        self.change(caller, vl::SET_LOCK, |locations| {
            locations.lock(VolumeId(r.volume_id), volume_type(r.volume_type)?, r.operation, (self.clock)())
        })?;
        Ok(vl::SetLockReply)
    }

    /// ReleaseLock: unlocks an entry.
    pub(crate) fn release_lock(
        &self,
        caller: &Caller,
        r: vl::ReleaseLockRequest,
    ) -> Result<vl::ReleaseLockReply, AbortCode> {
        self.change(caller, vl::RELEASE_LOCK, |locations| {
            locations.unlock(VolumeId(r.volume_id), volume_type(r.volume_type)?, r.release_type)
        })?;
        Ok(vl::ReleaseLockReply)
    }

    /// CreateEntryU, which no server implements.
    pub(crate) fn create_entry_u(
        &self,
        _: &Caller,
        _: vl::CreateEntryURequest,
    ) -> Result<vl::CreateEntryUReply, AbortCode> {
        Err(AbortCode::RXGEN_OPCODE)
    }

    /// ReplaceEntryU, which no server implements.
    pub(crate) fn replace_entry_u(
        &self,
        _: &Caller,
        _: vl::ReplaceEntryURequest,
    ) -> Result<vl::ReplaceEntryUReply, AbortCode> {
        Err(AbortCode::RXGEN_OPCODE)
    }

    fn create(
        &self,
        caller: &Caller,
        opcode: u32,
        new: Result<NewLocation, LocationError>,
    ) -> Result<(), AbortCode> {
        self.change(caller, opcode, |locations| locations.create(&new?).map(drop))
    }

    fn replace(
        &self,
        caller: &Caller,
        opcode: u32,
        (id, kind, release): (u32, i32, i32),
        new: Result<NewLocation, LocationError>,
    ) -> Result<(), AbortCode> {
        self.change(caller, opcode, |locations| {
            locations.replace(VolumeId(id), volume_type(kind)?, &new?, release)
        })
    }
}
