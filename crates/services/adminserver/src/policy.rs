//! Policies of volumes: how their data is stored.

use crate::AdminServer;
use afs_idl::cellar::{
    DeduplicationFigures, GetDeduplicationReply, GetDeduplicationRequest, GetVolumeDeduplicationReply,
    GetVolumeDeduplicationRequest, GetVolumePolicyReply, GetVolumePolicyRequest, SetVolumeDeduplicationReply,
    SetVolumeDeduplicationRequest, SetVolumePolicyReply, SetVolumePolicyRequest,
};
use base::{AbortCode, Caller, VolumeId};
use std::sync::Arc;
use volume::{Volume, VolumeError};

impl AdminServer {
    /// GetVolumePolicy (opcode 300).
    pub(crate) fn get_volume_policy(
        &self,
        caller: &Caller,
        request: GetVolumePolicyRequest,
    ) -> Result<GetVolumePolicyReply, AbortCode> {
        self.check_verified(caller)?;
        let volume = self.volume(request.volume)?;
        let own = volume.header().compression.map(|codec| codec.to_string());
        let effective = volume.compression().to_string();
        Ok(GetVolumePolicyReply {
            compression: own.unwrap_or_default().as_str().into(),
            effective: effective.as_str().into(),
        })
    }

    /// SetVolumePolicy (opcode 301).
    pub(crate) fn set_volume_policy(
        &self,
        caller: &Caller,
        request: SetVolumePolicyRequest,
    ) -> Result<SetVolumePolicyReply, AbortCode> {
        let text = request.compression.to_string();
        self.administer(caller, &format!("SetVolumePolicy {} `{}`", request.volume, text.escape_debug()))?;
        let compression = match text.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| AbortCode::UAEINVAL)?),
        };
        let changed = self.volume(request.volume)?.update_header(|header| header.compression = compression);
        changed.map(|_| SetVolumePolicyReply).map_err(|error| error.abort_code())
    }

    /// GetVolumeDeduplication (opcode 302).
    pub(crate) fn get_volume_deduplication(
        &self,
        caller: &Caller,
        request: GetVolumeDeduplicationRequest,
    ) -> Result<GetVolumeDeduplicationReply, AbortCode> {
        self.check_verified(caller)?;
        Ok(GetVolumeDeduplicationReply { enabled: self.volume(request.volume)?.deduplicates().into() })
    }

    /// SetVolumeDeduplication (opcode 303).
    pub(crate) fn set_volume_deduplication(
        &self,
        caller: &Caller,
        request: SetVolumeDeduplicationRequest,
    ) -> Result<SetVolumeDeduplicationReply, AbortCode> {
        let SetVolumeDeduplicationRequest { volume, enabled } = request;
        self.administer(caller, &format!("SetVolumeDeduplication {volume} {enabled}"))?;
        let deduplicates = match enabled {
            0 => false,
            1 => true,
            _ => return Err(AbortCode::UAEINVAL),
        };
        let changed = self.volume(volume)?.update_header(|header| header.deduplicates = deduplicates);
        changed.map(|_| SetVolumeDeduplicationReply).map_err(|error| error.abort_code())
    }

    /// GetDeduplication (opcode 304). Partitions without this information are left out.
    pub(crate) fn get_deduplication(
        &self,
        caller: &Caller,
        _: GetDeduplicationRequest,
    ) -> Result<GetDeduplicationReply, AbortCode> {
        self.check_verified(caller)?;
        let volumes = &self.parts.volumes;
        let figures = volumes.partitions().into_iter().filter_map(|partition| {
            let of = volumes.deduplication(partition).ok()?;
            Some(DeduplicationFigures {
                partition: partition.index(),
                chunks: of.chunks,
                shared_chunks: of.shared_chunks,
                names: of.names,
                stored_bytes: of.stored_bytes,
                saved_bytes: of.saved_bytes,
                row_bytes: of.row_bytes,
                memory_bytes: of.memory_bytes,
            })
        });
        Ok(GetDeduplicationReply { partitions: figures.collect() })
    }

    fn volume(&self, id: u32) -> Result<Arc<Volume>, AbortCode> {
        self.parts.volumes.get_any_state(VolumeId(id)).map_err(|error: VolumeError| error.abort_code())
    }
}
