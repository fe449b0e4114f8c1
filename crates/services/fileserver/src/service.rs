//! Maps every procedure of the interface to its handler. Others get RXGEN_OPCODE.

use crate::call::FileCall;
use crate::fetch::LengthWords;
use crate::store::widen;
use afs_idl::CallStream;
use afs_idl::fs as rxafs;
use afs_idl::fs::Server;
use base::{AbortCode, Caller};

type Answer<T> = Result<T, AbortCode>;

impl Server for FileCall<'_> {
    fn fetch_data(
        &self,
        caller: &Caller,
        request: rxafs::FetchDataRequest,
        stream: &mut dyn CallStream,
    ) -> Answer<rxafs::FetchDataReply> {
        let rxafs::FetchDataRequest { fid, position, length } = request;
        let request = rxafs::FetchData64Request { fid, position: position.into(), length: length.into() };
        let reply = self.serve_fetch_data(caller, request, LengthWords::One, stream)?;
        Ok(rxafs::FetchDataReply { status: reply.status, call_back: reply.call_back, sync: reply.sync })
    }

    fn fetch_data64(
        &self,
        caller: &Caller,
        request: rxafs::FetchData64Request,
        stream: &mut dyn CallStream,
    ) -> Answer<rxafs::FetchData64Reply> {
        self.serve_fetch_data(caller, request, LengthWords::Two, stream)
    }

    fn fetch_acl(&self, caller: &Caller, request: rxafs::FetchACLRequest) -> Answer<rxafs::FetchACLReply> {
        self.serve_fetch_acl(caller, request)
    }

    fn fetch_status(
        &self,
        caller: &Caller,
        request: rxafs::FetchStatusRequest,
    ) -> Answer<rxafs::FetchStatusReply> {
        self.serve_fetch_status(caller, request)
    }

    fn bulk_status(
        &self,
        caller: &Caller,
        request: rxafs::BulkStatusRequest,
    ) -> Answer<rxafs::BulkStatusReply> {
        self.serve_bulk_status(caller, &request)
    }

    fn inline_bulk_status(
        &self,
        caller: &Caller,
        request: rxafs::InlineBulkStatusRequest,
    ) -> Answer<rxafs::InlineBulkStatusReply> {
        self.serve_inline_bulk_status(caller, &request)
    }

    fn store_data(
        &self,
        caller: &Caller,
        request: rxafs::StoreDataRequest,
        stream: &mut dyn CallStream,
    ) -> Answer<rxafs::StoreDataReply> {
        let reply = self.serve_store_data(caller, widen(request), stream)?;
        Ok(rxafs::StoreDataReply { new_status: reply.new_status, sync: reply.sync })
    }

    fn store_data64(
        &self,
        caller: &Caller,
        request: rxafs::StoreData64Request,
        stream: &mut dyn CallStream,
    ) -> Answer<rxafs::StoreData64Reply> {
        self.serve_store_data(caller, Ok(request), stream)
    }

    fn store_status(
        &self,
        caller: &Caller,
        request: rxafs::StoreStatusRequest,
    ) -> Answer<rxafs::StoreStatusReply> {
        self.serve_store_status(caller, request)
    }

    fn store_acl(&self, caller: &Caller, request: rxafs::StoreACLRequest) -> Answer<rxafs::StoreACLReply> {
        self.serve_store_acl(caller, &request)
    }

    fn old_store_acl(
        &self,
        caller: &Caller,
        request: rxafs::OldStoreACLRequest,
    ) -> Answer<rxafs::OldStoreACLReply> {
        self.server.warn_of_old_store_acl(caller);
        let request = rxafs::StoreACLRequest { fid: request.fid, access_list: request.access_list };
        let reply = self.serve_store_acl(caller, &request)?;
        Ok(rxafs::OldStoreACLReply { status: reply.status, sync: reply.sync })
    }

    fn remove_file(
        &self,
        caller: &Caller,
        request: rxafs::RemoveFileRequest,
    ) -> Answer<rxafs::RemoveFileReply> {
        self.serve_remove_file(caller, &request)
    }

    fn create_file(
        &self,
        caller: &Caller,
        request: rxafs::CreateFileRequest,
    ) -> Answer<rxafs::CreateFileReply> {
        self.serve_create_file(caller, &request)
    }

    fn rename(&self, caller: &Caller, request: rxafs::RenameRequest) -> Answer<rxafs::RenameReply> {
        self.serve_rename(caller, &request)
    }

    fn symlink(&self, caller: &Caller, request: rxafs::SymlinkRequest) -> Answer<rxafs::SymlinkReply> {
        self.serve_symlink(caller, &request)
    }

    fn dfs_symlink(&self, _: &Caller, _: rxafs::DFSSymlinkRequest) -> Answer<rxafs::DFSSymlinkReply> {
        Err(AbortCode::UAEINVAL)
    }

    fn link(&self, caller: &Caller, request: rxafs::LinkRequest) -> Answer<rxafs::LinkReply> {
        self.serve_link(caller, &request)
    }

    fn make_dir(&self, caller: &Caller, request: rxafs::MakeDirRequest) -> Answer<rxafs::MakeDirReply> {
        self.serve_make_dir(caller, &request)
    }

    fn remove_dir(&self, caller: &Caller, request: rxafs::RemoveDirRequest) -> Answer<rxafs::RemoveDirReply> {
        self.serve_remove_dir(caller, &request)
    }

    fn lookup(&self, caller: &Caller, request: rxafs::LookupRequest) -> Answer<rxafs::LookupReply> {
        self.serve_lookup(caller, &request)
    }

    fn set_lock(&self, caller: &Caller, request: rxafs::SetLockRequest) -> Answer<rxafs::SetLockReply> {
        let sync = self.serve_set_lock(caller, request.fid, request.lock_type)?;
        Ok(rxafs::SetLockReply { sync })
    }

    fn extend_lock(
        &self,
        caller: &Caller,
        request: rxafs::ExtendLockRequest,
    ) -> Answer<rxafs::ExtendLockReply> {
        let sync = self.serve_extend_lock(caller, request.fid)?;
        Ok(rxafs::ExtendLockReply { sync })
    }

    fn release_lock(
        &self,
        caller: &Caller,
        request: rxafs::ReleaseLockRequest,
    ) -> Answer<rxafs::ReleaseLockReply> {
        let sync = self.serve_release_lock(caller, request.fid)?;
        Ok(rxafs::ReleaseLockReply { sync })
    }

    fn old_set_lock(
        &self,
        caller: &Caller,
        request: rxafs::OldSetLockRequest,
    ) -> Answer<rxafs::OldSetLockReply> {
        self.serve_set_lock(caller, request.fid, request.lock_type)?;
        Ok(rxafs::OldSetLockReply)
    }

    fn old_extend_lock(
        &self,
        caller: &Caller,
        request: rxafs::OldExtendLockRequest,
    ) -> Answer<rxafs::OldExtendLockReply> {
        self.serve_extend_lock(caller, request.fid)?;
        Ok(rxafs::OldExtendLockReply)
    }

    fn old_release_lock(
        &self,
        caller: &Caller,
        request: rxafs::OldReleaseLockRequest,
    ) -> Answer<rxafs::OldReleaseLockReply> {
        self.serve_release_lock(caller, request.fid)?;
        Ok(rxafs::OldReleaseLockReply)
    }

    fn get_statistics(
        &self,
        caller: &Caller,
        _: rxafs::GetStatisticsRequest,
    ) -> Answer<rxafs::GetStatisticsReply> {
        self.server.serve_get_statistics(caller)
    }

    fn get_statistics64(
        &self,
        caller: &Caller,
        request: rxafs::GetStatistics64Request,
    ) -> Answer<rxafs::GetStatistics64Reply> {
        self.server.serve_get_statistics64(caller, request.version)
    }

    fn x_stats_version(
        &self,
        _: &Caller,
        _: rxafs::XStatsVersionRequest,
    ) -> Answer<rxafs::XStatsVersionReply> {
        self.server.serve_x_stats_version()
    }

    fn get_x_stats(&self, _: &Caller, request: rxafs::GetXStatsRequest) -> Answer<rxafs::GetXStatsReply> {
        self.server.serve_get_x_stats(request.collection)
    }

    fn give_up_call_backs(
        &self,
        caller: &Caller,
        request: rxafs::GiveUpCallBacksRequest,
    ) -> Answer<rxafs::GiveUpCallBacksReply> {
        self.serve_give_up_call_backs(caller, &request)
    }

    fn give_up_all_call_backs(
        &self,
        caller: &Caller,
        _: rxafs::GiveUpAllCallBacksRequest,
    ) -> Answer<rxafs::GiveUpAllCallBacksReply> {
        self.serve_give_up_all_call_backs(caller)
    }

    fn get_volume_info(
        &self,
        caller: &Caller,
        request: rxafs::GetVolumeInfoRequest,
    ) -> Answer<rxafs::GetVolumeInfoReply> {
        self.serve_get_volume_info(caller, request.volume_name.as_bytes())
    }

    fn n_get_volume_info(
        &self,
        _: &Caller,
        _: rxafs::NGetVolumeInfoRequest,
    ) -> Answer<rxafs::NGetVolumeInfoReply> {
        self.refuse_n_get_volume_info()
    }

    fn get_volume_status(
        &self,
        caller: &Caller,
        request: rxafs::GetVolumeStatusRequest,
    ) -> Answer<rxafs::GetVolumeStatusReply> {
        self.serve_get_volume_status(caller, request.volume_id)
    }

    fn set_volume_status(
        &self,
        caller: &Caller,
        request: rxafs::SetVolumeStatusRequest,
    ) -> Answer<rxafs::SetVolumeStatusReply> {
        self.serve_set_volume_status(caller, &request)?;
        Ok(rxafs::SetVolumeStatusReply)
    }

    fn get_root_volume(
        &self,
        _: &Caller,
        _: rxafs::GetRootVolumeRequest,
    ) -> Answer<rxafs::GetRootVolumeReply> {
        self.refuse_get_root_volume()
    }

    fn check_token(&self, caller: &Caller, _: rxafs::CheckTokenRequest) -> Answer<rxafs::CheckTokenReply> {
        self.refuse_check_token(caller)
    }

    fn get_time(&self, caller: &Caller, _: rxafs::GetTimeRequest) -> Answer<rxafs::GetTimeReply> {
        self.serve_get_time(caller)
    }

    fn get_capabilities(
        &self,
        caller: &Caller,
        _: rxafs::GetCapabilitiesRequest,
    ) -> Answer<rxafs::GetCapabilitiesReply> {
        self.serve_get_capabilities(caller)
    }

    fn flush_cps(&self, caller: &Caller, request: rxafs::FlushCPSRequest) -> Answer<rxafs::FlushCPSReply> {
        self.serve_flush_cps(caller, &request)
    }

    fn fs_cmd(&self, _: &Caller, _: rxafs::FsCmdRequest) -> Answer<rxafs::FsCmdReply> {
        Err(AbortCode::UAEINVAL)
    }

    fn call_back_rx_conn_addr(
        &self,
        caller: &Caller,
        _: rxafs::CallBackRxConnAddrRequest,
    ) -> Answer<rxafs::CallBackRxConnAddrReply> {
        self.refuse_call_back_rx_conn_addr(caller)
    }
}
