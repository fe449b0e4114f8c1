//! The location database of a history.

use super::history::Cell;
use afs_idl::vl::{self, entry_flags};
use base::{AbortCode, Caller};
use std::sync::Arc;

pub(super) struct Database(pub(super) Arc<Cell>);

const OPERATIONS: i32 =
    entry_flags::MOVE | entry_flags::RELEASE | entry_flags::BACKUP | entry_flags::DELETE | entry_flags::DUMP;

impl vl::Server for Database {
    fn get_entry_by_idn(
        &self,
        _: &Caller,
        request: vl::GetEntryByIDNRequest,
    ) -> Result<vl::GetEntryByIDNReply, AbortCode> {
        let state = self.0.state.lock();
        let entry = state.entries.get(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        Ok(vl::GetEntryByIDNReply { entry: entry.clone() })
    }

    fn get_entry_by_name_n(
        &self,
        _: &Caller,
        request: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let state = self.0.state.lock();
        let entry = state.entries.values().find(|entry| entry.name == request.volume_name);
        Ok(vl::GetEntryByNameNReply { entry: entry.ok_or(AbortCode::VL_NOENT)?.clone() })
    }

    fn replace_entry_n(
        &self,
        _: &Caller,
        request: vl::ReplaceEntryNRequest,
    ) -> Result<vl::ReplaceEntryNReply, AbortCode> {
        let mut state = self.0.state.lock();
        let entry = state.entries.get_mut(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        assert_ne!(entry.flags & OPERATIONS, 0, "an entry is changed that is not locked");
        *entry = request.new_entry;
        Ok(vl::ReplaceEntryNReply)
    }

    fn create_entry_n(
        &self,
        _: &Caller,
        request: vl::CreateEntryNRequest,
    ) -> Result<vl::CreateEntryNReply, AbortCode> {
        let mut state = self.0.state.lock();
        let id = request.new_entry.volume_id[0];
        if state.entries.contains_key(&id) {
            return Err(AbortCode::VL_IDEXIST);
        }
        state.entries.insert(id, request.new_entry);
        Ok(vl::CreateEntryNReply)
    }

    fn delete_entry(
        &self,
        _: &Caller,
        request: vl::DeleteEntryRequest,
    ) -> Result<vl::DeleteEntryReply, AbortCode> {
        let mut state = self.0.state.lock();
        state.entries.remove(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        Ok(vl::DeleteEntryReply)
    }

    fn get_new_volume_id(
        &self,
        _: &Caller,
        request: vl::GetNewVolumeIdRequest,
    ) -> Result<vl::GetNewVolumeIdReply, AbortCode> {
        let mut state = self.0.state.lock();
        state.next_volume += request.bump_count;
        Ok(vl::GetNewVolumeIdReply { new_volume_id: state.next_volume - request.bump_count })
    }

    fn set_lock(&self, _: &Caller, request: vl::SetLockRequest) -> Result<vl::SetLockReply, AbortCode> {
        let mut state = self.0.state.lock();
        let entry = state.entries.get_mut(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        if entry.flags & OPERATIONS != 0 {
            return Err(AbortCode::VL_ENTRYLOCKED);
        }
        entry.flags |= request.operation;
        Ok(vl::SetLockReply)
    }

    fn release_lock(
        &self,
        _: &Caller,
        request: vl::ReleaseLockRequest,
    ) -> Result<vl::ReleaseLockReply, AbortCode> {
        let mut state = self.0.state.lock();
        let entry = state.entries.get_mut(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        entry.flags &= !OPERATIONS;
        Ok(vl::ReleaseLockReply)
    }
}
