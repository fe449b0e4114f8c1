//! The location database of a simulated history.

use super::history::Cell;
use afs_idl::vl::{self, NVldbEntry, entry_flags};
use base::{AbortCode, CallContext};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The database as one location server has it.
pub(super) struct Database {
    pub(super) cell: Arc<Cell>,
    /// Out-of-date contents for queries, if the server is behind. Changes go to the server that accepts them.
    pub(super) behind: Option<BTreeMap<u32, NVldbEntry>>,
}

impl Database {
    fn find(&self, is_it: impl Fn(&NVldbEntry) -> bool) -> Result<NVldbEntry, AbortCode> {
        let state = self.cell.state.lock();
        let entries = self.behind.as_ref().unwrap_or(&state.entries);
        entries.values().find(|entry| is_it(entry)).cloned().ok_or(AbortCode::VL_NOENT)
    }
}

/// Maximum number of ids in one request.
const IDS_MAX: u32 = 100;
const OPERATIONS: i32 =
    entry_flags::MOVE | entry_flags::RELEASE | entry_flags::BACKUP | entry_flags::DELETE | entry_flags::DUMP;

impl vl::Server for Database {
    fn get_entry_by_idn(
        &self,
        _: &CallContext<'_>,
        request: vl::GetEntryByIDNRequest,
    ) -> Result<vl::GetEntryByIDNReply, AbortCode> {
        let entry = self.find(|entry| entry.volume_id[0] == request.volume_id)?;
        Ok(vl::GetEntryByIDNReply { entry })
    }

    fn get_entry_by_name_n(
        &self,
        _: &CallContext<'_>,
        request: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let entry = self.find(|entry| entry.name == request.volume_name)?;
        Ok(vl::GetEntryByNameNReply { entry })
    }

    fn replace_entry_n(
        &self,
        _: &CallContext<'_>,
        request: vl::ReplaceEntryNRequest,
    ) -> Result<vl::ReplaceEntryNReply, AbortCode> {
        let mut state = self.cell.state.lock();
        let entry = state.entries.get_mut(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        assert_ne!(entry.flags & OPERATIONS, 0, "an entry is changed that is not locked");
        *entry = request.new_entry;
        Ok(vl::ReplaceEntryNReply)
    }

    fn create_entry_n(
        &self,
        _: &CallContext<'_>,
        request: vl::CreateEntryNRequest,
    ) -> Result<vl::CreateEntryNReply, AbortCode> {
        let mut state = self.cell.state.lock();
        let id = request.new_entry.volume_id[0];
        if state.entries.contains_key(&id) {
            return Err(AbortCode::VL_IDEXIST);
        }
        state.entries.insert(id, request.new_entry);
        Ok(vl::CreateEntryNReply)
    }

    fn delete_entry(
        &self,
        _: &CallContext<'_>,
        request: vl::DeleteEntryRequest,
    ) -> Result<vl::DeleteEntryReply, AbortCode> {
        let mut state = self.cell.state.lock();
        state.entries.remove(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        Ok(vl::DeleteEntryReply)
    }

    fn get_new_volume_id(
        &self,
        _: &CallContext<'_>,
        request: vl::GetNewVolumeIdRequest,
    ) -> Result<vl::GetNewVolumeIdReply, AbortCode> {
        let mut state = self.cell.state.lock();
        if state.takes_no_changes {
            return Err(AbortCode::VL_PERM);
        }
        if request.bump_count > IDS_MAX {
            return Err(AbortCode::VL_BADVOLIDBUMP);
        }
        state.next_volume += request.bump_count;
        Ok(vl::GetNewVolumeIdReply { new_volume_id: state.next_volume - request.bump_count })
    }

    fn get_stats(&self, _: &CallContext<'_>, _: vl::GetStatsRequest) -> Result<vl::GetStatsReply, AbortCode> {
        let start_time = self.cell.state.lock().locations_began;
        Ok(vl::GetStatsReply {
            stats: vl::Stats { start_time, ..vl::Stats::default() },
            ..Default::default()
        })
    }

    fn set_lock(
        &self,
        _: &CallContext<'_>,
        request: vl::SetLockRequest,
    ) -> Result<vl::SetLockReply, AbortCode> {
        let mut state = self.cell.state.lock();
        if state.takes_no_changes {
            return Err(AbortCode::VL_PERM);
        }
        let entry = state.entries.get_mut(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        if entry.flags & OPERATIONS != 0 {
            return Err(AbortCode::VL_ENTRYLOCKED);
        }
        entry.flags |= request.operation;
        Ok(vl::SetLockReply)
    }

    fn release_lock(
        &self,
        _: &CallContext<'_>,
        request: vl::ReleaseLockRequest,
    ) -> Result<vl::ReleaseLockReply, AbortCode> {
        let mut state = self.cell.state.lock();
        let entry = state.entries.get_mut(&request.volume_id).ok_or(AbortCode::VL_NOENT)?;
        entry.flags &= !OPERATIONS;
        Ok(vl::ReleaseLockReply)
    }
}
