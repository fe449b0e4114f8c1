//! Calls about whole volumes: GetVolumeStatus, SetVolumeStatus, GetVolumeInfo.

use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::Need;
use crate::wire::blocks;
use afs_idl::fs as rxafs;
use base::{AbortCode, CallContext, Fid, VolumeId, VolumeName, VolumeType};
use volume::{InCall, VolumeHeader};
use xdr::XdrString;

/// Volume type in AFSFetchVolumeStatus of a writable volume.
const READ_WRITE: i32 = 1;

/// Marks in VolumeInfo that this server also supports newer calls.
const NEW_LOCATION_SERVICE: u32 = 0xabcd_9999;

/// Whether clients may change the volume's contents.
pub(crate) fn is_writable(kind: VolumeType) -> bool {
    kind == VolumeType::ReadWrite
}

fn root(volume_id: u32) -> Result<rxafs::Fid, AbortCode> {
    if volume_id == 0 { Err(AbortCode::UAEINVAL) } else { Ok(Fid::root(VolumeId(volume_id)).into()) }
}

impl FileCall<'_> {
    /// GetVolumeStatus (149), open to all callers.
    pub(crate) fn get_volume_status(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::GetVolumeStatusRequest,
    ) -> Result<rxafs::GetVolumeStatusReply, AbortCode> {
        self.call(caller, Operation::GetVolumeStatus, |session| {
            let view = session.view(root(request.volume_id)?, Need::Directory)?;
            let header = view.volume.header();
            Ok(rxafs::GetVolumeStatusReply {
                status: self.volume_status(&view.volume)?,
                name: XdrString::from(header.name.as_str()),
                offline_message: XdrString::from(header.offline_message),
                message_of_the_day: XdrString::default(),
            })
        })
    }

    fn volume_status(&self, volume: &InCall<'_>) -> Result<rxafs::FetchVolumeStatus, AbortCode> {
        let header = volume.header();
        let space = self.server.volumes().space(volume.partition())?;
        Ok(rxafs::FetchVolumeStatus {
            volume_id: header.id.0,
            parent_id: header.parent.0,
            online: 1,
            in_service: header.in_service.into(),
            blessed: header.blessed.into(),
            needs_salvage: 0,
            volume_type: if is_writable(volume.kind()) { READ_WRITE } else { 0 },
            min_quota: blocks(header.quota_min_kib),
            max_quota: blocks(header.quota_max_kib),
            blocks_in_use: blocks(header.used_kib),
            partition_blocks_available: blocks(space.free_kib),
            partition_blocks_max: blocks(space.total_kib),
        })
    }

    /// SetVolumeStatus (150): quota, name and message, for administrators.
    pub(crate) fn set_volume_status(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::SetVolumeStatusRequest,
    ) -> Result<rxafs::SetVolumeStatusReply, AbortCode> {
        self.call(caller, Operation::SetVolumeStatus, |session| {
            let view = session.view(root(request.volume_id)?, Need::Directory)?;
            if !session.subject.administrator {
                return Err(AbortCode::UAEACCES);
            }
            let name = new_name(&request.name)?;
            let change = |header: &mut VolumeHeader| {
                let status = &request.status;
                let quota = |kib: i32| u64::try_from(kib).unwrap_or(0);
                if status.mask & rxafs::volume_status_mask::MIN_QUOTA != 0 {
                    header.quota_min_kib = quota(status.min_quota);
                }
                if status.mask & rxafs::volume_status_mask::MAX_QUOTA != 0 {
                    header.quota_max_kib = quota(status.max_quota);
                }
                if !request.offline_message.as_bytes().is_empty() {
                    header.offline_message = request.offline_message.as_bytes().to_vec();
                }
                if let Some(name) = name {
                    header.name = name;
                }
            };
            view.volume.change(|volume| volume.update_header_in_service(change))?;
            Ok(rxafs::SetVolumeStatusReply)
        })
    }

    /// GetVolumeInfo (148): the location of a volume, from the time before location servers.
    pub(crate) fn get_volume_info(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::GetVolumeInfoRequest,
    ) -> Result<rxafs::GetVolumeInfoReply, AbortCode> {
        self.call(caller, Operation::GetVolumeInfo, |_| {
            let locator = self.server.locator().ok_or(AbortCode::VL_NOENT)?;
            let mut info = locator.locate(request.volume_name.as_bytes())?;
            info.type_ids[4] = NEW_LOCATION_SERVICE;
            Ok(rxafs::GetVolumeInfoReply { info })
        })
    }
}

/// Parses a new volume name. An empty one leaves the name unchanged.
fn new_name(name: &XdrString) -> Result<Option<VolumeName>, AbortCode> {
    if name.as_bytes().is_empty() {
        return Ok(None);
    }
    let name = name.as_str().and_then(|name| name.parse().ok());
    name.map(Some).ok_or(AbortCode::UAEINVAL)
}
