//! The procedures: access control, and dispatch to their implementations.

use crate::dumping::{self, Extract};
use crate::reading::Source;
use crate::server::VolumeServer;
use crate::{
    changing, cloning, creating, digesting, forwarding, listing, partitions, restoring, splitting, taking,
};
use afs_idl::{CallStream, ReplyWriter, cellar, vol};
use base::{AbortCode, Caller, UnixTime, VolumeId};

impl vol::Server for VolumeServer {
    fn create_volume(
        &self,
        caller: &Caller,
        request: vol::CreateVolumeRequest,
    ) -> Result<vol::CreateVolumeReply, AbortCode> {
        self.administer(caller, "CreateVolume")?;
        creating::create(self, &request)
    }

    fn delete_volume(
        &self,
        caller: &Caller,
        request: vol::DeleteVolumeRequest,
    ) -> Result<vol::DeleteVolumeReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "DeleteVolume")?;
        creating::delete(self, &used, &volume)?;
        Ok(vol::DeleteVolumeReply)
    }

    fn nuke_volume(
        &self,
        caller: &Caller,
        request: vol::NukeVolumeRequest,
    ) -> Result<vol::NukeVolumeReply, AbortCode> {
        self.administer(caller, "NukeVolume")?;
        creating::nuke(self, request)?;
        Ok(vol::NukeVolumeReply)
    }

    fn trans_create(
        &self,
        caller: &Caller,
        request: vol::TransCreateRequest,
    ) -> Result<vol::TransCreateReply, AbortCode> {
        self.administer(caller, "TransCreate")?;
        Ok(vol::TransCreateReply { transaction: creating::open(self, &request)? })
    }

    fn end_trans(
        &self,
        caller: &Caller,
        request: vol::EndTransRequest,
    ) -> Result<vol::EndTransReply, AbortCode> {
        self.administer(caller, "EndTrans")?;
        creating::end(self, request.transaction)?;
        Ok(vol::EndTransReply { code: 0 })
    }

    fn clone_volume(
        &self,
        caller: &Caller,
        request: vol::CloneVolumeRequest,
    ) -> Result<vol::CloneVolumeReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "Clone")?;
        cloning::clone(self, &volume, &request)?;
        Ok(vol::CloneVolumeReply { new_volume_id: request.new_volume_id })
    }

    fn re_clone(
        &self,
        caller: &Caller,
        request: vol::ReCloneRequest,
    ) -> Result<vol::ReCloneReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "ReClone")?;
        cloning::reclone(self, &volume, VolumeId(request.clone_id))?;
        Ok(vol::ReCloneReply)
    }

    fn convert_ro_to_rw_volume(
        &self,
        caller: &Caller,
        request: vol::ConvertRoToRwVolumeRequest,
    ) -> Result<vol::ConvertRoToRwVolumeReply, AbortCode> {
        self.administer(caller, "ConvertROtoRW")?;
        cloning::convert(self, request)?;
        Ok(vol::ConvertRoToRwVolumeReply)
    }

    fn dump(
        &self,
        caller: &Caller,
        request: vol::DumpRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::DumpReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "Dump")?;
        let extract = Extract { since: UnixTime(request.from_date), all_directories: true };
        dumping::dump(&volume, extract, Source::alone(&volume), stream, None)?;
        Ok(vol::DumpReply)
    }

    fn dump_v2(
        &self,
        caller: &Caller,
        request: vol::DumpV2Request,
        stream: &mut dyn CallStream,
    ) -> Result<vol::DumpV2Reply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "Dump")?;
        let all_directories = request.flags & vol::dump_flags::OMIT_DIRECTORIES == 0;
        let extract = Extract { since: UnixTime(request.from_date), all_directories };
        dumping::dump(&volume, extract, Source::alone(&volume), stream, None)?;
        Ok(vol::DumpV2Reply)
    }

    fn get_size(
        &self,
        caller: &Caller,
        request: vol::GetSizeRequest,
    ) -> Result<vol::GetSizeReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "GetSize")?;
        let extract = Extract { since: UnixTime(request.from_date), all_directories: true };
        let dump_size = dumping::size(&volume, extract)?;
        Ok(vol::GetSizeReply { size: vol::VolintSize { dump_size } })
    }

    fn restore(
        &self,
        caller: &Caller,
        request: vol::RestoreRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::RestoreReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Restore")?;
        restoring::restore(self, &used, &volume, &request.cookie, stream)?;
        Ok(vol::RestoreReply)
    }

    fn forward(&self, caller: &Caller, request: vol::ForwardRequest) -> Result<vol::ForwardReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Forward")?;
        forwarding::forward(self, &used, &volume, &request)?;
        Ok(vol::ForwardReply)
    }

    fn forward_multiple(
        &self,
        caller: &Caller,
        request: vol::ForwardMultipleRequest,
    ) -> Result<vol::ForwardMultipleReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "ForwardMulti")?;
        Ok(vol::ForwardMultipleReply {
            results: forwarding::forward_multiple(self, &used, &volume, &request)?,
        })
    }

    fn get_flags(
        &self,
        caller: &Caller,
        request: vol::GetFlagsRequest,
    ) -> Result<vol::GetFlagsReply, AbortCode> {
        let (flags, _) = self.query(caller, request.transaction, "GetFlags")?;
        Ok(vol::GetFlagsReply { flags })
    }

    fn set_flags(
        &self,
        caller: &Caller,
        request: vol::SetFlagsRequest,
    ) -> Result<vol::SetFlagsReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "SetFlags")?;
        changing::set_flags(&used, &volume, request.flags)?;
        Ok(vol::SetFlagsReply)
    }

    fn set_forwarding(
        &self,
        caller: &Caller,
        request: vol::SetForwardingRequest,
    ) -> Result<vol::SetForwardingReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "SetForwarding")?;
        changing::set_forwarding(&used, &volume);
        Ok(vol::SetForwardingReply)
    }

    fn get_name(
        &self,
        caller: &Caller,
        request: vol::GetNameRequest,
    ) -> Result<vol::GetNameReply, AbortCode> {
        let (_, volume) = self.query(caller, request.transaction, "GetName")?;
        Ok(vol::GetNameReply { name: volume.header().name.as_str().into() })
    }

    fn get_status(
        &self,
        caller: &Caller,
        request: vol::GetStatusRequest,
    ) -> Result<vol::GetStatusReply, AbortCode> {
        let (_, volume) = self.query(caller, request.transaction, "GetStatus")?;
        Ok(vol::GetStatusReply { status: listing::status(&volume.header()) })
    }

    fn set_info(
        &self,
        caller: &Caller,
        request: vol::SetInfoRequest,
    ) -> Result<vol::SetInfoReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "SetStatus")?;
        changing::set_info(&volume, &request.info)?;
        Ok(vol::SetInfoReply)
    }

    fn set_date(
        &self,
        caller: &Caller,
        request: vol::SetDateRequest,
    ) -> Result<vol::SetDateReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "SetDate")?;
        changing::set_date(&volume, request.new_date)?;
        Ok(vol::SetDateReply)
    }

    fn set_ids_types(
        &self,
        caller: &Caller,
        request: vol::SetIdsTypesRequest,
    ) -> Result<vol::SetIdsTypesReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "SetIdsTypes")?;
        changing::set_ids_types(&volume, &request)?;
        Ok(vol::SetIdsTypesReply)
    }

    fn get_nth_volume(
        &self,
        _: &Caller,
        _: vol::GetNthVolumeRequest,
    ) -> Result<vol::GetNthVolumeReply, AbortCode> {
        // OpenAFS never implemented it either, and no client uses it.
        Err(AbortCode::VOLSERNO_OP)
    }

    fn signal_restore(
        &self,
        _: &Caller,
        _: vol::SignalRestoreRequest,
    ) -> Result<vol::SignalRestoreReply, AbortCode> {
        Ok(vol::SignalRestoreReply)
    }

    fn monitor(&self, caller: &Caller, _: vol::MonitorRequest) -> Result<vol::MonitorReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::MonitorReply { transactions: self.transactions().monitor() })
    }

    fn list_volumes(
        &self,
        caller: &Caller,
        request: vol::ListVolumesRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        self.check_query(caller)?;
        listing::write_all::<vol::VolintInfo>(self, request.partition, request.flags, reply)
    }

    fn x_list_volumes(
        &self,
        caller: &Caller,
        request: vol::XListVolumesRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        self.check_query(caller)?;
        listing::write_all::<vol::VolintXInfo>(self, request.partition, request.flags, reply)
    }

    fn list_one_volume(
        &self,
        caller: &Caller,
        request: vol::ListOneVolumeRequest,
    ) -> Result<vol::ListOneVolumeReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::ListOneVolumeReply { entries: listing::one(self, request.partition, request.volume_id)? })
    }

    fn x_list_one_volume(
        &self,
        caller: &Caller,
        request: vol::XListOneVolumeRequest,
    ) -> Result<vol::XListOneVolumeReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::XListOneVolumeReply { entries: listing::one(self, request.partition, request.volume_id)? })
    }

    fn list_partitions(
        &self,
        caller: &Caller,
        _: vol::ListPartitionsRequest,
    ) -> Result<vol::ListPartitionsReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::ListPartitionsReply { partitions: partitions::first_26(self) })
    }

    fn x_list_partitions(
        &self,
        caller: &Caller,
        _: vol::XListPartitionsRequest,
    ) -> Result<vol::XListPartitionsReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::XListPartitionsReply { partitions: partitions::all(self) })
    }

    fn partition_info(
        &self,
        caller: &Caller,
        request: vol::PartitionInfoRequest,
    ) -> Result<vol::PartitionInfoReply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::PartitionInfoReply { partition: partitions::narrow_information(self, &request.name)? })
    }

    fn split_volume(
        &self,
        caller: &Caller,
        request: vol::SplitVolumeRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::SplitVolumeReply, AbortCode> {
        splitting::split(self, caller, request, stream)?;
        Ok(vol::SplitVolumeReply)
    }

    fn partition_info64(
        &self,
        caller: &Caller,
        request: vol::PartitionInfo64Request,
    ) -> Result<vol::PartitionInfo64Reply, AbortCode> {
        self.check_query(caller)?;
        Ok(vol::PartitionInfo64Reply { partition: partitions::information(self, &request.name)? })
    }
}

/// Calls between Cellar servers, and calls for monitoring them.
impl cellar::Server for VolumeServer {
    fn list_transfers(
        &self,
        caller: &Caller,
        _: cellar::ListTransfersRequest,
    ) -> Result<cellar::ListTransfersReply, AbortCode> {
        // Called every second while a job is being watched.
        self.administer_quietly(caller, "ListTransfers")?;
        Ok(cellar::ListTransfersReply { transfers: self.sent() })
    }

    fn offer_volume(
        &self,
        caller: &Caller,
        request: cellar::OfferVolumeRequest,
    ) -> Result<cellar::OfferVolumeReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Restore")?;
        Ok(cellar::OfferVolumeReply { vnodes: taking::vnodes(self, &used, &volume)? })
    }

    fn get_chunk_digests(
        &self,
        caller: &Caller,
        request: cellar::GetChunkDigestsRequest,
    ) -> Result<cellar::GetChunkDigestsReply, AbortCode> {
        // Called thousands of times during a transfer, which is audited itself.
        let (used, volume) = self.change_quietly(caller, request.transaction, "Restore")?;
        Ok(cellar::GetChunkDigestsReply { digests: taking::digests(self, &used, &volume, &request.ranges)? })
    }

    fn take_volume(
        &self,
        caller: &Caller,
        request: cellar::TakeVolumeRequest,
        stream: &mut dyn CallStream,
    ) -> Result<cellar::TakeVolumeReply, AbortCode> {
        let (used, volume) = self.change(caller, request.transaction, "Restore")?;
        taking::take(self, &used, &volume, &request, stream)?;
        Ok(cellar::TakeVolumeReply)
    }

    fn digest_contents(
        &self,
        caller: &Caller,
        request: cellar::DigestContentsRequest,
    ) -> Result<cellar::DigestContentsReply, AbortCode> {
        // Called repeatedly until the digest is complete.
        let (used, volume) = self.change_quietly(caller, request.transaction, "Dump")?;
        digesting::digest(&used, &volume)
    }
}
