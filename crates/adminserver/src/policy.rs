//! Policies of volumes: how their data is stored.

use crate::AdminServer;
use afs_idl::cellar::{
    GetVolumePolicyReply, GetVolumePolicyRequest, SetVolumePolicyReply, SetVolumePolicyRequest,
};
use base::{AbortCode, Caller, VolumeId};
use std::sync::Arc;
use volume::{Volume, VolumeError};

impl AdminServer {
    /// GetVolumePolicy (300).
    pub(crate) fn volume_policy(
        &self,
        request: GetVolumePolicyRequest,
    ) -> Result<GetVolumePolicyReply, AbortCode> {
        let volume = self.volume(request.volume)?;
        let own = volume.header().compression.map(|codec| codec.to_string());
        let effective = volume.compression().to_string();
        Ok(GetVolumePolicyReply {
            compression: own.unwrap_or_default().as_str().into(),
            effective: effective.as_str().into(),
        })
    }

    /// SetVolumePolicy (301).
    pub(crate) fn set_volume_policy(
        &self,
        caller: &Caller,
        request: &SetVolumePolicyRequest,
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

    fn volume(&self, id: u32) -> Result<Arc<Volume>, AbortCode> {
        self.parts.volumes.get_any_state(VolumeId(id)).map_err(|error: VolumeError| error.abort_code())
    }
}
