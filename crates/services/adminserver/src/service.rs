//! The procedures, with calls of their implementations.

use crate::AdminServer;
use afs_idl::cellar::{
    self, CreateSnapshotReply, CreateSnapshotRequest, GetCacheStatisticsReply, GetCacheStatisticsRequest,
    GetCheckDamagesReply, GetCheckDamagesRequest, GetCheckReply, GetCheckRequest, GetDeduplicationReply,
    GetDeduplicationRequest, GetDirectoryTotalsReply, GetDirectoryTotalsRequest, GetFiguresReply,
    GetFiguresRequest, GetServerInfoReply, GetServerInfoRequest, GetSlowCallsReply, GetSlowCallsRequest,
    GetSnapshotPolicyReply, GetSnapshotPolicyRequest, GetSnapshotSpaceReply, GetSnapshotSpaceRequest,
    GetVolumeDeduplicationReply, GetVolumeDeduplicationRequest, GetVolumePolicyReply, GetVolumePolicyRequest,
    ListSnapshotsReply, ListSnapshotsRequest, ListSubdirectoriesReply, ListSubdirectoriesRequest,
    PurgeVolumeCacheReply, PurgeVolumeCacheRequest, RemoveSnapshotReply, RemoveSnapshotRequest,
    RollBackVolumeReply, RollBackVolumeRequest, SetSnapshotPolicyReply, SetSnapshotPolicyRequest,
    SetVolumeDeduplicationReply, SetVolumeDeduplicationRequest, SetVolumePolicyReply, SetVolumePolicyRequest,
    StartCheckReply, StartCheckRequest, StopCheckReply, StopCheckRequest,
};
use base::{AbortCode, Caller};

impl cellar::Server for AdminServer {
    fn get_server_info(
        &self,
        caller: &Caller,
        _: GetServerInfoRequest,
    ) -> Result<GetServerInfoReply, AbortCode> {
        Ok(self.server_info(caller))
    }

    fn get_transport(
        &self,
        caller: &Caller,
        _: cellar::GetTransportRequest,
    ) -> Result<cellar::GetTransportReply, AbortCode> {
        self.check_verified(caller)?;
        self.transport_call()
    }

    fn get_volume_policy(
        &self,
        caller: &Caller,
        request: GetVolumePolicyRequest,
    ) -> Result<GetVolumePolicyReply, AbortCode> {
        self.check_verified(caller)?;
        self.volume_policy(request)
    }

    fn set_volume_policy(
        &self,
        caller: &Caller,
        request: SetVolumePolicyRequest,
    ) -> Result<SetVolumePolicyReply, AbortCode> {
        AdminServer::set_volume_policy(self, caller, &request)
    }

    fn get_volume_deduplication(
        &self,
        caller: &Caller,
        request: GetVolumeDeduplicationRequest,
    ) -> Result<GetVolumeDeduplicationReply, AbortCode> {
        self.check_verified(caller)?;
        self.volume_deduplication(request)
    }

    fn set_volume_deduplication(
        &self,
        caller: &Caller,
        request: SetVolumeDeduplicationRequest,
    ) -> Result<SetVolumeDeduplicationReply, AbortCode> {
        AdminServer::set_volume_deduplication(self, caller, request)
    }

    fn get_deduplication(
        &self,
        caller: &Caller,
        _: GetDeduplicationRequest,
    ) -> Result<GetDeduplicationReply, AbortCode> {
        self.check_verified(caller)?;
        Ok(self.deduplication())
    }

    fn create_snapshot(
        &self,
        caller: &Caller,
        request: CreateSnapshotRequest,
    ) -> Result<CreateSnapshotReply, AbortCode> {
        self.administer(caller, "CreateSnapshot")?;
        self.create_snapshot_call(&request)
    }

    fn list_snapshots(
        &self,
        caller: &Caller,
        request: ListSnapshotsRequest,
    ) -> Result<ListSnapshotsReply, AbortCode> {
        self.check_verified(caller)?;
        self.list_snapshots_call(request.volume, request.skip)
    }

    fn get_snapshot_space(
        &self,
        caller: &Caller,
        request: GetSnapshotSpaceRequest,
    ) -> Result<GetSnapshotSpaceReply, AbortCode> {
        // For administrators only, since it walks all records that the snapshot shares.
        self.administer(caller, "GetSnapshotSpace")?;
        self.snapshot_space(&self.find_snapshot(request.volume, &request.name)?)
    }

    fn remove_snapshot(
        &self,
        caller: &Caller,
        request: RemoveSnapshotRequest,
    ) -> Result<RemoveSnapshotReply, AbortCode> {
        self.administer(caller, "RemoveSnapshot")?;
        self.remove_one(&self.find_snapshot(request.volume, &request.name)?)?;
        Ok(RemoveSnapshotReply)
    }

    fn roll_back_volume(
        &self,
        caller: &Caller,
        request: RollBackVolumeRequest,
    ) -> Result<RollBackVolumeReply, AbortCode> {
        self.administer(caller, "RollBackVolume")?;
        self.roll_back(&self.find_snapshot(request.volume, &request.name)?)?;
        Ok(RollBackVolumeReply)
    }

    fn get_snapshot_policy(
        &self,
        caller: &Caller,
        request: GetSnapshotPolicyRequest,
    ) -> Result<GetSnapshotPolicyReply, AbortCode> {
        self.check_verified(caller)?;
        Ok(GetSnapshotPolicyReply { policy: self.snapshot_policy(request.volume)? })
    }

    fn set_snapshot_policy(
        &self,
        caller: &Caller,
        request: SetSnapshotPolicyRequest,
    ) -> Result<SetSnapshotPolicyReply, AbortCode> {
        self.administer(caller, "SetSnapshotPolicy")?;
        self.set_snapshot_policy_call(request.volume, &request.policy)?;
        Ok(SetSnapshotPolicyReply)
    }

    fn get_directory_totals(
        &self,
        caller: &Caller,
        request: GetDirectoryTotalsRequest,
    ) -> Result<GetDirectoryTotalsReply, AbortCode> {
        self.directory_totals(caller, &request)
    }

    fn list_subdirectories(
        &self,
        caller: &Caller,
        request: ListSubdirectoriesRequest,
    ) -> Result<ListSubdirectoriesReply, AbortCode> {
        self.subdirectories(caller, &request)
    }

    fn get_cache_statistics(
        &self,
        caller: &Caller,
        _: GetCacheStatisticsRequest,
    ) -> Result<GetCacheStatisticsReply, AbortCode> {
        self.check_verified(caller)?;
        Ok(self.cache_statistics())
    }

    fn purge_volume_cache(
        &self,
        caller: &Caller,
        request: PurgeVolumeCacheRequest,
    ) -> Result<PurgeVolumeCacheReply, AbortCode> {
        self.purge_cache(caller, request)
    }

    fn start_check(&self, caller: &Caller, request: StartCheckRequest) -> Result<StartCheckReply, AbortCode> {
        AdminServer::start_check(self, caller, request).map(|()| StartCheckReply)
    }

    fn get_check(&self, caller: &Caller, request: GetCheckRequest) -> Result<GetCheckReply, AbortCode> {
        self.check_state(caller, request)
    }

    fn get_check_damages(
        &self,
        caller: &Caller,
        request: GetCheckDamagesRequest,
    ) -> Result<GetCheckDamagesReply, AbortCode> {
        self.check_damages(caller, request)
    }

    fn get_damaged_places(
        &self,
        caller: &Caller,
        request: cellar::GetDamagedPlacesRequest,
    ) -> Result<cellar::GetDamagedPlacesReply, AbortCode> {
        self.damaged_places(caller, request)
    }

    fn stop_check(&self, caller: &Caller, request: StopCheckRequest) -> Result<StopCheckReply, AbortCode> {
        AdminServer::stop_check(self, caller, request).map(|()| StopCheckReply)
    }

    fn get_figures(&self, caller: &Caller, request: GetFiguresRequest) -> Result<GetFiguresReply, AbortCode> {
        self.figures(caller, request)
    }

    fn get_slow_calls(
        &self,
        caller: &Caller,
        request: GetSlowCallsRequest,
    ) -> Result<GetSlowCallsReply, AbortCode> {
        self.slow_calls(caller, request)
    }

    fn set_logged_events(
        &self,
        caller: &Caller,
        request: cellar::SetLoggedEventsRequest,
    ) -> Result<cellar::SetLoggedEventsReply, AbortCode> {
        self.choose_events(caller, &request)
    }

    fn list_jobs(
        &self,
        caller: &Caller,
        request: cellar::ListJobsRequest,
    ) -> Result<cellar::ListJobsReply, AbortCode> {
        self.list_jobs_call(caller, request)
    }

    fn get_job(
        &self,
        caller: &Caller,
        request: cellar::GetJobRequest,
    ) -> Result<cellar::GetJobReply, AbortCode> {
        self.get_job_call(caller, request)
    }

    fn cancel_job(
        &self,
        caller: &Caller,
        request: cellar::CancelJobRequest,
    ) -> Result<cellar::CancelJobReply, AbortCode> {
        self.cancel_job_call(caller, request)
    }

    fn resume_job(
        &self,
        caller: &Caller,
        request: cellar::ResumeJobRequest,
    ) -> Result<cellar::ResumeJobReply, AbortCode> {
        self.resume_job_call(caller, request)
    }

    fn start_profile(
        &self,
        caller: &Caller,
        request: cellar::StartProfileRequest,
    ) -> Result<cellar::StartProfileReply, AbortCode> {
        self.start_profile_call(caller, request)
    }

    fn get_profile(
        &self,
        caller: &Caller,
        request: cellar::GetProfileRequest,
    ) -> Result<cellar::GetProfileReply, AbortCode> {
        self.get_profile_call(caller, request)
    }

    fn stop_profile(
        &self,
        caller: &Caller,
        request: cellar::StopProfileRequest,
    ) -> Result<cellar::StopProfileReply, AbortCode> {
        self.stop_profile_call(caller, request)
    }

    fn fetch_profile(
        &self,
        caller: &Caller,
        request: cellar::FetchProfileRequest,
    ) -> Result<cellar::FetchProfileReply, AbortCode> {
        self.fetch_profile_call(caller, request)
    }
}
